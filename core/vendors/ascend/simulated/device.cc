// SPDX-License-Identifier: Apache-2.0
#include "device.h"

#include <cstdio>
#include <cstring>

#include "call.h"
#include "handles.h"
#include "memory.h"
#include "report.h"
#include "settings.h"
#include "stream.h"

namespace simulated_ascend {

std::vector<Device>& devices() {
  static auto& all = *new std::vector<Device>(settings().devices.size());
  return all;
}

std::shared_ptr<Stream> default_stream(const std::shared_ptr<Context>& context) {
  if (!context->standard)
    context->standard = make_stream(context, 0, 0);
  return context->standard;
}

size_t implicit_contexts() {
  size_t count = 0;
  for (const Device& device : devices())
    count += device.implicit ? 1 : 0;
  return count;
}

size_t default_streams() {
  size_t count = 0;
  for (const Device& device : devices()) {
    for (const auto& each : device.all) {
      const auto stream = each.lock();
      count += stream && !stream->closed && stream->context->standard == stream ? 1 : 0;
    }
  }
  return count;
}

namespace {

bool exists(int device) {
  return device >= 0 && static_cast<size_t>(device) < devices().size();
}

std::shared_ptr<Context> make_context(int device, bool implicit) {
  auto context = std::make_shared<Context>();
  context->device = device;
  context->implicit = implicit;
  context->handle = make_handle(Kind::kContext, context);
  return context;
}

// Ends a context with all that belongs to it; says what its user has left.
void end_context(Call& call, const std::shared_ptr<Context>& context) {
  size_t left = 0;
  const auto all = devices()[context->device].all;
  for (const auto& each : all) {
    const auto stream = each.lock();
    if (!stream || stream->closed || stream->context != context)
      continue;
    left += stream != context->standard ? 1 : 0;
    call.wait(-1, [&] { return machine::idle(*stream); });
    close_stream(stream);
  }
  if (left)
    call.record("leak: " + std::to_string(left) + " streams of the context");
  context->alive = false;
  destroy_handle(context->handle);
}

void reset_device(Call& call, int number) {
  Device& device = devices()[number];
  if (device.implicit)
    end_context(call, device.implicit);
  device.implicit.reset();
  if (const size_t left = reset_memory(number))
    call.record("leak: " + std::to_string(left) + " blocks of the device");
  device.references = 0;
  device.lost = 0;
  device.peers.clear();
}

} // namespace

} // namespace simulated_ascend

using namespace simulated_ascend;

ACL_FUNC aclError aclInit(const char*) {
  ENTER(kNothing);
  if (initialized)
    return call.fail(kRepeatInitialize, "initialised already");
  initialized = true;
  return kSuccess;
}

ACL_FUNC aclError aclFinalize(void) {
  ENTER(kNothing);
  if (!initialized)
    return call.refuse(kRepeatFinalize, "not initialised, or finalised already");
  record_leaks("aclFinalize");
  initialized = false;
  return kSuccess;
}

ACL_FUNC const char* aclGetRecentErrMsg(void) {
  Thread& self = thread();
  if (self.error.empty())
    return nullptr;
  self.fetched = std::move(self.error);
  self.error.clear();
  return self.fetched.c_str();
}

ACL_FUNC const char* aclrtGetSocName(void) {
  return settings().soc.c_str();
}

ACL_FUNC aclError aclrtGetVersion(int32_t* major, int32_t* minor, int32_t* patch) {
  ENTER(kInFunction);
  if (!major || !minor || !patch)
    return call.refuse(kParamInvalid, "an output is NULL");
  *major = 1;
  *minor = settings().old_version ? 14 : 17;
  *patch = 0;
  return kSuccess;
}

ACL_FUNC aclError aclsysGetVersionNum(char* package, int32_t* number) {
  ENTER(kInFunction);
  if (!package || !number || std::strcmp(package, "runtime") != 0)
    return call.refuse(kInvalidParam, "there is no such package");
  const int* version = settings().version;
  *number = version[0] * 10000000 + version[1] * 100000 + version[2] * 1000;
  return kSuccess;
}

ACL_FUNC aclError aclrtGetDeviceCount(uint32_t* count) {
  ENTER(kNothing);
  if (!count)
    return call.refuse(kParamInvalid, "the output is NULL");
  if (!settings().invisible.empty())
    return call.fail(kNoDevice, settings().invisible);
  *count = static_cast<uint32_t>(devices().size());
  return kSuccess;
}

ACL_FUNC aclError aclrtSetDevice(int32_t device) {
  ENTER(kInit);
  if (!exists(device))
    return call.refuse(kInvalidDeviceId, "there is no device " + std::to_string(device));
  Device& chosen = devices()[device];
  ++chosen.references;
  if (!chosen.implicit)
    chosen.implicit = make_context(device, true);
  thread().context = chosen.implicit;
  return kSuccess;
}

ACL_FUNC aclError aclrtGetDevice(int32_t* device) {
  ENTER(kContext | kInFunction);
  if (!device)
    return call.refuse(kParamInvalid, "the output is NULL");
  *device = call.context().device;
  return kSuccess;
}

ACL_FUNC aclError aclrtResetDevice(int32_t device) {
  ENTER(kInit);
  if (!exists(device))
    return call.refuse(kInvalidDeviceId, "there is no device " + std::to_string(device));
  if (devices()[device].references == 0)
    return call.refuse(kParamInvalid, "reset more often than set");
  if (--devices()[device].references == 0)
    reset_device(call, device);
  return call.code;
}

