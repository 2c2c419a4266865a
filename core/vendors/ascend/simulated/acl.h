// SPDX-License-Identifier: Apache-2.0
// The types, codes and values of the ACL runtime as its C interface has them, declared for the simulator alone.
#pragma once

#include <cstddef>
#include <cstdint>

#define ACL_FUNC extern "C" __attribute__((visibility("default")))

using aclError = int;
using aclrtStream = void*;
using aclrtEvent = void*;
using aclrtContext = void*;
using aclmdlRI = void*;
using aclrtTaskGrp = void*;
using aclrtDrvMemHandle = void*;
using aclrtCallback = void (*)(void*);

struct aclrtUuid {
  char bytes[16];
};
struct aclrtMemLocation {
  uint32_t id;
  uint32_t type;
};
struct aclrtPtrAttributes {
  aclrtMemLocation location;
  uint32_t pageSize;
  uint32_t rsv[4];
};

namespace simulated_ascend {

enum Code : int {
  kSuccess = 0,
  kInvalidParam = 100000,
  kUninitialize = 100001,
  kRepeatInitialize = 100002,
  kRepeatFinalize = 100037,
  kParamInvalid = 107000,
  kInvalidDeviceId = 107001,
  kContextNull = 107002,
  kStreamContext = 107003,
  kEventTimestampInvalid = 107006,
  kEventTimestampReversal = 107007,
  kStreamSubscribe = 107011,
  kThreadSubscribe = 107012,
  kStreamNoCallback = 107015,
  kInvalidHandle = 107017,
  kInvalidMallocType = 107018,
  kWaitTimeout = 107019,
  kStreamAbort = 107023,
  kCaptureDependency = 107024,
  kStreamUnjoined = 107025,
  kStreamCaptured = 107027,
  kEventCaptured = 107028,
  kStreamNotCaptured = 107029,
  kCaptureModeNotSupport = 107030,
  kStreamCaptureUnmatched = 107036,
  kModelRunning = 107037,
  kStreamCaptureWrongThread = 107038,
  kFeatureNotSupport = 207000,
  kMemoryAllocation = 207001,
  kNoDevice = 207004,
  kNoPermission = 207006,
  kNoEventResource = 207007,
  kNoStreamResource = 207008,
  kFeatureNotSupportUpdateOp = 207019,
  kInternalError = 507000,
  kLostHeartbeat = 507010,
  kAicoreException = 507015,
  kStreamSyncTimeout = 507046,
  kEventSyncTimeout = 507047,
  kStreamCaptureInvalidated = 507903,
};

enum CopyKind { kHostToHost, kHostToDevice, kDeviceToHost, kDeviceToDevice, kDefault, kBuffered, kInner, kInter };

enum EventFlag : uint32_t {
  kEventSync = 0x1,
  kEventProgress = 0x2,
  kEventTimeLine = 0x8,
  kEventDeviceUseOnly = 0x10,
  kEventExternal = 0x20,
  kEventIpc = 0x40,
};

enum CaptureMode { kGlobal, kThreadLocal, kRelaxed };
enum CaptureStatus { kCaptureNone, kCaptureActive, kCaptureInvalidated };

constexpr uint64_t kContinueOnFailure = 0;
constexpr uint64_t kStopOnFailure = 1;
constexpr int kRunModeHost = 1;

} // namespace simulated_ascend
