// SPDX-License-Identifier: Apache-2.0
#include "library.h"

#include <ATen/core/CachingHostAllocator.h>
#include <torch/library.h>

#include <algorithm>
#include <iterator>

#include "aten/alias.h"
#include "aten/follows.h"
#include "aten/native_views.h"
#include "aten/operator_times.h"
#include "aten/route.h"
#include "aten/traits.h"
#include "following/register.h"
#include "python_kernels/routed.h"
#include "runtime/generator.h"
#include "runtime/graphs.h"
#include "runtime/memory_sharing.h"
#include "vendor_library/queue.h"

namespace flagos {

namespace {

// The twin of a flagos storage, for sharing it with another process.
c10::StorageImpl* own_twin(const c10::Storage& storage) {
  TORCH_CHECK(storage.device_type() == kFlagos, "flagos: expected storage of a flagos device, got ", storage.device());
  c10::StorageImpl* twin = twin_of(storage.data_ptr());
  TORCH_CHECK(twin != nullptr, "flagos: memory that came from outside cannot be shared; share a clone() of the tensor");
  return twin;
}

// A native tensor of all bytes of a flagos storage.
at::Tensor native_bytes(const c10::Storage& storage) {
  lend(storage.unsafeGetStorageImpl());
  c10::StorageImpl* twin = own_twin(storage);
  auto bytes = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(twin)),
      native->keys,
      caffe2::TypeMeta::Make<uint8_t>());
  bytes.unsafeGetTensorImpl()->set_sizes_contiguous({static_cast<int64_t>(twin->nbytes())});
  return bytes;
}

// To be called when the twin's bytes lie elsewhere, or are more or fewer: points the flagos storage to them; for good,
// where torch has moved them to memory that is `shared`.
void follow_twin(const c10::Storage& storage, bool shared) {
  c10::StorageImpl* twin = own_twin(storage);
  refresh_from_twin(storage.unsafeGetStorageImpl(), twin, storage.device().index());
  if (shared) { // torch leaves the twin resizable although it has no allocator any more
    twin->set_resizable(false);
    storage.unsafeGetStorageImpl()->set_resizable(false);
  }
}

at::Tensor adopt_native(const at::Tensor& native, int64_t device) {
  check_device_index(device);
  TORCH_CHECK(
      native.device().type() == flagos::native->type,
      "flagos: expected a tensor on ",
      flagos::native->name,
      ", got one on ",
      native.device());
  return view_of(native, wrap_storage(native.storage(), static_cast<c10::DeviceIndex>(device)));
}

template <class Map>
std::vector<at::Tensor> each_of(at::TensorList tensors, Map map) {
  std::vector<at::Tensor> mapped;
  mapped.reserve(tensors.size());
  std::transform(tensors.begin(), tensors.end(), std::back_inserter(mapped), map);
  return mapped;
}

// Statistics of pinned memory under the names that torch's own devices use.
c10::Dict<std::string, int64_t> host_memory_stats() {
  const at::HostStats stats = at::getHostAllocator(kFlagos)->get_stats();
  c10::Dict<std::string, int64_t> named;
  const auto name_stat = [&](const std::string& name, const c10::CachingAllocator::Stat& stat) {
    named.insert(name + ".current", stat.current);
    named.insert(name + ".peak", stat.peak);
    named.insert(name + ".allocated", stat.allocated);
    named.insert(name + ".freed", stat.freed);
  };
  const auto name_time = [&](const std::string& name, const c10::CachingAllocator::DurationStat& stat) {
    named.insert(name + ".total", stat.total);
    named.insert(name + ".max", stat.max);
    named.insert(name + ".min", stat.min);
    named.insert(name + ".count", stat.count);
    named.insert(name + ".avg", stat.count == 0 ? 0 : stat.total / stat.count);
  };
  name_stat("active_requests", stats.active_requests);
  name_stat("active_bytes", stats.active_bytes);
  name_stat("allocations", stats.allocations);
  name_stat("allocated_bytes", stats.allocated_bytes);
  name_time("host_alloc_time", stats.host_alloc_time);
  name_time("host_free_time", stats.host_free_time);
  named.insert("num_host_alloc", stats.num_host_alloc);
  named.insert("num_host_free", stats.num_host_free);
  return named;
}

} // namespace

