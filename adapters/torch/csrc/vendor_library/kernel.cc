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
#include "aten/each_tensor.h"
#include "aten/never_followed.h"
#include "aten/register.h"
#include "aten/traced.h"
#include "runtime/allocator.h"
#include "runtime/pool_memory.h"
#include "runtime/scoped.h"
#include "vendor_library/call.h"
#include "vendor_library/cpu_form.h"
#include "vendor_library/indices.h"
#include "vendor_library/inference.h"
#include "vendor_library/overlap.h"
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
      : particulars(particulars_of(c10::toString(op.operator_name()))),
        found(find_kernel(op, library_kernels())),
        cpu_form(op) {}

  const Particulars& particulars;
  bool takes_indices = particulars.has(kTakesIndices);
  FoundKernel found; // refused where the library does not serve the operator
  CpuForm cpu_form;
  Inference inference;
};

// The kernels of operators by name, for the life of the process. Filled when the device is registered, and by operators
// that are registered later.
Kernel& kernel_of(const c10::OperatorHandle& op) {
  static std::mutex mutex;
  static auto* kernels = new std::unordered_map<std::string, Kernel>;
  const std::lock_guard<std::mutex> lock(mutex);
  return kernels->try_emplace(c10::toString(op.operator_name()), op).first->second;
}

