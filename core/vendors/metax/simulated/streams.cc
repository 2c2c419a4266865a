// SPDX-License-Identifier: Apache-2.0
// Streams and events.
#include "simulated.h"

namespace simulated {

namespace {

std::shared_ptr<Event> find_event(void* handle) {
  std::lock_guard<std::mutex> lock(mutex);
  return machine::live_object<Event>(handle, kEvent);
}

} // namespace

std::shared_ptr<Stream> start_stream(int device) {
  static const char* const text = std::getenv("SIMULATED_METAX_DELAY_US");
  state.devices[device].number = device;
  return std::make_shared<Stream>(&state.devices[device], text != nullptr ? std::atoi(text) : 0);
}

bool invalidate_captures() {
  bool any = false;
  for (const auto& capture : machine::captures()) {
    if (capture->origin->device->number == current) {
      any = capture->invalid = true;
    }
  }
  return any;
}

Code find(const char* call, void* handle, std::shared_ptr<Stream>* stream) {
  if (Code code = begin_on_device(call)) {
    return code;
  }
  std::lock_guard<std::mutex> lock(mutex);
  if (handle == nullptr) {
    *stream = state.standard[current];
    return invalidate_captures()
        ? refuse(call, kCaptureImplicit, "the default stream is used while another one is captured")
        : kSuccess;
  }
  const auto found = machine::live_object<Stream>(handle, kStream);
  if (found == nullptr) {
    return refuse(call, kInvalidHandle, "no live stream has this handle");
  }
  // A runtime takes streams of other devices for some calls. The vendor is to make the device current first.
  if (found->device->number != current) {
    return refuse(call, kInvalidHandle, "the stream is of a device that is not current");
  }
  return *stream = found, kSuccess;
}

void push(const std::shared_ptr<Stream>& stream, Work work) {
  if (stream->capture != nullptr) {
    machine::capture_work(stream, std::move(work));
  } else {
    machine::submit(stream, std::move(work));
  }
}

Code refuse_captured(const char* call, const std::shared_ptr<Stream>& stream) {
  std::lock_guard<std::mutex> lock(mutex);
  if (stream->capture == nullptr) {
    return kSuccess;
  }
  stream->capture->invalid = true;
  return refuse(call, kCaptureUnsupported, "the stream is captured");
}

} // namespace simulated

EXPORT Code mcStreamCreateWithPriority(void** handle, unsigned flags, int priority) {
  if (Code code = begin_on_device("mcStreamCreateWithPriority")) {
    return code;
  }
  if (handle == nullptr || flags > 1 || priority > 0 || priority < -2) {
    return refuse("mcStreamCreateWithPriority", kInvalidValue, "no output, flags, or a priority out of the range");
  }
  std::lock_guard<std::mutex> lock(mutex);
  return *handle = machine::make_handle(kStream, start_stream(current)), kSuccess;
}

EXPORT Code mcStreamCreateWithFlags(void** handle, unsigned flags) {
  return mcStreamCreateWithPriority(handle, flags, 0);
}

EXPORT Code mcStreamCreate(void** handle) {
  return mcStreamCreateWithPriority(handle, 0, 0);
}

EXPORT Code mcStreamDestroy(void* handle) {
  std::shared_ptr<Stream> stream;
  if (handle == nullptr) {
    return refuse("mcStreamDestroy", kInvalidHandle, "the default stream is not destroyed");
  }
  if (Code code = find("mcStreamDestroy", handle, &stream)) {
    return code;
  }
  if (Code code = refuse_captured("mcStreamDestroy", stream)) {
    return code;
  }
  std::lock_guard<std::mutex> lock(mutex);
  machine::close(*stream);
  machine::destroy_handle(handle);
  return kSuccess;
}

EXPORT Code mcStreamGetDevice(void* handle, int* device) {
  if (Code code = begin_on_device("mcStreamGetDevice")) {
    return code;
  }
  std::lock_guard<std::mutex> lock(mutex);
  const auto found = machine::live_object<Stream>(handle, kStream);
  if (device == nullptr || (handle != nullptr && found == nullptr)) {
    return refuse("mcStreamGetDevice", kInvalidHandle, "no output, or no live stream has this handle");
  }
  return *device = handle == nullptr ? current : found->device->number, kSuccess;
}

EXPORT Code mcStreamSynchronize(void* handle) {
  std::shared_ptr<Stream> stream;
  if (Code code = find("mcStreamSynchronize", handle, &stream)) {
    return code;
  }
  if (Code code = refuse_captured("mcStreamSynchronize", stream)) {
    return code;
  }
  std::unique_lock<std::mutex> lock(mutex);
  machine::drain(lock, *stream);
  return end(state.lost);
}

EXPORT Code mcStreamQuery(void* handle) {
  std::shared_ptr<Stream> stream;
  if (Code code = find("mcStreamQuery", handle, &stream)) {
    return code;
  }
  if (Code code = refuse_captured("mcStreamQuery", stream)) {
    return code;
  }
  std::lock_guard<std::mutex> lock(mutex);
  return end(machine::idle(*stream) ? state.lost.load() : static_cast<Code>(kNotReady));
}

EXPORT Code mcLaunchHostFunc(void* handle, void (*function)(void*), void* argument) {
  std::shared_ptr<Stream> stream;
  if (Code code = find("mcLaunchHostFunc", handle, &stream)) {
    return code;
  }
  if (function == nullptr) {
    return refuse("mcLaunchHostFunc", kInvalidValue, "the function is NULL");
  }
  std::lock_guard<std::mutex> lock(mutex);
  const auto run = [=] {
    machine::run_on_host(function, argument);
    return 0;
  };
  push(stream, {"mcLaunchHostFunc", run, {}});
  return kSuccess;
}

