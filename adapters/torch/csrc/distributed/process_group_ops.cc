// SPDX-License-Identifier: Apache-2.0
// Hands a backend of torch.distributed that is written in C++ to Python.
//
// Python's class of backends belongs to torch's own bindings. They hand out any backend that is attached to a
// ProcessGroup, and they pass ProcessGroups to operators. So Python makes a ProcessGroup, an operator attaches the
// backend to it, and torch wraps what it finds there: no second set of bindings, and no Python headers.
#include <torch/library.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "distributed/ddp_timer.h"
#include "distributed/host_calls.h"
#include "distributed/process_group.h"
#include "distributed/sparse_reduction.h"
#include "runtime/core.h"
#include "shim.h"

namespace flagos {

namespace {

using GroupPtr = c10::intrusive_ptr<c10d::ProcessGroup>;

void attach(
    const GroupPtr& carrier,
    const std::string& group,
    int64_t timeout_ms,
    const std::string& engine,
    const std::string& library,
    int64_t window,
    const std::string& dump_folder,
    const std::vector<int64_t>& global_ranks) {
  TORCH_CHECK(comm_api != nullptr, "flagos: the collectives were not opened");
  GroupSettings settings;
  settings.engine = engine;
  settings.library = library;
  settings.group = group;
  settings.window = static_cast<uint64_t>(window);
  settings.dump_folder = dump_folder;
  settings.global_ranks.assign(global_ranks.begin(), global_ranks.end());
  auto backend = c10::make_intrusive<ProcessGroupFlagos>(
      carrier->getStore(),
      carrier->getRank(),
      carrier->getSize(),
      std::chrono::milliseconds(timeout_ms),
      std::move(settings));
  carrier->setBackend(kFlagos, c10d::ProcessGroup::BackendType::CUSTOM, std::move(backend));
}

c10::intrusive_ptr<ProcessGroupFlagos> backend_of(const GroupPtr& group, c10::DeviceType device) {
  const auto backend = group->getBackend(device);
  auto flagos = c10::dynamic_intrusive_pointer_cast<ProcessGroupFlagos>(backend);
  TORCH_CHECK_VALUE(flagos != nullptr, "flagos: the group is of the backend ", backend->getBackendName());
  return flagos;
}

// torch has no all-reduce out of place: its callers copy the tensor first.
void all_reduce_into(const GroupPtr& group, const at::Tensor& output, const at::Tensor& input) {
  c10d::AllreduceOptions options;
  options.asyncOp = false;
  const auto work = backend_of(group, kFlagos)->allreduce_into(output, input, options);
  if (work != nullptr) {
    work->wait();
  }
}

void register_process_group() {
  static torch::Library library(torch::Library::FRAGMENT, "flagos", std::nullopt, __FILE__, __LINE__);
  library.def(
      "attach_backend(__torch__.torch.classes.c10d.ProcessGroup carrier, str group, int timeout_ms, str engine, "
      "str library, int window, str dump_folder, int[] global_ranks) -> ()",
      [](const GroupPtr& carrier,
         std::string group,
         int64_t timeout_ms,
         std::string engine,
         std::string library_file,
         int64_t window,
         std::string dump_folder,
         std::vector<int64_t> global_ranks) {
        attach(carrier, group, timeout_ms, engine, library_file, window, dump_folder, global_ranks);
      });
  library.def(
      "process_group_state(__torch__.torch.classes.c10d.ProcessGroup group, bool of_cpu) -> str",
      [](const GroupPtr& group, bool of_cpu) {
        return backend_of(group, of_cpu ? c10::DeviceType::CPU : kFlagos)->state();
      });
  library.def(
      "all_reduce_into(__torch__.torch.classes.c10d.ProcessGroup group, Tensor(a!) output, Tensor input) -> ()",
      all_reduce_into);
  library.def("host_calls_in_flight() -> int", host_calls_in_flight);
}

} // namespace

} // namespace flagos

extern "C" char* flagos_shim_open_comm(const FlagosCommApi* api) {
  try {
    const bool first = flagos::comm_api == nullptr;
    flagos::open_comm(api);
    if (first) {
      flagos::register_process_group();
      flagos::register_ddp_timer();
      flagos::register_sparse_reduction();
    }
    return nullptr;
  } catch (const std::exception& error) {
    return strdup(error.what());
  }
}
