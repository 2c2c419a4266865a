// SPDX-License-Identifier: Apache-2.0
#include "event.h"

#include "call.h"
#include "capture.h"
#include "device.h"
#include "handles.h"
#include "settings.h"
#include "stream.h"

namespace simulated_ascend {

namespace {

constexpr uint32_t kKnownFlags =
    kEventSync | kEventProgress | kEventTimeLine | kEventDeviceUseOnly | kEventExternal | kEventIpc;

aclError create_event(Call& call, aclrtEvent* out, uint32_t flags, bool extended) {
  if (!out || flags & ~kKnownFlags)
    return call.refuse(kParamInvalid, "no output, or an unknown flag");
  if (flags & kEventIpc && flags != kEventIpc)
    return call.refuse(kParamInvalid, "the flag IPC stands alone");
  auto event = std::make_shared<Event>();
  event->device = call.context().device;
  event->extended = extended;
  event->flags = flags;
  event->handle = make_handle(Kind::kEvent, event);
  *out = event->handle;
  return kSuccess;
}

void release_hardware(Event& event) {
  if (event.hardware)
    --devices()[event.device].events;
  event.hardware = false;
}

aclError record_event(Call& call, aclrtEvent event_handle, aclrtStream stream_handle) {
  const auto event = call.event(event_handle);
  const auto stream = event ? call.stream(stream_handle) : nullptr;
  if (!stream)
    return call.code;
  if (event->device != stream->context->device)
    return call.refuse(kStreamContext, "the event belongs to another device than the stream");
  if (stream->capture && !(event->flags & kEventExternal))
    return capture_record(call, stream, *event);
  if (!event->extended && !event->hardware) {
    Device& device = devices()[event->device];
    if (device.events >= settings().events)
      return call.fail(kNoEventResource, "the device has no event left");
    ++device.events;
    event->hardware = true;
  }
  if (stream->capture) {
    // Recorded anew by each run of the graph.
    return submit(
        call,
        stream,
        {call.function,
         [event] {
           std::lock_guard<std::mutex> lock(mutex);
           event->mark = std::make_shared<machine::Mark>(machine::Mark{true, machine::nanoseconds_now(), kSuccess});
           return 0;
         },
         {},
         true});
  }
  event->capture.reset();
  auto mark = std::make_shared<machine::Mark>();
  const int code = submit(call, stream, machine::reaching(call.function, stream, mark));
  if (code == kSuccess)
    event->mark = mark;
  return code;
}

aclError wait_event(Call& call, aclrtStream stream_handle, aclrtEvent event_handle) {
  const auto event = call.event(event_handle);
  const auto stream = event ? call.stream(stream_handle) : nullptr;
  if (!stream)
    return call.code;
  if (event->extended && !(event->flags & kEventSync))
    return call.refuse(kParamInvalid, "the event was made without the flag SYNC");
  if (event->capture)
    return capture_wait(call, stream, *event);
  if (!event->mark) {
    if (event->extended)
      return kSuccess;
    return call.refuse(kParamInvalid, "the event was never recorded: the stream would wait for ever");
  }
  if (stream->capture && !(event->flags & kEventExternal)) {
    invalidate(*stream->capture);
    return call.refuse(kCaptureDependency, "a captured stream waits for an event that was recorded outside");
  }
  if (stream->capture) {
    // Of a record outside the graph: each run waits for the latest.
    const auto run = [event] {
      std::unique_lock<std::mutex> lock(mutex);
      machine::drain(lock, event->mark);
      return 0;
    };
    return submit(call, stream, {call.function, run, {}, true});
  }
  return submit(call, stream, machine::waiting(call.function, event));
}

// Whether a query or a wait of the host may ask this event.
bool may_ask(Call& call, const Event& event) {
  if (!event.capture)
    return true;
  invalidate(*event.capture);
  call.refuse(kEventCaptured, "the event was recorded in a capture");
  return false;
}

aclError synchronize_event(Call& call, aclrtEvent handle, int timeout_ms) {
  const auto event = call.event(handle);
  if (!event || !may_ask(call, *event))
    return call.code;
  if (!event->mark) {
    if (event->extended)
      return kSuccess;
    return call.refuse(kParamInvalid, "the event was never recorded");
  }
  const auto mark = event->mark;
  if (!call.wait(timeout_ms, [&] { return mark->done; }))
    return call.fail(kEventSyncTimeout, "the event was not reached in time");
  return mark->code ? call.fail(mark->code, "work before the event failed on the device") : kSuccess;
}

// The plain event of a call that Ex events do not have.
std::shared_ptr<Event> plain_event(Call& call, aclrtEvent handle) {
  auto event = call.event(handle);
  if (event && event->extended) {
    call.refuse(kFeatureNotSupport, "not for events made by aclrtCreateEventExWithFlag");
    return nullptr;
  }
  return event;
}

} // namespace

} // namespace simulated_ascend

using namespace simulated_ascend;

ACL_FUNC aclError aclrtCreateEvent(aclrtEvent* out) {
  ENTER(kContext);
  return create_event(call, out, kEventSync | kEventTimeLine, false);
}

ACL_FUNC aclError aclrtCreateEventWithFlag(aclrtEvent* out, uint32_t flags) {
  ENTER(kContext);
  return create_event(call, out, flags, false);
}

