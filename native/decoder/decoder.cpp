#include "decoder/decoder.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

namespace paceline {
namespace {

constexpr int64_t kPackGrain = 64;
constexpr int64_t kFewRows = 16;
constexpr int64_t kFewRowsGrain = 2;  // column blocks; with more rows, whole strips
constexpr float kNoLogit = -std::numeric_limits<float>::infinity();

void require(bool condition, const char* message) {
  if (!condition) throw std::invalid_argument(message);
}

void require_in_range(std::span<const int32_t> values, int64_t limit, const char* message) {
  for (const int32_t value : values) require(value >= 0 && value < limit, message);
}

void check_packed_type(GgmlType type, GgmlType packed_type) {
  require(packed_type == type || packed_type == GgmlType::kQ4_0, "weights can only be rounded to Q4_0");
}

// Keeps in `rows` ([rows][size]) only the rows that `wanted` names, in that order; `spare` is a buffer of the same
// size.
void take_rows(AlignedBuffer& rows, AlignedBuffer& spare, int64_t size, std::span<const int32_t> wanted) {
  for (size_t i = 0; i < wanted.size(); ++i) {
    std::memcpy(spare.as<float>() + i * size, rows.as<float>() + wanted[i] * size, size * sizeof(float));
  }
  std::swap(rows, spare);
}

}  // namespace

Decoder::Decoder(DecoderConfig config, std::shared_ptr<ThreadPool> threads, const KernelTable& kernels)
    : config_(std::move(config)),
      kernels_(kernels),
      shared_pool_(std::move(threads)),
      pool_(*shared_pool_),
      kv_(config_.num_layers(), config_.num_kv_heads, config_.head_dim, config_.kv_cache_type),
      layers_(config_.layers.size()),
      attention_plan_({config_.num_heads, config_.num_kv_heads, config_.head_dim, config_.attention_scale}) {
  require(config_.head_dim > 0 && config_.head_dim % 16 == 0, "head_dim must be a multiple of 16");
  require(config_.num_heads % config_.num_kv_heads == 0, "heads must be a multiple of KV heads");
  fill_rope_tables();
}

void Decoder::fill_rope_tables() {
  const int64_t half = config_.head_dim / 2;
  for (const RopeOptions& rope : config_.ropes) {
    require(static_cast<int64_t>(rope.inverse_frequencies.size()) == half, "rope needs head_dim / 2 frequencies");
    RopeTable& table = rope_tables_.emplace_back();
    table.cosine.resize(config_.max_positions * half);
    table.sine.resize(config_.max_positions * half);
    pool_.parallel_for(config_.max_positions, 64, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin * half; i < end * half; ++i) {
        const double angle = static_cast<double>(i / half) * rope.inverse_frequencies[i % half];
        table.cosine[i] = static_cast<float>(std::cos(angle) * rope.magnitude);
        table.sine[i] = static_cast<float>(std::sin(angle) * rope.magnitude);
      }
    });
  }
}

// Loading ---------------------------------------------------------------------------------------------------------------

void Decoder::pack(PackedMatrix& matrix, const WeightRows& rows) {
  pool_.parallel_for(matrix.column_blocks, kPackGrain, [&](int64_t begin, int64_t end) {
    const FloatingPointMode mode;
    pack_blocks(matrix, rows, kernels_, begin, end);
  });
}

void Decoder::set_matrix(int64_t layer, Matrix role, const WeightRows& rows, int64_t outputs, int64_t inputs,
                         GgmlType packed_type) {
  check_packed_type(rows.type, packed_type);
  PackedMatrix& matrix = layers_.at(layer).matrices.at(static_cast<size_t>(role));
  matrix = make_packed_matrix(packed_type, outputs, inputs, &weight_memory_);
  pack(matrix, rows);
}

void Decoder::set_vector(int64_t layer, Vector role, const float* data, int64_t size) {
  layers_.at(layer).vectors.at(static_cast<size_t>(role)).assign(data, data + size);
}

void Decoder::set_output(const WeightRows& rows, int64_t inputs, GgmlType packed_type) {
  require(inputs == config_.hidden_size, "the output layer has the wrong size");
  check_packed_type(rows.type, packed_type);
  require_in_range(rows.selected, config_.vocab_size, "a token of the output layer is outside of the vocabulary");
  output_.load(rows, config_.vocab_size, inputs, packed_type, weight_memory_, kernels_, pool_);
}

void Decoder::set_output_norm(const float* data, int64_t size) {
  require(size == config_.hidden_size, "the output norm has the wrong size");
  output_norm_.assign(data, data + size);
}

