#define PACELINE_ISA scalar
#include "kernels/templates/attention.hpp"

#include "kernels/table_parts.hpp"

namespace paceline::scalar {

void fill_attention_kernels(KernelTable& table) {
  table.store_kv = store_kv;
  table.attend = attend;
}

}  // namespace paceline::scalar
