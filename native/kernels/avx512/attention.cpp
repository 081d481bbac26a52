#define PACELINE_ISA avx512
#include "kernels/templates/attention.hpp"

#include "kernels/table_parts.hpp"

namespace paceline::avx512 {

void fill_attention_kernels(KernelTable& table) {
  table.store_kv = store_kv;
  table.attend = attend;
}

}  // namespace paceline::avx512
