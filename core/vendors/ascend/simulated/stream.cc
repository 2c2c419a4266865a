// SPDX-License-Identifier: Apache-2.0
#include "stream.h"

#include <utility>

#include "call.h"
#include "capture.h"
#include "device.h"
#include "handles.h"
#include "settings.h"
#include "simulated_ascend.h"

namespace simulated_ascend {

namespace {

uint64_t tasks_made = 0;

} // namespace

std::shared_ptr<Stream> make_stream(const std::shared_ptr<Context>& context, uint32_t priority, uint32_t flags) {
  auto stream = std::make_shared<Stream>(&devices()[context->device], settings().delay_us);
  stream->context = context;
  stream->priority = priority;
  stream->flags = flags;
  stream->handle = make_handle(Kind::kStream, stream);
  devices()[context->device].all.push_back(stream);
  return stream;
}

void close_stream(const std::shared_ptr<Stream>& stream) {
  machine::close(*stream);
  if (stream->context->standard != stream)
    --devices()[stream->context->device].streams;
  destroy_handle(stream->handle);
  auto& all = devices()[stream->context->device].all;
  for (size_t index = all.size(); index-- > 0;) {
    if (all[index].expired() || all[index].lock() == stream)
      all.erase(all.begin() + static_cast<std::ptrdiff_t>(index));
  }
}

int submit(Call& call, const std::shared_ptr<Stream>& stream, Work work) {
  ++tasks_made;
  if (stream->capture)
    return capture_work(call, stream, std::move(work));
  if (stream->error && stream->stops)
    return call.fail(stream->error, "the stream has stopped after " + stream->failed);
  if (call.fault)
    work.run = [code = call.fault] { return code; };
  // What the work returns may be the loss of the device.
  work.run = [run = std::move(work.run), &device = devices()[stream->context->device]] {
    const int code = run();
    if (code == kLostHeartbeat) {
      std::lock_guard<std::mutex> lock(mutex);
      device.lost = code;
    }
    return code;
  };
  machine::submit(stream, std::move(work));
  return kSuccess;
}

int synchronize(Call& call, const std::shared_ptr<Stream>& stream, int timeout_ms) {
  if (stream->capture) {
    invalidate(*stream->capture);
    return call.refuse(kStreamCaptured, "the stream is being captured");
  }
  const uint64_t until = stream->submitted;
  if (!call.wait(timeout_ms, [&] { return stream->completed >= until; }))
    return call.fail(kStreamSyncTimeout, "the stream was not done in time");
  const int error = stream->error;
  // A stream that goes on tells of a failure once.
  if (!stream->stops)
    stream->error = kSuccess;
  return error ? call.fail(error, stream->failed + " failed on the device") : kSuccess;
}

namespace {

aclError create_stream(Call& call, aclrtStream* out, uint32_t priority, uint32_t flags) {
  if (!out || priority > 7 || flags & ~0x3fu)
    return call.refuse(kParamInvalid, "no output, a priority above 7 or an unknown flag");
  Device& device = devices()[call.context().device];
  if (device.streams >= settings().streams)
    return call.fail(kNoStreamResource, "the device has no stream left");
  ++device.streams;
  *out = make_stream(thread().context, priority, flags)->handle;
  return kSuccess;
}

// A stream that may be destroyed now, or nothing.
std::shared_ptr<Stream> stream_to_end(Call& call, aclrtStream handle) {
  if (!handle) {
    call.refuse(kParamInvalid, "the default stream cannot be destroyed");
    return nullptr;
  }
  auto stream = call.stream(handle);
  if (!stream)
    return nullptr;
  if (stream->context->standard == stream) {
    call.refuse(kParamInvalid, "the default stream cannot be destroyed");
    return nullptr;
  }
  if (stream->capture) {
    invalidate(*stream->capture);
    call.refuse(kStreamCaptured, "the stream is being captured");
    return nullptr;
  }
  if (stream->subscriber)
    call.record("a thread is subscribed to the stream");
  return stream;
}

void abort_stream(Stream& stream) {
  stream.aborted = stream.submitted;
  if (!machine::idle(stream) && !stream.error) {
    stream.error = kStreamAbort;
    stream.failed = "aclrtStreamAbort: work";
  }
}

aclError synchronize_device(Call& call, int timeout_ms) {
  if (timeout_ms == 0 || timeout_ms < -1)
    return call.refuse(kParamInvalid, "a timeout must be positive, or -1");
  if (capture_forbids(call))
    return call.code;
  const auto all = devices()[call.context().device].all;
  for (const auto& each : all) {
    const auto stream = each.lock();
    if (stream && !stream->closed && !stream->capture && synchronize(call, stream, timeout_ms))
      return call.code;
  }
  return kSuccess;
}

} // namespace

} // namespace simulated_ascend

using namespace simulated_ascend;

ACL_FUNC uint64_t simulated_ascend_tasks(void) {
  std::lock_guard<std::mutex> lock(mutex);
  return tasks_made;
}

