#define PACELINE_ISA avx2
#include "kernels/templates/attention.hpp"

#include "kernels/table_parts.hpp"

namespace paceline::avx2 {

void fill_attention_kernels(KernelTable& table) {
  table.store_kv = store_kv;
  table.attend = attend;
}

}  // namespace paceline::avx2
