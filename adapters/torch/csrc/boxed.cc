// SPDX-License-Identifier: Apache-2.0
#include "boxed.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "generator.h"
#include "layout.h"

namespace flagos {

namespace {

// Operators whose CPU tensor arguments are legitimate beside flagos ones, as on any accelerator.
const std::unordered_set<std::string>& cpu_tensor_operators() {
  static const std::unordered_set<std::string> names = {
      "aten::index.Tensor",
      "aten::index.Tensor_out",
      "aten::_unsafe_index.Tensor",
      "aten::_unsafe_masked_index",
      "aten::_unsafe_masked_index_put_accumulate",
      "aten::index_put",
      "aten::index_put_",
      "aten::index_put.out",
      "aten::_unsafe_index_put",
      "aten::_index_put_impl",
      "aten::_index_put_impl_",
      "aten::_index_put_impl.out",
      "aten::_ctc_loss.Tensor",
      "aten::_ctc_loss.Tensor_out",
      "aten::_ctc_loss_backward.Tensor",
      "aten::_foreach_addcdiv.Tensor",
      "aten::_foreach_addcdiv_.Tensor",
      "aten::_foreach_addcmul.Tensor",
      "aten::_foreach_addcmul_.Tensor",
      "aten::_foreach_copy_",
      "aten::_foreach_copy",
      "aten::_pad_packed_sequence",
      "aten::_thnn_differentiable_lstm_cell_backward",
      "aten::_to_cpu",
      "aten::set_.source_Tensor",
      "aten::mkldnn_rnn_layer",
  };
  return names;
}

struct Binding {
  at::Tensor original; // on flagos
  at::Tensor alias;    // its native twin
  bool written;        // by the schema
};

struct StorageBinding {
  c10::Storage original;
  c10::Storage alias;
};

// One call of one operator: what went in as what, so that what comes out can be recognised.
class Call final : public StorageSource {
 public:
  Call(bool accepts_cpu_tensors, bool shows_requires_grad)
      : accepts_cpu_tensors_(accepts_cpu_tensors), shows_requires_grad_(shows_requires_grad) {}

  void convert_argument(c10::IValue& value, bool written) {
    if (value.isTensor()) {
      const at::Tensor tensor = std::move(value).toTensor();
      if (written && tensor.defined() && !is_flagos(tensor)) {
        foreign_cpu_ = tensor.device(); // a written tensor must be on the device even when it is a scalar
      }
      value = argument(tensor, written);
    } else if (value.isTensorList()) {
      const auto from = value.toTensorList();
      c10::List<at::Tensor> to;
      to.reserve(from.size());
      for (const at::Tensor& tensor : from) {
        to.push_back(argument(tensor, written));
      }
      value = std::move(to);
    } else if (value.isOptionalTensorList()) {
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
        value = c10::Device(kNative);
      }
    } else if (value.isGenerator()) {
      generators_.push_back(&value);
    } else if (value.isStorage()) {
      const c10::Storage storage = value.toStorage();
      if (storage.device_type() == kFlagos) {
        see_device(storage.device());
        storages_.push_back({storage, twin_storage(storage)});
        value = storages_.back().alias;
      }
    }
  }

