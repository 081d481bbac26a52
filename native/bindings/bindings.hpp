// Declares what each binding source adds to the extension module. Bindings only convert values; plain C++ does the
// work.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <string>

#include "paceline/kernel_table.hpp"

namespace paceline {

// Returns the kernels of the named instruction set, or the default ones; throws std::invalid_argument for a set that
// this machine cannot run.
const KernelTable& kernels_or_default(const std::optional<std::string>& name);

void bind_gemm(nanobind::module_& module);         // repacking and GEMM, for tests and benchmarks
void bind_row_kernels(nanobind::module_& module);  // row functions, for tests and benchmarks
void bind_decoder(nanobind::module_& module);
void bind_sampling(nanobind::module_& module);
void bind_machine_probe(nanobind::module_& module);  // the machine's limits, for benchmarks
void bind_suffix(nanobind::module_& module);

}  // namespace paceline
