// Streams and events.
extern "C" {

Code cuStreamCreateWithPriority(void** handle, unsigned flags, int priority) {
  if (Code code = enter_context())
    return code;
  if (flags != 1 || priority > 0 || priority < -5)
    return kInvalidValue;
  std::lock_guard<std::mutex> lock(mutex);
  *handle = machine::make_handle(kStream, std::make_shared<Stream>(current, 0));
  return kSuccess;
}
Code cuStreamDestroy_v2(void* handle) {
  std::shared_ptr<Stream> stream;
  if (Code code = find(handle, &stream))
    return code;
  std::lock_guard<std::mutex> lock(mutex);
  machine::close(*stream);
  machine::destroy_handle(handle);
  return kSuccess;
}
Code cuStreamGetCtx(void* handle, Context** context) {
  if (Code code = enter_context())
    return code;
  std::lock_guard<std::mutex> lock(mutex);
  if (!handle)
    return *context = current, kSuccess;
  auto found = machine::live_object<Stream>(handle, kStream);
  if (!found)
    return kInvalidHandle;
  return *context = static_cast<Context*>(found->device), kSuccess;
}
Code cuStreamQuery(void* handle) {
  std::shared_ptr<Stream> stream;
  if (Code code = find(handle, &stream))
    return code;
  std::lock_guard<std::mutex> lock(mutex);
  return machine::idle(*stream) ? kSuccess : kNotReady;
}
Code cuStreamSynchronize(void* handle) {
  std::shared_ptr<Stream> stream;
  if (Code code = find(handle, &stream))
    return code;
  std::unique_lock<std::mutex> lock(mutex);
  drain(lock, *stream);
  return current->lost;
}
Code cuStreamWaitEvent(void* handle, void* event_handle, unsigned) {
  std::shared_ptr<Stream> stream;
  if (Code code = find(handle, &stream))
    return code;
  auto event = find_event(event_handle);
  if (!event)
    return kInvalidHandle;
  std::lock_guard<std::mutex> lock(mutex);
  if (event->mark)
    machine::submit(stream, machine::waiting(__func__, event));
  return kSuccess;
}
Code cuLaunchHostFunc(void* handle, void (*function)(void*), void* argument) {
  std::shared_ptr<Stream> stream;
  if (Code code = find(handle, &stream))
    return code;
  return push(__func__, stream, [=] {
    std::lock_guard<std::mutex> alone(one_function);
    machine::run_on_host(function, argument);
  });
}

Code cuEventCreate(void** handle, unsigned flags) {
  if (Code code = enter_context())
    return code;
  auto event = std::make_shared<Event>();
  event->context = current;
  event->timing = (flags & 2) == 0;
  std::lock_guard<std::mutex> lock(mutex);
  return *handle = machine::make_handle(kEvent, event), kSuccess;
}
Code cuEventDestroy_v2(void* handle) {
  if (Code code = enter_context())
    return code;
  if (!find_event(handle))
    return kInvalidHandle;
  std::lock_guard<std::mutex> lock(mutex);
  return machine::destroy_handle(handle), kSuccess;
}
Code cuEventRecord(void* event_handle, void* handle) {
  std::shared_ptr<Stream> stream;
  if (Code code = find(handle, &stream))
    return code;
  auto event = find_event(event_handle);
  if (!event || event->context != current)
    return kInvalidHandle;
  std::lock_guard<std::mutex> lock(mutex);
  event->mark = std::make_shared<machine::Mark>();
  machine::submit(stream, machine::reaching(__func__, stream, event->mark));
  return kSuccess;
}
Code cuEventQuery(void* handle) {
  if (Code code = enter_context())
    return code;
  auto event = find_event(handle);
  if (!event)
    return kInvalidHandle;
  std::lock_guard<std::mutex> lock(mutex);
  return !event->mark || event->mark->done ? kSuccess : kNotReady;
}
Code cuEventSynchronize(void* handle) {
  if (Code code = enter_context())
    return code;
  auto event = find_event(handle);
  if (!event)
    return kInvalidHandle;
  std::unique_lock<std::mutex> lock(mutex);
  return drain(lock, event->mark), kSuccess;
}
Code cuEventElapsedTime(float* elapsed, void* start_handle, void* end_handle) {
  if (Code code = enter_context())
    return code;
  auto start = find_event(start_handle), end = find_event(end_handle);
  if (!start || !end)
    return kInvalidHandle;
  std::lock_guard<std::mutex> lock(mutex);
  if (!start->timing || !end->timing || !start->mark || !end->mark)
    return kInvalidHandle;
  if (!start->mark->done || !end->mark->done)
    return kNotReady;
  return *elapsed = static_cast<float>(machine::milliseconds(*start->mark, *end->mark)), kSuccess;
}

} // extern "C"
