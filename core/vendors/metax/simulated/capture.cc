// SPDX-License-Identifier: Apache-2.0
// Captures of streams, and the graphs that come of them.
#include "simulated.h"

using namespace simulated;

EXPORT Code mcStreamBeginCapture(void* handle, int mode) {
  const char* const call = "mcStreamBeginCapture";
  if (handle == nullptr || mode < 0 || mode > 2) {
    return refuse(call, kCaptureUnsupported, "the default stream, or another mode");
  }
  std::shared_ptr<Stream> stream;
  if (Code code = find(call, handle, &stream)) {
    return code;
  }
  std::lock_guard<std::mutex> lock(state.mutex);
  if (stream->capture != nullptr) {
    return refuse(call, kCaptureUnsupported, "the stream is captured already");
  }
  stream->capture = std::make_shared<Capture>();
  stream->capture->origin = stream.get();
  stream->capture->joined[stream.get()] = true;
  return kSuccess;
}

EXPORT Code mcStreamIsCapturing(void* handle, int* status) {
  std::shared_ptr<Stream> stream;
  if (Code code = find("mcStreamIsCapturing", handle, &stream)) {
    return code;
  }
  if (status == nullptr) {
    return refuse("mcStreamIsCapturing", kInvalidValue, "the output is NULL");
  }
  std::lock_guard<std::mutex> lock(state.mutex);
  *status = stream->capture == nullptr ? 0 : stream->capture->valid ? 1 : 2;
  return kSuccess;
}

EXPORT Code mcStreamEndCapture(void* handle, Graph** graph) {
  const char* const call = "mcStreamEndCapture";
  std::shared_ptr<Stream> stream;
  if (Code code = find(call, handle, &stream)) {
    return code;
  }
  std::lock_guard<std::mutex> lock(state.mutex);
  const auto capture = stream->capture;
  if (graph == nullptr || capture == nullptr || capture->origin != stream.get()) {
    return refuse(call, kInvalidValue, "no output, or no capture began on this stream");
  }
  bool all = true;
  for (const auto& [joined, back] : capture->joined) {
    joined->capture = nullptr;
    all = all && back;
  }
  *graph = nullptr;
  if (!capture->valid) {
    return end(kCaptureInvalidated);
  }
  if (!all) {
    return refuse(call, kCaptureUnjoined, "a stream has not come back to the capture");
  }
  *graph = new Graph(std::move(capture->graph));
  return kSuccess;
}

EXPORT Code mcGraphInstantiate(Graph** made, Graph* graph, void*, char*, size_t) {
  if (Code code = begin_on_device("mcGraphInstantiate")) {
    return code;
  }
  if (made == nullptr || graph == nullptr) {
    return refuse("mcGraphInstantiate", kInvalidValue, "no output, or no graph");
  }
  return *made = new Graph(*graph), kSuccess;
}

EXPORT Code mcGraphLaunch(Graph* graph, void* handle) {
  std::shared_ptr<Stream> stream;
  if (Code code = find("mcGraphLaunch", handle, &stream)) {
    return code;
  }
  if (graph == nullptr) {
    return refuse("mcGraphLaunch", kInvalidValue, "no graph");
  }
  for (const auto& item : graph->items) {
    push(stream, item);
  }
  return kSuccess;
}

EXPORT Code mcGraphDestroy(Graph* graph) {
  delete graph;
  return kSuccess;
}

EXPORT Code mcGraphExecDestroy(Graph* graph) {
  delete graph;
  return kSuccess;
}
