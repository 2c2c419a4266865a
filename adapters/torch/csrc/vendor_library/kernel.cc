// SPDX-License-Identifier: Apache-2.0
#include "vendor_library/kernel.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "aten/alias.h"
#include "aten/boxed.h"
#include "aten/register.h"
#include "aten/traced.h"
#include "runtime/allocator.h"
#include "vendor_library/call.h"
#include "vendor_library/cpu_form.h"
#include "vendor_library/inference.h"
#include "vendor_library/register.h"

namespace flagos {

namespace {

const FlagosKernels* library_kernels() {
  static const FlagosKernels* const kernels = core->kernels();
  return kernels;
}

// A kernel of the library with all that is known of its operator.
struct Kernel {
  explicit Kernel(const c10::OperatorHandle& op)
      : particulars(particulars_of(c10::toString(op.operator_name()))), cpu_form(op) {}

  const FlagosKernel* kernel = nullptr; // null where the library does not serve the operator
  Form form;
  std::string why_not;
  const Particulars& particulars;
  bool takes_indices = particulars.has(kTakesIndices);
  CpuForm cpu_form;
  Inference inference;
};

// The kernels of operators by name, for the life of the process. Filled when the device is registered, and by operators
// that are registered later.
Kernel& kernel_of(const c10::OperatorHandle& op) {
  static std::mutex mutex;
  static auto* kernels = new std::unordered_map<std::string, Kernel>;
  const std::string name = c10::toString(op.operator_name());
  const std::lock_guard<std::mutex> lock(mutex);
  const auto [place, fresh] = kernels->try_emplace(name, op);
  Kernel& kernel = place->second;
  if (fresh) {
    if (auto form = find_kernel(op, library_kernels(), &kernel.kernel, kernel.why_not)) {
      kernel.form = std::move(*form);
    } else {
      kernel.kernel = nullptr;
    }
  }
  return kernel;
}

// Whether two elements of a tensor may lie at one place.
bool may_overlap(const c10::TensorImpl* tensor) {
  c10::SmallVector<std::pair<int64_t, int64_t>, 6> dimensions; // strides and sizes
  for (int64_t i = 0; i < tensor->dim(); ++i) {
    if (tensor->size(i) != 1) {
      dimensions.emplace_back(tensor->stride(i), tensor->size(i));
    }
  }
  std::sort(dimensions.begin(), dimensions.end());
  int64_t reach = 0; // from the first element to the last one, of the dimensions seen so far
  for (const auto& [stride, size] : dimensions) {
    if (stride <= reach) {
      return true;
    }
    reach += stride * (size - 1);
  }
  return false;
}

// The addresses from the first element to behind the last one. Strides are never negative.
std::pair<uintptr_t, uintptr_t> addresses(const c10::TensorImpl* tensor) {
  const auto first = reinterpret_cast<uintptr_t>(tensor->unsafe_storage().unsafeGetStorageImpl()->data()) +
      static_cast<uintptr_t>(tensor->storage_offset()) * tensor->itemsize();
  uintptr_t elements = 1;
  for (int64_t i = 0; i < tensor->dim(); ++i) {
    if (tensor->size(i) == 0) {
      return {first, first};
    }
    elements += static_cast<uintptr_t>((tensor->size(i) - 1) * tensor->stride(i));
  }
  return {first, first + elements * tensor->itemsize()};
}

// Whether two tensors are the same elements in the same order.
bool same_elements(const c10::TensorImpl* a, const c10::TensorImpl* b) {
  return a == b ||
      (a->dtype() == b->dtype() && a->sizes() == b->sizes() && a->strides() == b->strides() &&
       addresses(a) == addresses(b));
}

// A dimension of two tensors: the stride, and the sizes in each.
struct Dimension {
  int64_t stride;
  int64_t a_size;
  int64_t b_size;
};

// Whether two of the elements that these dimensions span may lie `distance` apart. The greatest stride comes first, and
// each is greater than what the ones behind it reach, so that few multiples of it come close to the distance.
bool may_meet(const Dimension* dimension, const Dimension* end, int64_t distance) {
  if (dimension == end) {
    return distance == 0;
  }
  const int64_t nearest = distance / dimension->stride;
  for (int64_t steps = nearest - 1; steps <= nearest + 1; ++steps) {
    const bool is_within = -dimension->b_size < steps && steps < dimension->a_size;
    const int64_t rest = distance - steps * dimension->stride;
    if (is_within && std::abs(rest) < dimension->stride && may_meet(dimension + 1, end, rest)) {
      return true;
    }
  }
  return false;
}

// Whether no element of one lies in the other although their ranges intersect: the parts of a tensor that `chunk` along
// the last dimension gives, or its columns. Told for tensors of one dtype and of the same strides.
bool interleave(const c10::TensorImpl* a, const c10::TensorImpl* b, int64_t bytes_apart) {
  const auto itemsize = static_cast<int64_t>(a->itemsize());
  if (a->dtype() != b->dtype() || a->strides() != b->strides() || bytes_apart % itemsize != 0 || may_overlap(a) ||
      may_overlap(b)) {
    return false;
  }
  c10::SmallVector<Dimension, 6> dimensions;
  for (int64_t i = 0; i < a->dim(); ++i) {
    if (a->size(i) != 1 || b->size(i) != 1) {
      dimensions.push_back({a->stride(i), a->size(i), b->size(i)});
    }
  }
  std::sort(dimensions.begin(), dimensions.end(), [](const Dimension& one, const Dimension& other) {
    return one.stride > other.stride;
  });
  return !may_meet(dimensions.begin(), dimensions.end(), bytes_apart / itemsize);
}

// Whether an element of one may lie in the other.
bool may_share(const c10::TensorImpl* a, const c10::TensorImpl* b) {
  const auto [a_first, a_end] = addresses(a);
  const auto [b_first, b_end] = addresses(b);
  return a_first < b_end && b_first < a_end && !interleave(a, b, static_cast<int64_t>(b_first - a_first));
}

// Whether a kernel may write to `output`: the host checks what torch's kernels check themselves. A pointwise kernel
// reads each element before it writes to its place.
bool may_write(
    const at::Tensor& output,
    const Result* result,
    const LibraryCall& call,
    const Form& form,
    std::string& why_not) {
  c10::TensorImpl* impl = output.unsafeGetTensorImpl();
  if (result != nullptr && (impl->sizes() != at::IntArrayRef(result->sizes) || output.scalar_type() != result->dtype)) {
    why_not = "a tensor to write to has another shape or dtype than the result";
    return false;
  }
  if (impl->numel() != 0 && may_overlap(impl)) {
    why_not = "elements of a tensor to write to overlap";
    return false;
  }
  for (c10::TensorImpl* input : call.inputs()) {
    if (form.in_place && input == call.inputs()[0] && input == impl) {
      continue;
    }
    if (may_share(impl, input) && !(form.pointwise && same_elements(impl, input))) {
      why_not = "a tensor to write to overlaps an argument";
      return false;
    }
  }
  return true;
}

at::Tensor allocate(const Result& result) {
  if (!result.is_defined) {
    return {};
  }
  constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);
  return at::detail::empty_strided_generic(result.sizes, result.strides, device_allocator(), kKeys, result.dtype);
}

// A tensor that a kernel may write to, as far as its kind goes.
bool is_plain(const at::Tensor& tensor, c10::DeviceIndex device) {
  return is_flagos(tensor) && tensor.device().index() == device && !tensor.is_conj() && !tensor.is_neg() &&
      tensor.layout() == c10::kStrided;
}

// Gives an empty `out` the shape of the result, as torch's kernels do.
void resize_empty(const at::Tensor& output, const Result& result) {
  if (output.numel() == 0 && output.scalar_type() == result.dtype && output.sizes() != at::IntArrayRef(result.sizes)) {
    output.resize_(result.sizes);
    output.unsafeGetTensorImpl()->set_sizes_and_strides(
        result.sizes, result.strides, output.unsafeGetTensorImpl()->storage_offset());
  }
}

// Adds the arguments that the operator writes to, as they are. No element of them may lie in another argument.
bool add_written(
    LibraryCall& call,
    const Form& form,
    const torch::jit::Stack& stack,
    size_t first,
    std::string& why_not) {
  const auto add = [&](const at::Tensor& output) {
    if (!output.defined() || !is_plain(output, call.device()) ||
        (output.numel() != 0 && may_overlap(output.unsafeGetTensorImpl()))) {
      why_not = "a tensor to write to is not a plain one of the device";
      return false;
    }
    call.add_output(output);
    return true;
  };
  for (const int place : form.written) {
    const c10::IValue& value = stack[first + static_cast<size_t>(place)];
    if (value.isTensor()) {
      if (!add(value.toTensor())) {
        return false;
      }
      continue;
    }
    for (const at::Tensor& tensor : value.toTensorList()) {
      if (!add(tensor)) {
        return false;
      }
    }
  }
  return true;
}

// Raises the version counters of the arguments that were written to, for operators for which torch does not.
void bump_versions(const Form& form, const torch::jit::Stack& stack, size_t first) {
  const auto bump = [](const at::Tensor& tensor) {
    if (tensor.unsafeGetTensorImpl()->version_counter().enabled()) {
      tensor.unsafeGetTensorImpl()->bump_version();
    }
  };
  for (const int place : form.written) {
    const c10::IValue& value = stack[first + static_cast<size_t>(place)];
    if (value.isTensor()) {
      bump(value.toTensor());
      continue;
    }
    for (const at::Tensor& tensor : value.toTensorList()) {
      bump(tensor);
    }
  }
}

// Whether any two arguments share memory, other than by being one tensor: then the order of a list's operations counts.
bool share_memory(const LibraryCall& call) {
  c10::SmallVector<std::pair<uintptr_t, uintptr_t>, 16> ranges;
  for (const c10::TensorImpl* input : call.inputs()) {
    const auto range = addresses(input);
    if (range.first != range.second) {
      ranges.push_back(range);
    }
  }
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].first < ranges[i - 1].second) {
      return true;
    }
  }
  return false;
}

