// SPDX-License-Identifier: Apache-2.0
// CUDA's names for the simulated MACA runtime, as MACA's own libruntime_cu.so has them: loaded before NVIDIA's
// libcudart, it makes the device type cuda of NVIDIA's torch one of simulated MetaX devices. Memory, streams, events
// and graphs are the simulated runtime's. Kernels there are none: a launch is refused, and `compute.py` serves the
// operators instead.
//
// What torch does not call is libcudart's, which finds no driver.
#include <driver_types.h>

#include <cstdlib>
#include <cstring>

#include "work.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using Code = int;
constexpr int kNoKernelImage = 209;
constexpr int kVersion = 13000;

} // namespace

#define CARRY(name, parameters, ...)   \
  extern "C" Code mc##name parameters; \
  EXPORT Code cuda##name parameters {  \
    return mc##name(__VA_ARGS__);      \
  }

struct IpcHandle {
  char bytes[64];
};

CARRY(GetDeviceCount, (int* count), count)
CARRY(GetDevice, (int* device), device)
CARRY(SetDevice, (int device), device)
CARRY(DeviceSynchronize, ())
CARRY(DeviceCanAccessPeer, (int* can, int device, int peer), can, device, peer)
CARRY(DeviceEnablePeerAccess, (int peer, unsigned flags), peer, flags)
CARRY(DeviceGetStreamPriorityRange, (int* least, int* greatest), least, greatest)
CARRY(MemGetInfo, (size_t* free, size_t* total), free, total)
CARRY(Malloc, (void** address, size_t size), address, size)
CARRY(Free, (void* address), address)
CARRY(FreeHost, (void* address), address)
CARRY(MemcpyAsync, (void* to, const void* from, size_t size, int kind, void* stream), to, from, size, kind, stream)
CARRY(StreamCreateWithPriority, (void** stream, unsigned flags, int priority), stream, flags, priority)
CARRY(StreamDestroy, (void* stream), stream)
CARRY(StreamSynchronize, (void* stream), stream)
CARRY(StreamQuery, (void* stream), stream)
CARRY(StreamWaitEvent, (void* stream, void* event, unsigned flags), stream, event, flags)
CARRY(StreamIsCapturing, (void* stream, int* status), stream, status)
CARRY(StreamBeginCapture, (void* stream, int mode), stream, mode)
CARRY(StreamEndCapture, (void* stream, void** graph), stream, graph)
CARRY(GraphLaunch, (void* graph, void* stream), graph, stream)
CARRY(GraphDestroy, (void* graph), graph)
CARRY(GraphExecDestroy, (void* graph), graph)
CARRY(LaunchHostFunc, (void* stream, void (*function)(void*), void* argument), stream, function, argument)
CARRY(EventCreateWithFlags, (void** event, unsigned flags), event, flags)
CARRY(EventDestroy, (void* event), event)
CARRY(EventRecord, (void* event, void* stream), event, stream)
CARRY(EventRecordWithFlags, (void* event, void* stream, unsigned flags), event, stream, flags)
CARRY(EventSynchronize, (void* event), event)
CARRY(EventQuery, (void* event), event)
CARRY(EventElapsedTime, (float* elapsed, void* start, void* end), elapsed, start, end)
CARRY(GetLastError, ())
CARRY(PeekAtLastError, ())
CARRY(IpcGetMemHandle, (IpcHandle * handle, void* address), handle, address)
CARRY(IpcOpenMemHandle, (void** address, IpcHandle handle, unsigned flags), address, handle, flags)
CARRY(IpcCloseMemHandle, (void* address), address)

extern "C" {
Code mcDeviceGetName(char* name, int size, int device);
Code mcDeviceGetAttribute(int* value, int attribute, int device);
Code mcGraphInstantiate(void** made, void* graph, void*, char*, size_t);
const char* mcGetErrorName(Code code);
const char* mcGetErrorString(Code code);
Code mcMallocHost(void** address, size_t size, unsigned flags);
}

