// SPDX-License-Identifier: Apache-2.0
// Memory, streams and events of the cuda vendor: torch's own CUDA ones under the name of flagos, reached through
// torch's virtual interfaces, so that the shim does not link libtorch_cuda.
#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/from_blob.h>
#include <pthread.h>
#include <torch/csrc/profiler/stubs/base.h>

#include <algorithm>
#include <string>
#include <utility>

#include "aten/boxed.h"
#include "aten/copy.h"
#include "aten/register.h"
#include "cuda/allocations.h"
#include "cuda/capture.h"
#include "cuda/register.h"
#include "cuda/runtime.h"
#include "runtime/allocator.h"
#include "runtime/storage.h"
#include "torch_version.h"

namespace flagos {

namespace {

c10::Device to_cuda(c10::Device device) {
  TORCH_CHECK(device.type() == kFlagos, "flagos: expected a flagos device, got ", device);
  return c10::Device(c10::kCUDA, device.index());
}

c10::Device to_flagos(c10::Device device) {
  return c10::Device(kFlagos, device.index());
}

c10::Stream to_cuda(const c10::Stream& stream) {
  if (stream.device_type() == c10::kCUDA) {
    return stream;
  }
  return c10::Stream(c10::Stream::UNSAFE, to_cuda(stream.device()), stream.id());
}

c10::Stream to_flagos(const c10::Stream& stream) {
  return c10::Stream(c10::Stream::UNSAFE, to_flagos(stream.device()), stream.id());
}

class CudaBackedAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t nbytes) override {
    open_device();
    c10::Allocator* allocator = at::detail::getCUDAHooks().getCUDADeviceAllocator();
    c10::DataPtr data = allocator->allocate(nbytes);
    const c10::DeviceIndex device = data.device().index();
    return twin_data_ptr(
        c10::make_intrusive<c10::StorageImpl>(
            c10::StorageImpl::use_byte_size_t(),
            static_cast<int64_t>(nbytes),
            std::move(data),
            allocator,
            /*resizable=*/true),
        device);
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return nullptr; // the context of a flagos DataPtr is its twin, never the data
  }
  void copy_data(void* destination, const void* source, std::size_t count) const override {
    cuda_allocator()->copy_data(destination, source, count);
  }
  bool initialized() override {
    return cuda_allocator()->initialized();
  }
  void emptyCache(c10::MempoolId_t pool) override {
    cuda_allocator()->emptyCache(pool);
  }
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    if (c10::StorageImpl* twin = twin_of(data); twin != nullptr) {
      cuda_allocator()->recordStream(memory_behind(twin->data_ptr()), to_cuda(stream));
    }
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    return cuda_allocator()->getDeviceStats(device);
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    cuda_allocator()->resetAccumulatedStats(device);
  }
  void resetPeakStats(c10::DeviceIndex device) override {
    cuda_allocator()->resetPeakStats(device);
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    return cuda_allocator()->getMemoryInfo(device);
  }
};

at::HostAllocator* cuda_pinned() {
  return at::getHostAllocator(c10::kCUDA);
}

class CudaBackedPinnedAllocator final : public WithHistoryOfAnother {
 public:
  c10::DataPtr allocate(size_t nbytes) override {
    open_device();
    return cuda_pinned()->allocate(nbytes);
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return cuda_pinned()->raw_deleter();
  }
  void copy_data(void* destination, const void* source, std::size_t count) const override {
    cuda_pinned()->copy_data(destination, source, count);
  }
  bool record_event(void* data, void* context, c10::Stream stream) override {
    return cuda_pinned()->record_event(data, context, to_cuda(stream));
  }
  void empty_cache() override {
    cuda_pinned()->empty_cache();
  }
  at::HostStats get_stats() override {
    return cuda_pinned()->get_stats();
  }
  void reset_accumulated_stats() override {
    cuda_pinned()->reset_accumulated_stats();
  }
  void reset_peak_stats() override {
    cuda_pinned()->reset_peak_stats();
  }

 private:
  at::HostAllocator& another() const override {
    return *cuda_pinned();
  }
};

class CudaBackedGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override {
    return kFlagos;
  }
  c10::Device exchangeDevice(c10::Device device) const override {
    return to_flagos(native_guard()->exchangeDevice(to_cuda(device)));
  }
  c10::Device getDevice() const override {
    return to_flagos(native_guard()->getDevice());
  }
  void setDevice(c10::Device device) const override {
    native_guard()->setDevice(to_cuda(device));
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    native_guard()->uncheckedSetDevice(c10::Device(c10::kCUDA, device.index()));
  }

  c10::Stream getStream(c10::Device device) const override {
    return to_flagos(native_guard()->getStream(resolve(device)));
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return to_flagos(native_guard()->getDefaultStream(resolve(device)));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool high_priority) const override {
    return to_flagos(native_guard()->getStreamFromGlobalPool(resolve(device), high_priority));
  }
  c10::Stream getNewStream(c10::Device device, int priority) const override {
    open_device();
    return to_flagos(native_guard()->getNewStream(resolve(device), priority));
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return to_flagos(native_guard()->exchangeStream(to_cuda(stream)));
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    launch_before_unseen_call("the handle of a stream");
    return native_guard()->getStreamNativeHandle(to_cuda(stream)); // a cudaStream_t
  }
  bool queryStream(const c10::Stream& stream) const override {
    launch_pending("a query of a stream");
    return native_guard()->queryStream(to_cuda(stream));
  }
  bool isStreamCapturing(const c10::Stream& stream) const FLAGOS_OVERRIDE_SINCE_2_12 {
    return is_captured(*native_guard(), to_cuda(stream));
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    launch_pending("synchronize");
    native_guard()->synchronizeStream(to_cuda(stream));
  }
  void synchronizeDevice(const c10::DeviceIndex device) const override {
    launch_pending("synchronize");
    native_guard()->synchronizeDevice(device < 0 ? current_device() : device);
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex device, const c10::EventFlag flag)
      const override {
    launch_pending("an event");
    native_guard()->record(event, to_cuda(stream), device, flag);
  }
  void block(void* event, const c10::Stream& stream) const override {
    launch_pending("an event");
    native_guard()->block(event, to_cuda(stream));
  }
  bool queryEvent(void* event) const override {
    launch_pending("an event");
    return native_guard()->queryEvent(event);
  }
  void synchronizeEvent(void* event) const override {
    launch_pending("an event");
    native_guard()->synchronizeEvent(event);
  }
  void destroyEvent(void* event, const c10::DeviceIndex device) const noexcept override {
    native_guard()->destroyEvent(event, device);
  }
  double elapsedTime(void* start, void* end, const c10::DeviceIndex device) const override {
    return native_guard()->elapsedTime(start, end, device);
  }

  c10::DeviceIndex deviceCount() const noexcept override {
    return native_guard()->deviceCount();
  }
  c10::DeviceCapability getDeviceCapability(c10::Device /*device*/) const override {
    return c10::DeviceCapability(); // every dtype; torch's guard of CUDA does not list them all
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    lend(data);
    device_allocator()->recordStream(data, stream);
  }

 private:
  static c10::Device resolve(c10::Device device) {
    return c10::Device(c10::kCUDA, device.has_index() ? device.index() : current_device());
  }
};

// 1 in a child that was forked after the device was opened, else 0. `pending_work` points here, so that every operator
// in such a child calls `drain_slowly`, which throws.
uint64_t lost_in_fork = 0;

// cudaStreamIsCapturing.
using IsCapturing = int (*)(void* stream, int* status);

class TorchNative final : public Native {
 public:
  explicit TorchNative(std::string vendor) : Native(std::move(vendor)) {
    type = c10::kCUDA;
    dense = c10::DispatchKey::CUDA;
    sparse = c10::DispatchKey::SparseCUDA;
    compressed = c10::DispatchKey::SparseCsrCUDA;
    quantized = c10::DispatchKey::QuantizedCUDA;
    nested = c10::DispatchKey::NestedTensorCUDA;
    keys = c10::DispatchKeySet(c10::DispatchKey::CUDA);
    marks = c10::DispatchKeySet(c10::BackendComponent::CUDABit) | c10::DispatchKeySet(c10::DispatchKey::AutocastCUDA);
    name = "cuda";
    if (this->vendor == "metax") {
      logged_as = this->vendor; // as in PyTorch-Plugin-FL
    }
    owned_by_torch = true;
  }

  void register_device() const override {
    pending_work = &lost_in_fork;
    pthread_atfork(nullptr, nullptr, [] {
      if (device_open) {
        device_open = false;
        lost_in_fork = 1;
      }
    });
    static const CudaBackedGuard guard;
    c10::impl::registerDeviceGuard(kFlagos, &guard);
    static CudaBackedAllocator device;
    static CudaBackedPinnedAllocator pinned;
    register_allocators(&device, &pinned);
  }
  void register_operators(Registrar& registrar) const override {
    register_attention(registrar, cuda_attention());
    register_to(registrar);
    register_rnn_cudnn(registrar);
    register_cudnn_choices(registrar);
    register_fft_half(registrar);
  }

  void serve(const c10::OperatorHandle& op, torch::jit::Stack* stack, const Traits& traits) const override {
    serve_natively(op, keys, stack, traits);
  }
  // torch's own kernel handles pinned memory, peer devices and streams itself.
  void copy(at::Tensor& to, const at::Tensor& from, bool non_blocking) const override {
    drain_current_stream(/*device=*/0);
    copy_natively(to, from, non_blocking);
  }

