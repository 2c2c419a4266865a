// SPDX-License-Identifier: Apache-2.0
// A simulated libruntime.so: what triton-ascend uses of it, over the simulated ACL runtime beside it.
#include <chrono>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "include/runtime/rt.h"
#include "simulated_ascend.h"

// The functions of the ACL runtime that have other names here.
extern "C" {
int aclrtSetDevice(int32_t device);
const char* aclrtGetSocName(void);
int aclrtCreateStream(void** stream);
int aclrtDestroyStream(void* stream);
int aclrtSynchronizeStream(void* stream);
int aclrtMalloc(void** address, size_t size, int policy);
int aclrtFree(void* address);
int aclrtMallocHost(void** address, size_t size);
int aclrtFreeHost(void* address);
int aclrtMemcpy(void* to, size_t room, const void* from, size_t size, int kind);
}

namespace {

constexpr int kParamInvalid = 107000;
constexpr int kInvalidHandle = 107017;
constexpr uint32_t kCores = 20;
// Where a kernel finds the address that rtGetC2cCtrlAddr tells.
constexpr uint64_t kControl = 0xc2c0;
constexpr int64_t kTaken = 7;

struct Step {
  std::string name;
  std::vector<int64_t> numbers;
};

// A kernel's binary, which is text here: a step a line.
struct Kernel {
  std::string name;
  std::vector<Step> steps;
};

struct Launch {
  std::shared_ptr<const Kernel> kernel;
  std::vector<uint8_t> arguments;
};

std::mutex mutex;
std::map<void*, std::vector<Step>> binaries;
std::map<const void*, std::shared_ptr<const Kernel>> functions;
uint64_t queued = 0;
uint64_t finished = 0;
uint64_t synchronised = 0;
uint32_t last_blocks = 0;
std::vector<uint8_t> last_arguments;

int refuse(const char* function, int code, const std::string& what) {
  simulated_ascend_record(function, what.c_str());
  simulated_ascend_set_error((std::string(function) + ": " + what).c_str());
  return code;
}

template <typename T>
T at(const std::vector<uint8_t>& arguments, int64_t offset) {
  T value{};
  if (offset >= 0 && offset + sizeof(T) <= arguments.size())
    std::memcpy(&value, arguments.data() + offset, sizeof(T));
  return value;
}

template <typename T>
T* memory_at(const std::vector<uint8_t>& arguments, int64_t offset, int64_t count) {
  return static_cast<T*>(simulated_ascend_address(at<void*>(arguments, offset), count * sizeof(T)));
}

// sleep MICROSECONDS
// take OFFSET COUNT VALUE    the 64-bit words at the pointer at this byte of the arguments must have this value, and
// have
//                            another one from then on, as locks that a kernel has taken
// fill OFFSET COUNT VALUE    sets the bytes at the pointer
// hold OFFSET COUNT VALUE    the bytes at the pointer must have this value
// add OFFSET OFFSET OFFSET OFFSET    adds 32-bit numbers: result, two operands, and how many (32 bits)
int run_step(const Step& step, const Launch& launch) {
  const auto& arguments = launch.arguments;
  const auto& numbers = step.numbers;
  if (step.name == "sleep") {
    std::this_thread::sleep_for(std::chrono::microseconds(numbers.at(0)));
  } else if (step.name == "take") {
    auto* words = memory_at<int64_t>(arguments, numbers.at(0), numbers.at(1));
    if (words == nullptr)
      return kParamInvalid;
    for (int64_t index = 0; index < numbers[1]; ++index) {
      if (words[index] != numbers.at(2))
        simulated_ascend_record("rtKernelLaunch", "a kernel's lock has not its first value when the kernel begins");
      words[index] = kTaken + index;
    }
    // As long as it runs, nobody else may write them.
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    for (int64_t index = 0; index < numbers[1]; ++index)
      if (words[index] != kTaken + index)
        simulated_ascend_record("rtKernelLaunch", "a kernel's lock was written while the kernel ran");
  } else if (step.name == "fill" || step.name == "hold") {
    auto* bytes = memory_at<uint8_t>(arguments, numbers.at(0), numbers.at(1));
    if (bytes == nullptr)
      return kParamInvalid;
    for (int64_t index = 0; index < numbers[1]; ++index) {
      if (step.name == "fill")
        bytes[index] = static_cast<uint8_t>(numbers.at(2));
      else if (bytes[index] != static_cast<uint8_t>(numbers.at(2)))
        return refuse("rtKernelLaunch", kParamInvalid, "a kernel's memory was written while the kernel ran");
    }
  } else if (step.name == "add") {
    const int64_t count = at<int32_t>(arguments, numbers.at(3));
    auto* result = memory_at<float>(arguments, numbers.at(0), count);
    const auto* left = memory_at<float>(arguments, numbers.at(1), count);
    const auto* right = memory_at<float>(arguments, numbers.at(2), count);
    if (result == nullptr || left == nullptr || right == nullptr)
      return kParamInvalid;
    for (int64_t index = 0; index < count; ++index)
      result[index] = left[index] + right[index];
  } else if (step.name == "fail") {
    return static_cast<int>(numbers.at(0));
  }
  return 0;
}

int run(void* argument) {
  const std::unique_ptr<Launch> launch(static_cast<Launch*>(argument));
  int code = 0;
  for (const Step& step : launch->kernel->steps)
    if ((code = run_step(step, *launch)) != 0)
      break;
  std::lock_guard<std::mutex> lock(mutex);
  ++finished;
  return code;
}

std::vector<simulated_ascend_use> uses(const Launch& launch) {
  std::vector<simulated_ascend_use> found;
  const auto use = [&](int64_t offset, int64_t bytes, int writes) {
    found.push_back({at<void*>(launch.arguments, offset), static_cast<size_t>(bytes), writes});
  };
  for (const Step& step : launch.kernel->steps) {
    if (step.name == "take") {
      use(step.numbers.at(0), step.numbers.at(1) * 8, 1);
    } else if (step.name == "fill" || step.name == "hold") {
      use(step.numbers.at(0), step.numbers.at(1), step.name == "fill");
    } else if (step.name == "add") {
      const int64_t bytes = 4 * static_cast<int64_t>(at<int32_t>(launch.arguments, step.numbers.at(3)));
      for (int index = 0; index < 3 && bytes > 0; ++index)
        use(step.numbers.at(index), bytes, index == 0);
    }
  }
  return found;
}

std::vector<Step> parsed(const rtDevBinary_t& binary) {
  std::istringstream lines(std::string(static_cast<const char*>(binary.data), binary.length));
  std::vector<Step> steps;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    Step step;
    words >> step.name;
    for (int64_t number; words >> number;)
      step.numbers.push_back(number);
    if (!step.name.empty())
      steps.push_back(std::move(step));
  }
  return steps;
}

