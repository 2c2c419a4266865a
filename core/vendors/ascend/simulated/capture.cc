// SPDX-License-Identifier: Apache-2.0
#include "capture.h"

#include <cstdio>

#include "call.h"
#include "device.h"
#include "handles.h"
#include "settings.h"

namespace simulated_ascend {

namespace {

std::shared_ptr<Capture> capture_of(const Stream& stream) {
  return std::static_pointer_cast<Capture>(stream.capture);
}

} // namespace

void invalidate(machine::Capture& capture) {
  capture.invalid = true;
}

int capture_work(Call& call, const std::shared_ptr<Stream>& stream, Work work) {
  if (stream->capture->invalid)
    return call.fail(kStreamCaptureInvalidated, "the capture was invalidated");
  if (call.fault)
    work.run = [code = call.fault] { return code; };
  machine::capture_work(stream, std::move(work));
  return kSuccess;
}

int capture_record(Call& call, const std::shared_ptr<Stream>& stream, Event& event) {
  if (stream->capture->invalid)
    return call.fail(kStreamCaptureInvalidated, "the capture was invalidated");
  machine::capture_record(stream, event, call.function);
  return kSuccess;
}

int capture_wait(Call& call, const std::shared_ptr<Stream>& stream, Event& event) {
  const auto capture = event.capture;
  if (capture->ended)
    return call.refuse(kEventCaptured, "the event was recorded in a capture that has ended");
  if (capture->invalid)
    return call.fail(kStreamCaptureInvalidated, "the capture was invalidated");
  if (stream->capture && stream->capture != capture) {
    invalidate(*capture);
    invalidate(*stream->capture);
    return call.refuse(kCaptureDependency, "the stream and the event belong to two captures");
  }
  if (!stream->capture && stream->context->standard == stream) {
    invalidate(*capture);
    return call.refuse(kParamInvalid, "the default stream cannot be captured");
  }
  machine::capture_wait(stream, event, call.function);
  return kSuccess;
}

bool capture_forbids(Call& call) {
  const int own_mode = thread().capture_mode;
  for (const auto& each : machine::captures()) {
    const auto capture = std::static_pointer_cast<Capture>(each);
    const bool own = pthread_equal(capture->thread, pthread_self());
    const bool global = capture->mode == kGlobal && own_mode == kGlobal;
    const bool local = own && capture->mode != kRelaxed && own_mode != kRelaxed;
    if (!global && !local)
      continue;
    invalidate(*capture);
    call.refuse(kCaptureModeNotSupport, "not while a stream is being captured");
    return true;
  }
  return false;
}

} // namespace simulated_ascend

using namespace simulated_ascend;

ACL_FUNC aclError aclmdlRICaptureBegin(aclrtStream handle, int mode) {
  ENTER(kContext);
  if (mode < kGlobal || mode > kRelaxed)
    return call.refuse(kParamInvalid, "there is no mode " + std::to_string(mode));
  const auto stream = call.stream(handle);
  if (!stream)
    return call.code;
  if (stream->context->standard == stream)
    return call.refuse(kParamInvalid, "the default stream cannot be captured");
  if (stream->capture)
    return call.refuse(kStreamCaptured, "the stream is being captured");
  auto capture = std::make_shared<Capture>();
  capture->mode = mode;
  capture->thread = pthread_self();
  capture->model = std::make_shared<Model>();
  capture->model->device = call.context().device;
  capture->model->graph = capture->graph;
  capture->model->handle = make_handle(Kind::kModel, capture->model);
  machine::begin_capture(capture, stream);
  return kSuccess;
}

ACL_FUNC aclError aclmdlRICaptureGetInfo(aclrtStream handle, int* status, aclmdlRI* model) {
  ENTER(kContext);
  const auto stream = call.stream(handle);
  if (!stream)
    return call.code;
  if (!status && !model)
    return call.refuse(kParamInvalid, "no output");
  const auto capture = capture_of(*stream);
  if (status)
    *status = !capture ? kCaptureNone : capture->invalid ? kCaptureInvalidated : kCaptureActive;
  if (model)
    *model = capture ? capture->model->handle : nullptr;
  return kSuccess;
}

