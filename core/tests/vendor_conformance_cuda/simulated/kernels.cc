// Programs and launches. Of a program only the names and parameters of its kernels are read; what the two
// kernels of the tests do is known here by their names.
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

// What the last launch was given, for the tests: how many attributes, and the first two numbers of one.
unsigned simulated_attributes() {
  std::lock_guard<std::mutex> lock(mutex);
  return last_attributes.size();
}
void simulated_attribute(unsigned index, int* id, int* value) {
  std::lock_guard<std::mutex> lock(mutex);
  *id = last_attributes[index].id;
  *value = last_attributes[index].value[0];
}

Code cuModuleLoadData(std::string** module, const char* text) {
  if (Code code = enter_context())
    return code;
  return *module = new std::string(text), kSuccess;
}
Code cuModuleGetFunction(Function** function, const std::string* module, const char* name) {
  if (Code code = enter_context())
    return code;
  size_t start = module->find(".entry " + std::string(name) + "(");
  if (start == std::string::npos)
    return kNotFound;
  size_t end = module->find(')', start);
  auto made = std::make_unique<Function>(Function{current, name, {}});
  for (size_t at = module->find(".param .u", start); at < end; at = module->find(".param .u", at + 1))
    made->sizes.push_back(std::atoi(module->c_str() + at + 9) / 8);
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
  return attribute == 14 ? enter_context() : kInvalidValue;
}

Code cuLaunchKernelEx(const Config* config, Function* function, void** parameters, void** extra) {
  std::shared_ptr<Stream> stream;
  if (Code code = find(config->stream, &stream))
    return code;
  std::vector<uint64_t> words;
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (!functions.count(function) || function->context != current)
      return kInvalidHandle;
    for (int axis = 0; axis < 3; ++axis)
      if (!config->grid[axis] || !config->block[axis])
        return kInvalidValue;
    if (extra)
      return kInvalidValue;
    last_attributes.assign(config->attributes, config->attributes + config->count);
    if (function->name == "stop")
      return current->lost = kLaunchFailed, kSuccess;
    for (unsigned number : config->grid)
      words.push_back(number);
    for (unsigned number : config->block)
      words.push_back(number);
    words.push_back(config->shared);
    // CUDA reads the parameters before the call returns.
    for (size_t i = 1; i < function->sizes.size(); ++i) {
      words.push_back(0);
      std::memcpy(&words.back(), parameters[i], function->sizes[i]);
    }
  }
  uint64_t out;
  std::memcpy(&out, parameters[0], sizeof out);
  push(stream, [=] { std::memcpy(reinterpret_cast<void*>(out), words.data(), words.size() * sizeof words[0]); });
  return kSuccess;
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