// Whether a kernel may write to `output`: the host checks what torch's kernels check themselves. A pointwise kernel
// reads each element before it writes to its place.
Refusal may_write(const at::Tensor& output, const Result* result, const LibraryCall& call, const Form& form) {
  c10::TensorImpl* impl = output.unsafeGetTensorImpl();
  if (result != nullptr && (impl->sizes() != at::IntArrayRef(result->sizes) || output.scalar_type() != result->dtype)) {
    return Refusal("a tensor to write to has another shape or dtype than the result");
  }
  if (impl->numel() != 0 && may_overlap(impl)) {
    return Refusal("elements of a tensor to write to overlap");
  }
  for (c10::TensorImpl* input : call.inputs()) {
    if (form.in_place && input == call.inputs()[0] && input == impl) {
      continue;
    }
    if (may_share(impl, input) && !(form.pointwise && same_elements(impl, input))) {
      return Refusal("a tensor to write to overlaps an argument");
    }
  }
  return {};
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

// Visits the tensors that an operator of such a form writes as they are.
template <class Visit>
void each_written(const Form& form, const torch::jit::Stack& stack, size_t first, const Visit& visit) {
  for (const int place : form.written) {
    each_tensor(stack[first + static_cast<size_t>(place)], visit);
  }
}

// Adds the arguments that the operator writes to, as they are. No element of them may lie in another argument.
Refusal add_written(LibraryCall& call, const Form& form, const torch::jit::Stack& stack, size_t first) {
  bool all_plain = true;
  each_written(form, stack, first, [&](const at::Tensor& output) {
    all_plain = all_plain && output.defined() && is_plain(output, call.device()) &&
        (output.numel() == 0 || !may_overlap(output.unsafeGetTensorImpl()));
    if (all_plain) {
      call.add_output(output);
    }
  });
  if (!all_plain) {
    return Refusal("a tensor to write to is not a plain one of the device");
  }
  return share_memory(call.inputs()) ? Refusal("arguments share memory") : Refusal();
}

// Raises the version counters of the arguments that were written to, for operators for which torch does not.
void bump_versions(const Form& form, const torch::jit::Stack& stack, size_t first) {
  each_written(form, stack, first, [](const at::Tensor& tensor) {
    if (tensor.unsafeGetTensorImpl()->version_counter().enabled()) {
      tensor.unsafeGetTensorImpl()->bump_version();
    }
  });
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

// Whether a result is converted to the dtype of `out` afterwards, where torch surely does that; else the CPU's operator
// tells whether `out` is refused.
bool is_converted(const at::Tensor& output, const Result& result) {
  return at::isFloatingType(result.dtype) && output.scalar_type() != result.dtype &&
      c10::canCast(result.dtype, output.scalar_type()) && output.sizes() == at::IntArrayRef(result.sizes);
}

// Adds an argument as the output for one result, which is null where the outputs are given.
Refusal add_given(const Form& form, LibraryCall& call, const Result* result, Outputs& outputs) {
  const at::Tensor& output = outputs.tensors.back();
  if (!is_plain(output, call.device())) {
    return Refusal("a tensor to write to is not a plain one of the device");
  }
  const auto& inputs = call.inputs();
  const bool is_read = std::find(inputs.begin(), inputs.end(), output.unsafeGetTensorImpl()) != inputs.end();
  if (result != nullptr && !form.in_place && !is_read && result->is_defined) {
    resize_empty(output, *result);
    if (form.pointwise && is_converted(output, *result)) {
      outputs.converted.emplace_back(outputs.tensors.size() - 1, allocate(*result));
      call.add_output(outputs.converted.back().second);
      return {};
    }
  }
  if (Refusal refusal = may_write(output, result, call, form)) {
    return refusal;
  }
  call.add_output(output);
  return {};
}

// Adds the outputs of an operator that only writes its results.
Refusal add_outputs(Kernel& kernel, LibraryCall& call, const torch::jit::Stack& stack, size_t first, Outputs& outputs) {
  const Form& form = kernel.found.form;
  Results results;
  if (form.functional.has_value()) {
    if (Refusal refusal = kernel.inference.results(form, call, stack, first, results)) {
      return refusal;
    }
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
    if (Refusal refusal = add_given(form, call, result, outputs)) {
      return refusal;
    }
  }
  return {};
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

// Gives the outputs what is left to do for them after the kernel was queued.
void finish(const Form& form, const LibraryCall& call, const torch::jit::Stack& stack, size_t first, Outputs& outputs) {
  for (const auto& [place, result] : outputs.converted) {
    outputs.tensors[place].copy_(result);
  }
  for (size_t i = 0; i < outputs.tensors.size(); ++i) {
    if (const std::vector<int64_t>* sizes = call.sizes_of(i)) {
      outputs.tensors[i] = first_elements(std::move(outputs.tensors[i]), *sizes);
    }
  }
  if (C10_UNLIKELY(!form.written.empty())) {
    for (const int place : form.results) {
      outputs.tensors.push_back(stack[first + static_cast<size_t>(place)].toTensor());
    }
  }
}

// Serves a call by the library. The arguments are still on the stack if the library refuses.
Refusal call_library(Kernel& kernel, torch::jit::Stack* stack, size_t num_arguments, bool counts_versions) {
  const Form& form = kernel.found.form;
  const size_t first = stack->size() - num_arguments;
  if (C10_UNLIKELY(kernel.takes_indices)) {
    prepare_indices(*stack, first);
  }
  LibraryCall call;
  if (Refusal refusal = call.describe(*stack, first, form)) {
    return refusal;
  }
  open_device();
  const DeviceScope scope(call.device());
  const bool writes_as_it_is = C10_UNLIKELY(!form.written.empty());
  Outputs outputs;
  if (Refusal refusal = writes_as_it_is ? add_written(call, form, *stack, first)
                                        : add_outputs(kernel, call, *stack, first, outputs)) {
    return refusal;
  }
  if (Refusal refusal = call.run(*library_kernels(), kernel.found.kernel, form)) {
    return refusal;
  }
  finish(form, call, *stack, first, outputs);
  if (writes_as_it_is && counts_versions) {
    bump_versions(form, *stack, first);
  }
  push_results(stack, first, form, outputs);
  return {};
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

// Of every operator.
const Refusal refused_by_plan("the plan routes it to the CPU");
const Refusal refused_by_layout("kernels of libraries take dense tensors only");

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
        traced_inside_(kernel_.particulars.has(kTracedInside)) {
    if (!kernel_.found.refusal && native_keys_.has(native->dense) && !traits_.metadata_only) {
      followed_ =
          std::make_unique<following::Operator>(op, traits_.writes, traits_.counts_versions, why_never_followed(op));
    }
  }

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
    if (C10_LIKELY(!repeats_call)) {
      count_call(slot_);
    }
    const uint32_t route = route_of(slot_);
    if (C10_UNLIKELY(route == FLAGOS_ROUTE_BLOCKED)) {
      raise_blocked(name_.c_str());
    }
    if (C10_UNLIKELY(traced_inside_ && is_tracing())) {
      op.redispatchBoxed(kComposite, stack);
      return;
    }
    const Refusal* refusal = refused_before(route);
    if (are_graphs_wanted() && refusal == nullptr && followed_ != nullptr) {
      following::Turn turn(*followed_, *stack);
      if (turn.followed()) {
        log_dispatch(slot_, name_.c_str(), native->name.c_str());
        return;
      }
      if (turn.records()) {
        turn.serve(*stack, [&](torch::jit::Stack& arguments) { serve(op, &arguments, route, nullptr); });
        return;
      }
      const Scoped parts(following::is_part, true);
      serve(op, stack, route, nullptr);
      return;
    }
    if (refusal != nullptr && !traits_.metadata_only && !(composite_ && route != FLAGOS_ROUTE_CPU_FALLBACK)) {
      // The CPU looks at the device. Parts of a composite are seen by themselves.
      launch_before_unseen_call(name_.c_str());
    }
    serve(op, stack, route, refusal);
  }

 private:
  // `refusal`: why the library is not asked; null if it is.
  void serve(const c10::OperatorHandle& op, torch::jit::Stack* stack, uint32_t route, const Refusal* refusal) {
    Refusal of_this_call;
    if (C10_LIKELY(refusal == nullptr)) {
      of_this_call = by_library(stack);
      if (!of_this_call) {
        if (C10_UNLIKELY(repeats_call)) {
          return;
        }
        log_dispatch(slot_, name_.c_str(), native->name.c_str());
        return;
      }
      refusal = &of_this_call;
    }
    if (composite_ && route != FLAGOS_ROUTE_CPU_FALLBACK) {
      // Its parts reach the library's kernels.
      op.redispatchBoxed(native_keys_, stack); // to the composite: see `left_to_composite`
      return;
    }
    log_dispatch(slot_, name_.c_str(), "cpu");
    call_cpu(op, native_keys_, stack, traits_, kernel_, name_, refusal->reason());
  }

  // The reason why the library is not even asked; null if it is.
  const Refusal* refused_before(uint32_t route) const {
    if (kernel_.found.refusal) {
      return &kernel_.found.refusal;
    }
    if (C10_UNLIKELY(route == FLAGOS_ROUTE_CPU_FALLBACK)) {
      return &refused_by_plan;
    }
    return C10_UNLIKELY(!native_keys_.has(native->dense)) ? &refused_by_layout : nullptr;
  }

  Refusal by_library(torch::jit::Stack* stack) {
    try {
      return call_library(kernel_, stack, num_arguments_, traits_.counts_versions);
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
  std::unique_ptr<following::Operator> followed_; // null where the library serves no call
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

const Refusal& refusal_by_library(const c10::OperatorHandle& op) {
  return kernel_of(op).found.refusal;
}

void serve_by_library(const c10::OperatorHandle& op, torch::jit::Stack* stack, const Traits& traits) {
  Kernel& kernel = kernel_of(op);
  const Refusal* refusal = &kernel.found.refusal;
  Refusal of_this_call;
  if (!*refusal) {
    of_this_call = call_library(kernel, stack, op.schema().arguments().size(), traits.counts_versions);
    if (!of_this_call) {
      return;
    }
    refusal = &of_this_call;
  }
  call_cpu(op, native->keys, stack, traits, kernel, c10::toString(op.operator_name()), refusal->reason());
}

Refusal copy_by_library(const at::Tensor& to, const at::Tensor& from) {
  static Kernel& kernel = kernel_of(*find_operator(at::_ops::copy_::name));
  if (kernel.found.refusal) {
    return Refusal(kernel.found.refusal.reason());
  }
  torch::jit::Stack stack{to, from, false};
  return call_library(kernel, &stack, stack.size(), /*counts_versions=*/false);
}

} // namespace flagos