void Decoder::set_embedding(GgmlType type, const uint8_t* data, int64_t size_bytes) {
  require(size_bytes == config_.vocab_size * row_bytes(type, config_.hidden_size), "the embedding has the wrong size");
  embedding_ = {type, data};
}

int64_t Decoder::weight_bytes() const {
  int64_t total = output_.matrix().size_bytes();
  for (const LayerWeights& layer : layers_) {
    for (const PackedMatrix& matrix : layer.matrices) total += matrix.size_bytes();
  }
  return total;
}

// Building blocks -------------------------------------------------------------------------------------------------------

void Decoder::reserve(int64_t num_rows, int64_t num_logit_rows) {
  const int64_t widest = std::max({config_.hidden_size, config_.query_size(), config_.ffn_size});
  const auto floats = [&](AlignedBuffer& buffer, int64_t count) { buffer.reserve(count * sizeof(float)); };
  floats(work_.hidden, num_rows * config_.hidden_size);
  floats(work_.normed, num_rows * config_.hidden_size);
  floats(work_.projected, num_rows * config_.hidden_size);
  floats(work_.query, num_rows * config_.query_size());
  floats(work_.attention, num_rows * config_.query_size());
  floats(work_.key, num_rows * config_.kv_size());
  floats(work_.value, num_rows * config_.kv_size());
  floats(work_.gate, num_rows * config_.ffn_size);
  floats(work_.up, num_rows * config_.ffn_size);
  const size_t logits_size = work_.logits.size_bytes();
  floats(work_.logits, num_logit_rows * config_.vocab_size);
  if (!output_.has_all_tokens()) {
    floats(work_.some_logits, num_logit_rows * output_.matrix().outputs);
    if (work_.logits.size_bytes() > logits_size) {
      std::fill_n(work_.logits.as<float>(), work_.logits.size_bytes() / sizeof(float), kNoLogit);
    }
  }
  const int64_t capacity = activation_row_capacity(num_rows);
  const int64_t segments = capacity * (widest / kSuperBlock + 1);
  for (AlignedBuffer& plane : work_.rounded_planes) plane.reserve(segments * kActivationPlane);
  floats(work_.rounded_scales, segments);
  work_.rounded_sums.reserve(segments * sizeof(ActivationSums));
  work_.rounded_flags.reserve(segments);
  work_.rounded_high_quads.reserve(segments * sizeof(uint64_t));
}

// Rows that come from a norm have a few channels with large values, which matter much.
ActivationRounding Decoder::normed_rounding() const {
  const bool is_eight_bits = config_.activation_rounding == ActivationRounding::kEightBits;
  return is_eight_bits ? ActivationRounding::kEightBitsOfNormed : config_.activation_rounding;
}

// Returns memory for rounded rows.
QuantizedRows Decoder::rounded_rows(int64_t num_rows, int64_t inputs, ActivationRounding rounding) {
  QuantizedRows rounded;
  rounded.inputs = inputs;
  rounded.rounding = rounding;
  rounded.row_capacity = activation_row_capacity(num_rows);
  for (int plane = 0; plane < 2; ++plane) rounded.planes[plane] = work_.rounded_planes[plane].as<int8_t>();
  rounded.scales = work_.rounded_scales.as<float>();
  rounded.sums = work_.rounded_sums.as<ActivationSums>();
  rounded.flags = work_.rounded_flags.as<uint8_t>();
  rounded.high_quads = work_.rounded_high_quads.as<uint64_t>();
  return rounded;
}

template <class MakeRow>
void Decoder::multiply(const float* rows, int64_t num_rows, ActivationRounding rounding,
                       std::initializer_list<Product> products, MakeRow make_row) {
  const bool has_quantized = std::any_of(products.begin(), products.end(),
                                         [](const Product& product) { return product.matrix->is_quantized(); });
  const int64_t inputs = products.begin()->matrix->inputs;
  QuantizedRows rounded = rounded_rows(num_rows, inputs, rounding);
  pool_.parallel_for(num_rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      make_row(row);
      if (has_quantized) kernels_.quantize_row(rows + row * inputs, row, rounded);
    }
  });
  int64_t num_blocks = 0;
  for (const Product& product : products) num_blocks += product.matrix->column_blocks;
  const int64_t grain = num_rows <= kFewRows ? kFewRowsGrain : kStripBlocks;
  pool_.parallel_for(num_blocks, grain, [&](int64_t begin, int64_t end) {
    thread_local AlignedBuffer memory;
    memory.reserve(gemm_scratch_bytes(rounded.row_capacity));
    const GemmScratch scratch = gemm_scratch(memory.as<void>(), rounded.row_capacity);
    int64_t first = 0;  // index of the product's first block
    for (const Product& product : products) {
      const PackedMatrix& matrix = *product.matrix;
      const int64_t from = std::max(begin - first, int64_t{0});
      const int64_t to = std::min(end - first, matrix.column_blocks);
      if (from < to && matrix.is_quantized()) {
        kernels_.gemm_quantized(matrix, rounded, num_rows, from, to, scratch, product.out, matrix.outputs);
      } else if (from < to) {
        kernels_.gemm_float(matrix, rows, num_rows, from, to, product.out, matrix.outputs);
      }
      first += matrix.column_blocks;
    }
  });
}

