// Runs forward passes of a llama-family decoder over the rows of a batch.
//
// Architectures differ by options and by which tensors exist. Every row is computed by functions of that row alone.
// Threads divide columns, rows or attention tasks among themselves; they never split a reduction, except at attention's
// chunk borders.
#pragma once

#include <memory>
#include <vector>

#include "decoder/attention_plan.hpp"
#include "decoder/batch.hpp"
#include "decoder/decoder_config.hpp"
#include "decoder/kept_rows.hpp"
#include "decoder/kv_store.hpp"
#include "decoder/output_layer.hpp"
#include "paceline/kernel_table.hpp"
#include "paceline/thread_pool.hpp"

namespace paceline {

class Decoder {
 public:
  // `threads` may serve other decoders too, one call at a time.
  Decoder(DecoderConfig config, std::shared_ptr<ThreadPool> threads, const KernelTable& kernels);

  // Loading. All but set_embedding copy (and repack) what they are given. All but set_vector check it, and throw
  // std::invalid_argument for a wrong size or type. If `packed_type` is not the weights' own type, it must be Q4_0, and
  // they are rounded to it.
  void set_matrix(int64_t layer, Matrix role, const WeightRows& rows, int64_t outputs, int64_t inputs,
                  GgmlType packed_type);
  void set_vector(int64_t layer, Vector role, const float* data, int64_t size);
  // `rows.selected` names the tokens that always get logits (empty: all do). Tokens that forward passes have read
  // recently get logits too; all others get minus infinity. With selected rows, the data must stay as long as the
  // decoder.
  void set_output(const WeightRows& rows, int64_t inputs, GgmlType packed_type);
  void set_output_norm(const float* data, int64_t size);
  // The data must stay as long as the decoder.
  void set_embedding(GgmlType type, const uint8_t* data, int64_t size_bytes);

  // Computes the batch and returns logits [logit_rows][vocab_size], valid until the next call. With fewer layers than
  // the model has, the output layer follows the first `num_layers`, and K and V of the other layers stay as they are.
  // The next whole pass skips these layers for the rows that it shares with such passes since the last whole one.
  // Throws std::invalid_argument for a batch that points outside of vocabulary, positions, slots or block tables.
  const float* forward(const Batch& batch, int64_t num_layers);

  const DecoderConfig& config() const { return config_; }
  const KernelTable& kernels() const { return kernels_; }
  const KvStore& kv() const { return kv_; }
  // For changes from outside; drops the kept rows.
  KvStore& changed_kv() {
    kept_ = {};
    return kv_;
  }
  int64_t weight_bytes() const;
  // Returns how many rows of whole passes have skipped the first layers since the decoder was made.
  int64_t num_resumed_rows() const { return num_resumed_rows_; }

 private:
  struct RopeTable {
    std::vector<float> cosine, sine;  // [max_positions][head_dim / 2]
  };
  // Buffers of a forward pass, which hold one row after another. They grow to the largest batch seen.
  struct Workspace {
    AlignedBuffer hidden, normed, query, key, value, attention, gate, up, projected, logits, some_logits;
    AlignedBuffer rounded_planes[2], rounded_scales, rounded_sums, rounded_flags, rounded_high_quads;
  };

  void fill_rope_tables();
  void reserve(int64_t num_rows, int64_t num_logit_rows);
  void check(const Batch& batch) const;
  void embed(const Batch& batch);
  void run_layers(const Batch& batch, int64_t begin, int64_t end);
  void run_last_layer(const Batch& batch, int64_t layer);
  int64_t resume(const Batch& batch, const KeptRows& kept);
  void project_query_key_value(const Batch& batch, int64_t layer);
  void attend(const Batch& batch, int64_t layer);
  void feed_forward_layer(int64_t num_rows, int64_t layer);
  void finish_query_key_value(const Batch& batch, int64_t layer, int64_t row, const KvView& view);
  void rotate(float* heads, int64_t num_heads, int64_t rope, int64_t position) const;
  void project_logits(int64_t num_logit_rows);
  void add_residual(float* rows, int64_t num_rows, const float* post_norm);
  ActivationRounding normed_rounding() const;
  QuantizedRows rounded_rows(int64_t num_rows, int64_t inputs, ActivationRounding rounding);
  void pack(PackedMatrix& matrix, const WeightRows& rows);
  void admit_outputs(const Batch& batch);
  void spread_logits(int64_t num_logit_rows);

  // Computes out = rows times matrix for each product; all products share their input. make_row(row) writes a row,
  // which is rounded while it is in cache. It does nothing if the rows exist already.
  struct Product {
    const PackedMatrix* matrix;
    float* out;
  };
  template <class MakeRow>
  void multiply(const float* rows, int64_t num_rows, ActivationRounding rounding, std::initializer_list<Product> products,
                MakeRow make_row);
  void multiply_normed(int64_t num_rows, const float* norm, std::initializer_list<Product> products);

  DecoderConfig config_;
  const KernelTable& kernels_;
  std::shared_ptr<ThreadPool> shared_pool_;
  ThreadPool& pool_;
  KvStore kv_;
  WeightArena weight_memory_;
  std::vector<LayerWeights> layers_;
  std::vector<float> output_norm_;
  OutputLayer output_;
  EmbeddingTable embedding_;
  std::vector<RopeTable> rope_tables_;
  Workspace work_;
  AttentionPlan attention_plan_;
  KeptRows kept_;
  int64_t num_resumed_rows_ = 0;
};

}  // namespace paceline