int launch(const void* function, uint32_t blocks, const void* arguments, uint32_t size, void* stream) {
  auto launch = std::make_unique<Launch>();
  {
    std::lock_guard<std::mutex> lock(mutex);
    const auto known = functions.find(function);
    if (known == functions.end())
      return refuse("rtKernelLaunch", kInvalidHandle, "the function is not registered");
    if (blocks == 0)
      return refuse("rtKernelLaunch", kParamInvalid, "no blocks");
    launch->kernel = known->second;
    const auto* bytes = static_cast<const uint8_t*>(arguments);
    launch->arguments.assign(bytes, bytes + size);
    last_blocks = blocks;
    last_arguments = launch->arguments;
  }
  const auto used = uses(*launch);
  const std::string name = launch->kernel->name;
  auto* const released = launch.release();
  const int code = simulated_ascend_launch(stream, name.c_str(), run, released, used.data(), used.size());
  std::lock_guard<std::mutex> lock(mutex);
  if (code == 0)
    ++queued;
  else
    delete released;
  return code;
}

} // namespace

extern "C" {

// What tests ask beyond the vendor's interface.
uint64_t simulated_ascend_rt_queued() {
  std::lock_guard<std::mutex> lock(mutex);
  return queued;
}
uint64_t simulated_ascend_rt_finished() {
  std::lock_guard<std::mutex> lock(mutex);
  return finished;
}
uint64_t simulated_ascend_rt_synchronised() {
  std::lock_guard<std::mutex> lock(mutex);
  return synchronised;
}
// The last launch: its blocks, and its arguments, of which at most `room` bytes are copied. Returns how many there are.
uint64_t simulated_ascend_rt_last(uint32_t* blocks, void* arguments, uint64_t room) {
  std::lock_guard<std::mutex> lock(mutex);
  *blocks = last_blocks;
  std::memcpy(arguments, last_arguments.data(), std::min<uint64_t>(room, last_arguments.size()));
  return last_arguments.size();
}

rtError_t rtSetDevice(int32_t device) {
  return aclrtSetDevice(device);
}
rtError_t rtGetSocVersion(char* version, uint32_t length) {
  const char* name = aclrtGetSocName();
  if (name == nullptr || std::strlen(name) >= length)
    return kParamInvalid;
  std::strcpy(version, name);
  return 0;
}
rtError_t rtGetAiCoreCount(uint32_t* count) {
  *count = kCores;
  return 0;
}
rtError_t rtDeviceSetLimit(int32_t, rtLimitType_t, uint32_t) {
  return 0;
}
rtError_t rtStreamCreate(rtStream_t* stream, int32_t) {
  return aclrtCreateStream(stream);
}
rtError_t rtStreamDestroy(rtStream_t stream) {
  return aclrtDestroyStream(stream);
}
rtError_t rtStreamSynchronize(rtStream_t stream) {
  {
    std::lock_guard<std::mutex> lock(mutex);
    ++synchronised;
  }
  return aclrtSynchronizeStream(stream);
}
rtError_t rtMalloc(void** address, uint64_t size, rtMemType_t type, uint16_t) {
  if (type != RT_MEMORY_HBM)
    return refuse("rtMalloc", kParamInvalid, "a type of memory that is not simulated");
  return aclrtMalloc(address, size, 0);
}
rtError_t rtFree(void* address) {
  return aclrtFree(address);
}
rtError_t rtMallocHost(void** address, uint64_t size, rtMemType_t) {
  return aclrtMallocHost(address, size);
}
rtError_t rtFreeHost(void* address) {
  return aclrtFreeHost(address);
}
rtError_t rtMemcpy(void* to, uint64_t room, const void* from, uint64_t size, rtMemcpyKind_t kind) {
  return aclrtMemcpy(to, room, from, size, kind);
}
rtError_t rtGetC2cCtrlAddr(uint64_t* address, uint32_t* length) {
  *address = kControl;
  *length = 64;
  return 0;
}

rtError_t rtDevBinaryRegister(const rtDevBinary_t* binary, void** handle) {
  std::lock_guard<std::mutex> lock(mutex);
  if (binary->magic != RT_DEV_BINARY_MAGIC_ELF && binary->magic != RT_DEV_BINARY_MAGIC_ELF_AIVEC)
    return refuse("rtDevBinaryRegister", kParamInvalid, "the binary is of no known kind");
  *handle = reinterpret_cast<void*>(0xb000 + 16 * binaries.size());
  binaries[*handle] = parsed(*binary);
  return 0;
}
rtError_t rtFunctionRegister(void* binary, const void* function, const char* stub, const void* kernel, uint32_t) {
  std::lock_guard<std::mutex> lock(mutex);
  const auto known = binaries.find(binary);
  if (known == binaries.end() || function == nullptr || stub == nullptr || kernel == nullptr)
    return refuse("rtFunctionRegister", kInvalidHandle, "the binary is not registered, or an argument is null");
  functions[function] = std::make_shared<const Kernel>(Kernel{static_cast<const char*>(kernel), known->second});
  return 0;
}
rtError_t
rtKernelLaunch(const void* function, uint32_t blocks, void* arguments, uint32_t size, rtSmDesc_t*, rtStream_t stream) {
  return launch(function, blocks, arguments, size, stream);
}
rtError_t rtKernelLaunchWithFlagV2(
    const void* function,
    uint32_t blocks,
    rtArgsEx_t* arguments,
    rtSmDesc_t*,
    rtStream_t stream,
    uint32_t,
    const rtTaskCfgInfo_t*) {
  return launch(function, blocks, arguments->args, arguments->argsSize, stream);
}

int MsprofReportApi(unsigned int, const MsprofApi*) {
  return 0;
}
unsigned long int MsprofSysCycleTime() {
  return 1;
}
unsigned long int MsprofGetHashId(const char*, unsigned long) {
  return 1;
}
int MsprofRegisterCallback(unsigned int, int (*)(unsigned int, void*, unsigned int)) {
  return 0;
}
int MsprofReportCompactInfo(unsigned int, const void*, unsigned int) {
  return 0;
}
int MsprofReportAdditionalInfo(unsigned int, const void*, unsigned int) {
  return 0;
}
}