// Normalizes the hidden states and multiplies them.
void Decoder::multiply_normed(int64_t num_rows, const float* norm, std::initializer_list<Product> products) {
  const int64_t size = config_.hidden_size;
  const float* hidden = work_.hidden.as<float>();
  float* normed = work_.normed.as<float>();
  multiply(normed, num_rows, normed_rounding(), products, [&](int64_t row) {
    kernels_.rms_norm(hidden + row * size, norm, size, config_.norm_epsilon, normed + row * size);
  });
}

// Adds `rows` to the hidden states.
void Decoder::add_residual(float* rows, int64_t num_rows, const float* post_norm) {
  const int64_t size = config_.hidden_size;
  pool_.parallel_for(num_rows, 4, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      float* source = rows + row * size;
      if (post_norm != nullptr) kernels_.rms_norm(source, post_norm, size, config_.norm_epsilon, source);
      kernels_.add(work_.hidden.as<float>() + row * size, source, size);
    }
  });
}

void Decoder::rotate(float* heads, int64_t num_heads, int64_t rope, int64_t position) const {
  const int64_t offset = position * (config_.head_dim / 2);
  const float* cosine = rope_tables_[rope].cosine.data() + offset;
  const float* sine = rope_tables_[rope].sine.data() + offset;
  const auto rotate_head = config_.ropes[rope].style == RopeStyle::kNormal ? kernels_.rope_normal : kernels_.rope_neox;
  for (int64_t head = 0; head < num_heads; ++head) {
    rotate_head(heads + head * config_.head_dim, cosine, sine, config_.head_dim);
  }
}

// The pass --------------------------------------------------------------------------------------------------------------

void Decoder::embed(const Batch& batch) {
  const int64_t size = config_.hidden_size;
  const int64_t bytes = row_bytes(embedding_.type, size);
  for (int64_t row = 0; row < batch.num_rows(); ++row) {
    float* target = work_.hidden.as<float>() + row * size;
    dequantize_row(embedding_.type, embedding_.data + batch.token_ids[row] * bytes, size, target);
    if (config_.embedding_scale != 1.0F) kernels_.scale(target, config_.embedding_scale, size);
  }
}

void Decoder::finish_query_key_value(const Batch& batch, int64_t layer, int64_t row, const KvView& view) {
  const LayerWeights& weights = layers_[layer];
  const int64_t head_dim = config_.head_dim;
  const int64_t rope = config_.layers[layer].rope_table;
  float* query = work_.query.as<float>() + row * config_.query_size();
  float* key = work_.key.as<float>() + row * config_.kv_size();
  float* value = work_.value.as<float>() + row * config_.kv_size();
  if (weights[Vector::kQueryBias] != nullptr) kernels_.add(query, weights[Vector::kQueryBias], config_.query_size());
  if (weights[Vector::kKeyBias] != nullptr) kernels_.add(key, weights[Vector::kKeyBias], config_.kv_size());
  if (weights[Vector::kValueBias] != nullptr) kernels_.add(value, weights[Vector::kValueBias], config_.kv_size());
  const auto norm_heads = [&](float* heads, int64_t num_heads, const float* weight) {
    for (int64_t head = 0; weight != nullptr && head < num_heads; ++head) {
      float* values = heads + head * head_dim;
      kernels_.rms_norm(values, weight, head_dim, config_.norm_epsilon, values);
    }
  };
  norm_heads(query, config_.num_heads, weights[Vector::kQueryNorm]);
  norm_heads(key, config_.num_kv_heads, weights[Vector::kKeyNorm]);
  rotate(query, config_.num_heads, rope, batch.positions[row]);
  rotate(key, config_.num_kv_heads, rope, batch.positions[row]);
  kernels_.store_kv(view, batch.slots[row], key, value);
}

