#define PACELINE_ISA scalar
#include "kernels/templates/gemm.hpp"

#include "kernels/table_parts.hpp"

namespace paceline::scalar {

// Row tiles only spare some unpacking here.
constexpr int kMaxTileRows = 4;
constexpr int kInterleavedRows = 1;

void fill_gemm_kernels(KernelTable& table) {
  table.quantize_row = quantize_row;
  table.gemm_quantized = gemm_quantized<kMaxTileRows, kInterleavedRows>;
  table.gemm_float = gemm_float<kMaxTileRows>;
}

}  // namespace paceline::scalar