ACL_FUNC aclError aclmdlRICaptureEnd(aclrtStream handle, aclmdlRI* out) {
  ENTER(kContext);
  const auto stream = out ? call.stream(handle) : nullptr;
  if (!out)
    return call.refuse(kParamInvalid, "the output is NULL");
  if (!stream)
    return call.code;
  const auto capture = capture_of(*stream);
  if (!capture)
    return call.refuse(kStreamNotCaptured, "the stream is not being captured");
  if (capture->origin != stream) {
    invalidate(*capture);
    return call.refuse(kStreamCaptureUnmatched, "the capture began on another stream");
  }
  if (capture->mode != kRelaxed && !pthread_equal(capture->thread, pthread_self())) {
    invalidate(*capture);
    return call.refuse(kStreamCaptureWrongThread, "the capture began in another thread");
  }
  *out = nullptr;
  const auto& model = capture->model;
  machine::end_capture(capture);
  size_t& streams = devices()[model->device].streams;
  if (capture->invalid) {
    call.fail(kStreamCaptureInvalidated, "the capture was invalidated");
  } else if (const size_t left = machine::unjoined(*capture)) {
    call.refuse(kStreamUnjoined, std::to_string(left) + " streams have not been joined");
  } else if (streams + capture->streams.size() > settings().streams) {
    call.fail(kNoStreamResource, "the device has no stream left for the graph");
  } else {
    model->hardware_streams = capture->streams.size();
    model->captured = true;
    streams += model->hardware_streams;
    *out = model->handle;
    return kSuccess;
  }
  destroy_handle(model->handle);
  return call.code;
}

ACL_FUNC aclError aclmdlRICaptureThreadExchangeMode(int* mode) {
  ENTER(kContext);
  if (!mode || *mode < kGlobal || *mode > kRelaxed)
    return call.refuse(kParamInvalid, "there is no such mode");
  std::swap(*mode, thread().capture_mode);
  return kSuccess;
}

ACL_FUNC aclError aclmdlRIExecuteAsync(aclmdlRI handle, aclrtStream stream_handle) {
  ENTER(kContext | kQueues);
  const auto model = call.object<Model>(handle, static_cast<int>(Kind::kModel));
  const auto stream = model ? call.stream(stream_handle) : nullptr;
  if (!stream)
    return call.code;
  if (!model->captured)
    return call.refuse(kStreamCaptured, "the model is being captured");
  if (stream->capture) {
    invalidate(*stream->capture);
    return call.refuse(kStreamCaptured, "the stream is being captured");
  }
  if (model->device != stream->context->device)
    return call.refuse(kStreamContext, "the model belongs to another device than the stream");
  Work work{call.function, nullptr, {}};
  for (const machine::Node& node : *model->graph) {
    for (const Use& use : node.work.uses) {
      if (static_cast<const Block&>(*use.block).freed)
        call.record("the graph uses a block that was freed: " + node.work.name);
      work.uses.push_back(use);
    }
  }
  ++model->running;
  // Destroyed with the work, which is under the lock, whether it has run or was dropped.
  std::shared_ptr<Model> running(model.get(), [model](Model*) { --model->running; });
  work.run = [running] { return machine::run_graph(*running->graph); };
  running.reset();
  return submit(call, stream, std::move(work));
}

ACL_FUNC aclError aclmdlRIDestroy(aclmdlRI handle) {
  ENTER(kContext);
  const auto model = call.object<Model>(handle, static_cast<int>(Kind::kModel));
  if (!model)
    return call.code;
  if (!model->captured)
    return call.refuse(kStreamCaptured, "the model is being captured");
  if (model->running)
    return call.refuse(kModelRunning, "the model has runs that have not ended");
  devices()[model->device].streams -= model->hardware_streams;
  destroy_handle(handle);
  return kSuccess;
}

ACL_FUNC aclError aclmdlRIDebugPrint(aclmdlRI handle) {
  ENTER(kContext);
  const auto model = call.object<Model>(handle, static_cast<int>(Kind::kModel));
  if (!model)
    return call.code;
  for (const machine::Node& node : *model->graph)
    std::fprintf(stderr, "stream %d: %s\n", node.stream->id, node.work.name.c_str());
  return kSuccess;
}
