// SPDX-License-Identifier: Apache-2.0
// Copies and fills: which memory each kind takes, how far it may reach, and whether it returns before it is done.
#include <cstring>

#include "call.h"
#include "capture.h"
#include "device.h"
#include "memory.h"
#include "stream.h"

namespace simulated_ascend {

namespace {

// One side of a copy.
struct Side {
  const char* name;
  uintptr_t address;
  size_t bytes; // from the first to the last, gaps between rows among them
  bool writes;
  std::shared_ptr<Block> block; // none for pageable memory of the host

  bool on_device() const {
    return block && !block->on_host();
  }
  char* reach() const {
    return block ? contents(*block, address) : reinterpret_cast<char*>(address);
  }
  Use use() const {
    return {block, address, address + bytes, writes};
  }
};

struct Copy {
  Side to;
  Side from;
  size_t to_pitch;
  size_t from_pitch;
  size_t width;
  size_t height;
};

bool find_side(Call& call, Side& side) {
  const auto* address = reinterpret_cast<const void*>(side.address);
  side.block = block_of(address);
  if (!side.block && is_device_address(address)) {
    call.refuse(kParamInvalid, std::string("the ") + side.name + " lies in no allocation that is alive");
    return false;
  }
  const std::string why = side.block ? beyond(*side.block, side.address, side.bytes) : "";
  if (!why.empty())
    call.refuse(kParamInvalid, std::string("the ") + side.name + " ends " + why);
  return why.empty();
}

// Whether the devices of both sides reach each other by what was enabled.
bool are_peers(int one, int other) {
  return one == other || devices()[one].peers.count(other) || devices()[other].peers.count(one);
}

bool check_kind(Call& call, const Copy& copy, int kind) {
  const bool to_device = copy.to.on_device();
  const bool from_device = copy.from.on_device();
  const bool both = to_device && from_device;
  const bool one_device = both && copy.to.block->device == copy.from.block->device;
  bool fits = false;
  switch (kind) {
    case kHostToHost:
      fits = !to_device && !from_device;
      break;
    case kHostToDevice:
    case kBuffered:
      fits = to_device && !from_device;
      break;
    case kDeviceToHost:
      fits = !to_device && from_device;
      break;
    case kDeviceToDevice:
      fits = both;
      break;
    case kDefault:
      fits = true;
      break;
    case kInner:
      fits = one_device;
      break;
    case kInter:
      fits = both && !one_device;
      break;
  }
  if (!fits)
    call.refuse(kParamInvalid, "kind " + std::to_string(kind) + " does not fit where the addresses lie");
  else if (both && !are_peers(copy.to.block->device, copy.from.block->device))
    call.refuse(kParamInvalid, "peer access between the devices was not enabled");
  return call.code == kSuccess;
}

// Finds both sides; false if the call was refused.
bool prepare(Call& call, Copy& copy, int kind) {
  if (!copy.to.address || !copy.from.address || copy.width == 0 || copy.height == 0) {
    call.refuse(kParamInvalid, "an address is NULL, or the size is 0");
    return false;
  }
  copy.to.bytes = copy.to_pitch * (copy.height - 1) + copy.width;
  copy.from.bytes = copy.from_pitch * (copy.height - 1) + copy.width;
  return find_side(call, copy.to) && find_side(call, copy.from) && check_kind(call, copy, kind);
}

void move(const Copy& copy, char* to, const char* from) {
  for (size_t row = 0; row < copy.height; ++row)
    std::memmove(to + row * copy.to_pitch, from + row * copy.from_pitch, copy.width);
}

// At once, and not in the order of any stream.
aclError copy_now(Call& call, Copy copy, int kind) {
  if (capture_forbids(call) || !prepare(call, copy, kind))
    return call.code;
  for (const Side* side : {&copy.to, &copy.from}) {
    if (side->block && races(*side->block, side->address, side->address + side->bytes, side->writes))
      call.record(std::string("the ") + side->name + " is used by work that has not run");
  }
  char* const to = copy.to.reach();
  char* const from = copy.from.reach();
  // Blocks stay while the lock is released: freeing one meanwhile is noticed as any other use is.
  const uint64_t id = UINT64_MAX;
  for (const Side* side : {&copy.to, &copy.from}) {
    if (side->block)
      add_pending(side->use(), id);
  }
  call.lock.unlock();
  move(copy, to, from);
  call.lock.lock();
  for (const Side* side : {&copy.to, &copy.from}) {
    if (side->block)
      remove_pending(side->use(), id);
  }
  return kSuccess;
}

aclError copy_queued(Call& call, Copy copy, int kind, aclrtStream handle) {
  const auto stream = call.stream(handle);
  if (!stream || !prepare(call, copy, kind))
    return call.code;
  if (!copy.to.on_device() && !copy.from.on_device())
    return call.refuse(kFeatureNotSupport, "a copy from host to host cannot be queued");
  // The runtime must have read or written pageable memory when it returns.
  const bool waits = !copy.to.block || !copy.from.block;
  if (waits && (stream->capture || capture_forbids(call))) {
    if (stream->capture)
      invalidate(*stream->capture);
    return call.code ? call.code : call.refuse(kCaptureModeNotSupport, "pageable memory in a capture");
  }
  Work work{call.function, nullptr, {}};
  for (const Side* side : {&copy.to, &copy.from}) {
    if (side->block)
      work.uses.push_back(side->use());
  }
  work.run = [copy, to = copy.to.reach(), from = copy.from.reach()] {
    move(copy, to, from);
    return 0;
  };
  const int code = submit(call, stream, std::move(work));
  if (code == kSuccess && waits) {
    const uint64_t until = stream->submitted;
    call.wait(-1, [&] { return stream->completed >= until; });
  }
  return code;
}

Copy flat(void* to, size_t to_size, const void* from, size_t size) {
  return {
      {"destination", reinterpret_cast<uintptr_t>(to), size, true, nullptr},
      {"source", reinterpret_cast<uintptr_t>(from), size, false, nullptr},
      to_size,
      size,
      size,
      1};
}

Copy rows(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height) {
  Copy copy = flat(to, to_pitch, from, width);
  copy.from_pitch = from_pitch;
  copy.height = height;
  return copy;
}

// The memory to fill; nothing if the call was refused.
std::shared_ptr<Block> to_fill(Call& call, void* to, size_t most, size_t size) {
  if (!to || size == 0 || most < size) {
    call.refuse(
        kParamInvalid, most < size ? "more than the destination's size" : "the address is NULL, or the size is 0");
    return nullptr;
  }
  Side side{"destination", reinterpret_cast<uintptr_t>(to), size, true, nullptr};
  if (!find_side(call, side))
    return nullptr;
  if (!side.block)
    call.refuse(kParamInvalid, "memory of the host that is not the runtime's");
  return side.block;
}

} // namespace

} // namespace simulated_ascend