// Writes the rows' queries to the workspace, and their keys and values to KV memory.
void Decoder::project_query_key_value(const Batch& batch, int64_t layer) {
  const LayerWeights& weights = layers_[layer];
  const int64_t num_rows = batch.num_rows();
  multiply_normed(num_rows, weights[Vector::kAttentionNorm],
                  {{&weights[Matrix::kQuery], work_.query.as<float>()},
                   {&weights[Matrix::kKey], work_.key.as<float>()},
                   {&weights[Matrix::kValue], work_.value.as<float>()}});
  const KvView view = kv_.layer(layer);
  pool_.parallel_for(num_rows, 4, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) finish_query_key_value(batch, layer, row, view);
  });
}

void Decoder::attend(const Batch& batch, int64_t layer) {
  const LayerWeights& weights = layers_[layer];
  const int64_t num_rows = batch.num_rows();
  attention_plan_.run(batch, kv_.layer(layer), config_.layers[layer].sliding_window, work_.query.as<float>(),
                      work_.attention.as<float>(), kernels_, pool_);
  float* projected = work_.projected.as<float>();
  multiply(work_.attention.as<float>(), num_rows, config_.activation_rounding,
           {{&weights[Matrix::kAttentionOutput], projected}}, [](int64_t) {});
  add_residual(projected, num_rows, weights[Vector::kPostAttentionNorm]);
}

void Decoder::feed_forward_layer(int64_t num_rows, int64_t layer) {
  const LayerWeights& weights = layers_[layer];
  const int64_t size = config_.ffn_size;
  float* gate = work_.gate.as<float>();
  float* up = work_.up.as<float>();
  multiply_normed(num_rows, weights[Vector::kFfnNorm], {{&weights[Matrix::kGate], gate}, {&weights[Matrix::kUp], up}});
  const auto activate = config_.activation == Activation::kSilu ? kernels_.silu_multiply : kernels_.gelu_multiply;
  multiply(gate, num_rows, config_.activation_rounding, {{&weights[Matrix::kDown], work_.projected.as<float>()}},
           [&](int64_t row) { activate(gate + row * size, up + row * size, size); });
  add_residual(work_.projected.as<float>(), num_rows, weights[Vector::kPostFfnNorm]);
}

// Runs the last layer of a whole pass. It computes keys and values of all rows, but the rest only for rows that get
// logits. Only their hidden states are left afterwards.
void Decoder::run_last_layer(const Batch& batch, int64_t layer) {
  project_query_key_value(batch, layer);
  BatchPart part;
  for (const int32_t row : batch.logit_rows) part.add(batch, row);
  const Batch wanted = part.of(batch);
  if (wanted.num_rows() == 0) return;
  take_rows(work_.query, work_.attention, config_.query_size(), batch.logit_rows);
  take_rows(work_.hidden, work_.projected, config_.hidden_size, batch.logit_rows);
  attend(wanted, layer);
  feed_forward_layer(wanted.num_rows(), layer);
}

// Computes the logits of the first `num_logit_rows` hidden states.
void Decoder::project_logits(int64_t num_logit_rows) {
  if (num_logit_rows == 0) return;
  const bool has_all_tokens = output_.has_all_tokens();
  float* logits = has_all_tokens ? work_.logits.as<float>() : work_.some_logits.as<float>();
  multiply_normed(num_logit_rows, output_norm_.data(), {{&output_.matrix(), logits}});
  if (!has_all_tokens) spread_logits(num_logit_rows);
}

// Gives the batch's tokens columns of the output layer, and sets the logits of tokens that lost theirs to minus
// infinity.
void Decoder::admit_outputs(const Batch& batch) {
  const std::vector<int32_t> gone = output_.admit(batch.token_ids, kernels_);
  const auto num_rows = static_cast<int64_t>(work_.logits.size_bytes() / sizeof(float)) / config_.vocab_size;
  for (int64_t row = 0; row < num_rows; ++row) {
    for (const int32_t token_id : gone) work_.logits.as<float>()[row * config_.vocab_size + token_id] = kNoLogit;
  }
}

// Copies the logits of the output layer's tokens to their places in the vocabulary; all others stay minus infinity.
void Decoder::spread_logits(int64_t num_logit_rows) {
  pool_.parallel_for(num_logit_rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      output_.spread(work_.some_logits.as<float>() + row * output_.matrix().outputs,
                     work_.logits.as<float>() + row * config_.vocab_size);
    }
  });
}