void register_library() {
  static torch::Library library(torch::Library::DEF, "flagos", std::nullopt, __FILE__, __LINE__);
  library.def("default_generator(int device) -> Generator?", [](int64_t device) -> at::Generator {
    check_device_index(device);
    return default_generator(static_cast<c10::DeviceIndex>(device));
  });
  // torch.flagos.graph sets it while it captures: errors then tell the operator.
  library.def("set_capturing(bool capturing) -> ()", &set_capturing);
  // Around compiled graphs: each flagos tensor as a native one over the same memory, or the reverse, without autograd.
  library.def("as_native(Tensor[] tensors) -> Tensor[]", [](at::TensorList tensors) {
    return each_of(tensors, [](const at::Tensor& tensor) { return is_flagos(tensor) ? shared_alias(tensor) : tensor; });
  });
  library.def("as_flagos(Tensor[] tensors) -> Tensor[]", [](at::TensorList tensors) {
    return each_of(tensors, [](const at::Tensor& tensor) {
      return tensor.device().type() == native->type ? share_with_flagos(tensor) : tensor;
    });
  });
  register_native_views(library);
  // The native generator inside a flagos one, for graphs of the native device.
  library.def(
      "native_generator(Generator? generator) -> Generator?",
      [](const at::Generator& generator) -> at::Generator { return native_generator(generator); });
  // The core's id of the current stream; 0 is the default stream.
  library.def("current_stream_id(int device) -> int", [](int64_t device) -> int64_t {
    check_device_index(device);
    return static_cast<int64_t>(current_stream(static_cast<c10::DeviceIndex>(device)));
  });
  // Waits for queued work. Compiled host kernels call it before they read device memory on the calling thread.
  library.def("drain(int device) -> ()", [](int64_t device) {
    check_device_index(device);
    launch_pending("torch.ops.flagos.drain");
    drain_current_stream(static_cast<c10::DeviceIndex>(device));
  });
  // The parts of sharing memory between processes.
  library.def("native_bytes(Storage storage) -> Tensor", &native_bytes);
  library.def("follow_twin(Storage storage, bool shared=False) -> ()", &follow_twin);
  library.def("adopt_native(Tensor native, int device) -> Tensor", &adopt_native);
  // The pool's segments and blocks, as JSON.
  library.def("memory_snapshot(int device) -> str", [](int64_t device) -> std::string {
    check_device_index(device);
    open_device();
    char* text = nullptr;
    check(core->mem_snapshot_json(static_cast<int32_t>(device), &text));
    std::string snapshot = text;
    core->string_free(text);
    return snapshot;
  });
  register_routed(library);
  register_graphs(library);
  following::register_following(library);
  library.def("graphs_follow(str op) -> (bool, str)", [](const std::string& op) {
    const auto [followed, detail] = follows(op);
    return std::make_tuple(followed, detail);
  });
  register_memory_sharing(library);
  register_queue(library);
  register_operator_times(library);
  // The table of operators' traits, for the test that each entry names operators of the torch that is there.
  library.def("operator_particulars() -> Dict(str, str[])", &listed_particulars);
  library.def("host_memory_stats() -> Dict(str, int)", &host_memory_stats);
  library.def("reset_peak_host_memory_stats() -> ()", [] { at::getHostAllocator(kFlagos)->reset_peak_stats(); });
  library.def(
      "reset_accumulated_host_memory_stats() -> ()", [] { at::getHostAllocator(kFlagos)->reset_accumulated_stats(); });
  library.def("set_memory_fraction(int device, float fraction) -> ()", [](int64_t device, double fraction) {
    check_device_index(device);
    open_device();
    check(core->mem_set_fraction(static_cast<int32_t>(device), fraction));
  });
}

} // namespace flagos
