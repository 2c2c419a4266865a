// SPDX-License-Identifier: Apache-2.0
#include "cuda/capture.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cuda/allocations.h"
#include "cuda/runtime.h"
#include "runtime/stream.h"

namespace flagos {

namespace {

// Numbers of the CUDA runtime's interface (driver_types.h), which other vendors have taken over.
constexpr unsigned kNonBlocking = 1; // cudaStreamNonBlocking
constexpr int kDeviceToDevice = 3;   // cudaMemcpyDeviceToDevice
constexpr int kKernelNode = 0;       // cudaGraphNodeTypeKernel
constexpr int kMemcpyNode = 1;       // cudaGraphNodeTypeMemcpy
constexpr int kMemsetNode = 2;       // cudaGraphNodeTypeMemset
constexpr int kEmptyNode = 5;        // cudaGraphNodeTypeEmpty

// cudaMemcpy3DParms.
struct CopyParameters {
  struct Place {
    size_t x, y, z;
  };
  struct Pitched {
    void* data;
    size_t pitch, xsize, ysize;
  };
  void* source_array;
  Place source_place;
  Pitched source;
  void* target_array;
  Place target_place;
  Pitched target;
  size_t width, height, depth;
  int kind;
};

struct Runtime {
  explicit Runtime(std::string vendor_name) : vendor(std::move(vendor_name)) {
    find(vendor, "StreamCreateWithFlags", create_stream);
    find(vendor, "StreamBeginCapture", begin_capture);
    find(vendor, "StreamEndCapture", end_capture);
    find(vendor, "GraphInstantiateWithFlags", instantiate);
    find(vendor, "GraphLaunch", launch);
    find(vendor, "GraphDestroy", destroy);
    find(vendor, "GraphExecDestroy", destroy_executable);
    find(vendor, "GraphGetNodes", nodes);
    find(vendor, "GraphNodeGetType", type_of);
    find(vendor, "GraphMemcpyNodeGetParams", copy_of);
    find(vendor, "MemcpyAsync", copy);
    find(vendor, "GetLastError", last_error);
    find(vendor, "GetErrorString", describe);
  }
  static const Runtime& instance(const std::string& vendor) {
    static const auto* runtime = new Runtime(vendor);
    return *runtime;
  }

  const std::string vendor;
  int (*create_stream)(void** stream, unsigned flags) = nullptr;
  int (*begin_capture)(void* stream, int mode) = nullptr;
  int (*end_capture)(void* stream, void** graph) = nullptr;
  int (*instantiate)(void** executable, void* graph, unsigned long long flags) = nullptr;
  int (*launch)(void* executable, void* stream) = nullptr;
  int (*destroy)(void* graph) = nullptr;
  int (*destroy_executable)(void* executable) = nullptr;
  int (*nodes)(void* graph, void** nodes, size_t* count) = nullptr;
  int (*type_of)(void* node, int* type) = nullptr;
  int (*copy_of)(void* node, CopyParameters* parameters) = nullptr;
  int (*copy)(void* to, const void* from, size_t nbytes, int kind, void* stream) = nullptr;
  int (*last_error)() = nullptr;
  const char* (*describe)(int status) = nullptr;

  bool succeeded(int status) const {
    if (C10_UNLIKELY(status != 0)) {
      last_error(); // the next call of torch must not report it again
    }
    return status == 0;
  }
  void check(int status, const char* what) const {
    TORCH_CHECK(succeeded(status), "flagos: ", what, " failed: ", describe(status));
  }

 private:
  template <class Function>
  static void find(const std::string& vendor, const char* name, Function& function) {
    function = reinterpret_cast<Function>(need_runtime_function(vendor, name));
  }
};

// Lets the program's own captures go on, which forbid threads whose mode is another to make and to end graphs.
class Relaxed {
 public:
  explicit Relaxed(const std::string& vendor) : vendor_(vendor), before_(exchange_capture_mode(vendor, kRelaxed)) {}
  ~Relaxed() {
    exchange_capture_mode(vendor_, before_);
  }
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;

 private:
  const std::string& vendor_;
  int before_;
};

void* current_handle(c10::DeviceIndex device) {
  return native_guard()->getStreamNativeHandle(native_guard()->getStream(c10::Device(native->type, device)));
}

class CudaGraph final : public Launchable {
 public:
  CudaGraph(const Runtime& runtime, void* executable, c10::DeviceIndex device)
      : runtime_(runtime), executable_(executable), device_(device) {}
  ~CudaGraph() override {
    const Relaxed relaxed(runtime_.vendor);
    runtime_.destroy_executable(executable_); // after the launches that are queued
  }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  void launch() override {
    runtime_.check(runtime_.launch(executable_, current_handle(device_)), "the launch of an automatic graph");
  }

