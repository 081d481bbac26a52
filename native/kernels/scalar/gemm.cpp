#include "kernels/templates/gemm.hpp"

#include "kernels/table_parts.hpp"

namespace paceline::scalar {

// One row at a time is as fast as any larger tile here, and it is the simplest.
constexpr int kMaxTileRows = 1;
constexpr int kChains = 1;

void fill_gemm_kernels(KernelTable& table) {
  table.quantize_row = quantize_row;
  table.gemm_quantized = gemm_quantized<kMaxTileRows, kChains>;
  table.gemm_float = gemm_float<kMaxTileRows>;
}

}  // namespace paceline::scalar