// Replaces masks among indices by the places where they are true, which have as many elements as the result: a kernel's
// results are allocated before it runs. Moves indices of the host to the device. Leaves what torch refuses as it is.
void prepare_indices(torch::jit::Stack& stack, size_t first) {
  const at::Tensor& self = stack[first].toTensor();
  c10::IValue& indices = stack[first + 1];
  if (!indices.isOptionalTensorList() || !is_flagos(self)) {
    return;
  }
  const auto given = indices.toOptionalTensorList();
  const auto is_mask = [](const at::Tensor& index) {
    return index.defined() && (index.scalar_type() == at::kBool || index.scalar_type() == at::kByte);
  };
  bool any = false;
  int64_t dim = 0;
  for (const std::optional<at::Tensor> index : given) {
    if (!index.has_value() || !index->defined()) {
      ++dim;
      continue;
    }
    any = any || index->is_cpu() || is_mask(*index);
    if (!index->is_cpu() && index->device() != self.device()) {
      return;
    }
    if (!is_mask(*index)) {
      ++dim;
      continue;
    }
    for (int64_t i = 0; i < index->dim(); ++i) {
      if (dim + i >= self.dim() || index->size(i) != self.size(dim + i)) {
        return;
      }
    }
    if (index->dim() == 0) {
      return;
    }
    dim += index->dim();
  }
  if (!any) {
    return;
  }
  c10::List<std::optional<at::Tensor>> places;
  for (const std::optional<at::Tensor> index : given) {
    if (!index.has_value() || !index->defined()) {
      places.push_back(index);
      continue;
    }
    if (!is_mask(*index)) {
      places.push_back(index->to(self.device()));
      continue;
    }
    for (const at::Tensor& column : index->nonzero().unbind(1)) {
      places.push_back(column.to(self.device()));
    }
  }
  indices = std::move(places);
}

