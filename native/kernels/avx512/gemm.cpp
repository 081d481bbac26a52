#include "kernels/avx512/gemm.hpp"

#include "kernels/templates/gemm.hpp"
#include "kernels/table_parts.hpp"

namespace paceline::avx512 {

// Up to two sums for each of 8 rows, 8 registers of weights and four chains of dot products fill the 32 registers.
constexpr int kMaxTileRows = 8;
constexpr int kChains = 4;

void multiply_quantized(const PackedMatrix& weights, const QuantizedRows& rows, int64_t num_rows, int64_t block_begin,
                        int64_t block_end, const GemmScratch& scratch, float* out, int64_t stride) {
  gemm_quantized<kMaxTileRows, kChains>(weights, rows, num_rows, block_begin, block_end, scratch, out, stride);
}

void fill_gemm_kernels(KernelTable& table) {
  table.quantize_row = quantize_row;
  table.gemm_quantized = multiply_quantized;
  table.gemm_float = gemm_float<kMaxTileRows>;
}

}  // namespace paceline::avx512