EXPORT const char* cudaGetErrorName(Code code) {
  return mcGetErrorName(code);
}

EXPORT const char* cudaGetErrorString(Code code) {
  return mcGetErrorString(code);
}

EXPORT Code cudaDriverGetVersion(int* version) {
  return *version = kVersion, 0;
}

EXPORT Code cudaRuntimeGetVersion(int* version) {
  return *version = kVersion, 0;
}

EXPORT Code cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  std::memset(properties, 0, sizeof *properties);
  const Code named = mcDeviceGetName(properties->name, sizeof properties->name, device);
  const auto ask = [device](int attribute) {
    int value = 0;
    mcDeviceGetAttribute(&value, attribute, device);
    return value;
  };
  size_t free = 0;
  mcMemGetInfo(&free, &properties->totalGlobalMem);
  properties->maxThreadsPerBlock = ask(0);
  properties->sharedMemPerBlock = static_cast<size_t>(ask(7));
  properties->warpSize = ask(10);
  properties->multiProcessorCount = ask(16);
  properties->maxThreadsPerMultiProcessor = ask(19);
  properties->major = ask(21);
  properties->minor = ask(22);
  return named;
}

EXPORT Code cudaHostAlloc(void** address, size_t size, unsigned flags) {
  return mcMallocHost(address, size, flags);
}

EXPORT Code cudaMemcpy(void* to, const void* from, size_t size, int kind) {
  const Code code = mcMemcpyAsync(to, from, size, kind, nullptr);
  return code != 0 ? code : mcStreamSynchronize(nullptr);
}

EXPORT Code cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t size, void* stream) {
  return mcMemcpyAsync(to, from, size, cudaMemcpyDeviceToDevice, stream);
}

EXPORT Code cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  std::memset(attributes, 0, sizeof *attributes);
  const int place = simulated_metax_place(address);
  attributes->type = place >= 0 ? cudaMemoryTypeDevice : place == -1 ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
  attributes->device = place >= 0 ? place : 0;
  attributes->devicePointer = place >= 0 ? const_cast<void*>(address) : nullptr;
  attributes->hostPointer = place == -1 ? const_cast<void*>(address) : nullptr;
  return 0;
}

// The numbers of captures are not told: torch asks for them within its own captures, of which there is one at a time.
EXPORT Code cudaStreamGetCaptureInfo(void* stream, int* status, unsigned long long* number, ...) {
  const Code code = mcStreamIsCapturing(stream, status);
  if (number != nullptr) {
    *number = *status != 0 ? 1 : 0;
  }
  return code;
}

EXPORT Code cudaThreadExchangeStreamCaptureMode(int* mode) {
  static thread_local int mine = 0;
  const int before = mine;
  mine = *mode;
  return *mode = before, 0;
}

// An event that another process opens has passed when its handle is made.
EXPORT Code cudaIpcGetEventHandle(IpcHandle* handle, void* event) {
  std::memset(handle, 0, sizeof *handle);
  return mcEventSynchronize(event);
}

EXPORT Code cudaIpcOpenEventHandle(void** event, IpcHandle) {
  return mcEventCreateWithFlags(event, cudaEventDisableTiming);
}

EXPORT Code cudaGraphInstantiateWithFlags(void** made, void* graph, unsigned long long) {
  return mcGraphInstantiate(made, graph, nullptr, nullptr, 0);
}

EXPORT Code cudaGraphGetNodes(void*, void*, size_t* count) {
  return *count = 1, 0;
}

EXPORT Code __cudaLaunchKernel(...) {
  return simulated_metax_refuse("cudaLaunchKernel", kNoKernelImage, "torch's kernels are not for this chip");
}

EXPORT Code cudaLaunchKernelExC(...) {
  return simulated_metax_refuse("cudaLaunchKernelExC", kNoKernelImage, "torch's kernels are not for this chip");
}

// Of the driver's library, in whose place this one is loaded too: whether a device is in use.
EXPORT Code cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  return *flags = 0, *active = simulated_metax_is_used(device), 0;
}
