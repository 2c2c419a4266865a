/* SPDX-License-Identifier: Apache-2.0 */
/* What tests and other simulated libraries ask of the simulated ACL runtime beyond the vendor's interface. */
#ifndef SIMULATED_ASCEND_H
#define SIMULATED_ASCEND_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Misuses so far, and the text of each; the text is valid until simulated_ascend_reset. */
size_t simulated_ascend_misuses(void);
const char* simulated_ascend_misuse(size_t index);
/* Forgets misuses and numbers of calls; objects stay as they are. */
void simulated_ascend_reset(void);

/* Objects that are alive: "contexts" (made by aclrtCreateContext), "streams", "events", "models", "blocks" of device
 * memory, "host_blocks", "registered", "imported"; SIZE_MAX for another name. */
size_t simulated_ascend_live(const char* kind);
/* How often this function of the vendor's interface was called. */
uint64_t simulated_ascend_calls(const char* function);
/* How often work has been queued, of this function or of all (NULL). */
uint64_t simulated_ascend_tasks(void);

/* A kernel: what is not 0 is the code that the device fails with. */
typedef int (*simulated_ascend_kernel)(void* argument);

/* Queues a kernel that runs with the memory of all devices opened, so that it may use device addresses. */
int simulated_ascend_run(void* stream, simulated_ascend_kernel kernel, void* argument);

/* A range of memory that a kernel uses. */
typedef struct {
  const void* address;
  size_t size;
  int writes;
} simulated_ascend_use;

/* Queues a kernel that tells what it uses and reaches memory by simulated_ascend_address alone; what it uses must be
 * alive, and a free before it has run is a misuse. `name` is what misuses call it. */
int simulated_ascend_launch(
    void* stream,
    const char* name,
    simulated_ascend_kernel kernel,
    void* argument,
    const simulated_ascend_use* uses,
    size_t count);

/* Where a kernel reads and writes what lies at this device address, or NULL if no allocation holds all `size` bytes.
 * Memory of the host is returned as it is. */
void* simulated_ascend_address(const void* device, size_t size);

/* Adds a misuse that another simulated library has found. */
void simulated_ascend_record(const char* function, const char* what);
/* What aclGetRecentErrMsg of this thread returns next. */
void simulated_ascend_set_error(const char* text);

#ifdef __cplusplus
}
#endif
#endif
