// SPDX-License-Identifier: Apache-2.0
// The signature of a call: everything that the launches of an implementation may depend on, except the contents of
// memory.
#pragma once

#include <ATen/core/stack.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/SmallVector.h>

#include <optional>

namespace flagos {

struct Signature {
  c10::SmallVector<uint64_t, 64> words;
  uint64_t hash = 0;
  c10::SmallVector<c10::TensorImpl*, 8> inputs; // flagos tensors, in the order of the arguments; borrowed
  c10::DeviceIndex device = -1;                 // of the inputs, or the current one
  bool aliased = false;                         // two inputs share memory

  // The address of a tensor's first element, also if the tensor is empty.
  static uint64_t address_of(const c10::TensorImpl* impl) {
    return reinterpret_cast<uint64_t>(impl->unsafe_storage().data()) +
        static_cast<uint64_t>(impl->storage_offset()) * impl->itemsize();
  }

  // Describes the last `count` values of the stack. Returns false if it cannot: for generators, tensors that are not
  // dense, and tensors of other devices, except CPU scalars.
  bool describe(const torch::jit::Stack& stack, size_t count);

 private:
  bool add(const c10::IValue& value);
  bool add(const at::Tensor& tensor);
  bool add_elsewhere(const c10::TensorImpl* impl);
};

} // namespace flagos
