#include <nanobind/stl/string.h>

#include <new>
#include <string>

#include "bench/machine_probe.hpp"
#include "bindings/bindings.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace paceline {

void bind_machine_probe(nb::module_& module) {
  nb::class_<MachineProbe>(module, "MachineProbe", "Measures what this machine can read and multiply at best.")
      .def(
          "__init__",
          [](MachineProbe* self, int num_threads, const std::string& instruction_set, size_t buffer_bytes) {
            const nb::gil_scoped_release release;
            new (self) MachineProbe(num_threads, instruction_set, buffer_bytes);
          },
          "num_threads"_a, "instruction_set"_a, "buffer_bytes"_a)
      .def("read_bytes_per_s", &MachineProbe::read_bytes_per_s, nb::call_guard<nb::gil_scoped_release>())
      .def("multiply_adds_per_s", &MachineProbe::multiply_adds_per_s, "duration_s"_a,
           nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace paceline