using namespace simulated_ascend;

ACL_FUNC aclError aclrtMemcpy(void* to, size_t most, const void* from, size_t size, int kind) {
  ENTER(kContext);
  if (most < size)
    return call.refuse(kParamInvalid, "more than the destination's size");
  return copy_now(call, flat(to, most, from, size), kind);
}

ACL_FUNC aclError aclrtMemcpyAsync(void* to, size_t most, const void* from, size_t size, int kind, aclrtStream stream) {
  ENTER(kContext | kQueues);
  if (most < size)
    return call.refuse(kParamInvalid, "more than the destination's size");
  return copy_queued(call, flat(to, most, from, size), kind, stream);
}

ACL_FUNC aclError
aclrtMemcpy2d(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height, int kind) {
  ENTER(kContext);
  if (width > to_pitch || width > from_pitch)
    return call.refuse(kParamInvalid, "rows are wider than their pitch");
  return copy_now(call, rows(to, to_pitch, from, from_pitch, width, height), kind);
}

ACL_FUNC aclError aclrtMemcpy2dAsync(
    void* to,
    size_t to_pitch,
    const void* from,
    size_t from_pitch,
    size_t width,
    size_t height,
    int kind,
    aclrtStream stream) {
  ENTER(kContext | kQueues);
  if (width > to_pitch || width > from_pitch)
    return call.refuse(kParamInvalid, "rows are wider than their pitch");
  if (capture_forbids(call))
    return call.code;
  return copy_queued(call, rows(to, to_pitch, from, from_pitch, width, height), kind, stream);
}

ACL_FUNC aclError aclrtMemset(void* to, size_t most, int32_t value, size_t size) {
  ENTER(kContext);
  const auto block = capture_forbids(call) ? nullptr : to_fill(call, to, most, size);
  if (!block)
    return call.code;
  const auto address = reinterpret_cast<uintptr_t>(to);
  if (races(*block, address, address + size, true))
    call.record("the destination is used by work that has not run");
  std::memset(contents(*block, address), value, size);
  return kSuccess;
}

ACL_FUNC aclError aclrtMemsetAsync(void* to, size_t most, int32_t value, size_t size, aclrtStream handle) {
  ENTER(kContext | kQueues);
  const auto stream = call.stream(handle);
  const auto block = stream ? to_fill(call, to, most, size) : nullptr;
  if (!block)
    return call.code;
  const auto address = reinterpret_cast<uintptr_t>(to);
  Work work{call.function, nullptr, {{block, address, address + size, true}}};
  work.run = [at = contents(*block, address), value, size] {
    std::memset(at, value, size);
    return 0;
  };
  return submit(call, stream, std::move(work));
}
