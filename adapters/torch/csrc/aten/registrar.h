// SPDX-License-Identifier: Apache-2.0
// How a room registers kernels of its own.
#pragma once

#include <ATen/Operators.h>
#include <torch/library.h>

#include <string>
#include <vector>

#include "aten/route.h"
#include "runtime/pending.h"

namespace flagos {

// The slot and the name of an operator with a kernel of its own, such as `Slot<at::_ops::copy_>`.
template <class Op>
struct Slot {
  static inline FlagosOpSlot* slot = nullptr;
  static inline const char* name = nullptr; // `aten::name.overload`, for the life of the process

  static bool enter() {
    launch_before_unseen_call(name);
    return enter_op(slot, name);
  }
  // For kernels that neither read nor write memory, and for those that automatic graphs know.
  static bool enter_without_work() {
    return enter_op(slot, name);
  }
};

// Registers kernels with torch, gives each operator its slot, and notes its name.
class Registrar {
 public:
  Registrar(torch::Library& library, torch::Library& autograd, std::vector<std::string>& names)
      : library_(library), autograd_(autograd), names_(names) {}

  // A kernel below autograd.
  template <class Op, class Kernel>
  void kernel(Kernel kernel) {
    library_.impl(open<Op>(), torch::CppFunction(kernel));
  }

  // A kernel in the place of torch's composite: torch calls it above autograd, in inference mode below.
  template <class Op, class Kernel>
  void composite(Kernel kernel) {
    const char* name = open<Op>();
    library_.impl(name, torch::CppFunction(kernel));
    autograd_.impl(name, torch::CppFunction(kernel));
  }

  // For PrivateUse1 and for AutogradPrivateUse1: kernels that need no slot.
  torch::Library& library() {
    return library_;
  }
  torch::Library& autograd() {
    return autograd_;
  }

 private:
  template <class Op>
  const char* open() {
    const std::string overload = Op::overload_name;
    const auto* name = new std::string(overload.empty() ? Op::name : std::string(Op::name) + "." + overload);
    Slot<Op>::name = name->c_str();
    Slot<Op>::slot = op_slot(*name);
    names_.push_back(*name);
    return Slot<Op>::name;
  }

  torch::Library& library_;
  torch::Library& autograd_;
  std::vector<std::string>& names_;
};

} // namespace flagos
