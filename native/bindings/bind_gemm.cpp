#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "bindings/bindings.hpp"
#include "paceline/kernel_table.hpp"

namespace nb = nanobind;

namespace paceline {
namespace {

using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using FloatRows = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// Returns a new array that owns its memory and is filled with zeros.
template <class Element, size_t kDimensions>
nb::ndarray<nb::numpy, Element, nb::ndim<kDimensions>> make_array(const size_t (&shape)[kDimensions]) {
  size_t size = 1;
  for (const size_t extent : shape) size *= extent;
  auto elements = std::make_unique<Element[]>(size);
  nb::capsule owner(elements.get(), [](void* data) noexcept { delete[] static_cast<Element*>(data); });
  return {elements.release(), kDimensions, shape, owner};
}

PackedMatrix pack(uint32_t type_id, const Bytes& data, int64_t outputs, int64_t inputs) {
  PackedMatrix matrix = make_packed_matrix(static_cast<GgmlType>(type_id), outputs, inputs);
  const int64_t expected = outputs * row_bytes(matrix.type, inputs);
  if (static_cast<int64_t>(data.size()) != expected) {
    throw std::invalid_argument("a tensor of " + std::to_string(data.size()) + " bytes, but its shape needs " +
                                std::to_string(expected));
  }
  const nb::gil_scoped_release release;
  pack_blocks(matrix, {matrix.type, data.data()}, default_kernels(), 0, matrix.column_blocks);
  return matrix;
}

// Rounded rows that own their memory.
struct OwnedRows {
  AlignedBuffer planes[2];
  std::vector<float> scales;
  std::vector<ActivationSums> sums;
  std::vector<uint8_t> flags;
  std::vector<uint64_t> high_quads;
  QuantizedRows rows;
};

OwnedRows quantize_rows(const KernelTable& kernels, const float* source, size_t num_rows, size_t inputs,
                        ActivationRounding rounding) {
  OwnedRows owned;
  QuantizedRows& rows = owned.rows;
  rows.rounding = rounding;
  rows.inputs = static_cast<int64_t>(inputs);
  rows.row_capacity = activation_row_capacity(static_cast<int64_t>(num_rows));
  const auto segments = static_cast<size_t>(rows.num_super_blocks() * rows.row_capacity);
  for (int plane = 0; plane < 2; ++plane) {
    owned.planes[plane].reserve(segments * kActivationPlane);
    rows.planes[plane] = owned.planes[plane].as<int8_t>();
  }
  owned.scales.resize(segments);
  owned.sums.resize(segments);
  owned.flags.resize(segments);
  owned.high_quads.resize(segments);
  rows.scales = owned.scales.data();
  rows.sums = owned.sums.data();
  rows.flags = owned.flags.data();
  rows.high_quads = owned.high_quads.data();
  for (int64_t row = 0; row < static_cast<int64_t>(num_rows); ++row) {
    kernels.quantize_row(source + row * rows.inputs, row, rows);
  }
  return owned;
}

auto gemm(const std::string& instruction_set, const PackedMatrix& weights, const FloatRows& rows, int64_t block_begin,
          int64_t block_end, ActivationRounding rounding) {
  const KernelTable& kernels = kernels_named(instruction_set);
  if (static_cast<int64_t>(rows.shape(1)) != weights.inputs) {
    throw std::invalid_argument("rows of " + std::to_string(rows.shape(1)) + " values for weights with " +
                                std::to_string(weights.inputs) + " inputs");
  }
  if (block_begin < 0 || block_end < block_begin || block_end > weights.column_blocks) {
    throw std::out_of_range("column blocks " + std::to_string(block_begin) + " to " + std::to_string(block_end) + " of " +
                            std::to_string(weights.column_blocks));
  }
  auto out = make_array<float, 2>({rows.shape(0), static_cast<size_t>(weights.outputs)});
  const auto num_rows = static_cast<int64_t>(rows.shape(0));
  const nb::gil_scoped_release release;
  if (weights.is_quantized()) {
    const OwnedRows rounded = quantize_rows(kernels, rows.data(), rows.shape(0), rows.shape(1), rounding);
    const int64_t capacity = rounded.rows.row_capacity;
    AlignedBuffer memory(static_cast<size_t>(gemm_scratch_bytes(capacity)));
    kernels.gemm_quantized(weights, rounded.rows, num_rows, block_begin, block_end,
                           gemm_scratch(memory.as<void>(), capacity), out.data(), weights.outputs);
  } else {
    kernels.gemm_float(weights, rows.data(), num_rows, block_begin, block_end, out.data(), weights.outputs);
  }
  return out;
}

nb::tuple quantize(const std::string& instruction_set, const FloatRows& rows, ActivationRounding rounding) {
  const KernelTable& kernels = kernels_named(instruction_set);
  if (rows.shape(1) == 0 || rows.shape(1) % kGroup != 0) {
    throw std::invalid_argument("rows of " + std::to_string(rows.shape(1)) + " values, but they must be a multiple of " +
                                std::to_string(kGroup));
  }
  const size_t num_rows = rows.shape(0);
  const OwnedRows owned = quantize_rows(kernels, rows.data(), num_rows, rows.shape(1), rounding);
  const auto num_blocks = static_cast<size_t>(owned.rows.num_super_blocks());
  auto planes = make_array<int8_t, 4>({num_rows, num_blocks, 2, kActivationPlane});
  auto scales = make_array<float, 2>({num_rows, num_blocks});
  auto sums = make_array<int32_t, 4>({num_rows, num_blocks, 2, 16});
  auto totals = make_array<int32_t, 4>({num_rows, num_blocks, 3, 8});
  for (size_t row = 0; row < num_rows; ++row) {
    for (size_t b = 0; b < num_blocks; ++b) {
      const size_t from = b * static_cast<size_t>(owned.rows.row_capacity) + row;
      const size_t to = row * num_blocks + b;
      const ActivationSums& block = owned.sums[from];
      for (size_t plane = 0; plane < 2; ++plane) {
        std::copy_n(owned.rows.planes[plane] + from * kActivationPlane, kActivationPlane,
                    planes.data() + (2 * to + plane) * kActivationPlane);
      }
      scales.data()[to] = owned.scales[from];
      std::copy_n(&block.sixteens[0][0], 32, sums.data() + to * 32);
      std::copy_n(&block.groups[0][0], 16, totals.data() + to * 24);
      std::copy_n(block.totals, 8, totals.data() + to * 24 + 16);
    }
  }
  return nb::make_tuple(planes, scales, sums, totals);
}

// Returns float rows rounded to Q4_0 blocks, [rows][row bytes].
auto quantize_weights(const std::string& instruction_set, const FloatRows& rows) {
  const KernelTable& kernels = kernels_named(instruction_set);
  const auto inputs = static_cast<int64_t>(rows.shape(1));
  const int64_t stride = row_bytes(GgmlType::kQ4_0, inputs);
  const auto num_rows = static_cast<int64_t>(rows.shape(0));
  auto out = make_array<uint8_t, 2>({rows.shape(0), static_cast<size_t>(stride)});
  const nb::gil_scoped_release release;
  std::vector<float> columns(inputs * kColumnBlock);
  std::vector<uint8_t> blocks(stride * kColumnBlock);
  for (int64_t first = 0; first < num_rows; first += kColumnBlock) {
    const int64_t count = std::min(kColumnBlock, num_rows - first);
    for (int64_t row = 0; row < count; ++row) {
      for (int64_t i = 0; i < inputs; ++i) columns[i * kColumnBlock + row] = rows.data()[(first + row) * inputs + i];
    }
    kernels.quantize_q4_0(columns.data(), inputs, blocks.data(), stride);
    std::copy_n(blocks.data(), count * stride, out.data() + first * stride);
  }
  return out;
}

auto dequantize(uint32_t type_id, const Bytes& data, int64_t count) {
  const auto type = static_cast<GgmlType>(type_id);
  const int64_t expected = row_bytes(type, count);
  if (static_cast<int64_t>(data.size()) != expected) {
    throw std::invalid_argument("a row of " + std::to_string(data.size()) + " bytes, but " + std::to_string(count) +
                                " weights need " + std::to_string(expected));
  }
  auto out = make_array<float, 1>({static_cast<size_t>(count)});
  const nb::gil_scoped_release release;
  dequantize_row(type, data.data(), count, out.data());
  return out;
}

}  // namespace

void bind_gemm(nb::module_& module) {
  nb::enum_<ActivationRounding>(module, "ActivationRounding")
      .value("EIGHT_BITS", ActivationRounding::kEightBits)
      .value("EIGHT_BITS_OF_NORMED", ActivationRounding::kEightBitsOfNormed)
      .value("FIFTEEN_BITS", ActivationRounding::kFifteenBits);
  nb::module_ kernels = module.def_submodule("kernels", "Single kernels, for tests and benchmarks.");
  nb::class_<PackedMatrix>(kernels, "PackedMatrix", "A weight matrix repacked for GEMM.")
      .def_ro("outputs", &PackedMatrix::outputs)
      .def_ro("inputs", &PackedMatrix::inputs)
      .def_ro("column_blocks", &PackedMatrix::column_blocks)
      .def_prop_ro("size_bytes", &PackedMatrix::size_bytes);
  kernels.def("pack", &pack, nb::arg("type_id"), nb::arg("data"), nb::arg("outputs"), nb::arg("inputs"),
              "Repacks the bytes of a GGUF tensor of `outputs` rows by `inputs`; raises ValueError for what has no layout.");
  kernels.def("gemm", &gemm, nb::arg("instruction_set"), nb::arg("weights"), nb::arg("rows"), nb::arg("block_begin"),
              nb::arg("block_end"), nb::arg("rounding") = ActivationRounding::kEightBits,
              "float32 [rows, outputs] of rows float32 [rows, inputs]; columns outside the blocks of 16 stay zero.");
  kernels.def("quantize", &quantize, nb::arg("instruction_set"), nb::arg("rows"),
              nb::arg("rounding") = ActivationRounding::kEightBits,
              "Rounds float32 rows: int8 planes [rows, blocks, low and high, 256], float32 scales [rows, blocks], int32 sums\n"
              "[rows, blocks, low and high, 16] of 16 values, int32 [rows, blocks, low, high and whole, 8] of 32 values.");
  kernels.def("quantize_q4_0", &quantize_weights, nb::arg("instruction_set"), nb::arg("rows"),
              "Bytes of Q4_0 blocks, uint8 [rows, row bytes], of float32 rows.");
  kernels.def("dequantize_row", &dequantize, nb::arg("type_id"), nb::arg("data"), nb::arg("count"),
              "float32 [count] of a row's bytes.");
}

}  // namespace paceline
