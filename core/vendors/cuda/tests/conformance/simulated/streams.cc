// Streams and events.
extern "C" {

Code cuStreamCreateWithPriority(Stream** handle, unsigned flags, int priority) {
  if (Code code = enter_context())
    return code;
  if (flags != 1 || priority > 0 || priority < -5)
    return kInvalidValue;
  auto stream = start(current);
  std::lock_guard<std::mutex> lock(mutex);
  streams[*handle = stream.get()] = stream;
  return kSuccess;
}
Code cuStreamDestroy_v2(void* handle) {
  std::shared_ptr<Stream> stream;
  if (Code code = find(handle, &stream))
    return code;
  std::lock_guard<std::mutex> lock(mutex);
  stream->closed = true;
  streams.erase(stream.get());
  changed.notify_all();
  return kSuccess;
}
Code cuStreamGetCtx(void* handle, Context** context) {
  if (Code code = enter_context())
    return code;
  std::lock_guard<std::mutex> lock(mutex);
  if (!handle)
    return *context = current, kSuccess;
  auto found = streams.find(static_cast<Stream*>(handle));
  if (found == streams.end())
    return kInvalidHandle;
  return *context = found->second->context, kSuccess;
}
Code cuStreamQuery(void* handle) {
  std::shared_ptr<Stream> stream;
  if (Code code = find(handle, &stream))
    return code;
  std::lock_guard<std::mutex> lock(mutex);
  return stream->unfinished ? kNotReady : kSuccess;
}
Code cuStreamSynchronize(void* handle) {
  std::shared_ptr<Stream> stream;
  if (Code code = find(handle, &stream))
    return code;
  drain(stream);
  return stream->context->lost;
}
Code cuStreamWaitEvent(void* handle, Event* event, unsigned) {
  std::shared_ptr<Stream> stream;
  if (Code code = find(handle, &stream))
    return code;
  if (auto mark = event->mark) {
    push(stream, [mark] {
      std::unique_lock<std::mutex> lock(mutex);
      changed.wait(lock, [&] { return mark->done; });
    });
  }
  return kSuccess;
}
Code cuLaunchHostFunc(void* handle, void (*function)(void*), void* argument) {
  std::shared_ptr<Stream> stream;
  if (Code code = find(handle, &stream))
    return code;
  push(stream, [=] {
    std::lock_guard<std::mutex> alone(one_function);
    in_function = true;
    function(argument);
    in_function = false;
  });
  return kSuccess;
}

Code cuEventCreate(Event** event, unsigned flags) {
  if (Code code = enter_context())
    return code;
  return *event = new Event{current, (flags & 2) == 0, nullptr}, kSuccess;
}
Code cuEventDestroy_v2(Event* event) {
  if (Code code = enter_context())
    return code;
  delete event;
  return kSuccess;
}
Code cuEventRecord(Event* event, void* handle) {
  std::shared_ptr<Stream> stream;
  if (Code code = find(handle, &stream))
    return code;
  if (event->context != current)
    return kInvalidHandle;
  auto mark = event->mark = std::make_shared<Mark>();
  push(stream, [mark] {
    std::lock_guard<std::mutex> lock(mutex);
    mark->time = std::chrono::steady_clock::now();
    mark->done = true;
    changed.notify_all();
  });
  return kSuccess;
}
Code cuEventQuery(Event* event) {
  if (Code code = enter_context())
    return code;
  std::lock_guard<std::mutex> lock(mutex);
  return !event->mark || event->mark->done ? kSuccess : kNotReady;
}
Code cuEventSynchronize(Event* event) {
  if (Code code = enter_context())
    return code;
  std::unique_lock<std::mutex> lock(mutex);
  auto mark = event->mark;
  changed.wait(lock, [&] { return !mark || mark->done; });
  return kSuccess;
}
Code cuEventElapsedTime(float* elapsed, Event* start, Event* end) {
  if (Code code = enter_context())
    return code;
  std::lock_guard<std::mutex> lock(mutex);
  if (!start->timing || !end->timing || !start->mark || !end->mark)
    return kInvalidHandle;
  if (!start->mark->done || !end->mark->done)
    return kNotReady;
  *elapsed = std::chrono::duration<float, std::milli>(end->mark->time - start->mark->time).count();
  return kSuccess;
}

} // extern "C"