// The first elements of a result, as many as the kernel says that there are.
at::Tensor first_elements(at::Tensor output, const std::vector<int64_t>& sizes) {
  const int64_t count = c10::multiply_integers(sizes);
  TORCH_CHECK(
      count >= 0 && count <= output.numel(),
      "flagos: a kernel of the vendor's library tells ",
      count,
      " elements of a result with room for ",
      output.numel());
  if (count == output.numel() && output.dim() <= 1) {
    return output;
  }
  output.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  // Into memory for no more than them. torch's own kernels lay rows of places side by side by column.
  at::Tensor exact = sizes.size() == 2 ? at::empty_strided(sizes, {1, sizes[0]}, output.options())
                                       : at::empty(sizes, output.options());
  return exact.copy_(output);
}

// The tensors that a kernel writes, in the order of the operator's results.
struct Outputs {
  c10::SmallVector<at::Tensor, 3> tensors;
  // Those that are computed in another tensor first, by their places.
  c10::SmallVector<std::pair<size_t, at::Tensor>, 1> converted;
};

// Adds the outputs of an operator that only writes its results. Returns false, with the reason, where the library
// cannot serve the call.
bool add_outputs(
    Kernel& kernel,
    LibraryCall& call,
    const torch::jit::Stack& stack,
    size_t first,
    Outputs& outputs,
    std::string& why_not) {
  const Form& form = kernel.form;
  Results results;
  if (form.functional.has_value() && !kernel.inference.results(form, call, stack, first, results, why_not)) {
    return false;
  }
  const size_t count = form.returns_list ? results.size() : form.results.size();
  for (size_t i = 0; i < count; ++i) {
    const Result* result = results.empty() ? nullptr : &results[i];
    if (form.returns_list || form.results[i] < 0) {
      outputs.tensors.push_back(allocate(*result));
      call.add_output(outputs.tensors.back());
      continue;
    }
    outputs.tensors.push_back(stack[first + static_cast<size_t>(form.results[i])].toTensor());
    const at::Tensor& output = outputs.tensors.back();
    if (!is_plain(output, call.device())) {
      why_not = "a tensor to write to is not a plain one of the device";
      return false;
    }
    const auto& inputs = call.inputs();
    const bool is_read = std::find(inputs.begin(), inputs.end(), output.unsafeGetTensorImpl()) != inputs.end();
    if (result != nullptr && !form.in_place && !is_read && result->is_defined) {
      resize_empty(output, *result);
    }
    // A result of another dtype than `out` is converted afterwards where torch surely does that; else the CPU's
    // operator tells whether `out` is refused.
    if (form.pointwise && result != nullptr && !form.in_place && !is_read && result->is_defined &&
        at::isFloatingType(result->dtype) && output.scalar_type() != result->dtype &&
        c10::canCast(result->dtype, output.scalar_type()) && output.sizes() == at::IntArrayRef(result->sizes)) {
      outputs.converted.emplace_back(i, allocate(*result));
      call.add_output(outputs.converted.back().second);
      continue;
    }
    if (!may_write(output, result, call, form, why_not)) {
      return false;
    }
    call.add_output(output);
  }
  return true;
}

