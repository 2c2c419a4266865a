// SPDX-License-Identifier: Apache-2.0
#include "aten/register.h"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/empty.h>

#include "aten/layout.h"
#include "aten/route.h"

namespace flagos {

namespace {

FlagosOpSlot* copy_slot = nullptr;
FlagosOpSlot* copy_from_slot = nullptr;
FlagosOpSlot* copy_resize_slot = nullptr;
FlagosOpSlot* record_slot = nullptr;
FlagosOpSlot* lazy_slot = nullptr;

// One side of a copy as native kernels see it, for the length of the copy.
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

// One memcpy does it: same type, same shape and strides without holes, no lazy conjugation on one side only.
bool is_plain(const at::Tensor& to, const at::Tensor& from) {
  return to.layout() == c10::kStrided && from.layout() == c10::kStrided && to.dtype() == from.dtype() &&
      to.sizes() == from.sizes() && to.strides() == from.strides() && to.is_non_overlapping_and_dense() &&
      to.is_conj() == from.is_conj() && to.is_neg() == from.is_neg() && !to.is_quantized() && !from.is_quantized() &&
      to.numel() != 0;
}

// Queues the copy on the current stream if one side is pinned host memory; false when it has to be done at once.
bool copy_asynchronously(at::Tensor& to, const at::Tensor& from) {
  const bool to_device = is_flagos(to);
  if (to_device == is_flagos(from) || !is_plain(to, from)) {
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

void check_side(const at::Tensor& side) {
  TORCH_CHECK(
      is_flagos(side) || side.is_cpu() || side.is_meta() || side.device().type() == native.type,
      "flagos: cannot copy between flagos and ",
      side.device(),
      "; go through the CPU: tensor.cpu()");
}

// Sparse destinations get new parts, which are wrapped.
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

// torch's own copy. That of CUDA knows pinned memory, peers and streams.
void copy_natively(at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  NativeSide native_to(to);
  NativeSide native_from(from);
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  at::_ops::copy_::call(native_to.get(), native_from.get(), non_blocking);
  if (C10_UNLIKELY(to.layout() != c10::kStrided && is_flagos(to))) {
    CopySource source(to.device().index());
    sync_layout(to, native_to.get(), source);
  }
}

void copy(at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  if (to.is_same(from)) {
    return;
  }
  check_side(to);
  check_side(from);
  if (native.cuda) {
    drain_current_stream(/*device=*/0);
    copy_natively(to, from, non_blocking);
    return;
  }
  if (non_blocking && copy_asynchronously(to, from)) {
    return;
  }
  if (is_flagos(from)) {
    drain_current_stream(from.device().index());
  }
  if (is_flagos(to)) {
    drain_current_stream(to.device().index());
  }
  const NativePoolScope pool(is_flagos(to) ? to.device().index() : c10::DeviceIndex(-1));
  copy_natively(to, from, /*non_blocking=*/false);
}

at::Tensor& copy_(at::Tensor& self, const at::Tensor& src, bool non_blocking) {
  enter_op(copy_slot, "aten::copy_");
  copy(self, src, non_blocking);
  return self;
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& dst, bool non_blocking) {
  enter_op(copy_from_slot, "aten::_copy_from");
  at::Tensor to = dst;
  copy(to, self, non_blocking);
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& dst) {
  enter_op(copy_resize_slot, "aten::_copy_from_and_resize");
  at::Tensor to = dst;
  to.resize_(self.sizes());
  copy(to, self, /*non_blocking=*/false);
  return to;
}

// Memory that is copied when it is first written needs storages of torch's own allocators. Here it is copied
// at once: the same values, strides and offset, in a storage of its own.
at::Tensor lazy_clone(const at::Tensor& self) {
  enter_op(lazy_slot, "aten::_lazy_clone");
  const auto bytes = static_cast<int64_t>(self.storage().nbytes());
  const auto as_bytes = self.options().dtype(at::kByte);
  const at::Tensor from = at::empty({0}, as_bytes).set_(self.storage(), 0, {bytes}, {1});
  const at::Tensor to = at::empty({bytes}, as_bytes).copy_(from);
  return at::empty({0}, self.options()).set_(to.storage(), self.storage_offset(), self.sizes(), self.strides());
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  enter_op(record_slot, "aten::record_stream");
  TORCH_CHECK(
      stream.device_type() == kFlagos || (native.cuda && stream.device_type() == native.type),
      "flagos: record_stream needs a flagos stream, got one of ",
      stream.device());
  device_allocator()->recordStream(self.storage().data_ptr(), stream);
}

} // namespace

void register_copies(torch::Library& library, std::vector<std::string>& registered) {
  copy_slot = op_slot("aten::copy_");
  copy_from_slot = op_slot("aten::_copy_from");
  copy_resize_slot = op_slot("aten::_copy_from_and_resize");
  record_slot = op_slot("aten::record_stream");
  lazy_slot = op_slot("aten::_lazy_clone");
  library.impl("copy_", TORCH_FN(copy_));
  library.impl("_copy_from", TORCH_FN(copy_from));
  library.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  library.impl("record_stream", TORCH_FN(record_stream));
  library.impl("_lazy_clone", TORCH_FN(lazy_clone));
  // Quantized, sparse and nested tensors move between devices too.
  for (const auto key :
       {c10::DispatchKey::SparsePrivateUse1,
        c10::DispatchKey::SparseCsrPrivateUse1,
        c10::DispatchKey::QuantizedPrivateUse1,
        c10::DispatchKey::NestedTensorPrivateUse1}) {
    auto* other = new torch::Library(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
    other->impl("copy_", TORCH_FN(copy_));
  }
  for (const char* name :
       {"aten::copy_", "aten::_copy_from", "aten::_copy_from_and_resize", "aten::record_stream", "aten::_lazy_clone"}) {
    registered.emplace_back(name);
  }
}

} // namespace flagos
