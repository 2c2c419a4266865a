// SPDX-License-Identifier: Apache-2.0
#include "aten/boxed.h"

#include <c10/core/InferenceMode.h>
#include <c10/util/flat_hash_map.h>

#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "aten/cpu.h"
#include "aten/layout.h"
#include "aten/never_followed.h"
#include "runtime/below_functionality.h"
#include "runtime/generator.h"

namespace flagos {

namespace {

// A FakeTensor outside of its mode: it says that it is on flagos, and its memory is on meta.
bool is_fake(const c10::IValue& value) {
  if (!value.isTensor()) {
    return false;
  }
  const at::Tensor& tensor = value.toTensor();
  return tensor.defined() && tensor.key_set().has(c10::DispatchKey::Python) && tensor.has_storage() &&
      tensor.storage().device_type() == c10::DeviceType::Meta;
}

struct Binding {
  at::Tensor original; // on flagos
  at::Tensor alias;
  bool written;
};

struct StorageBinding {
  c10::Storage original; // on flagos
  c10::Storage alias;    // its native storage
};

} // namespace

void check_writable(const c10::TensorImpl* tensor) {
  // torch lets other devices' kernels of lists write to inference tensors.
  TORCH_CHECK(
      tensor->version_counter().enabled() || native->owned_by_torch || c10::InferenceMode::is_enabled(),
      "Inplace update to inference tensor outside InferenceMode is not allowed. You can make a clone to get a "
      "normal tensor before doing inplace update. See https://github.com/pytorch/rfcs/pull/17 for more details.");
}

namespace {

// One call of one operator: binds the arguments to aliases, and finds the arguments again among the results.
class Call final : public StorageSource {
 public:
  Call(bool shows_requires_grad, bool counts_versions)
      : shows_requires_grad_(shows_requires_grad), counts_versions_(counts_versions) {}

  // The places of an argument's tensors.
  enum class Place : uint8_t {
    kSame,  // on the device of the other arguments; CPU scalars too
    kIndex, // there or on the CPU
    kAnywhere,
  };

  void convert_argument(c10::IValue& value, bool written, Place place) {
    place_ = place;
    if (value.isTensor()) {
      const at::Tensor tensor = std::move(value).toTensor();
      if (written && tensor.defined() && !is_flagos(tensor)) {
        elsewhere_ = tensor.device(); // a written tensor must be on flagos even when it is a scalar
      }
      value = argument(tensor, written);
    } else if (value.isTensorList()) {
      const auto from = value.toTensorList();
      c10::List<at::Tensor> to;
      to.reserve(from.size());
      bindings_.reserve(bindings_.size() + from.size());
      for (const at::Tensor& tensor : from) {
        to.push_back(argument(tensor, written, /*counted=*/native->owned_by_torch && written));
      }
      value = std::move(to);
    } else if (value.isOptionalTensorList()) {
      place_ = Place::kIndex;
      const auto from = value.toOptionalTensorList();
      c10::List<std::optional<at::Tensor>> to;
      to.reserve(from.size());
      for (const std::optional<at::Tensor> tensor : from) {
        to.push_back(tensor.has_value() ? std::optional<at::Tensor>(argument(*tensor, written)) : std::nullopt);
      }
      value = std::move(to);
    } else if (value.isDevice()) {
      const c10::Device device = value.toDevice();
      requested_ = device;
      if (device.type() == kFlagos) {
        value = native_device(device.index());
      }
    } else if (value.isGenerator()) {
      generators_.push_back(&value);
    } else if (value.isStorage()) {
      const c10::Storage storage = value.toStorage();
      if (storage.device_type() == kFlagos) {
        see_device(storage.device());
        storages_.push_back({storage, native_storage(storage)});
        value = storages_.back().alias;
      } else {
        elsewhere_ = storage.device();
      }
    }
  }

  // To be called after all arguments: throws if they are on several devices, decides which device the results are on,
  // and replaces flagos generators by native ones.
  void settle() {
    if (elsewhere_.has_value() && (device_.has_value() || index_device_.has_value())) {
      raise_mixed_devices(device_.has_value() ? *device_ : *index_device_, *elsewhere_);
    }
    if (index_device_.has_value() && device_.has_value() && *index_device_ != *device_) {
      raise_mixed_devices(*device_, *index_device_);
    }
    if (requested_.has_value() && requested_->type() == kFlagos) {
      output_ = requested_->has_index() ? requested_->index() : current_device();
      check_device_index(*output_);
    } else if (!requested_.has_value() && device_.has_value()) {
      output_ = device_->index();
    }
    for (c10::IValue* value : generators_) {
      const at::Generator generator = value->toGenerator();
      if (!generator.defined()) {
        continue;
      }
      TORCH_CHECK(
          output_.has_value() || generator.device().type() != kFlagos,
          "Expected a '",
          native->name,
          "' device type for generator but found 'flagos'");
      if (output_.has_value()) {
        *value = native_generator(generator);
      }
    }
  }