  // To be called after all arguments: the device the outputs belong to, or nullopt when they stay native.
  void settle() {
    if (foreign_cpu_.has_value() && device_.has_value() && !accepts_cpu_tensors_) {
      raise_mixed_devices(*device_, *foreign_cpu_);
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
      if (output_.has_value() || generator.device().type() == kFlagos) {
        *value = native_generator(generator);
        if (!output_.has_value() && !requested_.has_value()) {
          output_ = generator.device().index();
        }
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

  void sync() {
    for (Binding& binding : bindings_) {
      sync_layout(binding.original, binding.alias, *this);
    }
  }

  // For operators whose version counters torch leaves to the kernels.
  void bump_versions() {
    for (Binding& binding : bindings_) {
      if (binding.written && !binding.original.is_inference()) {
        binding.original.unsafeGetTensorImpl()->bump_version();
      }
    }
  }

  // The flagos storage to use for `native`: that of an argument when the bytes are an argument's.
  c10::Storage flagos_storage(const c10::Storage& native) override {
    const c10::StorageImpl* impl = native.unsafeGetStorageImpl();
    for (const Binding& binding : bindings_) {
      if (binding.alias.has_storage() && binding.alias.storage().unsafeGetStorageImpl() == impl &&
          shares_twin(binding.original, impl)) {
        return binding.original.storage();
      }
    }
    for (const StorageBinding& binding : storages_) {
      if (binding.alias.unsafeGetStorageImpl() == impl) {
        return binding.original;
      }
    }
    for (const StorageBinding& binding : outputs_) {
      if (binding.alias.unsafeGetStorageImpl() == impl) {
        return binding.original;
      }
    }
    outputs_.push_back({wrap_storage(native, device()), native});
    return outputs_.back().original;
  }

 private:
  // A kernel may have given the alias another storage; then it is no longer the twin.
  static bool shares_twin(const at::Tensor& original, const c10::StorageImpl* native) {
    const c10::StorageImpl* storage = original.storage().unsafeGetStorageImpl();
    return twin_of(storage->data_ptr()) == native || native->data_ptr().get_context() == storage;
  }

  void see_device(c10::Device device) {
    if (!device_.has_value()) {
      device_ = device;
    } else if (*device_ != device && !accepts_cpu_tensors_) {
      raise_mixed_devices(*device_, device);
    }
  }

  at::Tensor argument(const at::Tensor& tensor, bool written) {
    if (!tensor.defined()) {
      return tensor;
    }
    if (!is_flagos(tensor)) {
      if (tensor.dim() != 0 && tensor.device().type() != c10::DeviceType::Meta) {
        foreign_cpu_ = tensor.device();
      }
      return tensor;
    }
    see_device(tensor.device());
    for (Binding& binding : bindings_) {
      if (binding.original.is_same(tensor)) {
        binding.written |= written;
        return binding.alias;
      }
    }
    bindings_.push_back({tensor, alias_of(tensor), written});
    at::Tensor& alias = bindings_.back().alias;
    if (C10_UNLIKELY(shows_requires_grad_) && tensor.requires_grad()) {
      alias = with_requires_grad(alias);
    }
    return alias;
  }

  at::Tensor result(at::Tensor tensor) {
    if (!tensor.defined() || tensor.device().type() != kNative) {
      return tensor;
    }
    for (const Binding& binding : bindings_) {
      if (binding.alias.is_same(tensor)) {
        return binding.original;
      }
    }
    if (!output_.has_value()) {
      return tensor;
    }
    return wrap_result(std::move(tensor), *this);
  }

  bool accepts_cpu_tensors_;
  bool shows_requires_grad_;
  c10::SmallVector<Binding, 6> bindings_;
  c10::SmallVector<StorageBinding, 1> storages_;
  c10::SmallVector<StorageBinding, 2> outputs_;
  c10::SmallVector<c10::IValue*, 1> generators_;
  std::optional<c10::Device> device_;      // of the flagos arguments
  std::optional<c10::Device> foreign_cpu_; // of a tensor argument elsewhere
  std::optional<c10::Device> requested_;   // by a device argument
  std::optional<c10::DeviceIndex> output_;
};

void serve(
    const c10::OperatorHandle& op,
    c10::DispatchKeySet native_keys,
    torch::jit::Stack* stack,
    const Traits& traits) {
  // Kernels for compressed sparse tensors ask their arguments whether to keep what the backward pass needs.
  const bool shows_requires_grad = native_keys.has(c10::DispatchKey::SparseCsrCPU);
  const size_t num_arguments = op.schema().arguments().size();
  Call call(traits.accepts_cpu_tensors, shows_requires_grad);
  const size_t first = stack->size() - num_arguments;
  for (size_t i = 0; i < num_arguments; ++i) {
    const c10::AliasInfo* alias_info = traits.mutates ? op.schema().arguments()[i].alias_info() : nullptr;
    call.convert_argument((*stack)[first + i], alias_info != nullptr && alias_info->isWrite());
  }
  call.settle();
  const c10::DeviceIndex device = call.device();
  drain_current_stream(device);
  {
    const NativePoolScope pool(device);
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    op.redispatchBoxed(native_keys, stack);
  }
  if (traits.mutates) {
    call.sync();
    if (traits.counts_versions) {
      call.bump_versions();
    }
  }
  const size_t num_results = op.schema().returns().size();
  for (auto result = stack->end() - static_cast<ptrdiff_t>(num_results); result != stack->end(); ++result) {
    call.convert_result(*result);
  }
}

} // namespace

BoxedTwin::BoxedTwin(const c10::OperatorHandle& op, c10::DispatchKeySet native_keys)
    : name_(c10::toString(op.operator_name())),
      slot_(op_slot(name_)),
      native_keys_(native_keys),
      traits_{
          op.schema().is_mutable(),
          cpu_tensor_operators().count(name_) != 0,
          name_.rfind("aten::_foreach_", 0) == 0} {}

void BoxedTwin::operator()(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
  enter_op(slot_, name_.c_str());
  serve(op, native_keys_, stack, traits_);
}

void boxed_fallback(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
  static std::mutex mutex;
  static std::unordered_map<std::string, FlagosOpSlot*> slots;
  const std::string name = c10::toString(op.operator_name());
  TORCH_CHECK_NOT_IMPLEMENTED(
      op.hasKernelForDispatchKey(c10::DispatchKey::CPU),
      "flagos: operator ",
      name,
      " has no kernel that the host vendor could run. Register one for the CPU or for PrivateUse1 "
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
  enter_op(slot, name.c_str());
  const Traits traits{op.schema().is_mutable(), /*accepts_cpu_tensors=*/true, /*counts_versions=*/false};
  serve(op, c10::DispatchKeySet(c10::DispatchKey::CPU), stack, traits);
}

} // namespace flagos
