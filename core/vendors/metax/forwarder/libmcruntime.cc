// SPDX-License-Identifier: Apache-2.0
// A libmcruntime.so that forwards every call to NVIDIA's runtime, libcudart: for running the vendor `metax` over
// torch's real CUDA kernels. It says so itself (`flagos_forwards_to`), and is for tests alone.
//
// Handles are passed through. Attributes are renumbered. Modules and launches, which libcudart has otherwise, are of
// the driver's functions that libcudart hands out: only libcudart opens the driver's library.
#include <dlfcn.h>
#include <link.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using Code = int;
constexpr Code kInvalidValue = 1;
constexpr Code kUnknown = 999;

// The variables that choose devices: MACA's own comes first. Before libcudart reads its own.
__attribute__((constructor)) void choose_devices() {
  if (const char* devices = std::getenv("MACA_VISIBLE_DEVICES")) {
    setenv("CUDA_VISIBLE_DEVICES", devices, /*overwrite=*/1);
  }
}

// The libcudart of this process: the one that torch has loaded, or the one that METAX_FORWARDER_CUDART names.
void* cudart() {
  static void* const library = [] {
    std::string loaded;
    dl_iterate_phdr(
        [](dl_phdr_info* found, size_t, void* path) {
          const bool is_it = std::strstr(found->dlpi_name, "libcudart.so") != nullptr;
          if (is_it) {
            *static_cast<std::string*>(path) = found->dlpi_name;
          }
          return is_it ? 1 : 0;
        },
        &loaded);
    const char* named = std::getenv("METAX_FORWARDER_CUDART");
    const char* path = !loaded.empty() ? loaded.c_str() : named != nullptr ? named : "libcudart.so.13";
    void* opened = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (opened == nullptr) {
      std::fprintf(stderr, "libmcruntime.so, the forwarder: %s\n", dlerror());
    }
    return opened;
  }();
  return library;
}

template <class Function>
Function find(const char* name) {
  void* library = cudart();
  return library != nullptr ? reinterpret_cast<Function>(dlsym(library, name)) : nullptr;
}

// A function of the driver, as libcudart hands it out.
template <class Function>
Function driver(const char* name) {
  using Newer = Code (*)(const char*, void**, unsigned, unsigned long long, int*);
  using Older = Code (*)(const char*, void**, unsigned long long, int*);
  void* found = nullptr;
  int status = 0;
  if (const auto entry = find<Newer>("cudaGetDriverEntryPointByVersion")) {
    entry(name, &found, 12000, 0, &status);
  } else if (const auto older = find<Older>("cudaGetDriverEntryPoint")) {
    older(name, &found, 0, &status);
  }
  return reinterpret_cast<Function>(found);
}

} // namespace

// The vendor to whose runtime every call is forwarded.
EXPORT const char* flagos_forwards_to() {
  return "cuda";
}

#define FORWARD(name, parameters, ...)                         \
  EXPORT Code mc##name parameters {                            \
    using Target = Code(*) parameters;                         \
    static const auto target = find<Target>("cuda" #name);     \
    return target != nullptr ? target(__VA_ARGS__) : kUnknown; \
  }

struct IpcHandle {
  char bytes[64];
};

FORWARD(GetDeviceCount, (int* count), count)
FORWARD(GetDevice, (int* device), device)
FORWARD(SetDevice, (int device), device)
FORWARD(DeviceSynchronize, ())
FORWARD(DeviceCanAccessPeer, (int* can, int device, int peer), can, device, peer)
FORWARD(DeviceEnablePeerAccess, (int peer, unsigned flags), peer, flags)
FORWARD(DeviceGetStreamPriorityRange, (int* least, int* greatest), least, greatest)
FORWARD(DeviceGetPCIBusId, (char* id, int length, int device), id, length, device)
FORWARD(MemGetInfo, (size_t* free, size_t* total), free, total)
FORWARD(Malloc, (void** address, size_t size), address, size)
FORWARD(Free, (void* address), address)
FORWARD(FreeHost, (void* address), address)
FORWARD(MemcpyAsync, (void* to, const void* from, size_t size, int kind, void* stream), to, from, size, kind, stream)
FORWARD(StreamCreateWithFlags, (void** stream, unsigned flags), stream, flags)
FORWARD(StreamCreateWithPriority, (void** stream, unsigned flags, int priority), stream, flags, priority)
FORWARD(StreamDestroy, (void* stream), stream)
FORWARD(StreamSynchronize, (void* stream), stream)
FORWARD(StreamQuery, (void* stream), stream)
FORWARD(StreamWaitEvent, (void* stream, void* event, unsigned flags), stream, event, flags)
FORWARD(StreamGetDevice, (void* stream, int* device), stream, device)
FORWARD(StreamIsCapturing, (void* stream, int* status), stream, status)
FORWARD(StreamBeginCapture, (void* stream, int mode), stream, mode)
FORWARD(StreamEndCapture, (void* stream, void** graph), stream, graph)
FORWARD(ThreadExchangeStreamCaptureMode, (int* mode), mode)
FORWARD(GraphLaunch, (void* graph, void* stream), graph, stream)
FORWARD(GraphDestroy, (void* graph), graph)
FORWARD(GraphExecDestroy, (void* graph), graph)
FORWARD(LaunchHostFunc, (void* stream, void (*function)(void*), void* argument), stream, function, argument)
FORWARD(EventCreateWithFlags, (void** event, unsigned flags), event, flags)
FORWARD(EventDestroy, (void* event), event)
FORWARD(EventRecord, (void* event, void* stream), event, stream)
FORWARD(EventSynchronize, (void* event), event)
FORWARD(EventQuery, (void* event), event)
FORWARD(EventElapsedTime, (float* elapsed, void* start, void* end), elapsed, start, end)
FORWARD(GetLastError, ())
FORWARD(PeekAtLastError, ())
FORWARD(IpcGetMemHandle, (IpcHandle * handle, void* address), handle, address)
FORWARD(IpcOpenMemHandle, (void** address, IpcHandle handle, unsigned flags), address, handle, flags)
FORWARD(IpcCloseMemHandle, (void* address), address)