  c10::DeviceIndex device() const override {
    return output_.has_value() ? *output_ : device_.has_value() ? device_->index() : current_device();
  }

  void convert_result(c10::IValue& value) {
    if (value.isTensor()) {
      value = result(std::move(value).toTensor());
    } else if (value.isTensorList()) {
      const auto from = value.toTensorList();
      c10::List<at::Tensor> to;
      to.reserve(from.size());
      for (const at::Tensor& tensor : from) {
        to.push_back(result(tensor));
      }
      value = std::move(to);
    }
  }

  // Gives written arguments what the kernel changed in their aliases. One that `failed` may have left a sparse tensor
  // whose parts do not fit: that argument stays as it was, and the kernel's own error is the one to tell.
  void settle_written(const Traits& traits, bool failed = false) {
    if (!traits.mutates) {
      return;
    }
    for (Binding& binding : bindings_) {
      try {
        sync_layout(binding.original, binding.alias, *this);
      } catch (const c10::Error&) {
        if (!failed) {
          throw;
        }
      }
      if (C10_UNLIKELY(native->by_copies) && binding.written && !traits.metadata_only) {
        each_part(binding.original, [](const c10::TensorImpl* part) { Mirrors::current()->write_back(part); });
      }
    }
    if (traits.counts_versions) {
      bump_versions();
    }
  }

 private:
  // Kernels have no counter to raise but that of a `counted_alias`.
  void bump_versions() {
    for (const at::Tensor& tensor : written_) {
      tensor.unsafeGetTensorImpl()->bump_version();
    }
  }

 public:
  // The flagos storage for `native`: an argument's when the bytes are that argument's, else a new one. To be called
  // after the kernel.
  c10::Storage flagos_storage(const c10::Storage& native) override {
    const c10::StorageImpl* impl = native.unsafeGetStorageImpl();
    if (C10_UNLIKELY(flagos::native->by_copies)) {
      if (c10::Storage original = Mirrors::current()->original(impl)) {
        return original;
      }
    }
    c10::Storage known = bindings_.size() + outputs_.size() <= kFew ? search_storage(impl) : look_up_storage(impl);
    if (!known) {
      known = wrap_storage(native, device());
      outputs_.push_back({known, native});
    }
    return known;
  }

 private:
  // Up to this number tensors are compared one by one. Beyond, as in an optimizer's lists, they are looked up.
  static constexpr size_t kFew = 16;

  using Places = ska::flat_hash_map<const c10::TensorImpl*, uint32_t>; // in `bindings_`
  struct Directory {
    Places originals;
    Places aliases;
    ska::flat_hash_map<const c10::StorageImpl*, c10::Storage> storages; // flagos storages by native one
    size_t outputs = 0;                                                 // how many of `outputs_` are in `storages`
  };
  Directory& directory() {
    if (directory_ == nullptr) {
      directory_ = std::make_unique<Directory>();
    }
    return *directory_;
  }

  // The flagos storage of a native one; undefined when the native one is new.
  c10::Storage search_storage(const c10::StorageImpl* native) const {
    for (const Binding& binding : bindings_) {
      if (binding.alias.has_storage() && binding.alias.storage().unsafeGetStorageImpl() == native &&
          is_native_storage(native, binding.original.storage().unsafeGetStorageImpl())) {
        return binding.original.storage();
      }
    }
    for (const StorageBinding& binding : storages_) {
      if (binding.alias.unsafeGetStorageImpl() == native) {
        return binding.original;
      }
    }
    for (const StorageBinding& binding : outputs_) {
      if (binding.alias.unsafeGetStorageImpl() == native) {
        return binding.original;
      }
    }
    return {};
  }
  c10::Storage look_up_storage(const c10::StorageImpl* native) {
    Directory& known = directory();
    if (known.storages.empty()) {
      for (const Binding& binding : bindings_) {
        if (binding.alias.has_storage()) {
          const c10::StorageImpl* alias = binding.alias.storage().unsafeGetStorageImpl();
          if (is_native_storage(alias, binding.original.storage().unsafeGetStorageImpl())) {
            known.storages.emplace(alias, binding.original.storage());
          }
        }
      }
      for (const StorageBinding& binding : storages_) {
        known.storages.emplace(binding.alias.unsafeGetStorageImpl(), binding.original);
      }
    }
    for (; known.outputs < outputs_.size(); ++known.outputs) {
      const StorageBinding& output = outputs_[known.outputs];
      known.storages.emplace(output.alias.unsafeGetStorageImpl(), output.original);
    }
    const auto found = known.storages.find(native);
    return found == known.storages.end() ? c10::Storage() : found->second;
  }

