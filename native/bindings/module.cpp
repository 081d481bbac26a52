#include "bindings/bindings.hpp"

#include <nanobind/stl/string.h>

#include <string>
#include <vector>

#include <nanobind/stl/vector.h>

#include "paceline/kernel_table.hpp"

namespace nb = nanobind;

const paceline::KernelTable& paceline::kernels_or_default(const std::optional<std::string>& name) {
  return name ? kernels_named(*name) : default_kernels();
}

namespace {

std::vector<std::string> instruction_sets() {
  std::vector<std::string> names;
  for (const paceline::KernelTable& table : paceline::runnable_kernels()) names.emplace_back(table.name);
  return names;
}

}  // namespace

NB_MODULE(_native, module) {
  module.doc() = "The C++ core: kernels, decoder, sampling.";
  module.def("instruction_sets", &instruction_sets, "Names of the instruction sets this machine can run, slowest first.");
  module.def("default_instruction_set", [] { return std::string(paceline::default_kernels().name); },
             "The instruction set that is used unless PACELINE_ISA says otherwise.");
  paceline::bind_gemm(module);
  paceline::bind_row_kernels(module);
  paceline::bind_decoder(module);
  paceline::bind_sampling(module);
  paceline::bind_machine_probe(module);
  paceline::bind_suffix(module);
}
