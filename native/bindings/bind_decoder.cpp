#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>

#include "bindings/bindings.hpp"
#include "decoder/decoder.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace paceline {
namespace {

using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Floats = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Ints = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using IntTable = nb::ndarray<const int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using LogitRows = nb::ndarray<nb::numpy, float, nb::ndim<2>>;

std::span<const int32_t> span_of(const Ints& values) { return {values.data(), values.size()}; }

void check_size(const Bytes& data, GgmlType type, int64_t outputs, int64_t inputs) {
  if (static_cast<int64_t>(data.size()) != outputs * row_bytes(type, inputs)) {
    throw std::invalid_argument("a tensor's bytes do not fit its shape");
  }
}

void set_matrix(Decoder& decoder, int64_t layer, Matrix role, uint32_t type_id, const Bytes& data, int64_t outputs,
                int64_t inputs, uint32_t packed_type_id) {
  const auto type = static_cast<GgmlType>(type_id);
  check_size(data, type, outputs, inputs);
  const nb::gil_scoped_release release;
  decoder.set_matrix(layer, role, {type, data.data()}, outputs, inputs, static_cast<GgmlType>(packed_type_id));
}

void set_output(Decoder& decoder, uint32_t type_id, const Bytes& data, int64_t inputs, uint32_t packed_type_id,
                const std::optional<std::vector<int32_t>>& token_ids) {
  const auto type = static_cast<GgmlType>(type_id);
  check_size(data, type, decoder.config().vocab_size, inputs);
  if (token_ids && token_ids->empty()) throw std::invalid_argument("an output layer needs at least one token");
  WeightRows rows{type, data.data()};
  if (token_ids) rows.selected = *token_ids;
  const nb::gil_scoped_release release;
  decoder.set_output(rows, inputs, static_cast<GgmlType>(packed_type_id));
}

LogitRows forward(nb::handle self, const Ints& token_ids, const Ints& positions, const Ints& slots,
                  const Ints& sequence_indices, const IntTable& block_tables, const Ints& path_slots,
                  const Ints& path_offsets, const Ints& logit_rows, std::optional<int64_t> num_layers) {
  Decoder& decoder = nb::cast<Decoder&>(self);
  Batch batch;
  batch.token_ids = span_of(token_ids);
  batch.positions = span_of(positions);
  batch.slots = span_of(slots);
  batch.sequence_indices = span_of(sequence_indices);
  batch.block_tables = {block_tables.data(), block_tables.size()};
  batch.num_sequences = static_cast<int64_t>(block_tables.shape(0));
  batch.max_blocks = static_cast<int64_t>(block_tables.shape(1));
  batch.path_slots = span_of(path_slots);
  batch.path_offsets = span_of(path_offsets);
  batch.logit_rows = span_of(logit_rows);
  const float* logits = nullptr;
  {
    const nb::gil_scoped_release release;
    logits = decoder.forward(batch, num_layers.value_or(decoder.config().num_layers()));
  }
  const auto vocab_size = static_cast<size_t>(decoder.config().vocab_size);
  return LogitRows(const_cast<float*>(logits), {logit_rows.size(), vocab_size}, self);
}

void check_block(const Decoder& decoder, int64_t block) {
  if (block < 0 || block >= decoder.kv().num_blocks()) throw std::out_of_range("no such block in the KV store");
}

void check_slot(const Decoder& decoder, int64_t slot) {
  if (slot < 0 || slot >= decoder.kv().num_slots()) throw std::out_of_range("no such slot in the KV store");
}

void bind_config(nb::module_& module) {
  nb::enum_<Activation>(module, "Activation").value("SILU", Activation::kSilu).value("GELU", Activation::kGelu);
  nb::enum_<RopeStyle>(module, "RopeStyle").value("NORMAL", RopeStyle::kNormal).value("NEOX", RopeStyle::kNeox);
  nb::enum_<Matrix>(module, "Matrix")
      .value("QUERY", Matrix::kQuery)
      .value("KEY", Matrix::kKey)
      .value("VALUE", Matrix::kValue)
      .value("ATTENTION_OUTPUT", Matrix::kAttentionOutput)
      .value("GATE", Matrix::kGate)
      .value("UP", Matrix::kUp)
      .value("DOWN", Matrix::kDown);
  nb::enum_<Vector>(module, "Vector")
      .value("ATTENTION_NORM", Vector::kAttentionNorm)
      .value("QUERY_BIAS", Vector::kQueryBias)
      .value("KEY_BIAS", Vector::kKeyBias)
      .value("VALUE_BIAS", Vector::kValueBias)
      .value("QUERY_NORM", Vector::kQueryNorm)
      .value("KEY_NORM", Vector::kKeyNorm)
      .value("POST_ATTENTION_NORM", Vector::kPostAttentionNorm)
      .value("FFN_NORM", Vector::kFfnNorm)
      .value("POST_FFN_NORM", Vector::kPostFfnNorm);
  nb::enum_<KvCacheType>(module, "KvCacheType").value("F16", KvCacheType::kF16).value("Q8", KvCacheType::kQ8);
  nb::class_<DecoderConfig>(module, "DecoderConfig")
      .def(nb::init<>())
      .def_rw("hidden_size", &DecoderConfig::hidden_size)
      .def_rw("num_heads", &DecoderConfig::num_heads)
      .def_rw("num_kv_heads", &DecoderConfig::num_kv_heads)
      .def_rw("head_dim", &DecoderConfig::head_dim)
      .def_rw("ffn_size", &DecoderConfig::ffn_size)
      .def_rw("vocab_size", &DecoderConfig::vocab_size)
      .def_rw("max_positions", &DecoderConfig::max_positions)
      .def_rw("norm_epsilon", &DecoderConfig::norm_epsilon)
      .def_rw("attention_scale", &DecoderConfig::attention_scale)
      .def_rw("embedding_scale", &DecoderConfig::embedding_scale)
      .def_rw("activation", &DecoderConfig::activation)
      .def_rw("kv_cache_type", &DecoderConfig::kv_cache_type)
      .def_rw("activation_rounding", &DecoderConfig::activation_rounding)
      .def(
          "add_rope",
          [](DecoderConfig& config, RopeStyle style, std::vector<double> inverse_frequencies, double magnitude) {
            config.ropes.push_back({style, std::move(inverse_frequencies), magnitude});
          },
          "style"_a, "inverse_frequencies"_a, "magnitude"_a)
      .def(
          "add_layer",
          [](DecoderConfig& config, int64_t rope_table, int64_t sliding_window) {
            if (rope_table < 0 || rope_table >= static_cast<int64_t>(config.ropes.size())) {
              throw std::invalid_argument("a layer needs the index of a rope that was added before");
            }
            config.layers.push_back({rope_table, sliding_window});
          },
          "rope_table"_a, "sliding_window"_a);
}

}  // namespace