  void open() const override {
    at::globalContext().lazyInitDevice(c10::kCUDA);
  }
  c10::DeviceIndex device_count() const noexcept override {
    return native_guard()->deviceCount();
  }
  bool has_primary_context(c10::DeviceIndex device) const override {
    return at::detail::getCUDAHooks().hasPrimaryContext(device);
  }
  bool is_pinned(const void* data) const override {
    return at::detail::getCUDAHooks().isPinnedPtr(data);
  }
  c10::DeviceIndex device_of(void* data) const override {
    return at::detail::getCUDAHooks().getDeviceFromPtr(data).index();
  }
  void resize(c10::StorageImpl* storage, size_t nbytes) const override {
    const c10::DeviceIndex device = storage->device().index();
    c10::StorageImpl* twin = resizable_twin(storage);
    const DeviceScope scope(device);
    c10::DataPtr data = at::detail::getCUDAHooks().getCUDADeviceAllocator()->allocate(nbytes);
    if (const size_t common = std::min(nbytes, twin->nbytes()); common != 0) {
      const auto bytes = at::TensorOptions().dtype(at::kByte).device(native_device(device));
      const at::Tensor from = at::from_blob(twin->mutable_data(), {static_cast<int64_t>(common)}, bytes);
      at::from_blob(data.mutable_get(), {static_cast<int64_t>(common)}, bytes).copy_(from);
    }
    give_twin(storage, twin, std::move(data), nbytes);
  }

  at::Generator default_generator(c10::DeviceIndex device) const override {
    return at::globalContext().defaultGenerator(native_device(device));
  }
  at::Generator new_generator(c10::DeviceIndex device) const override {
    return at::globalContext().getAcceleratorHooksInterface(type).getNewGenerator(device);
  }

  bool is_capturing(c10::DeviceIndex device) const override {
    const c10::Stream stream = native_guard()->getStream(c10::Device(c10::kCUDA, device));
    if (stream.id() == 0) {
      return false; // the default stream, which CUDA does not capture
    }
    static const auto ask = reinterpret_cast<IsCapturing>(need_runtime_function(vendor, "StreamIsCapturing"));
    int status = 0;
    TORCH_CHECK(
        ask(native_guard()->getStreamNativeHandle(stream), &status) == 0,
        "flagos: the state of ",
        stream,
        " is unknown");
    return status != 0;
  }
  // CUDA forbids questions about events while another thread captures, to threads that have not set
  // cudaStreamCaptureModeRelaxed.
  void leave_captures_alone() const override {
    exchange_capture_mode(vendor, kRelaxed);
  }
  bool has_graphs() const override {
    try {
      cuda_capturer(vendor);
    } catch (const c10::Error&) { // the runtime lacks functions, which `prepare_graphs` names
      return false;
    }
    return true;
  }
  void prepare_graphs() const override {
    cuda_capturer(vendor);
    plan_allocations();
  }
  Capturer* capturer() const override {
    return cuda_capturer(vendor);
  }
  c10::DataPtr planned_block(size_t nbytes, c10::DeviceIndex device) const override {
    return allocate_block(nbytes, device);
  }
  void give_back_cached() const override {
    cuda_allocator()->emptyCache();
  }
  void copy_bytes(void* to, const void* from, size_t nbytes, c10::DeviceIndex device) const override {
    copy_device_bytes(vendor, to, from, nbytes, device);
  }
  void set_stream(c10::DeviceIndex device, uint64_t stream) const override {
    native_guard()->exchangeStream(
        c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::kCUDA, device), static_cast<c10::StreamId>(stream)));
  }
  torch::profiler::impl::ProfilerStubs* profiler() const override {
    return const_cast<torch::profiler::impl::ProfilerStubs*>(torch::profiler::impl::cudaStubs());
  }
};

} // namespace

std::unique_ptr<Native> torch_native(std::string vendor, const std::string& device_type) {
  TORCH_CHECK(
      device_type == "cuda",
      "flagos: the vendor ",
      vendor,
      " is served by torch's device type ",
      device_type,
      ", and torch_fl knows cuda only");
  TORCH_CHECK(
      c10::impl::hasDeviceGuardImpl(c10::kCUDA),
      "flagos: torch's CUDA serves the vendor ",
      vendor,
      ", but this torch was built without CUDA; install a CUDA build of torch, or set FLAGOS_VENDOR=host");
  teach_autograd_engine();
  register_autograd_engine();
  return std::make_unique<TorchNative>(std::move(vendor));
}

} // namespace flagos