ACL_FUNC aclError aclrtCreateEventExWithFlag(aclrtEvent* out, uint32_t flags) {
  ENTER(kContext);
  return create_event(call, out, flags, true);
}

ACL_FUNC aclError aclrtDestroyEvent(aclrtEvent handle) {
  ENTER(kContext);
  const auto event = call.event(handle);
  if (!event)
    return call.code;
  if (!event->extended && event->waits)
    call.record("a stream has not done its wait for the event");
  release_hardware(*event);
  destroy_handle(handle);
  return kSuccess;
}

ACL_FUNC aclError aclrtRecordEvent(aclrtEvent event, aclrtStream stream) {
  ENTER(kContext | kQueues);
  return record_event(call, event, stream);
}

ACL_FUNC aclError aclrtRecordEventWithFlag(aclrtEvent event, aclrtStream stream, uint32_t flags) {
  ENTER(kContext | kQueues);
  if (flags > 1)
    return call.refuse(kParamInvalid, "an unknown flag");
  return record_event(call, event, stream);
}

ACL_FUNC aclError aclrtResetEvent(aclrtEvent handle, aclrtStream stream_handle) {
  ENTER(kContext | kQueues);
  const auto event = plain_event(call, handle);
  const auto stream = event ? call.stream(stream_handle) : nullptr;
  if (!stream)
    return call.code;
  if (!event->mark)
    return call.refuse(kParamInvalid, "the event was never recorded");
  event->mark.reset();
  release_hardware(*event);
  return kSuccess;
}

ACL_FUNC aclError aclrtQueryEventStatus(aclrtEvent handle, int* status) {
  ENTER(kContext | kInFunction);
  const auto event = status ? call.event(handle) : nullptr;
  if (!status)
    return call.refuse(kParamInvalid, "the output is NULL");
  if (!event || !may_ask(call, *event))
    return call.code;
  *status = event->mark ? event->mark->done : event->extended;
  return kSuccess;
}

ACL_FUNC aclError aclrtQueryEvent(aclrtEvent handle, int* status) {
  ENTER(kContext);
  const auto event = status ? plain_event(call, handle) : nullptr;
  if (!status)
    return call.refuse(kParamInvalid, "the output is NULL");
  if (!event || !may_ask(call, *event))
    return call.code;
  *status = event->mark && event->mark->done ? 0 : 1;
  return kSuccess;
}

ACL_FUNC aclError aclrtQueryEventWaitStatus(aclrtEvent handle, int* status) {
  ENTER(kContext);
  const auto event = status ? plain_event(call, handle) : nullptr;
  if (!status)
    return call.refuse(kParamInvalid, "the output is NULL");
  if (!event)
    return call.code;
  *status = event->waits ? 1 : 0;
  return kSuccess;
}

ACL_FUNC aclError aclrtSynchronizeEvent(aclrtEvent handle) {
  ENTER(kContext);
  return synchronize_event(call, handle, -1);
}

ACL_FUNC aclError aclrtSynchronizeEventWithTimeout(aclrtEvent handle, int32_t timeout_ms) {
  ENTER(kContext);
  if (timeout_ms == 0 || timeout_ms < -1)
    return call.refuse(kParamInvalid, "a timeout must be positive, or -1");
  return synchronize_event(call, handle, timeout_ms);
}

ACL_FUNC aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event) {
  ENTER(kContext | kQueues);
  return wait_event(call, stream, event);
}

ACL_FUNC aclError aclrtStreamWaitEventWithTimeout(aclrtStream stream, aclrtEvent event, int32_t timeout_ms) {
  ENTER(kContext | kQueues);
  if (timeout_ms < 0)
    return call.refuse(kParamInvalid, "a timeout is positive, or 0 for none");
  return wait_event(call, stream, event);
}

ACL_FUNC aclError aclrtEventElapsedTime(float* milliseconds, aclrtEvent start_handle, aclrtEvent end_handle) {
  ENTER(kContext);
  const auto start = call.event(start_handle);
  const auto end = start ? call.event(end_handle) : nullptr;
  if (!end)
    return call.code;
  if (!milliseconds)
    return call.refuse(kParamInvalid, "the output is NULL");
  if (!(start->flags & end->flags & kEventTimeLine))
    return call.refuse(kEventTimestampInvalid, "an event was made without the flag TIME_LINE");
  if (!start->mark || !end->mark || !start->mark->done || !end->mark->done)
    return call.refuse(kEventTimestampInvalid, "an event was not recorded, or not reached");
  if (end->mark->nanoseconds < start->mark->nanoseconds)
    return call.refuse(kEventTimestampReversal, "the end was reached before the start");
  *milliseconds = static_cast<float>(machine::milliseconds(*start->mark, *end->mark));
  return kSuccess;
}

ACL_FUNC aclError aclrtEventGetTimestamp(aclrtEvent handle, uint64_t* microseconds) {
  ENTER(kContext);
  const auto event = call.event(handle);
  if (!event)
    return call.code;
  if (!microseconds)
    return call.refuse(kParamInvalid, "the output is NULL");
  if (!(event->flags & kEventTimeLine) || !event->mark || !event->mark->done)
    return call.refuse(kEventTimestampInvalid, "the event has no time");
  *microseconds = event->mark->nanoseconds / 1000;
  return kSuccess;
}