void Decoder::check(const Batch& batch) const {
  const int64_t num_rows = batch.num_rows();
  const auto has_rows = [&](std::span<const int32_t> values) { return static_cast<int64_t>(values.size()) == num_rows; };
  require(has_rows(batch.positions) && has_rows(batch.slots) && has_rows(batch.sequence_indices),
          "a batch's arrays differ in length");
  require(static_cast<int64_t>(batch.path_offsets.size()) == num_rows + 1, "path_offsets needs one entry more than rows");
  require(static_cast<int64_t>(batch.logit_rows.size()) <= num_rows, "more logit rows than rows");
  require_in_range(batch.token_ids, config_.vocab_size, "a token id is outside of the vocabulary");
  require_in_range(batch.positions, config_.max_positions, "a position is outside of the context window");
  require_in_range(batch.slots, kv_.num_slots(), "a slot is outside of the KV store");
  require_in_range(batch.path_slots, kv_.num_slots(), "a path slot is outside of the KV store");
  require_in_range(batch.block_tables, kv_.num_blocks(), "a block is outside of the KV store");
  require_in_range(batch.sequence_indices, batch.num_sequences, "a sequence index has no block table");
  require_in_range(batch.logit_rows, num_rows, "a logit row is not in the batch");
  for (int64_t row = 0; row < num_rows; ++row) {
    const int64_t length = batch.path_length(row);
    const bool is_inside = length >= 0 && length <= batch.positions[row] + 1 && batch.path_offsets[row] >= 0 &&
                           batch.path_offsets[row + 1] <= static_cast<int32_t>(batch.path_slots.size());
    require(is_inside, "a row's path is out of bounds");
    const int64_t table_positions = batch.positions[row] + 1 - length;
    require(table_positions <= batch.max_blocks * kBlockSlots, "a row's position is beyond its block table");
  }
}

void Decoder::run_layers(const Batch& batch, int64_t begin, int64_t end) {
  for (int64_t layer = begin; layer < end; ++layer) {
    project_query_key_value(batch, layer);
    attend(batch, layer);
    feed_forward_layer(batch.num_rows(), layer);
  }
}

// Computes all rows up to the layer at which rows were kept, and returns that layer. If no row was kept, embeds all
// rows and returns 0.
int64_t Decoder::resume(const Batch& batch, const KeptRows& kept) {
  const std::vector<const float*> states = kept.find(batch);
  int64_t num_others = std::count(states.begin(), states.end(), nullptr);
  if (num_others == batch.num_rows()) {
    embed(batch);
    return 0;
  }
  num_resumed_rows_ += batch.num_rows() - num_others;
  BatchPart part;
  for (int64_t row = 0; row < batch.num_rows(); ++row) {
    if (states[row] == nullptr) part.add(batch, row);
  }
  const Batch others = part.of(batch);
  embed(others);
  run_layers(others, 0, num_others > 0 ? kept.num_layers() : 0);
  const size_t size = config_.hidden_size * sizeof(float);
  for (int64_t row = batch.num_rows() - 1; row >= 0; --row) {
    const float* others_end = work_.hidden.as<float>() + num_others * config_.hidden_size;
    const float* state = states[row] != nullptr ? states[row] : others_end - config_.hidden_size;
    std::memmove(work_.hidden.as<float>() + row * config_.hidden_size, state, size);
    num_others -= states[row] == nullptr;
  }
  return kept.num_layers();
}

const float* Decoder::forward(const Batch& batch, int64_t num_layers) {
  require(num_layers > 0 && num_layers <= config_.num_layers(), "a pass needs some of the model's layers");
  check(batch);
  const FloatingPointMode mode;
  admit_outputs(batch);
  reserve(batch.num_rows(), static_cast<int64_t>(batch.logit_rows.size()));
  if (num_layers < config_.num_layers()) {
    embed(batch);
    run_layers(batch, 0, num_layers);
    kept_.keep(batch, num_layers, work_.hidden.as<float>(), config_.hidden_size);
    take_rows(work_.hidden, work_.projected, config_.hidden_size, batch.logit_rows);
  } else {
    const KeptRows kept = std::exchange(kept_, {});
    run_layers(batch, resume(batch, kept), num_layers - 1);
    run_last_layer(batch, num_layers - 1);
  }
  project_logits(static_cast<int64_t>(batch.logit_rows.size()));
  return work_.logits.as<float>();
}

}  // namespace paceline
