// This file is compiled once for each instruction set; PACELINE_ISA is the set's name.
#include "kernels/templates/rows.hpp"

#include "kernels/table_parts.hpp"
#include "kernels/templates/quantize_weights.hpp"

namespace paceline::PACELINE_ISA {

void fill_row_kernels(KernelTable& table) {
  table.rms_norm = rms_norm;
  table.add = add_row;
  table.scale = scale_row;
  table.silu_multiply = silu_multiply;
  table.gelu_multiply = gelu_multiply;
  table.rope_normal = rope_normal;
  table.rope_neox = rope_neox;
  table.sum_exponentials = sum_exponentials;
  table.quantize_q4_0 = quantize_q4_0;
}

}  // namespace paceline::PACELINE_ISA