  // The binding whose original or alias, as `side` says, is this tensor; null when there is none.
  Binding* bound(at::Tensor Binding::* side, Places Directory::* places_of, const at::Tensor& tensor) {
    if (C10_LIKELY(bindings_.size() <= kFew)) {
      for (Binding& binding : bindings_) {
        if ((binding.*side).is_same(tensor)) {
          return &binding;
        }
      }
      return nullptr;
    }
    Places& places = directory().*places_of;
    if (places.empty()) {
      places.reserve(bindings_.capacity());
    }
    for (size_t place = places.size(); place < bindings_.size(); ++place) {
      places.emplace((bindings_[place].*side).unsafeGetTensorImpl(), static_cast<uint32_t>(place));
    }
    const auto found = places.find(tensor.unsafeGetTensorImpl());
    return found == places.end() ? nullptr : &bindings_[found->second];
  }

  void see_device(c10::Device device) {
    if (!device_.has_value()) {
      device_ = device;
    } else if (*device_ != device) {
      raise_mixed_devices(*device_, device);
    }
  }

  // The alias of a flagos tensor, any other tensor itself. `counted` aliases are for kernels of other devices that
  // write lists and raise the counters themselves.
  at::Tensor argument(const at::Tensor& tensor, bool written, bool counted = false) {
    if (!tensor.defined()) {
      return tensor;
    }
    if (written && counts_versions_) {
      check_writable(tensor.unsafeGetTensorImpl());
      if (tensor.unsafeGetTensorImpl()->version_counter().enabled()) { // inference tensors have none
        written_.push_back(tensor);
      }
    }
    if (!is_flagos(tensor)) {
      if (place_ == Place::kSame && tensor.dim() != 0 && tensor.device().type() != c10::DeviceType::Meta) {
        elsewhere_ = tensor.device();
      }
      return tensor;
    }
    if (place_ == Place::kIndex) {
      index_device_ = tensor.device();
    } else if (place_ == Place::kSame || !device_.has_value()) {
      see_device(tensor.device());
    }
    if (Binding* seen = bound(&Binding::original, &Directory::originals, tensor)) {
      seen->written |= written;
      return seen->alias;
    }
    bindings_.push_back({tensor, make_alias(tensor, counted), written});
    at::Tensor& alias = bindings_.back().alias;
    if (C10_UNLIKELY(shows_requires_grad_) && tensor.requires_grad()) {
      alias = with_requires_grad(alias);
    }
    return alias;
  }

  at::Tensor make_alias(const at::Tensor& tensor, bool counted) {
    if (C10_LIKELY(tensor.key_set().has(c10::DispatchKey::PrivateUse1))) { // dense
      if (const at::Tensor* pooled = aliases_.pooled(tensor, counted)) {
        return *pooled;
      }
    } else {
      takes_nested_ |= tensor.is_nested();
    }
    return counted && tensor.layout() == c10::kStrided && tensor.has_storage() ? counted_alias(tensor)
                                                                               : alias_of(tensor);
  }

  at::Tensor result(at::Tensor tensor) {
    if (!tensor.defined() || tensor.device().type() != native->type) {
      return tensor;
    }
    if (const Binding* binding = bound(&Binding::alias, &Directory::aliases, tensor)) {
      return binding->original;
    }
    if (!output_.has_value()) {
      return tensor;
    }
    at::Tensor wrapped = wrap_result(std::move(tensor), *this);
    return C10_UNLIKELY(takes_nested_) ? counted_view(std::move(wrapped)) : wrapped;
  }

  // In inference mode a view of a tensor that counts its versions counts them too. Views of dense tensors have kernels
  // of their own.
  at::Tensor counted_view(at::Tensor result) const {
    if (result.is_inference() && result.has_storage()) {
      for (const Binding& binding : bindings_) {
        if (binding.original.is_nested() && !binding.original.is_inference() &&
            binding.original.storage().is_alias_of(result.storage())) {
          return view_of_nested(binding.original, result);
        }
      }
    }
    return result;
  }

