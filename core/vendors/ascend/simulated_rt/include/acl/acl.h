/* SPDX-License-Identifier: Apache-2.0 */
/* What launchers of Triton kernels use of the ACL runtime's header, declared for the simulator alone. */
#ifndef SIMULATED_ASCEND_RT_ACL_H
#define SIMULATED_ASCEND_RT_ACL_H

#include <stdint.h>

#define ACL_SUCCESS 0
#define ACL_MEM_LOCATION_TYPE_HOST 0
#define ACL_MEM_LOCATION_TYPE_DEVICE 1

typedef int aclError;
typedef struct {
  uint32_t id;
  uint32_t type;
} aclrtMemLocation;
typedef struct {
  aclrtMemLocation location;
  uint32_t pageSize;
  uint32_t rsv[4];
} aclrtPtrAttributes;

#ifdef __cplusplus
extern "C" {
#endif

const char* aclGetRecentErrMsg(void);
aclError aclrtPointerGetAttributes(const void* address, aclrtPtrAttributes* attributes);

#ifdef __cplusplus
}
#endif
#endif
