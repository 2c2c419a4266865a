// SPDX-License-Identifier: Apache-2.0
#include "capture.h"

#include <algorithm>
#include <cstdio>
#include <random>

#include "call.h"
#include "device.h"
#include "handles.h"
#include "settings.h"

namespace simulated_ascend {

namespace {

auto& captures = *new std::vector<std::shared_ptr<Capture>>;

void add_node(Capture& capture, Stream* stream, Work work, bool waits, size_t after) {
  capture.model->nodes.push_back({stream, std::move(work), waits, after, capture.group});
  ++capture.clocks[stream][stream];
}

void merge(Clock& into, const Clock& other) {
  for (const auto& [stream, seen] : other)
    into[stream] = std::max(into[stream], seen);
}

// The streams, beside the origin itself, that the origin has not seen to their ends.
size_t unjoined(Capture& capture) {
  const Clock& seen = capture.clocks[capture.origin.get()];
  return static_cast<size_t>(std::count_if(capture.streams.begin() + 1, capture.streams.end(), [&](const auto& stream) {
    const auto found = seen.find(stream.get());
    return found == seen.end() || found->second < capture.clocks[stream.get()][stream.get()];
  }));
}

void end(const std::shared_ptr<Capture>& capture) {
  for (const auto& stream : capture->streams)
    stream->capture.reset();
  captures.erase(std::find(captures.begin(), captures.end(), capture));
}

// Runs the nodes in a random one of the orders that their streams and events allow.
int run_model(const Model& model) {
  static thread_local std::minstd_rand random;
  std::map<Stream*, std::vector<size_t>> queues;
  for (size_t index = model.nodes.size(); index-- > 0;)
    queues[model.nodes[index].stream].push_back(index);
  std::vector<bool> done(model.nodes.size());
  for (size_t left = model.nodes.size(); left > 0; --left) {
    std::vector<Stream*> ready;
    for (const auto& [stream, queue] : queues) {
      const bool is_ready =
          !queue.empty() && (!model.nodes[queue.back()].waits || done[model.nodes[queue.back()].after]);
      if (is_ready)
        ready.push_back(stream);
    }
    auto& queue = queues[ready[random() % ready.size()]];
    const size_t index = queue.back();
    queue.pop_back();
    done[index] = true;
    if (const int code = model.nodes[index].work.run ? model.nodes[index].work.run() : 0)
      return code;
  }
  return 0;
}

} // namespace

void invalidate(Capture& capture) {
  capture.invalid = true;
}

int capture_work(Call& call, const std::shared_ptr<Stream>& stream, Work work) {
  if (stream->capture->invalid)
    return call.fail(kStreamCaptureInvalidated, "the capture was invalidated");
  if (call.fault)
    work.run = [code = call.fault] { return code; };
  add_node(*stream->capture, stream.get(), std::move(work), false, 0);
  return kSuccess;
}

int capture_record(Call& call, const std::shared_ptr<Stream>& stream, Event& event) {
  const auto capture = stream->capture;
  if (capture->invalid)
    return call.fail(kStreamCaptureInvalidated, "the capture was invalidated");
  add_node(*capture, stream.get(), {call.function, nullptr, {}}, false, 0);
  event.capture = capture;
  event.node = capture->model->nodes.size() - 1;
  event.clock = capture->clocks[stream.get()];
  return kSuccess;
}

int capture_wait(Call& call, const std::shared_ptr<Stream>& stream, Event& event) {
  const auto capture = event.capture;
  if (std::find(captures.begin(), captures.end(), capture) == captures.end())
    return call.refuse(kEventCaptured, "the event was recorded in a capture that has ended");
  if (capture->invalid)
    return call.fail(kStreamCaptureInvalidated, "the capture was invalidated");
  if (stream->capture && stream->capture != capture) {
    invalidate(*capture);
    invalidate(*stream->capture);
    return call.refuse(kCaptureDependency, "the stream and the event belong to two captures");
  }
  if (!stream->capture) {
    if (stream->context->standard == stream) {
      invalidate(*capture);
      return call.refuse(kParamInvalid, "the default stream cannot be captured");
    }
    stream->capture = capture;
    capture->streams.push_back(stream);
  }
  add_node(*capture, stream.get(), {call.function, nullptr, {}}, true, event.node);
  merge(capture->clocks[stream.get()], event.clock);
  return kSuccess;
}

bool capture_forbids(Call& call) {
  const int own_mode = thread().capture_mode;
  for (const auto& capture : captures) {
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
  capture->origin = stream;
  capture->mode = mode;
  capture->thread = pthread_self();
  capture->streams.push_back(stream);
  capture->model = std::make_shared<Model>();
  capture->model->device = call.context().device;
  capture->model->handle = make_handle(Kind::kModel, capture->model);
  stream->capture = capture;
  captures.push_back(capture);
  return kSuccess;
}

ACL_FUNC aclError aclmdlRICaptureGetInfo(aclrtStream handle, int* status, aclmdlRI* model) {
  ENTER(kContext);
  const auto stream = call.stream(handle);
  if (!stream)
    return call.code;
  if (!status && !model)
    return call.refuse(kParamInvalid, "no output");
  const auto& capture = stream->capture;
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
  const auto capture = stream->capture;
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
  end(capture);
  size_t& streams = devices()[model->device].streams;
  if (capture->invalid) {
    call.fail(kStreamCaptureInvalidated, "the capture was invalidated");
  } else if (const size_t left = unjoined(*capture)) {
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
  for (const Node& node : model->nodes) {
    for (const Use& use : node.work.uses) {
      if (use.block->freed)
        call.record("the graph uses a block that was freed: " + node.work.name);
      work.uses.push_back(use);
    }
  }
  ++model->running;
  // Destroyed with the work, which is under the lock, whether it has run or was dropped.
  std::shared_ptr<Model> running(model.get(), [model](Model*) { --model->running; });
  work.run = [running] { return run_model(*running); };
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
  for (const Node& node : model->nodes)
    std::fprintf(stderr, "stream %d: %s\n", node.stream->id, node.work.name.c_str());
  return kSuccess;
}
