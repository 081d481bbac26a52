// What each binding source adds to the extension module; conversion only, the work is in plain C++ behind.
#pragma once

#include <nanobind/nanobind.h>

namespace paceline {

void bind_gemm(nanobind::module_& module);         // repacking and GEMM, for tests and benchmarks
void bind_row_kernels(nanobind::module_& module);  // row functions, for tests and benchmarks
void bind_decoder(nanobind::module_& module);
void bind_sampling(nanobind::module_& module);

}  // namespace paceline
