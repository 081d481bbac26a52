// Sizes, options and weights of a llama-family decoder; parts that an architecture does not have are empty.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "decoder/kv_store.hpp"
#include "paceline/activations.hpp"
#include "paceline/packed_matrix.hpp"

namespace paceline {

enum class Activation { kSilu, kGelu };
enum class RopeStyle { kNormal, kNeox };

struct LayerOptions {
  int64_t rope_table = 0;      // index into DecoderConfig::ropes
  int64_t sliding_window = 0;  // visible positions, the row's own included; 0 means all
};

struct RopeOptions {
  RopeStyle style = RopeStyle::kNormal;
  std::vector<double> inverse_frequencies;  // [head_dim / 2]
  double magnitude = 1.0;
};

struct DecoderConfig {
  int64_t hidden_size = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;  // a multiple of 16
  int64_t ffn_size = 0;
  int64_t vocab_size = 0;
  int64_t max_positions = 0;
  float norm_epsilon = 0.0F;
  float attention_scale = 0.0F;
  float embedding_scale = 1.0F;
  Activation activation = Activation::kSilu;
  KvCacheType kv_cache_type = KvCacheType::kF16;
  ActivationRounding activation_rounding = ActivationRounding::kEightBits;  // for products with quantized weights
  std::vector<RopeOptions> ropes;
  std::vector<LayerOptions> layers;

  int64_t num_layers() const { return static_cast<int64_t>(layers.size()); }
  int64_t query_size() const { return num_heads * head_dim; }
  int64_t kv_size() const { return num_kv_heads * head_dim; }
};

enum class Matrix { kQuery, kKey, kValue, kAttentionOutput, kGate, kUp, kDown, kCount };
enum class Vector {
  kAttentionNorm,
  kQueryBias,
  kKeyBias,
  kValueBias,
  kQueryNorm,
  kKeyNorm,
  kPostAttentionNorm,
  kFfnNorm,
  kPostFfnNorm,
  kCount
};

struct LayerWeights {
  std::array<PackedMatrix, static_cast<size_t>(Matrix::kCount)> matrices;
  std::array<std::vector<float>, static_cast<size_t>(Vector::kCount)> vectors;

  const PackedMatrix& operator[](Matrix role) const { return matrices[static_cast<size_t>(role)]; }
  // Null where the architecture has no such vector.
  const float* operator[](Vector role) const {
    const std::vector<float>& values = vectors[static_cast<size_t>(role)];
    return values.empty() ? nullptr : values.data();
  }
};

struct EmbeddingTable {
  GgmlType type = GgmlType::kF32;
  const uint8_t* data = nullptr;  // [vocab_size][row_bytes], as in the file; kept alive by the owner of the decoder
};

}  // namespace paceline
