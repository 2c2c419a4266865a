// SPDX-License-Identifier: Apache-2.0
#include "aten/copy.h"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/ops/empty.h>

#include "aten/followed.h"
#include "aten/layout.h"
#include "aten/register.h"
#include "runtime/below_functionality.h"
#include "runtime/pool_memory.h"

namespace flagos {

namespace {

// One side of a copy for a native kernel: the alias of a flagos tensor, any other tensor itself.
class NativeSide {
 public:
  explicit NativeSide(const at::Tensor& tensor) {
    if (!is_flagos(tensor)) {
      native_ = tensor;
    } else if (C10_LIKELY(tensor.layout() == c10::kStrided && !tensor.is_nested() && !tensor.is_quantized())) {
      alias_ = &aliases_.of(tensor);
    } else {
      native_ = alias_of(tensor);
    }
  }
  at::Tensor& get() {
    return alias_ != nullptr ? *alias_ : native_;
  }

 private:
  Aliases aliases_;
  at::Tensor* alias_ = nullptr;
  at::Tensor native_;
};

// The storages of the new parts that a copy gives to a sparse destination.
class CopySource final : public StorageSource {
 public:
  explicit CopySource(c10::DeviceIndex device) : device_(device) {}
  c10::Storage flagos_storage(const c10::Storage& native) override {
    return wrap_storage(native, device_);
  }
  c10::DeviceIndex device() const override {
    return device_;
  }

 private:
  c10::DeviceIndex device_;
};

} // namespace

bool is_plain_copy(const at::Tensor& to, const at::Tensor& from) {
  return to.layout() == c10::kStrided && from.layout() == c10::kStrided && to.dtype() == from.dtype() &&
      to.sizes() == from.sizes() && to.strides() == from.strides() && to.is_non_overlapping_and_dense() &&
      to.is_conj() == from.is_conj() && to.is_neg() == from.is_neg() && !to.is_quantized() && !from.is_quantized() &&
      to.numel() != 0;
}

bool copy_pinned(at::Tensor& to, const at::Tensor& from) {
  const bool to_device = is_flagos(to);
  if (to_device == is_flagos(from) || !is_plain_copy(to, from)) {
    return false;
  }
  const at::Tensor& host = to_device ? from : to;
  if (host.device().type() != c10::DeviceType::CPU || core->is_pinned(host.const_data_ptr()) == 0) {
    return false;
  }
  const c10::DeviceIndex device = (to_device ? to : from).device().index();
  const uint64_t stream = current_stream(device);
  check(core->copy_async(device, stream, to.mutable_data_ptr(), from.const_data_ptr(), to.nbytes()));
  at::getHostAllocator(kFlagos)->record_event(
      const_cast<void*>(host.const_data_ptr()), host.storage().data_ptr().get_context(), to_stream(device, stream));
  return true;
}

void copy_natively(at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  NativeSide native_to(to);
  NativeSide native_from(from);
  const BelowFunctionality below;
  at::_ops::copy_::call(native_to.get(), native_from.get(), non_blocking);
  if (C10_UNLIKELY(to.layout() != c10::kStrided && is_flagos(to))) {
    CopySource source(to.device().index());
    sync_layout(to, native_to.get(), source);
  }
}

namespace {

void check_side(const at::Tensor& side) {
  TORCH_CHECK(
      is_flagos(side) || side.is_cpu() || side.is_meta() || side.device().type() == native->type,
      "flagos: cannot copy between flagos and ",
      side.device(),
      "; go through the CPU: tensor.cpu()");
}

void copy(at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  if (to.is_same(from)) {
    return;
  }
  check_side(to);
  check_side(from);
  copy_with_names(to, from, [&] { native->copy(to, from, non_blocking); });
}

at::Tensor& copy_(at::Tensor& self, const at::Tensor& src, bool non_blocking) {
  if (C10_LIKELY(!repeats_call)) {
    Slot<at::_ops::copy_>::enter_without_work();
  }
  if (are_graphs_wanted() && is_flagos(self) && is_flagos(src) && !self.is_same(src)) {
    FollowedCall<at::_ops::copy_> call(self, src, non_blocking);
    if (call.serve([&](torch::jit::Stack& stack) {
          copy(self, src, non_blocking);
          stack = {self};
        })) {
      return self;
    }
  } else {
    launch_pending(Slot<at::_ops::copy_>::name);
    lend_to_another_stream(self);
    lend_to_another_stream(src);
  }
  copy(self, src, non_blocking);
  return self;
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& dst, bool non_blocking) {
  Slot<at::_ops::_copy_from>::enter();
  at::Tensor to = dst;
  copy(to, self, non_blocking);
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& dst) {
  Slot<at::_ops::_copy_from_and_resize>::enter();
  at::Tensor to = dst;
  to.resize_(self.sizes());
  copy(to, self, /*non_blocking=*/false);
  return to;
}

// torch's copy-on-write storages need torch's own allocators, so this copies at once: all bytes of the storage, with
// the same strides and offset.
at::Tensor lazy_clone(const at::Tensor& self) {
  Slot<at::_ops::_lazy_clone>::enter();
  const auto bytes = static_cast<int64_t>(self.storage().nbytes());
  const auto as_bytes = self.options().dtype(at::kByte);
  const at::Tensor from = at::empty({0}, as_bytes).set_(self.storage(), 0, {bytes}, {1});
  const at::Tensor to = at::empty({bytes}, as_bytes).copy_(from);
  return at::empty({0}, self.options()).set_(to.storage(), self.storage_offset(), self.sizes(), self.strides());
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  Slot<at::_ops::record_stream>::enter_without_work(); // it is lent
  TORCH_CHECK(
      stream.device_type() == kFlagos || (native->owned_by_torch && stream.device_type() == native->type),
      "flagos: record_stream needs a flagos stream, got one of ",
      stream.device());
  lend_memory_of(self); // another stream uses it, and nobody would know where it moved to
  device_allocator()->recordStream(self.storage().data_ptr(), stream);
}

} // namespace

void register_copies(Registrar& registrar) {
  registrar.kernel<at::_ops::copy_>(TORCH_FN(copy_));
  FollowedCall<at::_ops::copy_>::note();
  registrar.kernel<at::_ops::_copy_from>(TORCH_FN(copy_from));
  registrar.kernel<at::_ops::_copy_from_and_resize>(TORCH_FN(copy_from_and_resize));
  registrar.kernel<at::_ops::record_stream>(TORCH_FN(record_stream));
  registrar.kernel<at::_ops::_lazy_clone>(TORCH_FN(lazy_clone));
  // Quantized, sparse and nested tensors move between devices too.
  for (const auto key :
       {c10::DispatchKey::SparsePrivateUse1,
        c10::DispatchKey::SparseCsrPrivateUse1,
        c10::DispatchKey::QuantizedPrivateUse1,
        c10::DispatchKey::NestedTensorPrivateUse1}) {
    auto* other = new torch::Library(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
    other->impl("copy_", TORCH_FN(copy_));
  }
}

} // namespace flagos
