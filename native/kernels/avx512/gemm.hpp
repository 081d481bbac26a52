// The GEMM of AVX-512, which AMX uses where tiles do not pay.
#pragma once

#include "paceline/kernel_table.hpp"

namespace paceline::avx512 {

// Does what KernelTable::gemm_quantized does.
void multiply_quantized(const PackedMatrix& weights, const QuantizedRows& rows, int64_t num_rows, int64_t block_begin,
                        int64_t block_end, const GemmScratch& scratch, float* out, int64_t stride);

}  // namespace paceline::avx512