  Aliases aliases_; // first, so that the bindings, which hold aliases, are destroyed before it
  bool shows_requires_grad_;
  bool counts_versions_;
  bool takes_nested_ = false;
  Place place_ = Place::kSame; // of the argument being converted
  c10::SmallVector<Binding, 6> bindings_;
  c10::SmallVector<at::Tensor, 2> written_; // on any device; filled only for operators that count versions
  c10::SmallVector<StorageBinding, 1> storages_;
  c10::SmallVector<StorageBinding, 2> outputs_;
  std::unique_ptr<Directory> directory_;
  c10::SmallVector<c10::IValue*, 1> generators_;
  std::optional<c10::Device> device_;       // of the flagos arguments
  std::optional<c10::Device> elsewhere_;    // of an argument that is not on flagos
  std::optional<c10::Device> index_device_; // of flagos indices
  std::optional<c10::Device> requested_;    // by a device argument
  std::optional<c10::DeviceIndex> output_;  // of the results; none when they stay native
};

} // namespace

void serve(
    const c10::OperatorHandle& op,
    torch::jit::Stack* stack,
    const Traits& traits,
    c10::function_ref<void(torch::jit::Stack*)> run,
    bool shows_requires_grad) {
  open_device(); // an operator without tensor arguments may be the first to use the device
  const size_t num_arguments = op.schema().arguments().size();
  std::optional<Mirrors> mirrors; // outlives what the call holds
  if (C10_UNLIKELY(native->by_copies)) {
    mirrors.emplace();
    mirrors->fetches = !traits.metadata_only;
  }
  Call call(shows_requires_grad, traits.counts_versions);
  const size_t first = stack->size() - num_arguments;
  for (size_t i = 0; i < num_arguments; ++i) {
    call.convert_argument(
        (*stack)[first + i],
        (traits.writes >> i & 1U) != 0,
        (traits.cpu_arguments >> i & 1U) != 0 ? Call::Place::kAnywhere : Call::Place::kSame);
  }
  call.settle();
  if (C10_UNLIKELY(mirrors.has_value())) {
    mirrors->wait();
  }
  const c10::DeviceIndex device = call.device();
  drain_current_stream(device);
  {
    const NativePoolScope pool(device);
    const BelowFunctionality below;
    try {
      run(stack);
    } catch (...) {
      // The kernel may have resized or written an argument before it failed: the argument must not keep memory that was
      // freed, and its version must tell autograd.
      call.settle_written(traits, /*failed=*/true);
      throw;
    }
  }
  call.settle_written(traits);
  const size_t num_results = op.schema().returns().size();
  for (auto result = stack->end() - static_cast<ptrdiff_t>(num_results); result != stack->end(); ++result) {
    call.convert_result(*result);
  }
  if (C10_UNLIKELY(mirrors.has_value())) {
    mirrors->wait();
  }
}

void serve_natively(
    const c10::OperatorHandle& op,
    c10::DispatchKeySet native_keys,
    torch::jit::Stack* stack,
    const Traits& traits) {
  // Kernels for compressed sparse tensors keep buffers for the backward pass if their arguments require a gradient.
  const bool shows_requires_grad = native_keys.has(native->compressed);
  serve(
      op,
      stack,
      traits,
      [&](torch::jit::Stack* converted) { op.redispatchBoxed(native_keys, converted); },
      shows_requires_grad);
}

BoxedKernel::BoxedKernel(const c10::OperatorHandle& op, c10::DispatchKeySet native_keys)
    : name_(c10::toString(op.operator_name())),
      slot_(op_slot(name_)),
      native_keys_(native_keys),
      traits_(traits_of(op)),
      made_by_shape_(particulars_of(name_).has(kMadeByShape)),
      takes_mixed_lists_(particulars_of(name_).has(kTakesMixedLists)) {
  if (native_keys == native->keys) {
    followed_ =
        std::make_unique<following::Operator>(op, traits_.writes, traits_.counts_versions, why_never_followed(op));
  }
}

namespace {

// Whether the lists among an operator's arguments have tensors on several devices.
bool has_mixed_lists(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  FirstDevice first;
  for (const c10::IValue& value : torch::jit::last(stack, op.schema().arguments().size())) {
    if (!value.isTensorList()) {
      continue;
    }
    for (const c10::IValue& each : value.toListRef()) {
      if (first.differs(each.toTensor())) {
        return true;
      }
    }
  }
  return false;
}

} // namespace

void BoxedKernel::operator()(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
  if (C10_UNLIKELY(enter_op(slot_, name_.c_str()))) {
    launch_before_unseen_call(name_.c_str());
    run_on_cpu(op, stack);
    return;
  }
  // So torch makes real tensors for an operator that it knows no shapes of.
  if (C10_UNLIKELY(made_by_shape_ && is_fake(torch::jit::peek(*stack, 0, op.schema().arguments().size())))) {
    op.redispatchBoxed(native_keys_, stack); // torch's composite, on the tensors themselves
    return;
  }
  if (C10_UNLIKELY(takes_mixed_lists_ && has_mixed_lists(op, *stack))) {
    op.redispatchBoxed(kTensorByTensor, stack);
    return;
  }
  if (!are_graphs_wanted() || followed_ == nullptr) {
    launch_before_unseen_call(name_.c_str());
  } else {
    following::Turn turn(*followed_, *stack);
    if (turn.followed()) {
      return;
    }
    if (turn.records()) {
      turn.serve(*stack, [&](torch::jit::Stack& arguments) { serve_natively(op, native_keys_, &arguments, traits_); });
      return;
    }
  }
  try {
    serve_natively(op, native_keys_, stack, traits_);
  } catch (c10::Error& error) {
    name_while_capturing(error, name_.c_str());
    throw;
  }
}

namespace {

// The flagos tensors that the results of an operator may be views of, by its schema.
std::vector<at::Tensor> viewed_arguments(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  std::vector<at::Tensor> viewed;
  const auto& arguments = op.schema().arguments();
  const size_t first = stack.size() - arguments.size();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::AliasInfo* alias = arguments[i].alias_info();
    const c10::IValue& value = stack[first + i];
    if (alias != nullptr && !alias->isWrite() && value.isTensor() && value.toTensor().defined() &&
        is_flagos(value.toTensor()) && value.toTensor().layout() == c10::kStrided) {
      viewed.push_back(value.toTensor());
    }
  }
  return viewed;
}

// `result` as a view of the argument whose memory it has, for autograd and for its version, as the view that a kernel
// makes of a native tensor is one.
at::Tensor as_view_of(const std::vector<at::Tensor>& viewed, const at::Tensor& result) {
  if (!result.defined() || !is_flagos(result) || result.layout() != c10::kStrided) {
    return result;
  }
  for (const at::Tensor& base : viewed) {
    if (result.is_same(base)) {
      return result;
    }
    if (base.storage().unsafeGetStorageImpl() != result.storage().unsafeGetStorageImpl()) {
      continue;
    }
    if (base.dtype() == result.dtype() && base.is_conj() == result.is_conj() && base.is_neg() == result.is_neg()) {
      return base.as_strided(result.sizes(), result.strides(), result.storage_offset());
    }
    if (!base.is_inference() && !result.is_inference()) {
      result.unsafeGetTensorImpl()->set_version_counter(base.unsafeGetTensorImpl()->version_counter());
    }
    return result;
  }
  return result;
}

} // namespace

