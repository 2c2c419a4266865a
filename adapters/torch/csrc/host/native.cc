// SPDX-License-Identifier: Apache-2.0
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <cstring>

#include "aten/alias.h"
#include "aten/attention.h"
#include "aten/boxed.h"
#include "aten/copy.h"
#include "aten/register.h"
#include "host/register.h"
#include "runtime/allocator.h"
#include "runtime/register.h"
#include "runtime/storage.h"

namespace flagos {

namespace {

c10::DataPtr native_memory(size_t nbytes, c10::DeviceIndex device) {
  return allocate_from_pool(nbytes, device, c10::kCPU);
}

// Frees memory of NativeAllocator, whether it was allocated inside a NativePoolScope or outside.
void free_raw(void* data) {
  if (!free_from_pool(data)) {
    c10::GetDefaultCPUAllocator()->raw_deleter()(data);
  }
}

// Replaces torch's CPU allocator: allocates from the pool inside a NativePoolScope, and as torch does outside.
class NativeAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t nbytes) override {
    const c10::DeviceIndex device = thread_state.pool_device;
    return device < 0 ? cpu()->allocate(nbytes) : native_memory(nbytes, device);
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return &free_raw;
  }
  void copy_data(void* destination, const void* source, std::size_t count) const override {
    std::memcpy(destination, source, count);
  }

 private:
  static c10::Allocator* cpu() {
    return c10::GetDefaultCPUAllocator();
  }
};

NativeAllocator* native_allocator() {
  static NativeAllocator allocator;
  return &allocator;
}

class HostAllocator final : public CoreAllocator {
 public:
  c10::DataPtr allocate(size_t nbytes) override {
    const c10::DeviceIndex device = current_device();
    auto native = c10::make_intrusive<c10::StorageImpl>(
        c10::StorageImpl::use_byte_size_t(),
        static_cast<int64_t>(nbytes),
        native_memory(nbytes, device),
        native_allocator(),
        /*resizable=*/true);
    return twin_data_ptr(std::move(native), device);
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return nullptr; // the context of a flagos DataPtr is its twin, never the data
  }
  void copy_data(void* destination, const void* source, std::size_t count) const override {
    std::memcpy(destination, source, count);
  }
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    if (const c10::StorageImpl* twin = twin_of(data)) {
      check(core->mem_record_stream_of(twin->data(), stream.device_index(), static_cast<uint64_t>(stream.id())));
    }
  }
};

class HostNative final : public Native {
 public:
  using Native::Native;

  void register_device() const override {
    register_core_guard();
    static HostAllocator device;
    c10::SetCPUAllocator(native_allocator(), /*priority=*/1);
    register_allocators(&device, core_pinned_allocator());
  }
  void register_operators(Registrar& registrar) const override {
    register_attention(registrar, host_attention());
    register_rnn(registrar);
    register_dropout(registrar);
    register_histc(registrar);
    register_group_norm(registrar);
    register_sync_batch_norm(registrar);
  }

  void resize(c10::StorageImpl* storage, size_t nbytes) const override {
    const c10::DeviceIndex device = storage->device().index();
    c10::StorageImpl* twin = resizable_twin(storage);
    c10::DataPtr data = native_memory(nbytes, device);
    if (const size_t common = std::min(nbytes, twin->nbytes()); common != 0) {
      std::memcpy(data.mutable_get(), twin->data(), common);
    }
    give_twin(storage, twin, std::move(data), nbytes);
  }

  bool has_graphs() const override {
    return true;
  }
  void prepare_graphs() const override {}
  c10::DataPtr planned_block(size_t nbytes, c10::DeviceIndex device) const override {
    return allocate_from_pool(nbytes, device, native_device(device));
  }
  void copy_bytes(void* to, const void* from, size_t nbytes, c10::DeviceIndex /*device*/) const override {
    std::memcpy(to, from, nbytes);
  }
  void set_stream(c10::DeviceIndex device, uint64_t stream) const override {
    set_current_stream(device, stream);
  }

  void serve(const c10::OperatorHandle& op, torch::jit::Stack* stack, const Traits& traits) const override {
    serve_natively(op, keys, stack, traits);
  }

  // Queues the copy where one side is pinned, otherwise copies on this thread, after all that was queued.
  void copy(at::Tensor& to, const at::Tensor& from, bool non_blocking) const override {
    if (non_blocking && copy_pinned(to, from)) {
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
};

} // namespace

std::unique_ptr<Native> host_native(std::string vendor) {
  return std::make_unique<HostNative>(std::move(vendor));
}

} // namespace flagos
