// SPDX-License-Identifier: Apache-2.0
// Streams, each with a thread, and events.
#include "simulated.h"

namespace simulated {

namespace {

// How long each item of work is late at most, in microseconds.
unsigned delay() {
  static const unsigned most = [] {
    const char* text = std::getenv("SIMULATED_METAX_DELAY_US");
    return text != nullptr ? static_cast<unsigned>(std::atoi(text)) : 0U;
  }();
  static std::atomic<unsigned> seed{12345};
  return most == 0 ? 0 : (seed = seed * 1103515245U + 12345U) / 65536U % most;
}

void run(const std::shared_ptr<Stream>& stream) {
  std::unique_lock<std::mutex> lock(state.mutex);
  for (;;) {
    state.changed.wait(lock, [&] { return !stream->items.empty() || stream->closed; });
    if (stream->items.empty()) {
      return;
    }
    auto item = std::move(stream->items.front());
    stream->items.pop_front();
    lock.unlock();
    if (const unsigned late = delay()) {
      std::this_thread::sleep_for(std::chrono::microseconds(late));
    }
    item();
    lock.lock();
    --stream->unfinished;
    --state.unfinished[stream->device];
    state.changed.notify_all();
  }
}

bool is_event(Event* event) {
  std::lock_guard<std::mutex> lock(state.mutex);
  return state.events.count(event) != 0;
}

} // namespace

std::shared_ptr<Stream> start_stream(int device) {
  auto stream = std::make_shared<Stream>(device);
  std::thread([stream] { run(stream); }).detach();
  return stream;
}

Code find(const char* call, void* handle, std::shared_ptr<Stream>* stream) {
  if (Code code = begin_on_device(call)) {
    return code;
  }
  std::lock_guard<std::mutex> lock(state.mutex);
  if (handle == nullptr) {
    *stream = state.standard[current];
    for (const auto& [other, each] : state.streams) {
      if (each->capture != nullptr && each->capture->origin->device == current) {
        each->capture->valid = false;
        return refuse(call, kCaptureImplicit, "the default stream is used while another one is captured");
      }
    }
    return kSuccess;
  }
  const auto found = state.streams.find(static_cast<Stream*>(handle));
  if (found == state.streams.end()) {
    return refuse(call, kInvalidHandle, "no live stream has this handle");
  }
  // A runtime takes streams of other devices for some calls. The vendor is to make the device current first.
  if (found->second->device != current) {
    return refuse(call, kInvalidHandle, "the stream is of a device that is not current");
  }
  return *stream = found->second, kSuccess;
}

void push(const std::shared_ptr<Stream>& stream, std::function<void()> item) {
  std::lock_guard<std::mutex> lock(state.mutex);
  if (stream->capture != nullptr) {
    stream->capture->graph.items.push_back(std::move(item));
    stream->capture->joined[stream.get()] = stream->capture->origin == stream.get();
    return;
  }
  stream->items.push_back(std::move(item));
  ++stream->unfinished;
  ++state.unfinished[stream->device];
  state.changed.notify_all();
}

void drain(const std::shared_ptr<Stream>& stream) {
  std::unique_lock<std::mutex> lock(state.mutex);
  state.changed.wait(lock, [&] { return stream->unfinished == 0; });
}

Code refuse_captured(const char* call, const std::shared_ptr<Stream>& stream) {
  {
    std::lock_guard<std::mutex> lock(state.mutex);
    if (stream->capture == nullptr) {
      return kSuccess;
    }
    stream->capture->valid = false;
  }
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
  std::lock_guard<std::mutex> lock(state.mutex);
  auto stream = start_stream(current);
  state.streams[stream.get()] = stream;
  return *handle = stream.get(), kSuccess;
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
  std::lock_guard<std::mutex> lock(state.mutex);
  stream->closed = true;
  state.streams.erase(stream.get());
  state.changed.notify_all();
  return kSuccess;
}

EXPORT Code mcStreamGetDevice(void* handle, int* device) {
  if (Code code = begin_on_device("mcStreamGetDevice")) {
    return code;
  }
  std::lock_guard<std::mutex> lock(state.mutex);
  const auto found = state.streams.find(static_cast<Stream*>(handle));
  if (device == nullptr || (handle != nullptr && found == state.streams.end())) {
    return refuse("mcStreamGetDevice", kInvalidHandle, "no output, or no live stream has this handle");
  }
  return *device = handle == nullptr ? current : found->second->device, kSuccess;
}

EXPORT Code mcStreamSynchronize(void* handle) {
  std::shared_ptr<Stream> stream;
  if (Code code = find("mcStreamSynchronize", handle, &stream)) {
    return code;
  }
  if (Code code = refuse_captured("mcStreamSynchronize", stream)) {
    return code;
  }
  drain(stream);
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
  std::lock_guard<std::mutex> lock(state.mutex);
  return end(stream->unfinished != 0 ? static_cast<Code>(kNotReady) : state.lost.load());
}

EXPORT Code mcLaunchHostFunc(void* handle, void (*function)(void*), void* argument) {
  std::shared_ptr<Stream> stream;
  if (Code code = find("mcLaunchHostFunc", handle, &stream)) {
    return code;
  }
  if (function == nullptr) {
    return refuse("mcLaunchHostFunc", kInvalidValue, "the function is NULL");
  }
  push(stream, [=] {
    in_function = true;
    function(argument);
    in_function = false;
  });
  return kSuccess;
}

EXPORT Code mcEventCreateWithFlags(Event** event, unsigned flags) {
  if (Code code = begin_on_device("mcEventCreateWithFlags")) {
    return code;
  }
  if (event == nullptr || (flags & ~7U) != 0) {
    return refuse("mcEventCreateWithFlags", kInvalidValue, "no output, or flags " + std::to_string(flags));
  }
  std::lock_guard<std::mutex> lock(state.mutex);
  *event = new Event{current, (flags & 2) == 0, nullptr, {}};
  state.events.insert(*event);
  return kSuccess;
}

EXPORT Code mcEventCreate(Event** event) {
  return mcEventCreateWithFlags(event, 0);
}

EXPORT Code mcEventDestroy(Event* event) {
  if (Code code = begin_on_device("mcEventDestroy")) {
    return code;
  }
  std::lock_guard<std::mutex> lock(state.mutex);
  if (state.events.erase(event) == 0) {
    return refuse("mcEventDestroy", kInvalidHandle, "no live event has this handle");
  }
  delete event;
  return kSuccess;
}

EXPORT Code mcEventRecord(Event* event, void* handle) {
  const char* const call = "mcEventRecord";
  std::shared_ptr<Stream> stream;
  if (Code code = find(call, handle, &stream)) {
    return code;
  }
  if (!is_event(event) || event->device != stream->device) {
    return refuse(call, kInvalidHandle, "no live event has this handle, or it is of another device");
  }
  auto mark = std::make_shared<Mark>();
  {
    std::lock_guard<std::mutex> lock(state.mutex);
    event->capture = stream->capture;
    event->captured_on = stream->capture != nullptr ? stream.get() : nullptr;
    if (stream->capture != nullptr) {
      return event->mark = nullptr, kSuccess;
    }
    event->mark = mark;
  }
  push(stream, [mark] {
    std::lock_guard<std::mutex> lock(state.mutex);
    mark->time = std::chrono::steady_clock::now();
    mark->done = true;
    state.changed.notify_all();
  });
  return kSuccess;
}

EXPORT Code mcEventRecordWithFlags(Event* event, void* handle, unsigned flags) {
  if (flags != 0) {
    return refuse("mcEventRecordWithFlags", kInvalidValue, "a part of a graph that others see is not simulated");
  }
  return mcEventRecord(event, handle);
}

EXPORT Code mcStreamWaitEvent(void* handle, Event* event, unsigned flags) {
  const char* const call = "mcStreamWaitEvent";
  std::shared_ptr<Stream> stream;
  if (Code code = find(call, handle, &stream)) {
    return code;
  }
  if (!is_event(event) || flags > 1) {
    return refuse(call, kInvalidHandle, "no live event has this handle, or flags");
  }
  std::shared_ptr<Mark> mark;
  {
    std::lock_guard<std::mutex> lock(state.mutex);
    if (const auto capture = event->capture.lock()) {
      if (stream->capture != nullptr && stream->capture != capture) {
        capture->valid = stream->capture->valid = false;
        return refuse(call, kCaptureUnsupported, "the event is of another capture");
      }
      stream->capture = capture;
      capture->joined.emplace(stream.get(), stream.get() == capture->origin);
      if (stream.get() == capture->origin) {
        capture->joined[event->captured_on] = true;
      }
      return kSuccess;
    }
    mark = event->mark;
    if (mark != nullptr && stream->capture != nullptr) {
      stream->capture->valid = false;
      return refuse(call, kCaptureUnsupported, "a captured stream waits for work outside of the capture");
    }
  }
  if (mark != nullptr) {
    push(stream, [mark] {
      std::unique_lock<std::mutex> lock(state.mutex);
      state.changed.wait(lock, [&] { return mark->done; });
    });
  }
  return kSuccess;
}

EXPORT Code mcEventQuery(Event* event) {
  if (Code code = begin_on_device("mcEventQuery")) {
    return code;
  }
  if (!is_event(event)) {
    return refuse("mcEventQuery", kInvalidHandle, "no live event has this handle");
  }
  std::lock_guard<std::mutex> lock(state.mutex);
  return end(event->mark == nullptr || event->mark->done ? state.lost.load() : static_cast<Code>(kNotReady));
}

EXPORT Code mcEventSynchronize(Event* event) {
  if (Code code = begin_on_device("mcEventSynchronize")) {
    return code;
  }
  if (!is_event(event)) {
    return refuse("mcEventSynchronize", kInvalidHandle, "no live event has this handle");
  }
  std::unique_lock<std::mutex> lock(state.mutex);
  const auto mark = event->mark;
  state.changed.wait(lock, [&] { return mark == nullptr || mark->done; });
  return end(state.lost);
}

EXPORT Code mcEventElapsedTime(float* elapsed, Event* from, Event* to) {
  const char* const call = "mcEventElapsedTime";
  if (Code code = begin_on_device(call)) {
    return code;
  }
  if (elapsed == nullptr || !is_event(from) || !is_event(to)) {
    return refuse(call, kInvalidHandle, "no output, or no live event has this handle");
  }
  std::lock_guard<std::mutex> lock(state.mutex);
  if (!from->timing || !to->timing || from->mark == nullptr || to->mark == nullptr) {
    return refuse(call, kInvalidHandle, "an event has no time");
  }
  if (!from->mark->done || !to->mark->done) {
    return end(kNotReady);
  }
  return *elapsed = std::chrono::duration<float, std::milli>(to->mark->time - from->mark->time).count(), kSuccess;
}
