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
  std::lock_guard<std::mutex> lock(mutex);
  if (stream->capture != nullptr) {
    return refuse(call, kCaptureUnsupported, "the stream is captured already");
  }
  machine::begin_capture(std::make_shared<machine::Capture>(), stream);
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
  std::lock_guard<std::mutex> lock(mutex);
  *status = stream->capture == nullptr ? 0 : stream->capture->invalid ? 2 : 1;
  return kSuccess;
}

EXPORT Code mcStreamEndCapture(void* handle, Graph** graph) {
  const char* const call = "mcStreamEndCapture";
  std::shared_ptr<Stream> stream;
  if (Code code = find(call, handle, &stream)) {
    return code;
  }
  std::lock_guard<std::mutex> lock(mutex);
  const auto capture = stream->capture;
  if (graph == nullptr || capture == nullptr || capture->origin != stream) {
    return refuse(call, kInvalidValue, "no output, or no capture began on this stream");
  }
  machine::end_capture(capture);
  *graph = nullptr;
  if (capture->invalid) {
    return end(kCaptureInvalidated);
  }
  if (machine::unjoined(*capture) != 0) {
    return refuse(call, kCaptureUnjoined, "a stream has not come back to the capture");
  }
  *graph = new Graph{capture->graph};
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
  // A graph uses memory only while it runs.
  std::lock_guard<std::mutex> lock(mutex);
  push(stream, {"mcGraphLaunch", [nodes = graph->nodes] { return machine::run_graph(*nodes); }, {}});
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