 private:
  const Runtime& runtime_;
  void* executable_;
  c10::DeviceIndex device_;
};

std::atomic<int64_t> planned_blocks{0}; // that were allocated

class CudaCapturer final : public Capturer {
 public:
  explicit CudaCapturer(const std::string& vendor) : runtime_(Runtime::instance(vendor)) {}

  void begin(c10::DeviceIndex device) override {
    device_ = device;
    void*& stream = streams_[device];
    if (stream == nullptr) {
      // A stream of its own: torch's pool may give the same one to the program.
      const DeviceScope scope(device);
      runtime_.check(runtime_.create_stream(&stream, kNonBlocking), "the stream of captures");
    }
    stream_ = stream;
    runtime_.check(runtime_.begin_capture(stream_, kRelaxed), "the beginning of a capture");
  }
  void enter() override {
    allocations_ = allocations();
    // torch's name for a stream from outside is its handle.
    before_ = native_guard()->exchangeStream(
        c10::Stream(
            c10::Stream::UNSAFE,
            c10::Device(native->type, device_),
            static_cast<c10::StreamId>(reinterpret_cast<intptr_t>(stream_))));
  }
  void leave() override {
    native_guard()->exchangeStream(*before_);
  }
  bool took_other_memory() override {
    return allocations() != allocations_;
  }

  std::unique_ptr<Launchable> end() override {
    void* graph = nullptr;
    if (!runtime_.succeeded(runtime_.end_capture(stream_, &graph)) || graph == nullptr) {
      return nullptr;
    }
    void* executable = nullptr;
    const Relaxed relaxed(runtime_.vendor);
    const bool made = can_repeat(graph) && runtime_.succeeded(runtime_.instantiate(&executable, graph, 0));
    runtime_.destroy(graph);
    return made ? std::make_unique<CudaGraph>(runtime_, executable, device_) : nullptr;
  }

 private:
  // How often the device's memory was allocated for others than plans.
  int64_t allocations() const {
    constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    return cuda_allocator()->getDeviceStats(device_).allocation[kAll].allocated - planned_blocks.load();
  }

  // Whether all of a graph is work on device memory: what the host has may be gone at the next launch.
  bool can_repeat(void* graph) const {
    size_t count = 0;
    if (!runtime_.succeeded(runtime_.nodes(graph, nullptr, &count))) {
      return false;
    }
    std::vector<void*> nodes(count);
    if (count != 0 && !runtime_.succeeded(runtime_.nodes(graph, nodes.data(), &count))) {
      return false;
    }
    return std::all_of(nodes.begin(), nodes.end(), [&](void* node) {
      int type = -1;
      return runtime_.succeeded(runtime_.type_of(node, &type)) &&
          (type == kKernelNode || type == kMemsetNode || type == kEmptyNode ||
           (type == kMemcpyNode && is_on_device(node)));
    });
  }
  bool is_on_device(void* node) const {
    CopyParameters copy{};
    return runtime_.succeeded(runtime_.copy_of(node, &copy)) && copy.kind == kDeviceToDevice;
  }

  const Runtime& runtime_;
  std::unordered_map<c10::DeviceIndex, void*> streams_; // as long as the process
  c10::DeviceIndex device_ = -1;
  void* stream_ = nullptr;
  std::optional<c10::Stream> before_;
  int64_t allocations_ = 0;
};

} // namespace

Capturer* cuda_capturer(const std::string& vendor) {
  static auto* capturer = new CudaCapturer(vendor);
  return capturer;
}

c10::DataPtr allocate_block(size_t nbytes, c10::DeviceIndex device) {
  const DeviceScope scope(device);
  c10::DataPtr block = cuda_allocator()->allocate(nbytes);
  ++planned_blocks;
  return block;
}

void copy_device_bytes(const std::string& vendor, void* to, const void* from, size_t nbytes, c10::DeviceIndex device) {
  const Runtime& runtime = Runtime::instance(vendor);
  runtime.check(runtime.copy(to, from, nbytes, kDeviceToDevice, current_handle(device)), "a copy of device memory");
}

} // namespace flagos
