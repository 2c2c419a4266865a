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

namespace flagos {

// What shapes and dtypes of results depend on.
struct CallSignature {
  c10::SmallVector<uint64_t, 32> words;
  uint64_t hash = 0;

  void finish();
};

class LibraryCall {
 public:
  // Describes the arguments, of which the first is at `first` of the stack, which must stay as it is. Returns false
  // with the reason if a library is not asked for such a call.
  bool describe(const torch::jit::Stack& stack, size_t first, const Form& form, std::string& why_not);

  const CallSignature& signature() const {
    return signature_;
  }
  // Likewise, without the sizes and strides of tensors.
  const CallSignature& dtypes() const {
    return dtypes_;
  }
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

  // Queues the call. Returns false with the reason if the kernel declines it; throws if it fails.
  bool run(const FlagosKernels& kernels, const FlagosKernel* kernel, const Form& form, std::string& why_not);

 private:
  bool add(const c10::IValue& value, ArgumentKind kind, bool has_tensors, std::string& why_not);
  bool add_tensor(const at::Tensor& tensor, std::string& why_not);
  template <class List>
  bool add_tensors(const List& list, FlagosKernelValue& value, std::string& why_not);
  void add_number(const c10::IValue& from, FlagosKernelValue& value);
  void add_word(uint64_t word);
  void add_words(const c10::TensorImpl* tensor, uint64_t flags);
  void note(const c10::TensorImpl* tensor, uint32_t flags);
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
  CallSignature signature_;
  CallSignature dtypes_;
  at::Generator generator_;
  c10::DeviceIndex device_ = -1;
};

} // namespace flagos
