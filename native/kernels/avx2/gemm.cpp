#include "kernels/templates/gemm.hpp"

#include "kernels/table_parts.hpp"

namespace paceline::avx2 {

// Both planes' chains of one row are what sixteen registers hold.
constexpr int kMaxTileRows = 8;
constexpr int kInterleavedRows = 1;

void fill_gemm_kernels(KernelTable& table) {
  table.quantize_row = quantize_row;
  table.gemm_quantized = gemm_quantized<kMaxTileRows, kInterleavedRows>;
  table.gemm_float = gemm_float<kMaxTileRows>;
}

}  // namespace paceline::avx2