void bind_decoder(nb::module_& module) {
  bind_config(module);
  nb::class_<ThreadPool>(module, "ThreadPool", "Threads that models and sampling share; they sleep while there is no work.")
      .def(
          "__init__",
          [](ThreadPool* self, int num_threads) {
            if (num_threads < 1) throw std::invalid_argument("a thread pool needs at least one thread");
            new (self) ThreadPool(num_threads);
          },
          "num_threads"_a)
      .def_prop_ro("num_threads", &ThreadPool::num_threads);
  nb::class_<Decoder>(module, "Decoder")
      .def(
          "__init__",
          [](Decoder* self, const DecoderConfig& config, std::shared_ptr<ThreadPool> threads,
             const std::optional<std::string>& instruction_set) {
            new (self) Decoder(config, std::move(threads), kernels_or_default(instruction_set));
          },
          "config"_a, "threads"_a, "instruction_set"_a = nb::none())
      .def("set_matrix", &set_matrix)
      .def("set_vector",
           [](Decoder& decoder, int64_t layer, Vector role, const Floats& data) {
             decoder.set_vector(layer, role, data.data(), static_cast<int64_t>(data.size()));
           })
      .def("set_output", &set_output, nb::keep_alive<1, 3>())
      .def("set_output_norm",
           [](Decoder& decoder, const Floats& data) {
             decoder.set_output_norm(data.data(), static_cast<int64_t>(data.size()));
           })
      .def(
          "set_embedding",
          [](Decoder& decoder, uint32_t type_id, const Bytes& data) {
            decoder.set_embedding(static_cast<GgmlType>(type_id), data.data(), static_cast<int64_t>(data.size()));
          },
          nb::keep_alive<1, 3>())
      .def("forward", &forward, "token_ids"_a, "positions"_a, "slots"_a, "sequence_indices"_a, "block_tables"_a,
           "path_slots"_a, "path_offsets"_a, "logit_rows"_a, "num_layers"_a = nb::none())
      .def_prop_ro("instruction_set", [](const Decoder& decoder) { return std::string(decoder.kernels().name); })
      .def_prop_ro("weight_bytes", &Decoder::weight_bytes)
      .def_prop_ro("num_resumed_rows", &Decoder::num_resumed_rows)
      .def_prop_ro("num_blocks", [](const Decoder& decoder) { return decoder.kv().num_blocks(); })
      .def_prop_ro("block_size_bytes", [](const Decoder& decoder) { return decoder.kv().block_size_bytes(); })
      .def("allocate_kv", [](Decoder& decoder, int64_t num_blocks) { decoder.changed_kv().allocate(num_blocks); })
      .def("move_slot",
           [](Decoder& decoder, int64_t source, int64_t destination) {
             check_slot(decoder, source);
             check_slot(decoder, destination);
             decoder.changed_kv().move_slot(source, destination);
           })
      .def("read_block",
           [](const Decoder& decoder, int64_t block) {
             check_block(decoder, block);
             return nb::bytes(reinterpret_cast<const char*>(decoder.kv().block(block)),
                              static_cast<size_t>(decoder.kv().block_size_bytes()));
           })
      .def("write_block", [](Decoder& decoder, int64_t block, const Bytes& data) {
        check_block(decoder, block);
        if (static_cast<int64_t>(data.size()) != decoder.kv().block_size_bytes()) {
          throw std::invalid_argument("a block has another size");
        }
        std::memcpy(decoder.changed_kv().block(block), data.data(), data.size());
      });
}

}  // namespace paceline
