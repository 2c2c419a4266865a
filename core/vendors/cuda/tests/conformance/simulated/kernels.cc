// Programs and launches. Of a cubin only the names and parameters of its kernels are read, which do nothing.
#include <elf.h>

namespace {

// The arguments of the last launch, and of all launches as text while `recording`.
bool recording = false;
int refusals = 0;
auto& launches = *new std::vector<std::string>;

// The bytes of each parameter, from the section .nv.info.<kernel>: entries of a format, an attribute and a
// size, where the attribute 0x17 describes a parameter.
bool parameters_of(const char* cubin, const std::string& kernel, std::vector<size_t>* sizes) {
  auto header = reinterpret_cast<const Elf64_Ehdr*>(cubin);
  auto sections = reinterpret_cast<const Elf64_Shdr*>(cubin + header->e_shoff);
  const char* names = cubin + sections[header->e_shstrndx].sh_offset;
  for (int i = 0; i < header->e_shnum; ++i) {
    if (names + sections[i].sh_name != ".nv.info." + kernel)
      continue;
    const char* at = cubin + sections[i].sh_offset;
    const char* end = at + sections[i].sh_size;
    while (at < end) {
      uint16_t size;
      std::memcpy(&size, at + 2, sizeof size);
      if (at[0] == 4 && at[1] == 0x17) {
        uint16_t ordinal;
        uint32_t flags;
        std::memcpy(&ordinal, at + 8, sizeof ordinal);
        std::memcpy(&flags, at + 12, sizeof flags);
        if (sizes->size() <= ordinal)
          sizes->resize(ordinal + 1);
        (*sizes)[ordinal] = flags >> 18;
      }
      at += at[0] == 4 ? 4 + size : 4;
    }
    return true;
  }
  return false;
}

struct Module {
  std::string cubin;
  std::map<std::string, Ptx> kernels;
};

} // namespace

