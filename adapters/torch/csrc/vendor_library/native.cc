// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "aten/attention.h"
#include "aten/boxed.h"
#include "aten/copy.h"
#include "aten/layout.h"
#include "aten/register.h"
#include "aten/route.h"
#include "runtime/allocator.h"
#include "runtime/below_functionality.h"
#include "runtime/mirrors.h"
#include "runtime/register.h"
#include "vendor_library/capture.h"
#include "vendor_library/kernel.h"
#include "vendor_library/register.h"

namespace flagos {

namespace {

c10::DataPtr device_memory(size_t nbytes, c10::DeviceIndex device) {
  return allocate_from_pool(nbytes, device, c10::Device(kFlagos, device));
}

// Copies within the devices, on the current stream of the destination's device.
void copy_device_memory(c10::DeviceIndex device, void* to, const void* from, size_t nbytes) {
  const auto other = static_cast<c10::DeviceIndex>(core->mem_device_of(from));
  if (other >= 0 && other != device) {
    wait_for_stream(other); // its work on the source comes first
  }
  queue_copy(device, to, from, nbytes);
  if (other >= 0 && other != device) {
    wait_for_stream(device); // and its later work may write to the source
  }
}

// The storages of the new parts that a copy gives to a sparse destination.
class UploadedStorages final : public StorageSource {
 public:
  explicit UploadedStorages(c10::DeviceIndex device) : device_(device) {}
  c10::Storage flagos_storage(const c10::Storage& native) override {
    c10::Storage known = Mirrors::current()->original(native.unsafeGetStorageImpl());
    return known ? known : upload(native, device_);
  }
  c10::DeviceIndex device() const override {
    return device_;
  }

 private:
  c10::DeviceIndex device_;
};

class LibraryAllocator final : public CoreAllocator {
 public:
  c10::DataPtr allocate(size_t nbytes) override {
    return device_memory(nbytes, current_device());
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return nullptr; // torch would read and write raw device memory
  }
  void copy_data(void* destination, const void* source, std::size_t count) const override {
    launch_before_unseen_call("a copy of a storage");
    copy_device_memory(static_cast<c10::DeviceIndex>(core->mem_device_of(destination)), destination, source, count);
  }
  void emptyCache(c10::MempoolId_t pool) override {
    if (release_graphs != nullptr) {
      release_graphs(); // they may use memory that goes back to the device
    }
    CoreAllocator::emptyCache(pool);
  }
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    if (core->mem_device_of(data.get()) >= 0) {
      check(core->mem_record_stream_of(data.get(), stream.device_index(), static_cast<uint64_t>(stream.id())));
    }
  }
};

class LibraryNative final : public Native {
 public:
  explicit LibraryNative(std::string vendor) : Native(std::move(vendor)) {
    by_copies = true;
    name = this->vendor;
  }

  void register_device() const override {
    register_core_guard();
    static LibraryAllocator device;
    register_allocators(&device, core_pinned_allocator());
  }
  void register_operators(Registrar& registrar) const override {
    register_attention(registrar, library_attention());
    register_rnn(registrar);
    register_dropout(registrar);
    register_sync_batch_norm(registrar);
    register_metadata_operators(registrar);
  }

  void serve(const c10::OperatorHandle& op, torch::jit::Stack* stack, const Traits& traits) const override {
    serve_by_library(op, stack, traits);
  }

  bool has_graphs() const override {
    return core->init() == FLAGOS_OK && core->graph_supported() == FLAGOS_OK;
  }
  void prepare_graphs() const override {
    TORCH_CHECK_NOT_IMPLEMENTED(
        core->graph_supported() == FLAGOS_OK,
        "flagos: there are no automatic graphs on the vendor ",
        vendor,
        ": ",
        core->last_error(),
        "; set FLAGOS_GRAPHS=off or leave it out");
  }
  Capturer* capturer() const override {
    return library_capturer();
  }
  c10::DataPtr planned_block(size_t nbytes, c10::DeviceIndex device) const override {
    return device_memory(nbytes, device);
  }
  void copy_bytes(void* to, const void* from, size_t nbytes, c10::DeviceIndex device) const override {
    queue_copy(device, to, from, nbytes);
  }
  void set_stream(c10::DeviceIndex device, uint64_t stream) const override {
    set_current_stream(device, stream);
  }

