// SPDX-License-Identifier: Apache-2.0
// Kernels of tests and of other simulated libraries.
#include <functional>
#include <memory>

#include "call.h"
#include "device.h"
#include "memory.h"
#include "report.h"
#include "settings.h"
#include "simulated_ascend.h"
#include "stream.h"

namespace simulated_ascend {

namespace {

int run_kernel(simulated_ascend_kernel kernel, void* argument) {
  in_function = true;
  const int code = kernel(argument);
  in_function = false;
  return code;
}

int run_opened(simulated_ascend_kernel kernel, void* argument) {
  const auto all = static_cast<int>(devices().size());
  {
    std::lock_guard<std::mutex> lock(mutex);
    for (int device = 0; device < all; ++device)
      arena(device).open();
  }
  const int code = run_kernel(kernel, argument);
  std::lock_guard<std::mutex> lock(mutex);
  for (int device = 0; device < all; ++device)
    arena(device).close();
  return code;
}

} // namespace

} // namespace simulated_ascend

using namespace simulated_ascend;

ACL_FUNC int simulated_ascend_run(void* handle, simulated_ascend_kernel kernel, void* argument) {
  ENTER(kContext | kQueues);
  const auto stream = call.stream(handle);
  if (!stream)
    return call.code;
  return submit(call, stream, {"kernel", [kernel, argument] { return run_opened(kernel, argument); }, {}});
}

static int launch(
    Call& call,
    void* handle,
    const char* name,
    std::function<int()> run,
    const simulated_ascend_use* uses,
    size_t count) {
  const auto stream = call.stream(handle);
  if (!stream)
    return call.code;
  Work work{name, std::move(run), {}};
  for (size_t index = 0; index < count; ++index) {
    const simulated_ascend_use& each = uses[index];
    const auto address = reinterpret_cast<uintptr_t>(each.address);
    const auto block = block_of(each.address);
    const std::string which = std::string(name) + " uses memory ";
    if (!block)
      return call.refuse(kParamInvalid, which + "that is not allocated");
    const std::string why = beyond(*block, address, each.size);
    if (!why.empty())
      return call.refuse(kParamInvalid, which + why);
    if (!block->on_host() && block->device != stream->context->device &&
        !devices()[stream->context->device].peers.count(block->device))
      return call.refuse(kParamInvalid, which + "of another device, which is no peer");
    work.uses.push_back({block, address, address + each.size, each.writes != 0});
  }
  return submit(call, stream, std::move(work));
}

ACL_FUNC int simulated_ascend_launch(
    void* handle,
    const char* name,
    simulated_ascend_kernel kernel,
    void* argument,
    const simulated_ascend_use* uses,
    size_t count) {
  ENTER(kContext | kQueues);
  return launch(call, handle, name, [kernel, argument] { return run_kernel(kernel, argument); }, uses, count);
}

ACL_FUNC int simulated_ascend_launch_owned(
    void* handle,
    const char* name,
    simulated_ascend_kernel kernel,
    void* argument,
    void (*destroy)(void*),
    const simulated_ascend_use* uses,
    size_t count) {
  std::shared_ptr<void> owned(argument, destroy);
  Call call(name, kContext | kQueues);
  if (call.code != kSuccess)
    return call.code;
  return launch(call, handle, name, [kernel, owned] { return run_kernel(kernel, owned.get()); }, uses, count);
}

ACL_FUNC int simulated_ascend_device(void) {
  std::lock_guard<std::mutex> lock(mutex);
  const auto& current = thread().context;
  return current && current->alive ? settings().devices[static_cast<size_t>(current->device)] : -1;
}

ACL_FUNC int simulated_ascend_block(const void* address, uint64_t* begin, uint64_t* size) {
  std::lock_guard<std::mutex> lock(mutex);
  const auto block = block_of(address);
  if (!block)
    return 0;
  *begin = block->address;
  *size = block->size;
  return block->on_host() ? 2 : 1;
}

ACL_FUNC void* simulated_ascend_address(const void* device, size_t size) {
  std::lock_guard<std::mutex> lock(mutex);
  const auto address = reinterpret_cast<uintptr_t>(device);
  const auto block = block_of(device);
  if (!block) {
    if (!is_device_address(device))
      return const_cast<void*>(device);
    record_misuse(__func__, 0, "a kernel uses memory that is not allocated");
    return nullptr;
  }
  const std::string why = beyond(*block, address, size);
  if (!why.empty()) {
    record_misuse(__func__, 0, "a kernel uses memory " + why);
    return nullptr;
  }
  return contents(*block, address);
}
