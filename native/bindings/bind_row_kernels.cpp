#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>

#include "bindings/bindings.hpp"
#include "paceline/kernel_table.hpp"

namespace nb = nanobind;

namespace paceline {
namespace {

using Values = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using NewValues = nb::ndarray<nb::numpy, float, nb::ndim<1>>;

// Returns a copy that owns its memory, for a kernel to change in place.
template <class Function>
NewValues transformed(const Values& source, Function function) {
  auto values = std::make_unique<float[]>(source.size());
  std::copy(source.data(), source.data() + source.size(), values.get());
  function(values.get());
  nb::capsule owner(values.get(), [](void* data) noexcept { delete[] static_cast<float*>(data); });
  return NewValues(values.release(), {source.size()}, owner);
}

NewValues rms_norm(const std::string& isa, const Values& source, const Values& weight, float epsilon) {
  return transformed(source, [&](float* values) {
    kernels_named(isa).rms_norm(source.data(), weight.data(), static_cast<int64_t>(source.size()), epsilon, values);
  });
}

NewValues activate(const std::string& isa, const std::string& name, const Values& gate, const Values& up) {
  const KernelTable& kernels = kernels_named(isa);
  const auto kernel = name == "gelu" ? kernels.gelu_multiply : kernels.silu_multiply;
  return transformed(gate, [&](float* values) { kernel(values, up.data(), static_cast<int64_t>(gate.size())); });
}

NewValues rope(const std::string& isa, const std::string& style, const Values& head, const Values& cosine,
               const Values& sine) {
  const KernelTable& kernels = kernels_named(isa);
  const auto kernel = style == "neox" ? kernels.rope_neox : kernels.rope_normal;
  return transformed(head, [&](float* values) {
    kernel(values, cosine.data(), sine.data(), static_cast<int64_t>(head.size()));
  });
}

}  // namespace

void bind_row_kernels(nb::module_& module) {
  nb::module_ kernels = module.def_submodule("row_kernels", "Row functions of one instruction set, for tests.");
  kernels.def("rms_norm", &rms_norm);
  kernels.def("activate", &activate);
  kernels.def("rope", &rope);
  kernels.def("sum_exponentials", [](const std::string& isa, const Values& row, float maximum) {
    return kernels_named(isa).sum_exponentials(row.data(), static_cast<int64_t>(row.size()), maximum);
  });
}

}  // namespace paceline