  bool is_capturing(c10::DeviceIndex device) const override {
    int32_t capture = FLAGOS_CAPTURE_NONE;
    check(core->stream_capture_status(device, current_stream(device), &capture));
    return capture != FLAGOS_CAPTURE_NONE;
  }

  void resize(c10::StorageImpl* storage, size_t nbytes) const override {
    const c10::DeviceIndex device = storage->device().index();
    c10::DataPtr data = device_memory(nbytes, device);
    copy_device_memory(device, data.mutable_get(), storage->data(), std::min(nbytes, storage->nbytes()));
    storage->set_data_ptr_noswap(std::move(data));
    storage->set_nbytes(nbytes);
  }

  void copy(at::Tensor& to, const at::Tensor& from, bool non_blocking) const override {
    try {
      copy_any(to, from, non_blocking);
    } catch (c10::Error& error) {
      name_while_capturing(error, at::_ops::copy_::name);
      throw;
    }
  }

 private:
  static void copy_any(at::Tensor& to, const at::Tensor& from, bool non_blocking) {
    if (from._is_zerotensor()) { // has no memory
      to.zero_();
      return;
    }
    if (is_flagos(to) && is_flagos(from)) {
      copy_within(to, from);
      return;
    }
    if (non_blocking && copy_pinned(to, from)) {
      return;
    }
    if (is_plain_copy(to, from)) {
      const c10::DeviceIndex device = (is_flagos(to) ? to : from).device().index();
      queue_copy(device, to.mutable_data_ptr(), from.const_data_ptr(), to.nbytes());
      wait_for_stream(device);
      return;
    }
    copy_on_host(to, from);
  }

  // Whether its elements are all that there is to copy.
  static bool is_dense(const at::Tensor& tensor) {
    return tensor.layout() == c10::kStrided && !tensor.is_quantized() && !tensor.is_conj() && !tensor.is_neg();
  }

  // Copies from another device. Each device arranges and converts what is its own, and what goes between them lies side
  // by side.
  static void copy_between(at::Tensor& to, const at::Tensor& from) {
    const BelowFunctionality below;
    const at::Tensor there = from.to(to.scalar_type()).expand(to.sizes()).contiguous();
    at::Tensor here = to.is_contiguous() ? to : at::empty(to.sizes(), to.options());
    copy_device_memory(to.device().index(), here.mutable_data_ptr(), there.const_data_ptr(), here.nbytes());
    if (!here.is_same(to)) {
      copy_within(to, here);
    }
  }

  static void copy_within(at::Tensor& to, const at::Tensor& from) {
    if (is_dense(to) && is_dense(from) && to.data_ptr() == from.data_ptr() && to.dtype() == from.dtype() &&
        to.sizes() == from.sizes() && to.strides() == from.strides()) {
      return; // the end of `x[1:, 0] += y`
    }
    if (is_plain_copy(to, from)) {
      copy_device_memory(to.device().index(), to.mutable_data_ptr(), from.const_data_ptr(), to.nbytes());
      return;
    }
    const bool on_one_device = to.device() == from.device();
    if (!on_one_device && is_dense(to) && is_dense(from) && to.numel() != 0) {
      copy_between(to, from);
      return;
    }
    const Refusal refusal = on_one_device ? copy_by_library(to, from) : Refusal("the tensors are on two devices");
    if (!refusal) {
      return;
    }
    refuse_while_capturing(at::_ops::copy_::name, refusal.reason());
    check(core->op_record_fallback(at::_ops::copy_::name, refusal.reason().c_str()));
    copy_on_host(to, from);
  }

  // Copies with torch's own kernel, on copies of the device memory.
  static void copy_on_host(at::Tensor& to, const at::Tensor& from) {
    Mirrors mirrors;
    mirrors.fetches = false;
    at::Tensor host_to = is_flagos(to) ? alias_of(to) : to;
    mirrors.fetches = true;
    const at::Tensor host_from = is_flagos(from) ? alias_of(from) : from;
    mirrors.wait();
    const BelowFunctionality below;
    at::_ops::copy_::call(host_to, host_from, /*non_blocking=*/false);
    if (is_flagos(to)) {
      UploadedStorages source(to.device().index());
      sync_layout(to, host_to, source);
      each_part(to, [&](const c10::TensorImpl* part) { mirrors.write_back(part); });
    }
    mirrors.wait();
  }
};

} // namespace

std::unique_ptr<Native> library_native(std::string vendor) {
  return std::make_unique<LibraryNative>(std::move(vendor));
}

} // namespace flagos