ACL_FUNC aclError aclrtResetDeviceForce(int32_t device) {
  ENTER(kInit);
  if (!exists(device))
    return call.refuse(kInvalidDeviceId, "there is no device " + std::to_string(device));
  reset_device(call, device);
  return call.code;
}

ACL_FUNC aclError aclrtQueryDeviceStatus(int32_t device, int* status) {
  ENTER(kInit);
  if (!exists(device) || !status)
    return call.refuse(kInvalidDeviceId, "there is no such device, or no output");
  *status = devices()[device].lost ? 1 : 0;
  return kSuccess;
}

ACL_FUNC aclError aclrtGetRunMode(int* mode) {
  ENTER(kInit);
  if (!mode)
    return call.refuse(kParamInvalid, "the output is NULL");
  *mode = kRunModeHost;
  return kSuccess;
}

ACL_FUNC aclError aclrtDeviceCanAccessPeer(int32_t* can, int32_t device, int32_t peer) {
  ENTER(kInit);
  if (!can || !exists(device) || !exists(peer))
    return call.refuse(kInvalidDeviceId, "there is no such device, or no output");
  *can = device != peer && settings().peers;
  return kSuccess;
}

ACL_FUNC aclError aclrtDeviceEnablePeerAccess(int32_t peer, uint32_t flags) {
  ENTER(kContext);
  const int device = call.context().device;
  if (!exists(peer) || peer == device || flags)
    return call.refuse(kParamInvalid, "the peer must be another device and the flags 0");
  if (!settings().peers)
    return call.refuse(kFeatureNotSupport, "the devices cannot reach each other");
  devices()[device].peers.insert(peer);
  return kSuccess;
}

ACL_FUNC aclError aclrtDeviceDisablePeerAccess(int32_t peer) {
  ENTER(kContext);
  if (!devices()[call.context().device].peers.erase(peer))
    return call.refuse(kParamInvalid, "the peer was not enabled");
  return kSuccess;
}

ACL_FUNC aclError aclrtGetDeviceInfo(uint32_t device, int attribute, int64_t* value) {
  ENTER(kInit);
  if (!exists(static_cast<int>(device)) || !value)
    return call.refuse(kInvalidDeviceId, "there is no such device, or no output");
  static const std::map<int, int64_t> values = {{1, 6}, {101, 20}, {102, 20}, {201, 40}, {302, 192 << 20}, {601, 2201}};
  const auto found = values.find(attribute);
  if (attribute != 301 && found == values.end())
    return call.refuse(kParamInvalid, "there is no attribute " + std::to_string(attribute));
  *value = attribute == 301 ? static_cast<int64_t>(settings().memory) : found->second;
  return kSuccess;
}

ACL_FUNC aclError aclrtDeviceGetUuid(int32_t device, aclrtUuid* uuid) {
  ENTER(kInit);
  if (!exists(device) || !uuid)
    return call.refuse(kInvalidDeviceId, "there is no such device, or no output");
  // Of the physical device: the same however it is made visible.
  std::memset(uuid->bytes, 0x5a, sizeof uuid->bytes);
  uuid->bytes[15] = static_cast<char>(settings().devices[device]);
  return kSuccess;
}

ACL_FUNC aclError aclrtDeviceGetPCIBusId(int32_t device, char* out, int32_t length) {
  ENTER(kInit);
  if (!exists(device) || !out || length < 13)
    return call.refuse(kParamInvalid, "there is no such device, or the output is too short");
  std::snprintf(out, static_cast<size_t>(length), "0000:%02X:00.0", 0xc1 + settings().devices[device]);
  return kSuccess;
}

ACL_FUNC aclError aclrtCreateContext(aclrtContext* out, int32_t device) {
  ENTER(kInit);
  if (!out || !exists(device))
    return call.refuse(kInvalidDeviceId, "there is no device " + std::to_string(device) + ", or no output");
  thread().context = make_context(device, false);
  *out = thread().context->handle;
  return kSuccess;
}

ACL_FUNC aclError aclrtDestroyContext(aclrtContext handle) {
  ENTER(kInit);
  const auto context = call.object<Context>(handle, static_cast<int>(Kind::kContext));
  if (!context)
    return call.code;
  if (context->implicit)
    return call.refuse(kParamInvalid, "the default context ends with its device");
  end_context(call, context);
  return call.code;
}

ACL_FUNC aclError aclrtSetCurrentContext(aclrtContext handle) {
  ENTER(kInit);
  const auto context = call.object<Context>(handle, static_cast<int>(Kind::kContext));
  if (context)
    thread().context = context;
  return call.code;
}

ACL_FUNC aclError aclrtGetCurrentContext(aclrtContext* out) {
  ENTER(kContext | kInFunction);
  if (!out)
    return call.refuse(kParamInvalid, "the output is NULL");
  *out = call.context().handle;
  return kSuccess;
}

ACL_FUNC aclError aclrtCtxGetCurrentDefaultStream(aclrtStream* out) {
  ENTER(kContext);
  if (!out)
    return call.refuse(kParamInvalid, "the output is NULL");
  *out = default_stream(thread().context)->handle;
  return kSuccess;
}
