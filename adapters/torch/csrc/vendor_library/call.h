// SPDX-License-Identifier: Apache-2.0
// The arguments of a call as flagos_kernels.h has them.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <c10/util/SmallVector.h>

#include <optional>
#include <string>
#include <vector>

#include "vendor_library/form.h"
#include "vendor_library/refusal.h"

namespace flagos {

// The arguments that shapes and dtypes of results depend on.
struct CallSignature {
  c10::SmallVector<uint64_t, 32> words;
  uint64_t hash = 0;
};

class LibraryCall {
 public:
  // Describes the arguments, of which the first is at `first` of the stack, which must stay as it is. Refuses calls
  // that a library is not asked for.
  Refusal describe(const torch::jit::Stack& stack, size_t first, const Form& form);

  // The signature of a call that is described, and has no outputs yet.
  CallSignature signature(const Form& form) const;
  // Likewise, without the sizes and strides of tensors.
  CallSignature dtypes(const Form& form) const;
  // The flagos tensors among the arguments, borrowed.
  const c10::SmallVector<c10::TensorImpl*, 8>& inputs() const {
    return inputs_;
  }
  c10::DeviceIndex device() const {
    return device_;
  }
  const at::Generator& generator() const {
    return generator_;
  }

  // Adds a result, which must live as long as the call. An undefined tensor is not wanted.
  void add_output(const at::Tensor& tensor);
  // The sizes that a result has if they depend on elements, once the call has run; null if the kernel told none.
  const std::vector<int64_t>* sizes_of(size_t output) const;

  // Queues the call. Refuses if the kernel declines it; throws if it fails.
  Refusal run(const FlagosKernels& kernels, const FlagosKernel* kernel, const Form& form);

 private:
  Refusal add(const c10::IValue& value, ArgumentKind kind);
  Refusal add_tensor(const at::Tensor& tensor);
  template <class List>
  Refusal add_tensors(const List& list);
  void add_number(const c10::IValue& number, ArgumentKind kind);
  template <class List, class Store>
  void add_list(const List& list, int32_t tag, Store& store);
  void note(const c10::TensorImpl* tensor, uint32_t flags);
  template <bool kWithShapes>
  CallSignature digest(const Form& form) const;
  // Puts addresses in the place of positions, when nothing moves any more.
  void settle();

  c10::SmallVector<FlagosKernelValue, 12> values_;
  c10::SmallVector<FlagosKernelTensor, 8> tensors_;
  c10::SmallVector<int64_t, 8> listed_; // positions in `tensors_`, -1 for undefined tensors
  c10::SmallVector<const FlagosKernelTensor*, 8> list_;
  c10::SmallVector<int64_t, 16> integers_;
  c10::SmallVector<double, 4> reals_;
  c10::SmallVector<uint8_t, 4> bools_;
  c10::SmallVector<const FlagosKernelTensor*, 4> outputs_;
  c10::SmallVector<int64_t, 4> output_places_; // in `tensors_`, -1 for those that are not wanted
  std::vector<std::optional<std::vector<int64_t>>> sizes_;
  c10::SmallVector<c10::TensorImpl*, 8> inputs_;
  at::Generator generator_;
  c10::DeviceIndex device_ = -1;
};

} // namespace flagos
