// SPDX-License-Identifier: Apache-2.0
#include "vendor_library/capture.h"

#include <unordered_map>

#include "runtime/stream.h"

namespace flagos {

namespace {

class CoreGraph final : public Launchable {
 public:
  CoreGraph(FlagosGraph* graph, c10::DeviceIndex device) : graph_(graph), device_(device) {}
  ~CoreGraph() override {
    core->graph_destroy(graph_); // runs that are queued still run
  }
  CoreGraph(const CoreGraph&) = delete;
  CoreGraph& operator=(const CoreGraph&) = delete;

  void launch() override {
    check(core->graph_replay(graph_, current_stream(device_)));
  }

 private:
  FlagosGraph* graph_;
  c10::DeviceIndex device_;
};

// Workspaces of captured calls come from memory that all graphs share, since they run one behind the other. It is
// theirs as long as one of them lives.
class CoreCapturer final : public Capturer {
 public:
  bool captures_afterwards() const override {
    return true;
  }
  void begin(c10::DeviceIndex device) override {
    if (memory_ == 0) {
      check(core->graph_memory_create(&memory_));
    }
    uint64_t& stream = streams_[device];
    if (stream == 0) {
      check(core->stream_create(device, 0, &stream));
    }
    FlagosGraph* graph = nullptr;
    check(core->graph_create(&graph));
    graph_ = std::make_unique<CoreGraph>(graph, device);
    check(core->graph_capture_begin(graph, device, stream, memory_, FLAGOS_CAPTURE_RELAXED));
    capturing_ = graph;
    device_ = device;
  }
  void enter() override {
    before_ = current_stream(device_);
    set_current_stream(device_, streams_[device_]);
  }
  void leave() override {
    set_current_stream(device_, before_);
  }
  std::unique_ptr<Launchable> end() override {
    if (core->graph_capture_end(capturing_) != FLAGOS_OK) {
      graph_.reset();
    }
    return std::move(graph_);
  }
  bool took_other_memory() override {
    return false; // its calls have none but that of the graph
  }

 private:
  std::unordered_map<c10::DeviceIndex, uint64_t> streams_; // as long as the process
  uint64_t memory_ = 0;
  std::unique_ptr<CoreGraph> graph_;
  FlagosGraph* capturing_ = nullptr;
  c10::DeviceIndex device_ = -1;
  uint64_t before_ = 0;
};

} // namespace

Capturer* library_capturer() {
  static auto* capturer = new CoreCapturer;
  return capturer;
}

} // namespace flagos
