// SPDX-License-Identifier: Apache-2.0
#include "accelerator_graphs.h"

#include "torch_version.h"

#if TORCH_VERSION_MINOR >= 12
#include <ATen/core/GraphImplInterface.h>

#include <memory>
#include <string>
#include <utility>

#include "aten/route.h"
#include "runtime/core.h"
#include "runtime/graphs.h"
#include "runtime/native.h"
#include "runtime/pending.h"

namespace flagos {

namespace {

// A graph of the native device, on whose current stream flagos' work is.
class NativeGraph final : public at::GraphImplInterface {
 public:
  explicit NativeGraph(std::unique_ptr<at::GraphImplInterface> graph) : graph_(std::move(graph)) {}

  void capture_begin(at::MempoolId_t pool, at::GraphCaptureMode mode) override {
    prepare_capture();
    graph_->capture_begin(pool, mode);
    set_capturing(true);
  }
  void capture_end() override {
    set_capturing(false);
    graph_->capture_end();
  }
  void instantiate() override {
    graph_->instantiate();
  }
  void replay() override {
    graph_->replay();
  }
  void reset() override {
    graph_->reset();
  }
  at::MempoolId_t pool() const override {
    return graph_->pool();
  }
  void enable_debug_mode() override {
    graph_->enable_debug_mode();
  }
  void debug_dump(const std::string& path) override {
    graph_->debug_dump(path);
  }

 private:
  std::unique_ptr<at::GraphImplInterface> graph_;
};

// A graph of work that the core's streams capture.
class CoreGraph final : public at::GraphImplInterface {
 public:
  explicit CoreGraph(const at::GraphImplArgs& args) {
    check(core->graph_supported());
    TORCH_CHECK_NOT_IMPLEMENTED(
        !args.keep_graph,
        "flagos: a graph of the vendor's own library is not to be had: make the graph without keep_graph");
    check(core->graph_create(&graph_));
  }
  ~CoreGraph() override {
    core->graph_destroy(graph_);
  }
  CoreGraph(const CoreGraph&) = delete;
  CoreGraph& operator=(const CoreGraph&) = delete;

  void capture_begin(at::MempoolId_t pool, at::GraphCaptureMode mode) override {
    TORCH_CHECK_VALUE(
        pool.first == 0,
        "flagos: (",
        pool.first,
        ", ",
        pool.second,
        ") is no pool: expected torch.flagos.graph_pool_handle() or the pool() of a graph");
    begin_capture(graph_, pool.second, mode_of(mode));
    set_capturing(true);
  }
  void capture_end() override {
    set_capturing(false);
    check(core->graph_capture_end(graph_));
  }
  void instantiate() override {} // a graph can be run once its capture has ended
  void replay() override {
    replay_graph(graph_);
  }
  void reset() override {
    check(core->graph_reset(graph_));
  }
  at::MempoolId_t pool() const override {
    return {0, memory_of_graph(graph_)};
  }
  void enable_debug_mode() override {
    refuse_dump();
  }
  void debug_dump(const std::string& /*path*/) override {
    refuse_dump();
  }

 private:
  static int32_t mode_of(at::GraphCaptureMode mode) {
    switch (mode) {
      case at::GraphCaptureMode::ThreadLocal:
        return FLAGOS_CAPTURE_THREAD_LOCAL;
      case at::GraphCaptureMode::Relaxed:
        return FLAGOS_CAPTURE_RELAXED;
      default:
        return FLAGOS_CAPTURE_GLOBAL;
    }
  }

  [[noreturn]] static void refuse_dump() {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "flagos: a graph of vendor '", native->vendor, "' cannot be dumped");
    throw std::logic_error("unreachable");
  }

  FlagosGraph* graph_ = nullptr;
};

std::unique_ptr<at::GraphImplInterface> make_graph(at::GraphImplArgs args) {
  open_device();
  if (native->owned_by_torch) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        at::has_graph_impl(native->type),
        "flagos: this torch has no torch.accelerator.Graph for ",
        native->name,
        ", whose graphs flagos' are: use torch.flagos.Graph");
    return std::make_unique<NativeGraph>(at::create_graph_impl(native->type, args));
  }
  return std::make_unique<CoreGraph>(args);
}

} // namespace

void register_accelerator_graphs() {
  // The name that c10::DeviceTypeName gives to the device, which has it soon after.
  at::GraphImplRegistry()->Register("FLAGOS", &make_graph);
}

} // namespace flagos

#else

namespace flagos {

void register_accelerator_graphs() {}

} // namespace flagos

#endif