// Replaces the arguments on the stack by the results.
void push_results(torch::jit::Stack* stack, size_t first, const Form& form, Outputs& outputs) {
  stack->erase(stack->begin() + static_cast<ptrdiff_t>(first), stack->end());
  if (form.returns_list) {
    stack->emplace_back(c10::List<at::Tensor>(outputs.tensors));
    return;
  }
  for (at::Tensor& output : outputs.tensors) {
    stack->emplace_back(std::move(output));
  }
}

// Serves a call by the library. Returns false with the reason, and the arguments on the stack, if the library does not.
bool call_library(
    Kernel& kernel,
    torch::jit::Stack* stack,
    size_t num_arguments,
    bool counts_versions,
    std::string& why_not) {
  const Form& form = kernel.form;
  const size_t first = stack->size() - num_arguments;
  if (C10_UNLIKELY(kernel.takes_indices)) {
    prepare_indices(*stack, first);
  }
  LibraryCall call;
  if (!call.describe(*stack, first, form, why_not)) {
    return false;
  }
  open_device();
  const DeviceScope scope(call.device());
  Outputs outputs;
  if (C10_UNLIKELY(!form.written.empty())) {
    if (!add_written(call, form, *stack, first, why_not)) {
      return false;
    }
    if (share_memory(call)) {
      why_not = "arguments share memory";
      return false;
    }
  } else if (!add_outputs(kernel, call, *stack, first, outputs, why_not)) {
    return false;
  }
  if (!call.run(*library_kernels(), kernel.kernel, form, why_not)) {
    return false;
  }
  for (const auto& [place, result] : outputs.converted) {
    outputs.tensors[place].copy_(result);
  }
  for (size_t i = 0; i < outputs.tensors.size(); ++i) {
    if (const std::vector<int64_t>* sizes = call.sizes_of(i)) {
      outputs.tensors[i] = first_elements(std::move(outputs.tensors[i]), *sizes);
    }
  }
  if (C10_UNLIKELY(!form.written.empty())) {
    if (counts_versions) {
      bump_versions(form, *stack, first);
    }
    for (const int place : form.results) {
      outputs.tensors.push_back((*stack)[first + static_cast<size_t>(place)].toTensor());
    }
  }
  push_results(stack, first, form, outputs);
  return true;
}

// Serves a call with torch's CPU kernel on copies, and counts that with its reason.
void call_cpu(
    const c10::OperatorHandle& op,
    c10::DispatchKeySet native_keys,
    torch::jit::Stack* stack,
    const Traits& traits,
    const Kernel& kernel,
    const std::string& name,
    const std::string& why) {
  if (!traits.metadata_only) {
    refuse_while_capturing(name, why);
  }
  const bool shows_requires_grad = native_keys.has(native->compressed);
  serve(
      op,
      stack,
      traits,
      [&](torch::jit::Stack* copies) {
        if (!traits.metadata_only) {
          check(core->op_record_fallback(name.c_str(), why.c_str()));
        }
        if (C10_UNLIKELY(kernel.particulars.has(kCountsIntegers)) &&
            count_copies(op.schema().arguments().size(), copies)) {
          return;
        }
        kernel.cpu_form.match(copies);
        op.redispatchBoxed(native_keys, copies);
      },
      shows_requires_grad);
}

