// Declares the functions with which the sources of each instruction set fill its kernel table.
#pragma once

#include "paceline/kernel_table.hpp"

#define PACELINE_DECLARE_PARTS(isa)            \
  namespace paceline::isa {                    \
  void fill_row_kernels(KernelTable& table);   \
  void fill_attention_kernels(KernelTable& table); \
  void fill_gemm_kernels(KernelTable& table);  \
  }

PACELINE_DECLARE_PARTS(scalar)
PACELINE_DECLARE_PARTS(avx2)
PACELINE_DECLARE_PARTS(avx512)

// AMX has a GEMM of its own; the rest of its table is that of AVX-512.
namespace paceline::amx {
void fill_gemm_kernels(KernelTable& table);
}

#undef PACELINE_DECLARE_PARTS