EXPORT Code mcEventCreateWithFlags(void** handle, unsigned flags) {
  if (Code code = begin_on_device("mcEventCreateWithFlags")) {
    return code;
  }
  if (handle == nullptr || (flags & ~7U) != 0) {
    return refuse("mcEventCreateWithFlags", kInvalidValue, "no output, or flags " + std::to_string(flags));
  }
  const auto event = std::make_shared<Event>();
  event->device = current;
  event->timing = (flags & 2) == 0;
  std::lock_guard<std::mutex> lock(mutex);
  return *handle = machine::make_handle(kEvent, event), kSuccess;
}

EXPORT Code mcEventCreate(void** handle) {
  return mcEventCreateWithFlags(handle, 0);
}

EXPORT Code mcEventDestroy(void* handle) {
  if (Code code = begin_on_device("mcEventDestroy")) {
    return code;
  }
  std::lock_guard<std::mutex> lock(mutex);
  if (machine::live_object<Event>(handle, kEvent) == nullptr) {
    return refuse("mcEventDestroy", kInvalidHandle, "no live event has this handle");
  }
  machine::destroy_handle(handle);
  return kSuccess;
}

EXPORT Code mcEventRecord(void* event_handle, void* handle) {
  const char* const call = "mcEventRecord";
  std::shared_ptr<Stream> stream;
  if (Code code = find(call, handle, &stream)) {
    return code;
  }
  const auto event = find_event(event_handle);
  if (event == nullptr || event->device != stream->device->number) {
    return refuse(call, kInvalidHandle, "no live event has this handle, or it is of another device");
  }
  std::lock_guard<std::mutex> lock(mutex);
  if (stream->capture != nullptr) {
    event->mark = nullptr;
    machine::capture_record(stream, *event, call);
    return kSuccess;
  }
  event->capture.reset();
  event->mark = std::make_shared<machine::Mark>();
  push(stream, machine::reaching(call, stream, event->mark));
  return kSuccess;
}

EXPORT Code mcEventRecordWithFlags(void* event, void* handle, unsigned flags) {
  if (flags != 0) {
    return refuse("mcEventRecordWithFlags", kInvalidValue, "a part of a graph that others see is not simulated");
  }
  return mcEventRecord(event, handle);
}

EXPORT Code mcStreamWaitEvent(void* handle, void* event_handle, unsigned flags) {
  const char* const call = "mcStreamWaitEvent";
  std::shared_ptr<Stream> stream;
  if (Code code = find(call, handle, &stream)) {
    return code;
  }
  const auto event = find_event(event_handle);
  if (event == nullptr || flags > 1) {
    return refuse(call, kInvalidHandle, "no live event has this handle, or flags");
  }
  std::lock_guard<std::mutex> lock(mutex);
  if (const auto& capture = event->capture; capture != nullptr && !capture->ended) {
    if (stream->capture != nullptr && stream->capture != capture) {
      capture->invalid = stream->capture->invalid = true;
      return refuse(call, kCaptureUnsupported, "the event is of another capture");
    }
    machine::capture_wait(stream, *event, call);
    return kSuccess;
  }
  if (event->mark == nullptr) {
    return kSuccess;
  }
  if (stream->capture != nullptr) {
    stream->capture->invalid = true;
    return refuse(call, kCaptureUnsupported, "a captured stream waits for work outside of the capture");
  }
  push(stream, machine::waiting(call, event));
  return kSuccess;
}

EXPORT Code mcEventQuery(void* handle) {
  if (Code code = begin_on_device("mcEventQuery")) {
    return code;
  }
  const auto event = find_event(handle);
  if (event == nullptr) {
    return refuse("mcEventQuery", kInvalidHandle, "no live event has this handle");
  }
  std::lock_guard<std::mutex> lock(mutex);
  const bool done = event->mark == nullptr || event->mark->done;
  return end(done ? state.lost.load() : static_cast<Code>(kNotReady));
}

EXPORT Code mcEventSynchronize(void* handle) {
  if (Code code = begin_on_device("mcEventSynchronize")) {
    return code;
  }
  const auto event = find_event(handle);
  if (event == nullptr) {
    return refuse("mcEventSynchronize", kInvalidHandle, "no live event has this handle");
  }
  std::unique_lock<std::mutex> lock(mutex);
  machine::drain(lock, event->mark);
  return end(state.lost);
}

EXPORT Code mcEventElapsedTime(float* elapsed, void* from_handle, void* to_handle) {
  const char* const call = "mcEventElapsedTime";
  if (Code code = begin_on_device(call)) {
    return code;
  }
  const auto from = find_event(from_handle), to = find_event(to_handle);
  if (elapsed == nullptr || from == nullptr || to == nullptr) {
    return refuse(call, kInvalidHandle, "no output, or no live event has this handle");
  }
  std::lock_guard<std::mutex> lock(mutex);
  if (!from->timing || !to->timing || from->mark == nullptr || to->mark == nullptr) {
    return refuse(call, kInvalidHandle, "an event has no time");
  }
  if (!from->mark->done || !to->mark->done) {
    return end(kNotReady);
  }
  return *elapsed = static_cast<float>(machine::milliseconds(*from->mark, *to->mark)), kSuccess;
}
