// SPDX-License-Identifier: Apache-2.0
#include "engine.h"

#include <ATen/DeviceAccelerator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/library.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <unordered_set>
#include <vector>

#include "stream.h"

namespace flagos {

namespace {

// The engine carries debug information from the thread that calls backward to those that run the graph. Nothing in
// torch uses this kind but its own unit tests.
constexpr c10::DebugInfoKind kGraphDevice = c10::DebugInfoKind::TEST_INFO_2;

struct GraphDevice final : public c10::DebugInfoBase {
  explicit GraphDevice(c10::DeviceType device) : type(device) {}
  c10::DeviceType type;
};

const GraphDevice* graph_device() {
  return static_cast<const GraphDevice*>(c10::ThreadLocalDebugInfo::get(kGraphDevice));
}

// What the engine takes for the accelerator while it runs a graph.
std::optional<c10::DeviceType> accelerator_of_graph(bool checked) {
  const GraphDevice* graph = graph_device();
  return graph != nullptr ? std::optional<c10::DeviceType>(graph->type) : at::accelerator::getAccelerator(checked);
}

// Tensors of the other one are treated as those of a device without streams. Outside of graphs both are accelerators.
bool is_accelerator_of_graph(c10::DeviceType type) {
  const GraphDevice* graph = graph_device();
  if (graph != nullptr && (type == c10::DeviceType::CUDA || type == kFlagos)) {
    return graph->type == type;
  }
  return at::accelerator::isAccelerator(type);
}

struct Redirection {
  const char* symbol;
  void* target;
  bool done = false;
};

struct Search {
  std::vector<Redirection> redirections;
  std::string failure;
};

void write_slot(void** slot, void* value) {
  const auto page_size = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t page = reinterpret_cast<uintptr_t>(slot) & ~(page_size - 1);
  // The table is writable unless the library was linked to be bound at once.
  TORCH_CHECK(
      mprotect(reinterpret_cast<void*>(page), page_size, PROT_READ | PROT_WRITE) == 0,
      "cannot write to the procedure linkage table: ",
      std::strerror(errno));
  __atomic_store_n(slot, value, __ATOMIC_RELEASE);
}

// Redirects the calls of one loaded library, through its procedure linkage table (System V ABI, chapter 5).
void redirect_in(const dl_phdr_info& library, const ElfW(Dyn) * dynamic, std::vector<Redirection>& redirections) {
  const ElfW(Rela)* relocations = nullptr;
  size_t size = 0;
  const ElfW(Sym)* symbols = nullptr;
  const char* names = nullptr;
  for (; dynamic->d_tag != DT_NULL; ++dynamic) {
    const auto pointer = reinterpret_cast<const void*>(dynamic->d_un.d_ptr);
    switch (dynamic->d_tag) {
      case DT_JMPREL:
        relocations = static_cast<const ElfW(Rela)*>(pointer);
        break;
      case DT_PLTRELSZ:
        size = dynamic->d_un.d_val;
        break;
      case DT_SYMTAB:
        symbols = static_cast<const ElfW(Sym)*>(pointer);
        break;
      case DT_STRTAB:
        names = static_cast<const char*>(pointer);
        break;
      default:
        break;
    }
  }
  if (relocations == nullptr || symbols == nullptr || names == nullptr) {
    return;
  }
  for (size_t i = 0; i < size / sizeof(ElfW(Rela)); ++i) {
    const char* name = names + symbols[ELF64_R_SYM(relocations[i].r_info)].st_name;
    for (Redirection& redirection : redirections) {
      if (std::strcmp(name, redirection.symbol) == 0) {
        write_slot(reinterpret_cast<void**>(library.dlpi_addr + relocations[i].r_offset), redirection.target);
        redirection.done = true;
      }
    }
  }
}

int visit_library(dl_phdr_info* library, size_t /*size*/, void* context) {
  constexpr const char* kLibrary = "libtorch_cpu.so";
  const std::string path = library->dlpi_name;
  if (path.substr(path.rfind('/') + 1) != kLibrary) {
    return 0;
  }
  auto* search = static_cast<Search*>(context);
  try {
    for (int i = 0; i < library->dlpi_phnum; ++i) {
      if (library->dlpi_phdr[i].p_type == PT_DYNAMIC) {
        const auto* dynamic = reinterpret_cast<const ElfW(Dyn)*>(library->dlpi_addr + library->dlpi_phdr[i].p_vaddr);
        redirect_in(*library, dynamic, search->redirections);
      }
    }
  } catch (const std::exception& error) { // must not pass through the C function that called this
    search->failure = error.what();
  }
  return 1;
}

// The accelerators that the graph behind `outputs` computed on; `visit` says whether to go on.
template <class Visit>
void each_device(at::TensorList outputs, Visit visit) {
  std::vector<torch::autograd::Node*> stack;
  for (const at::Tensor& output : outputs) {
    if (!output.defined()) {
      continue;
    }
    if (!output.is_cpu() && !visit(output.device().type())) {
      return;
    }
    if (output.grad_fn() != nullptr) {
      stack.push_back(output.grad_fn().get());
    }
  }
  std::unordered_set<torch::autograd::Node*> seen(stack.begin(), stack.end());
  while (!stack.empty()) {
    torch::autograd::Node* node = stack.back();
    stack.pop_back();
    const c10::Device device = node->device();
    if (!device.is_cpu() && !visit(device.type())) {
      return;
    }
    for (const auto& edge : node->next_edges()) {
      if (edge.function != nullptr && seen.insert(edge.function.get()).second) {
        stack.push_back(edge.function.get());
      }
    }
  }
}

bool on_side_stream() {
  const c10::Device device(c10::DeviceType::CUDA, current_device());
  return cuda_guard()->getStream(device) != cuda_guard()->getDefaultStream(device);
}

// What the graph is made of; flagos where neither shows.
c10::DeviceType device_of_graph(at::TensorList outputs, bool on_cuda) {
  std::optional<c10::DeviceType> first;
  if (on_cuda) {
    first = c10::DeviceType::CUDA;
  }
  // On the default stream the order between the two is that of the calls, so the first one found will do.
  const bool look_at_all = on_side_stream();
  each_device(outputs, [&](c10::DeviceType type) {
    if (type != c10::DeviceType::CUDA && type != kFlagos) {
      return true;
    }
    TORCH_CHECK_NOT_IMPLEMENTED(
        !first.has_value() || *first == type,
        "flagos: this graph goes over cuda and flagos tensors, and the current stream is not the default one. torch's "
        "engine orders the streams of one of them only: run the backward pass on the default stream, or keep to one "
        "device");
    first = type;
    return look_at_all;
  });
  return first.value_or(kFlagos);
}

} // namespace

void teach_engine() {
  Search search;
  search.redirections = {
      {"_ZN2at11accelerator14getAcceleratorEb", reinterpret_cast<void*>(&accelerator_of_graph)},
      {"_ZN2at11accelerator13isAcceleratorEN3c1010DeviceTypeE", reinterpret_cast<void*>(&is_accelerator_of_graph)},
  };
  dl_iterate_phdr(&visit_library, &search);
  TORCH_CHECK(search.failure.empty(), "flagos: ", search.failure);
  for (const Redirection& redirection : search.redirections) {
    TORCH_CHECK(
        redirection.done,
        "flagos: this build of torch does not call ",
        redirection.symbol,
        " where torch 2.11's wheels do, so CUDA tensors could not be differentiated beside flagos ones; use torch's "
        "own wheel, or FLAGOS_VENDOR=host");
  }
}

void register_engine() {
  static torch::Library library(torch::Library::FRAGMENT, "flagos", std::nullopt, __FILE__, __LINE__);
  library.def("enter_backward(Tensor[] outputs, bool on_cuda) -> ()", [](at::TensorList outputs, bool on_cuda) {
    c10::ThreadLocalDebugInfo::_push(kGraphDevice, std::make_shared<GraphDevice>(device_of_graph(outputs, on_cuda)));
  });
  library.def("exit_backward() -> ()", [] { c10::ThreadLocalDebugInfo::_pop(kGraphDevice); });
}

} // namespace flagos