// libcudart has dropped the arguments between the graph and the flags.
EXPORT Code mcGraphInstantiate(void** executable, void* graph, void*, char*, size_t) {
  static const auto function = find<Code (*)(void**, void*, unsigned long long)>("cudaGraphInstantiate");
  return function != nullptr ? function(executable, graph, 0) : kUnknown;
}

EXPORT const char* mcGetErrorName(Code code) {
  static const auto function = find<const char* (*)(Code)>("cudaGetErrorName");
  return function != nullptr ? function(code) : "libcudart was not found";
}

EXPORT const char* mcGetErrorString(Code code) {
  static const auto function = find<const char* (*)(Code)>("cudaGetErrorString");
  return function != nullptr ? function(code) : "libcudart was not found: set METAX_FORWARDER_CUDART to its file";
}

// MACA's third argument is that of cudaHostAlloc.
EXPORT Code mcMallocHost(void** address, size_t size, unsigned flags) {
  static const auto function = find<Code (*)(void**, size_t, unsigned)>("cudaHostAlloc");
  return function != nullptr ? function(address, size, flags) : kUnknown;
}

// By MACA's numbers CUDA's.
EXPORT Code mcDeviceGetAttribute(int* value, int attribute, int device) {
  static const auto function = find<Code (*)(int*, int, int)>("cudaDeviceGetAttribute");
  // MACA's number of each attribute and CUDA's (cudaDeviceAttr), which has none for what it calls otherwise.
  static constexpr int numbers[][2] = {{0, 1},   {1, 2},   {2, 3},   {3, 4},   {4, 5},   {5, 6},   {6, 7},
                                       {7, 8},   {8, 9},   {9, 10},  {10, 10}, {11, 12}, {12, 82}, {13, 13},
                                       {14, 36}, {15, 37}, {16, 16}, {17, 20}, {18, 38}, {19, 39}, {20, 106},
                                       {21, 75}, {22, 76}, {23, 31}, {24, 33}, {25, 34}, {26, 81}};
  for (const auto& [maca, cuda] : numbers) {
    if (maca == attribute) {
      return function != nullptr ? function(value, cuda, device) : kUnknown;
    }
  }
  return kInvalidValue;
}

// libcudart tells a name in a large structure alone, which begins with it.
EXPORT Code mcDeviceGetName(char* name, int length, int device) {
  static const auto function = find<Code (*)(void*, int)>("cudaGetDeviceProperties");
  static const auto newer = find<Code (*)(void*, int)>("cudaGetDeviceProperties_v2");
  const auto chosen = newer != nullptr ? newer : function;
  if (chosen == nullptr || name == nullptr || length <= 0) {
    return chosen == nullptr ? kUnknown : kInvalidValue;
  }
  // Far more than the structure of any version.
  alignas(16) static thread_local char properties[1 << 14];
  const Code code = chosen(properties, device);
  if (code == 0) {
    std::snprintf(name, static_cast<size_t>(length), "%.255s", properties);
  }
  return code;
}

// The only attribute that this vendor asks for: the address by which kernels reach memory.
EXPORT Code mcPointerGetAttribute(void* value, int attribute, void* address) {
  using Function = Code (*)(void*, int, uint64_t);
  static const auto function = driver<Function>("cuPointerGetAttribute");
  if (function == nullptr) {
    return kUnknown;
  }
  return function(value, attribute, reinterpret_cast<uint64_t>(address));
}

EXPORT Code mcModuleLoadData(void** module, const void* image) {
  static const auto function = driver<Code (*)(void**, const void*)>("cuModuleLoadData");
  return function != nullptr ? function(module, image) : kUnknown;
}

EXPORT Code mcModuleUnload(void* module) {
  static const auto function = driver<Code (*)(void*)>("cuModuleUnload");
  return function != nullptr ? function(module) : kUnknown;
}

EXPORT Code mcModuleGetFunction(void** found, void* module, const char* name) {
  static const auto function = driver<Code (*)(void**, void*, const char*)>("cuModuleGetFunction");
  return function != nullptr ? function(found, module, name) : kUnknown;
}

EXPORT Code mcModuleLaunchKernel(
    void* kernel,
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
  using Function =
      Code (*)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);
  static const auto function = driver<Function>("cuLaunchKernel");
  return function != nullptr
      ? function(kernel, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, parameters, extra)
      : kUnknown;
}
