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
 * memory, "host_blocks", "registered", "imported"; with libnnopbase "tensors", "scalars", "int_arrays", "float_arrays",
 * "bool_arrays", "tensor_lists", "scalar_lists", "executors"; with libhccl or libflagcx "communicators"; SIZE_MAX for
 * another name. */
size_t simulated_ascend_live(const char* kind);
/* How often this function of the vendor's interface was called. */
uint64_t simulated_ascend_calls(const char* function);
/* How often work has been queued. */
uint64_t simulated_ascend_tasks(void);

/* Of libopapi: the operators that it has, without "GetWorkspaceSize", NULL at the end; and how often one has queued
 * work. */
const char* simulated_ascend_operator(size_t index);
uint64_t simulated_ascend_operator_tasks(const char* name);
/* How often its phase 1 has seen ACL_OPT_DETERMINISTIC set. */
uint64_t simulated_ascend_operator_deterministic(const char* name);

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

/* Queues a kernel as simulated_ascend_launch does, as a call of `name`, which faults may be asked of. The argument
 * belongs to the work, which a graph may run often, and is destroyed with it, or at once if the call fails. */
int simulated_ascend_launch_owned(
    void* stream,
    const char* name,
    simulated_ascend_kernel kernel,
    void* argument,
    void (*destroy)(void* argument),
    const simulated_ascend_use* uses,
    size_t count);

/* How a function of another simulated library begins: it is counted, refused in a forked child and in a host function
 * (and without a context, if it needs one), and fails if a fault was asked of it. */
int simulated_ascend_begin(const char* function, int needs_context);
/* Whether the settings ask for faults at all. */
int simulated_ascend_has_faults(void);
/* What the thread's context, or the process, has set for ACL_OPT_DETERMINISTIC. */
int64_t simulated_ascend_deterministic(void);
/* The thread's device, as the machine counts it; -1 without a context. */
int simulated_ascend_device(void);
/* The live block that holds this address: 1 on a device, 2 on the host, 0 if there is none. */
int simulated_ascend_block(const void* address, uint64_t* begin, uint64_t* size);

/* Adds a misuse that another simulated library has found. */
void simulated_ascend_record(const char* function, const char* what);
/* Adds a misuse that the vendor's library refuses with `code`, with its error text; the code. */
int simulated_ascend_refuse(const char* function, int code, const char* what);
/* What aclGetRecentErrMsg of this thread returns next. */
void simulated_ascend_set_error(const char* text);

/* What another simulated library adds to the counts above. */
typedef struct {
  const char* const* kinds; /* of objects, NULL at the end */
  size_t (*live)(const char* kind);
  uint64_t (*calls)(const char* function); /* UINT64_MAX of a function that it lacks */
  void (*reset)(void);
} simulated_ascend_part;
void simulated_ascend_join(const simulated_ascend_part* part);
/* Hides what the settings ask for, and with an old version these names (NULL at the end), in the library that holds
 * this address. A name that begins so and is not there ends the process; "…Init" and "…Finalize" are in another
 * library. */
void simulated_ascend_hide(const void* inside, const char* const* newer, const char* beginning);

#ifdef __cplusplus
}
#endif
#endif
