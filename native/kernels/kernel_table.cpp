#include "paceline/kernel_table.hpp"

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "kernels/table_parts.hpp"

namespace paceline {
namespace {

using Fill = void (*)(KernelTable&);

KernelTable make_table(const char* name, Fill rows, Fill attention, Fill gemm) {
  KernelTable table{};
  table.name = name;
  rows(table);
  attention(table);
  gemm(table);
  return table;
}

bool can_run_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

bool can_run_avx512() {
  return can_run_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni");
}

}  // namespace

const KernelTable* find_kernels(std::string_view name) {
  static const KernelTable scalar_table = make_table("scalar", scalar::fill_row_kernels,
                                                     scalar::fill_attention_kernels, scalar::fill_gemm_kernels);
  static const KernelTable avx2_table =
      make_table("avx2", avx2::fill_row_kernels, avx2::fill_attention_kernels, avx2::fill_gemm_kernels);
  static const KernelTable avx512_table = make_table("avx512", avx512::fill_row_kernels,
                                                     avx512::fill_attention_kernels, avx512::fill_gemm_kernels);
  if (name == "scalar") return &scalar_table;
  if (name == "avx2" && can_run_avx2()) return &avx2_table;
  if (name == "avx512" && can_run_avx512()) return &avx512_table;
  return nullptr;
}

const KernelTable& kernels_named(std::string_view name) {
  if (const KernelTable* table = find_kernels(name)) return *table;
  throw std::invalid_argument("instruction set '" + std::string(name) + "' cannot run on this machine");
}

const KernelTable& default_kernels() {
  if (const char* forced = std::getenv("PACELINE_ISA"); forced != nullptr && *forced != '\0') {
    if (const KernelTable* table = find_kernels(forced)) return *table;
    throw std::invalid_argument("PACELINE_ISA=" + std::string(forced) +
                                " is not an instruction set of this machine; use scalar, avx2 or avx512");
  }
  for (const char* name : {"avx512", "avx2"}) {
    if (const KernelTable* table = find_kernels(name)) return *table;
  }
  return *find_kernels("scalar");
}

}  // namespace paceline
