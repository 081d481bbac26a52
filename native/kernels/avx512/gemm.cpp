#include "kernels/templates/gemm.hpp"

#include "kernels/table_parts.hpp"

namespace paceline::avx512 {

// A tile of 16 rows, 8 registers of weights and four chains of dot products fill the 32 registers.
constexpr int kMaxTileRows = 16;
constexpr int kInterleavedRows = 4;

void fill_gemm_kernels(KernelTable& table) {
  table.quantize_row = quantize_row;
  table.gemm_quantized = gemm_quantized<kMaxTileRows, kInterleavedRows>;
  table.gemm_float = gemm_float<kMaxTileRows>;
}

}  // namespace paceline::avx512