// Whether a call that the library declines is computed by torch of other operators, for dense tensors.
bool left_to_composite(const c10::OperatorHandle& op, c10::DispatchKey native_key) {
  return native_key == native->dense && particulars_of(c10::toString(op.operator_name())).has(kServedByTensor) &&
      !op.hasKernelForDispatchKey(native_key) && has_kernel(op, native_key);
}

class LibraryKernel final : public c10::OperatorKernel {
 public:
  LibraryKernel(const c10::OperatorHandle& op, c10::DispatchKey native_key)
      : name_(c10::toString(op.operator_name())),
        slot_(op_slot(name_)),
        native_keys_(native_key),
        traits_(traits_of(op)),
        kernel_(kernel_of(op)),
        num_arguments_(op.schema().arguments().size()),
        composite_(left_to_composite(op, native_key)),
        traced_inside_(kernel_.particulars.has(kTracedInside)) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
    count_call(slot_);
    const uint32_t route = route_of(slot_);
    if (C10_UNLIKELY(route == FLAGOS_ROUTE_BLOCKED)) {
      raise_blocked(name_.c_str());
    }
    if (C10_UNLIKELY(traced_inside_ && is_tracing())) {
      op.redispatchBoxed(kComposite, stack);
      return;
    }
    std::string why_not;
    if (C10_UNLIKELY(kernel_.kernel == nullptr)) {
      why_not = kernel_.why_not;
    } else if (C10_UNLIKELY(route == FLAGOS_ROUTE_CPU_FALLBACK)) {
      why_not = "the plan routes it to the CPU";
    } else if (C10_UNLIKELY(!native_keys_.has(native->dense))) {
      why_not = "kernels of libraries take dense tensors only";
    } else if (by_library(stack, why_not)) {
      log_dispatch(slot_, name_.c_str(), native->name.c_str());
      return;
    }
    if (composite_ && route != FLAGOS_ROUTE_CPU_FALLBACK) {
      // What it consists of reaches the library's kernels.
      op.redispatchBoxed(native_keys_, stack); // to the composite: see `left_to_composite`
      return;
    }
    log_dispatch(slot_, name_.c_str(), "cpu");
    call_cpu(op, native_keys_, stack, traits_, kernel_, name_, why_not);
  }

 private:
  bool by_library(torch::jit::Stack* stack, std::string& why_not) {
    try {
      return call_library(kernel_, stack, num_arguments_, traits_.counts_versions, why_not);
    } catch (c10::Error& error) {
      name_while_capturing(error, name_.c_str());
      throw;
    }
  }

  std::string name_;
  FlagosOpSlot* slot_;
  c10::DispatchKeySet native_keys_;
  Traits traits_;
  Kernel& kernel_;
  size_t num_arguments_;
  bool composite_; // torch computes it of other operators
  bool traced_inside_;
};

} // namespace

void refuse_while_capturing(const std::string& name, const std::string& why) {
  if (C10_UNLIKELY(device_open && native->is_capturing(current_device()))) {
    raise(
        FLAGOS_UNSUPPORTED,
        "flagos: " + name + " would be served by the CPU (" + why +
            "), which a graph that is being captured cannot repeat: call it outside of the capture, or serve it by a "
            "kernel of the device (vendor: " +
            native->vendor + ")");
  }
}

c10::KernelFunction library_kernel(const c10::OperatorHandle& op, c10::DispatchKey native_key) {
  return c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<LibraryKernel>(op, native_key));
}

const std::string* why_not_by_library(const c10::OperatorHandle& op) {
  const Kernel& kernel = kernel_of(op);
  return kernel.kernel != nullptr ? nullptr : &kernel.why_not;
}

void serve_by_library(const c10::OperatorHandle& op, torch::jit::Stack* stack, const Traits& traits) {
  Kernel& kernel = kernel_of(op);
  std::string why_not = kernel.why_not;
  if (kernel.kernel != nullptr &&
      call_library(kernel, stack, op.schema().arguments().size(), traits.counts_versions, why_not)) {
    return;
  }
  call_cpu(op, native->keys, stack, traits, kernel, c10::toString(op.operator_name()), why_not);
}

bool copy_by_library(const at::Tensor& to, const at::Tensor& from, std::string& why_not) {
  static Kernel& kernel = kernel_of(*find_operator(at::_ops::copy_::name));
  if (kernel.kernel == nullptr) {
    why_not = kernel.why_not;
    return false;
  }
  torch::jit::Stack stack{to, from, false};
  return call_library(kernel, &stack, stack.size(), /*counts_versions=*/false, why_not);
}

} // namespace flagos