ACL_FUNC aclError aclrtCreateStream(aclrtStream* out) {
  ENTER(kContext);
  return create_stream(call, out, 0, 0);
}

ACL_FUNC aclError aclrtCreateStreamWithConfig(aclrtStream* out, uint32_t priority, uint32_t flags) {
  ENTER(kContext);
  return create_stream(call, out, priority, flags);
}

ACL_FUNC aclError aclrtDestroyStream(aclrtStream handle) {
  ENTER(kContext);
  const auto stream = stream_to_end(call, handle);
  if (!stream)
    return call.code;
  if (!machine::idle(*stream)) {
    call.record("the stream has work that has not run");
    call.wait(-1, [&] { return machine::idle(*stream); });
  }
  close_stream(stream);
  return kSuccess;
}

ACL_FUNC aclError aclrtDestroyStreamForce(aclrtStream handle) {
  ENTER(kContext);
  const auto stream = stream_to_end(call, handle);
  if (!stream)
    return call.code;
  abort_stream(*stream);
  call.wait(-1, [&] { return machine::idle(*stream); });
  close_stream(stream);
  return kSuccess;
}

ACL_FUNC aclError aclrtSynchronizeStream(aclrtStream handle) {
  ENTER(kContext);
  const auto stream = call.stream(handle);
  return stream ? synchronize(call, stream, -1) : call.code;
}

ACL_FUNC aclError aclrtSynchronizeStreamWithTimeout(aclrtStream handle, int32_t timeout_ms) {
  ENTER(kContext);
  if (timeout_ms == 0 || timeout_ms < -1)
    return call.refuse(kParamInvalid, "a timeout must be positive, or -1");
  const auto stream = call.stream(handle);
  return stream ? synchronize(call, stream, timeout_ms) : call.code;
}

ACL_FUNC aclError aclrtSynchronizeDevice(void) {
  ENTER(kContext);
  return synchronize_device(call, -1);
}

ACL_FUNC aclError aclrtSynchronizeDeviceWithTimeout(int32_t timeout_ms) {
  ENTER(kContext);
  return synchronize_device(call, timeout_ms);
}

ACL_FUNC aclError aclrtStreamQuery(aclrtStream handle, int* status) {
  ENTER(kContext);
  if (!status)
    return call.refuse(kParamInvalid, "the output is NULL");
  const auto stream = call.stream(handle);
  if (!stream)
    return call.code;
  if (stream->capture) {
    invalidate(*stream->capture);
    return call.refuse(kStreamCaptured, "the stream is being captured");
  }
  *status = !machine::idle(*stream);
  return stream->error ? call.fail(stream->error, stream->failed + " failed on the device") : kSuccess;
}

ACL_FUNC aclError aclrtStreamGetId(aclrtStream handle, int32_t* id) {
  ENTER(kContext);
  const auto stream = call.stream(handle);
  if (stream && id)
    *id = stream->id;
  return stream && !id ? call.refuse(kParamInvalid, "the output is NULL") : call.code;
}

ACL_FUNC aclError aclrtStreamGetPriority(aclrtStream handle, uint32_t* priority) {
  ENTER(kContext);
  const auto stream = call.stream(handle);
  if (stream && priority)
    *priority = stream->priority;
  return stream && !priority ? call.refuse(kParamInvalid, "the output is NULL") : call.code;
}

ACL_FUNC aclError aclrtStreamGetFlags(aclrtStream handle, uint32_t* flags) {
  ENTER(kContext);
  const auto stream = call.stream(handle);
  if (stream && flags)
    *flags = stream->flags;
  return stream && !flags ? call.refuse(kParamInvalid, "the output is NULL") : call.code;
}

ACL_FUNC aclError aclrtDeviceGetStreamPriorityRange(int32_t* least, int32_t* greatest) {
  ENTER(kContext);
  if (!least || !greatest)
    return call.refuse(kParamInvalid, "an output is NULL");
  *least = 7;
  *greatest = 0;
  return kSuccess;
}

ACL_FUNC aclError aclrtSetStreamFailureMode(aclrtStream handle, uint64_t mode) {
  ENTER(kContext);
  if (mode > kStopOnFailure || !handle)
    return call.refuse(kParamInvalid, "there is no such mode, or it is the default stream");
  const auto stream = call.stream(handle);
  if (stream)
    stream->stops = mode == kStopOnFailure;
  return call.code;
}

ACL_FUNC aclError aclrtStreamAbort(aclrtStream handle) {
  ENTER(kContext);
  const auto stream = call.stream(handle);
  if (stream)
    abort_stream(*stream);
  return call.code;
}

ACL_FUNC aclError aclrtDeviceTaskAbort(int32_t device, uint32_t) {
  ENTER(kInit);
  if (device < 0 || static_cast<size_t>(device) >= devices().size())
    return call.refuse(kInvalidDeviceId, "there is no device " + std::to_string(device));
  for (const auto& each : devices()[device].all) {
    if (const auto stream = each.lock())
      abort_stream(*stream);
  }
  return kSuccess;
}
