/* SPDX-License-Identifier: Apache-2.0 */
/* What triton-ascend uses of libruntime.so's header, and of the profiler's that it includes, declared for the simulator
 * alone. Values that only the library compares are the simulator's own. */
#ifndef SIMULATED_ASCEND_RT_H
#define SIMULATED_ASCEND_RT_H

#include <stdint.h>

#define RT_ERROR_NONE 0
#define RT_DEV_BINARY_MAGIC_ELF 0x43554245U
#define RT_DEV_BINARY_MAGIC_ELF_AIVEC 0x41415246U
#define RT_MEMORY_HBM 0x2U
#define RT_MEMORY_HOST 0x40U

typedef int32_t rtError_t;
typedef void* rtStream_t;
typedef uint32_t rtMemType_t;
typedef struct rtSmDesc rtSmDesc_t;
typedef enum {
  RT_MEMCPY_HOST_TO_HOST = 0,
  RT_MEMCPY_HOST_TO_DEVICE = 1,
  RT_MEMCPY_DEVICE_TO_HOST = 2,
  RT_MEMCPY_DEVICE_TO_DEVICE = 3,
} rtMemcpyKind_t;
typedef enum {
  RT_LIMIT_TYPE_LOW_POWER_TIMEOUT,
  RT_LIMIT_TYPE_SIMT_WARP_STACK_SIZE,
  RT_LIMIT_TYPE_SIMT_DVG_WARP_STACK_SIZE,
  RT_LIMIT_TYPE_STACK_SIZE,
} rtLimitType_t;
typedef struct {
  uint32_t magic;
  uint32_t version;
  const void* data;
  uint64_t length;
} rtDevBinary_t;
typedef struct {
  void* args;
  uint32_t argsSize;
} rtArgsEx_t;
typedef struct {
  uint32_t localMemorySize;
} rtTaskCfgInfo_t;

enum {
  MSPROF_GE_TASK_TYPE_AI_CORE,
  MSPROF_GE_TASK_TYPE_AIV,
  MSPROF_GE_TASK_TYPE_MIX_AIC,
  MSPROF_GE_TASK_TYPE_MIX_AIV,
};
enum { MSPROF_GE_TENSOR_TYPE_INPUT, MSPROF_GE_TENSOR_TYPE_OUTPUT };
#define MSPROF_REPORT_NODE_LEVEL 10000
#define MSPROF_REPORT_NODE_BASIC_INFO_TYPE 0
#define MSPROF_REPORT_NODE_TENSOR_INFO_TYPE 1
#define MSPROF_REPORT_NODE_CONTEXT_ID_INFO_TYPE 4
#define MSPROF_REPORT_NODE_LAUNCH_TYPE 5
#define MSPROF_GE_TENSOR_DATA_SHAPE_LEN 8
#define MSPROF_GE_TENSOR_DATA_NUM 5
#define MSPROF_ADDTIONAL_INFO_DATA_LENGTH 232

typedef struct {
  uint64_t profSwitch;
  uint32_t type;
} MsprofCommandHandle;
typedef struct {
  uint16_t magicNumber;
  uint16_t level;
  uint32_t type;
  uint32_t threadId;
  uint32_t reserve;
  uint64_t beginTime;
  uint64_t endTime;
  uint64_t itemId;
} MsprofApi;
typedef struct {
  uint64_t opName;
  uint32_t taskType;
  uint64_t opType;
  uint32_t blockDim;
} MsprofNodeBasicInfo;
typedef struct {
  uint16_t level;
  uint32_t type;
  uint32_t threadId;
  uint64_t timeStamp;
  uint16_t magicNumber;
  union {
    MsprofNodeBasicInfo nodeBasicInfo;
  } data;
} MsprofCompactInfo;
typedef struct {
  uint16_t level;
  uint32_t type;
  uint32_t threadId;
  uint64_t timeStamp;
  uint8_t data[MSPROF_ADDTIONAL_INFO_DATA_LENGTH];
} MsprofAdditionalInfo;
typedef struct {
  uint64_t opName;
  uint32_t ctxIdNum;
  uint32_t ctxIds[16];
} MsprofContextIdInfo;
typedef struct {
  uint32_t tensorType;
  uint32_t format;
  uint32_t dataType;
  uint32_t shape[MSPROF_GE_TENSOR_DATA_SHAPE_LEN];
} MsprofTensorData;
typedef struct {
  uint64_t opName;
  uint32_t tensorNum;
  MsprofTensorData tensorData[MSPROF_GE_TENSOR_DATA_NUM];
} MsprofTensorInfo;

#ifdef __cplusplus
extern "C" {
#endif

rtError_t rtSetDevice(int32_t device);
rtError_t rtGetSocVersion(char* version, uint32_t length);
rtError_t rtGetAiCoreCount(uint32_t* count);
rtError_t rtDeviceSetLimit(int32_t device, rtLimitType_t type, uint32_t value);
rtError_t rtStreamCreate(rtStream_t* stream, int32_t priority);
rtError_t rtStreamDestroy(rtStream_t stream);
rtError_t rtStreamSynchronize(rtStream_t stream);
rtError_t rtMalloc(void** address, uint64_t size, rtMemType_t type, uint16_t module);
rtError_t rtFree(void* address);
rtError_t rtMallocHost(void** address, uint64_t size, rtMemType_t type);
rtError_t rtFreeHost(void* address);
rtError_t rtMemcpy(void* to, uint64_t room, const void* from, uint64_t size, rtMemcpyKind_t kind);
rtError_t rtGetC2cCtrlAddr(uint64_t* address, uint32_t* length);
rtError_t rtDevBinaryRegister(const rtDevBinary_t* binary, void** handle);
rtError_t rtFunctionRegister(void* binary, const void* function, const char* stub, const void* kernel, uint32_t mode);
rtError_t rtKernelLaunch(
    const void* function,
    uint32_t blocks,
    void* arguments,
    uint32_t size,
    rtSmDesc_t* description,
    rtStream_t stream);
rtError_t rtKernelLaunchWithFlagV2(
    const void* function,
    uint32_t blocks,
    rtArgsEx_t* arguments,
    rtSmDesc_t* description,
    rtStream_t stream,
    uint32_t flags,
    const rtTaskCfgInfo_t* configuration);

int MsprofReportApi(unsigned int aging, const MsprofApi* api);
unsigned long int MsprofSysCycleTime();
unsigned long int MsprofGetHashId(const char* text, unsigned long length);
int MsprofRegisterCallback(unsigned int module, int (*callback)(unsigned int, void*, unsigned int));
int MsprofReportCompactInfo(unsigned int aging, const void* data, unsigned int length);
int MsprofReportAdditionalInfo(unsigned int aging, const void* data, unsigned int length);

#ifdef __cplusplus
}
#endif
#endif
