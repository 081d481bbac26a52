// Weight types as GGUF numbers them (GGUF specification), with the size of their blocks.
#pragma once

#include <cstdint>

namespace paceline {

enum class GgmlType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kIQ4_NL = 20,
  kBF16 = 30,
};

struct BlockShape {
  int64_t values;  // weights in a block
  int64_t bytes;
};

// Throws std::invalid_argument for a type that is not in the list above.
BlockShape block_shape(GgmlType type);

// Returns the bytes of one row of `columns` weights; throws std::invalid_argument if a row does not consist of whole
// blocks.
int64_t row_bytes(GgmlType type, int64_t columns);

// Expands `count` weights (whole blocks) of one row to float. This is scalar code, the same for every instruction set.
void dequantize_row(GgmlType type, const uint8_t* source, int64_t count, float* target);

}  // namespace paceline
