// The GEMM of AVX-512, which AMX uses where tiles do not pay.
#pragma once

#include "paceline/kernel_table.hpp"

namespace paceline::avx512 {

// As KernelTable::gemm_quantized.
void multiply_quantized(const PackedMatrix& weights, const QuantizedRows& rows, int64_t num_rows, int64_t block_begin,
                        int64_t block_end, const GemmScratch& scratch, float* out, int64_t stride);

}  // namespace paceline::avx512
