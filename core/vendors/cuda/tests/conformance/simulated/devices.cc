// Initialisation, devices, contexts and memory.
extern "C" {

Code cuInit(unsigned) {
  if (forked)
    _exit(77);
  return initialized = true, kSuccess;
}
Code cuDriverGetVersion(int* version) {
  return *version = 12080, kSuccess;
}
Code cuGetErrorName(Code code, const char** text) {
  static const std::map<Code, const char*> names = {
      {kInvalidValue, "CUDA_ERROR_INVALID_VALUE"},
      {kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY"},
      {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT"},
      {kInvalidHandle, "CUDA_ERROR_INVALID_HANDLE"},
      {kLaunchFailed, "CUDA_ERROR_LAUNCH_FAILED"},
      {kNotPermitted, "CUDA_ERROR_NOT_PERMITTED"}};
  auto found = names.find(code);
  if (found == names.end())
    return kInvalidValue;
  return *text = found->second, kSuccess;
}
Code cuGetErrorString(Code code, const char** text) {
  return cuGetErrorName(code, text);
}

Code cuDeviceGetCount(int* count) {
  return *count = visible(), enter();
}
Code cuDeviceGet(int* device, int ordinal) {
  if (ordinal < 0 || ordinal >= visible())
    return kInvalidDevice;
  return *device = ordinal, enter();
}
Code cuDeviceGetName(char* name, int size, int) {
  return std::snprintf(name, size, "Simulated"), enter();
}
Code cuDeviceTotalMem_v2(size_t* total, int) {
  return *total = kTotal, enter();
}
Code cuDeviceGetAttribute(int* value, int attribute, int) {
  // Shared memory of a block, of a multiprocessor, and of a block that asks for more; all else is 9.
  bool memory = attribute == 8 || attribute == 81 || attribute == 97;
  return *value = memory ? 227 << 10 : 9, enter();
}
Code cuDeviceCanAccessPeer(int* can, int, int) {
  return *can = 1, enter();
}

Code cuDevicePrimaryCtxRetain(Context** context, int device) {
  if (Code code = enter())
    return code;
  std::lock_guard<std::mutex> lock(mutex);
  if (!primary[device]) {
    primary[device] = new Context(device);
    used[device] += kTotal / 16;
  }
  return *context = primary[device], kSuccess;
}
Code cuCtxCreate_v2(Context** context, unsigned, int device) {
  std::lock_guard<std::mutex> lock(mutex);
  return current = *context = new Context(device), kSuccess;
}
Code cuCtxDestroy_v2(Context*) {
  return enter();
}
Code cuCtxGetCurrent(Context** context) {
  return *context = current, enter();
}
Code cuCtxSetCurrent(Context* context) {
  return current = context, enter();
}
Code cuCtxSynchronize() {
  if (Code code = enter_context())
    return code;
  std::unique_lock<std::mutex> lock(mutex);
  drain(lock, *current);
  return current->lost;
}
Code cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return *least = 0, *greatest = -5, enter_context();
}
Code cuCtxEnablePeerAccess(Context* other, unsigned) {
  if (Code code = enter_context())
    return code;
  bool& enabled = current->peers[other->number];
  return enabled ? kAlreadyEnabled : (enabled = true, kSuccess);
}

Code cuMemGetInfo_v2(size_t* free, size_t* total) {
  if (Code code = enter_context())
    return code;
  std::lock_guard<std::mutex> lock(mutex);
  *total = kTotal;
  *free = kTotal - used[current->number];
  return kSuccess;
}
Code cuMemAlloc_v2(uint64_t* address, size_t size) {
  if (Code code = enter_context())
    return code;
  std::lock_guard<std::mutex> lock(mutex);
  size_t& taken = used[current->number];
  if (size > kTotal - taken)
    return kOutOfMemory;
  void* start = map(size);
  if (!start)
    return kOutOfMemory;
  taken += size;
  *address = reinterpret_cast<uintptr_t>(start);
  device_blocks[*address] = {size, current->number};
  return kSuccess;
}
Code cuMemFree_v2(uint64_t address) {
  if (Code code = enter_context())
    return code;
  std::lock_guard<std::mutex> lock(mutex);
  auto found = device_blocks.find(address);
  if (found == device_blocks.end())
    return kInvalidValue;
  used[found->second.device] -= found->second.size;
  munmap(reinterpret_cast<void*>(address), found->second.size);
  device_blocks.erase(found);
  return kSuccess;
}
Code cuMemHostAlloc(void** address, size_t size, unsigned flags) {
  if (Code code = enter_context())
    return code;
  if (flags != 1)
    return kInvalidValue;
  std::lock_guard<std::mutex> lock(mutex);
  *address = map(size);
  host_blocks[reinterpret_cast<uintptr_t>(*address)] = size;
  return *address ? kSuccess : kOutOfMemory;
}
Code cuMemFreeHost(void* address) {
  if (Code code = enter_context())
    return code;
  std::lock_guard<std::mutex> lock(mutex);
  auto found = host_blocks.find(reinterpret_cast<uintptr_t>(address));
  if (found == host_blocks.end())
    return kInvalidValue;
  munmap(address, found->second);
  host_blocks.erase(found);
  return kSuccess;
}
Code cuMemcpyAsync(uint64_t to, uint64_t from, size_t size, void* handle) {
  std::shared_ptr<Stream> stream;
  if (Code code = find(handle, &stream))
    return code;
  auto work = [=] { std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), size); };
  Block block;
  bool device;
  {
    std::lock_guard<std::mutex> lock(mutex);
    device = block_of(to, &block) || block_of(from, &block);
  }
  push("cuMemcpyAsync", stream, work);
  std::unique_lock<std::mutex> lock(mutex);
  if (!device)
    drain(lock, *stream);
  return kSuccess;
}
// Whether kernels reach ordinary memory from now on, as on machines with one memory for both.
void simulated_reach(bool all) {
  reach_all = all;
}
Code cuPointerGetAttribute(uint64_t* value, int attribute, uint64_t address) {
  if (Code code = enter_context())
    return code;
  std::lock_guard<std::mutex> lock(mutex);
  Block block;
  auto host = host_blocks.upper_bound(address);
  bool pinned = host != host_blocks.begin() && address < std::prev(host)->first + std::prev(host)->second;
  if (attribute != 3 || !(reach_all || pinned || block_of(address, &block)))
    return kInvalidValue;
  return *value = address, kSuccess;
}
Code cuPointerGetAttributes(unsigned, int*, void** data, uint64_t address) {
  if (Code code = enter_context())
    return code;
  std::lock_guard<std::mutex> lock(mutex);
  Block block;
  bool device = block_of(address, &block);
  *static_cast<unsigned*>(data[0]) = device ? 2 : 0;
  *static_cast<int*>(data[1]) = device ? block.device : 0;
  return kSuccess;
}

} // extern "C"
