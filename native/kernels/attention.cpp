// This file is compiled once for each instruction set; PACELINE_ISA is the set's name.
#include "kernels/templates/attention.hpp"

#include "kernels/table_parts.hpp"

namespace paceline::PACELINE_ISA {

void fill_attention_kernels(KernelTable& table) {
  table.store_kv = store_kv;
  table.attend = attend;
  table.merge_partials = merge_partials;
}

}  // namespace paceline::PACELINE_ISA
