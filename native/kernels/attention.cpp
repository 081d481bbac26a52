// Compiled once for each instruction set, which PACELINE_ISA names.
#include "kernels/templates/attention.hpp"

#include "kernels/table_parts.hpp"

namespace paceline::PACELINE_ISA {

void fill_attention_kernels(KernelTable& table) {
  table.store_kv = store_kv;
  table.attend = attend;
  table.merge_partials = merge_partials;
}

}  // namespace paceline::PACELINE_ISA