extern "C" {

struct Attribute {
  unsigned id;
  char pad[4];
  alignas(8) int value[16];
};
struct Config {
  unsigned grid[3], block[3], shared;
  void* stream;
  const Attribute* attributes;
  unsigned count;
};
static_assert(sizeof(Attribute) == 72 && sizeof(Config) == 56, "as in cuda.h");

static std::vector<Attribute> last_attributes;

// The arguments of the last launch, for the tests: how many attributes, and the first two numbers of one.
unsigned simulated_attributes() {
  std::lock_guard<std::mutex> lock(mutex);
  return last_attributes.size();
}
void simulated_attribute(unsigned index, int* id, int* value) {
  std::lock_guard<std::mutex> lock(mutex);
  *id = last_attributes[index].id;
  *value = last_attributes[index].value[0];
}

// Launches from now on are kept as text, or not; those that were kept are forgotten.
void simulated_record(bool on) {
  std::lock_guard<std::mutex> lock(mutex);
  recording = on;
  launches.clear();
}
// As many launches from now on are refused.
void simulated_refuse(int count) {
  refusals = count;
}
unsigned simulated_launches() {
  std::lock_guard<std::mutex> lock(mutex);
  return launches.size();
}
const char* simulated_launch(unsigned index) {
  std::lock_guard<std::mutex> lock(mutex);
  return launches[index].c_str();
}

Code cuModuleLoadData(Module** module, const char* program) {
  if (Code code = enter_context())
    return code;
  if (std::memcmp(program, ELFMAG, SELFMAG) != 0) {
    std::unique_ptr<std::map<std::string, Ptx>> kernels(kernels_of(program));
    if (!kernels)
      return kInvalidPtx;
    return *module = new Module{{}, std::move(*kernels)}, kSuccess;
  }
  auto header = reinterpret_cast<const Elf64_Ehdr*>(program);
  size_t size = header->e_shoff + size_t{header->e_shnum} * sizeof(Elf64_Shdr);
  auto sections = reinterpret_cast<const Elf64_Shdr*>(program + header->e_shoff);
  for (int i = 0; i < header->e_shnum; ++i)
    if (sections[i].sh_type != SHT_NOBITS)
      size = std::max<size_t>(size, sections[i].sh_offset + sections[i].sh_size);
  return *module = new Module{std::string(program, size), {}}, kSuccess;
}
// Functions keep what they need of their program.
Code cuModuleUnload(Module* module) {
  if (Code code = enter_context())
    return code;
  delete module;
  return kSuccess;
}
Code cuModuleGetFunction(Function** function, const Module* module, const char* name) {
  if (Code code = enter_context())
    return code;
  auto made = std::make_unique<Function>(Function{current, name, {}, nullptr});
  const auto found = module->kernels.find(name);
  if (found != module->kernels.end()) {
    made->ptx = std::make_shared<const Ptx>(found->second);
    made->sizes = found->second.sizes;
  } else if (module->cubin.empty() || !parameters_of(module->cubin.data(), name, &made->sizes)) {
    return kNotFound;
  }
  std::lock_guard<std::mutex> lock(mutex);
  *function = made.get();
  functions[*function] = std::move(made);
  return kSuccess;
}
Code cuFuncGetParamInfo(Function* function, size_t index, size_t* offset, size_t* size) {
  if (Code code = enter_context())
    return code;
  std::lock_guard<std::mutex> lock(mutex);
  if (!functions.count(function))
    return kInvalidHandle;
  *offset = 0;
  for (size_t i = 0; i < function->sizes.size(); ++i) {
    *size = function->sizes[i];
    *offset = (*offset + *size - 1) / *size * *size;
    if (i == index)
      return kSuccess;
    *offset += *size;
  }
  return kInvalidValue;
}
Code cuFuncSetAttribute(Function*, int attribute, int) {
  return attribute == 14 || attribute == 8 ? enter_context() : kInvalidValue;
}

static std::string text_of(const Config& config, const Function& function, void** parameters) {
  std::string text = function.name;
  auto add = [&](const char* name, auto... numbers) {
    text += std::string(" ") + name;
    ((text += " " + std::to_string(numbers)), ...);
  };
  add("grid", config.grid[0], config.grid[1], config.grid[2]);
  add("block", config.block[0], config.block[1], config.block[2]);
  add("shared", config.shared);
  add("stream", reinterpret_cast<uintptr_t>(config.stream));
  for (unsigned i = 0; i < config.count; ++i) {
    const int* value = config.attributes[i].value;
    // A cluster has three numbers, the others one.
    if (config.attributes[i].id == 4)
      add("attribute", 4, value[0], value[1], value[2]);
    else
      add("attribute", config.attributes[i].id, value[0]);
  }
  for (size_t i = 0; i < function.sizes.size(); ++i) {
    uint64_t word = 0;
    std::memcpy(&word, parameters[i], std::min<size_t>(function.sizes[i], 8));
    add("parameter", function.sizes[i], word);
  }
  return text;
}

Code cuLaunchKernelEx(const Config* config, Function* function, void** parameters, void** extra) {
  std::shared_ptr<Stream> stream;
  if (Code code = find(config->stream, &stream))
    return code;
  std::shared_ptr<const Ptx> ptx;
  std::vector<uint64_t> words;
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (!functions.count(function) || function->context != current)
      return kInvalidHandle;
    for (int axis = 0; axis < 3; ++axis)
      if (!config->grid[axis] || !config->block[axis])
        return kInvalidValue;
    if (extra || (refusals > 0 && refusals--))
      return kInvalidValue;
    last_attributes.assign(config->attributes, config->attributes + config->count);
    if (recording)
      launches.push_back(text_of(*config, *function, parameters));
    if (!(ptx = function->ptx))
      return kSuccess;
    // CUDA reads the parameters before the call returns.
    for (size_t i = 0; i < function->sizes.size(); ++i) {
      words.push_back(0);
      std::memcpy(&words.back(), parameters[i], function->sizes[i]);
    }
  }
  Place place{};
  std::copy_n(config->block, 3, &place[3]);
  std::copy_n(config->grid, 3, &place[9]);
  place[12] = config->shared;
  Context* context = current;
  return push("cuLaunchKernelEx", stream, [=] {
    if (run_threads(*ptx, place, words))
      return;
    std::lock_guard<std::mutex> lock(mutex);
    context->lost = kLaunchFailed;
  });
}
Code cuLaunchKernel(
    Function* function,
    unsigned grid_x,
    unsigned grid_y,
    unsigned grid_z,
    unsigned block_x,
    unsigned block_y,
    unsigned block_z,
    unsigned shared,
    void* stream,
    void** parameters,
    void** extra) {
  Config config{{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared, stream, nullptr, 0};
  return cuLaunchKernelEx(&config, function, parameters, extra);
}

} // extern "C"