void boxed_fallback(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
  static std::mutex mutex;
  static std::unordered_map<std::string, FlagosOpSlot*> slots;
  const std::string name = c10::toString(op.operator_name());
  TORCH_CHECK_NOT_IMPLEMENTED(
      op.hasKernelForDispatchKey(native->dense),
      "flagos: operator ",
      name,
      " has no kernel that the ",
      native->vendor,
      " vendor could run. Register one for ",
      native->dense,
      " or for PrivateUse1 "
      "(torch.library.impl), or see `flagos explain ",
      name,
      "`.");
  FlagosOpSlot* slot = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex);
    FlagosOpSlot*& entry = slots[name];
    if (entry == nullptr) {
      entry = op_slot(name);
    }
    slot = entry;
  }
  launch_before_unseen_call(name.c_str());
  enter_op(slot, name.c_str());
  Traits traits = traits_of(op);
  // torch.library.custom_op registers an ADInplaceOrView kernel that raises the counters.
  traits.counts_versions = traits.mutates && !op.hasKernelForDispatchKey(c10::DispatchKey::ADInplaceOrView);
  const std::vector<at::Tensor> viewed = viewed_arguments(op, *stack);
  native->serve(op, stack, traits);
  if (C10_LIKELY(viewed.empty())) {
    return;
  }
  for (auto result = stack->end() - static_cast<ptrdiff_t>(op.schema().returns().size()); result != stack->end();
       ++result) {
    if (result->isTensor()) {
      *result = as_view_of(viewed, result->toTensor());
    }
  }
}

} // namespace flagos
