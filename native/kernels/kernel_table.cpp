#include "paceline/kernel_table.hpp"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

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

// Linux lets a process use the tile registers only if it asks; the answer holds for all of its threads.
bool may_use_tiles() {
  constexpr long kRequestPermission = 0x1023;
  constexpr long kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// CPUID leaf 7: bits 24 and 25 of EDX are the tile registers and their int8 products.
bool can_run_amx() {
  constexpr unsigned kNeeded = 3U << 24;
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (!can_run_avx512() || __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  return (edx & kNeeded) == kNeeded && may_use_tiles();
}

// Code of an instruction set must not run on a processor without it; that includes the code that fills its table.
std::vector<KernelTable> make_tables() {
  std::vector<KernelTable> tables;
  tables.push_back(make_table("scalar", scalar::fill_row_kernels, scalar::fill_attention_kernels,
                              scalar::fill_gemm_kernels));
  if (can_run_avx2()) {
    tables.push_back(make_table("avx2", avx2::fill_row_kernels, avx2::fill_attention_kernels, avx2::fill_gemm_kernels));
  }
  if (can_run_avx512()) {
    tables.push_back(make_table("avx512", avx512::fill_row_kernels, avx512::fill_attention_kernels,
                                avx512::fill_gemm_kernels));
  }
  if (can_run_amx()) {
    KernelTable table = tables.back();
    table.name = "amx";
    amx::fill_gemm_kernels(table);
    tables.push_back(table);
  }
  return tables;
}

}  // namespace

std::span<const KernelTable> runnable_kernels() {
  static const std::vector<KernelTable> tables = make_tables();
  return tables;
}

namespace {

const KernelTable* find_kernels(std::string_view name) {
  for (const KernelTable& table : runnable_kernels()) {
    if (name == table.name) return &table;
  }
  return nullptr;
}

}  // namespace

const KernelTable& kernels_named(std::string_view name) {
  if (const KernelTable* table = find_kernels(name)) return *table;
  throw std::invalid_argument("instruction set '" + std::string(name) + "' cannot run on this machine");
}

const KernelTable& default_kernels() {
  if (const char* forced = std::getenv("PACELINE_ISA"); forced != nullptr && *forced != '\0') {
    if (const KernelTable* table = find_kernels(forced)) return *table;
    std::string names;
    for (const KernelTable& table : runnable_kernels()) names += (names.empty() ? "" : ", ") + std::string(table.name);
    throw std::invalid_argument("PACELINE_ISA=" + std::string(forced) +
                                " is not an instruction set of this machine, which has " + names);
  }
  return runnable_kernels().back();
}

}  // namespace paceline
