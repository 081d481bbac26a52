#include "kernels/templates/gemm.hpp"

#include "kernels/table_parts.hpp"

namespace paceline::avx2 {

// Sixteen registers have room for two chains of dot products.
constexpr int kMaxTileRows = 8;
constexpr int kChains = 2;

void fill_gemm_kernels(KernelTable& table) {
  table.quantize_row = quantize_row;
  table.gemm_quantized = gemm_quantized<kMaxTileRows, kChains>;
  table.gemm_float = gemm_float<kMaxTileRows>;
}

}  // namespace paceline::avx2
