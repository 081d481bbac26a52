#include <bit>
#include <stdexcept>
#include <string>

#include "paceline/half.hpp"
#include "quant/file_blocks.hpp"
#include "quant/layouts.hpp"

namespace paceline {
namespace {

template <GgmlType type>
int integer_weight(uint8_t stored) {
  if constexpr (type == GgmlType::kIQ4_NL) return kNonLinearWeights[stored] - Layout<type>::kZeroPoint;
  return stored - Layout<type>::kZeroPoint;
}

template <GgmlType type>
void dequantize_block(const ExpandedBlock& block, float* target) {
  using Numbers = Layout<type>;
  const float d = half_to_float(block.scale);
  const float minimum = half_to_float(block.minimum);
  for (int i = 0; i < FileBlock<type>::kValues; ++i) {
    const auto weight = static_cast<float>(integer_weight<type>(block.integers[i]));
    const int group = i / Numbers::kScaleInputs;
    if constexpr (Numbers::kScales == ScaleKind::kHalf) {
      target[i] = d * weight;
    } else if constexpr (Numbers::kScales == ScaleKind::kHalfWithMinimum) {
      target[i] = d * weight + minimum;
    } else if constexpr (Numbers::kScales == ScaleKind::kSignedByte) {
      target[i] = d * static_cast<float>(static_cast<int8_t>(block.scales[group])) * weight;
    } else {
      const float offset = minimum * static_cast<float>(block.minima[group]);
      target[i] = d * static_cast<float>(block.scales[group]) * weight - offset;
    }
  }
}

template <GgmlType type>
void dequantize_blocks(const uint8_t* source, int64_t count, float* target) {
  ExpandedBlock block{};
  for (int64_t i = 0; i < count; i += FileBlock<type>::kValues, source += FileBlock<type>::kBytes) {
    FileBlock<type>::expand(source, block);
    dequantize_block<type>(block, target + i);
  }
}

void widen_halves(const uint8_t* source, int64_t count, float* target) {
  for (int64_t i = 0; i < count; ++i) target[i] = half_to_float(load_u16(source + 2 * i));
}

void widen_bfloat16(const uint8_t* source, int64_t count, float* target) {
  for (int64_t i = 0; i < count; ++i) {
    target[i] = std::bit_cast<float>(static_cast<uint32_t>(load_u16(source + 2 * i)) << 16);
  }
}

}  // namespace

BlockShape block_shape(GgmlType type) {
  if (type == GgmlType::kF32) return {1, 4};
  if (type == GgmlType::kF16 || type == GgmlType::kBF16) return {1, 2};
  BlockShape shape{};
  const auto read = [&]<GgmlType quantized>() { shape = {FileBlock<quantized>::kValues, FileBlock<quantized>::kBytes}; };
  if (!visit_quantized(type, read)) {
    throw std::invalid_argument("weight type " + std::to_string(static_cast<uint32_t>(type)) + " is not supported");
  }
  return shape;
}

int64_t row_bytes(GgmlType type, int64_t columns) {
  const BlockShape shape = block_shape(type);
  if (columns <= 0 || columns % shape.values != 0) {
    throw std::invalid_argument("a row of " + std::to_string(columns) + " weights does not consist of whole blocks of " +
                                std::to_string(shape.values));
  }
  return columns / shape.values * shape.bytes;
}

void dequantize_row(GgmlType type, const uint8_t* source, int64_t count, float* target) {
  if (type == GgmlType::kF32) {
    std::memcpy(target, source, static_cast<size_t>(count) * sizeof(float));
  } else if (type == GgmlType::kF16) {
    widen_halves(source, count, target);
  } else if (type == GgmlType::kBF16) {
    widen_bfloat16(source, count, target);
  } else {
    visit_quantized(type, [&]<GgmlType quantized>() { dequantize_blocks<quantized>(source, count, target); });
  }
}

}  // namespace paceline
