/* SPDX-License-Identifier: Apache-2.0 */
/* The C++ shim as the Rust module sees it. No exception crosses this boundary. */
#ifndef FLAGOS_SHIM_H
#define FLAGOS_SHIM_H

#include <stddef.h>
#include <stdint.h>

#include "flagos.h"
#include "flagos_comm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Registers the device with torch, served by CUDA or else by the CPU. Returns NULL, or a message to be freed with
 * flagos_shim_free. */
char* flagos_shim_register(const FlagosApi* api, int on_cuda);

/* Registers the device because a program asks for it. Returns 0, or writes why not into `message`, NUL-terminated and
   cut to `size` bytes, and returns 1. */
typedef int32_t (*FlagosAsked)(char* message, size_t size);

/* Has torch call `asked` before it reads the first device string that names flagos, from any thread and until the
   device is named. NULL: the device has its name. Returns NULL, or a message to be freed with flagos_shim_free. */
char* flagos_shim_watch_device_names(FlagosAsked asked);

/* Registers the operators by which Python gets the backend `flagos` of torch.distributed. Returns NULL, or a message
   to be freed with flagos_shim_free. */
char* flagos_shim_open_comm(const FlagosCommApi* api);

/* Calls `visit` with every `aten::name.overload` that has a kernel on flagos, and whether it can also be run on copies
   of its arguments on the CPU. */
void flagos_shim_each_op(void (*visit)(const char* name, int on_cpu_too, void* context), void* context);

/* The version of the torch headers this was built with, as in torch.__version__ without the local part. */
const char* flagos_shim_torch_version(void);

void flagos_shim_free(char* message);

#ifdef __cplusplus
}
#endif

#endif /* FLAGOS_SHIM_H */
