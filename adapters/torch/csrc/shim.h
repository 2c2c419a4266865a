/* SPDX-License-Identifier: Apache-2.0 */
/* The C++ shim as the Rust module sees it: a library for each minor version of torch, in the folder `_shims`. No
 * exception crosses this boundary. */
#ifndef FLAGOS_SHIM_H
#define FLAGOS_SHIM_H

#include <stddef.h>
#include <stdint.h>

#include "flagos.h"
#include "flagos_comm.h"

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/* Registers the device with torch, served as the vendor's description says. Returns NULL, or a message to be freed with
 * flagos_shim_free. */
char* flagos_shim_register(const FlagosApi* api);

/* Registers the device because a program asks for it. Returns 0, or writes why not into `message`, NUL-terminated and
   cut to `size` bytes, and returns 1. */
typedef int32_t (*FlagosAsked)(char* message, size_t size);

/* Has torch call `asked` before it reads the first device string that names flagos, from any thread and until the
   device is named. NULL: the device has its name. Returns NULL, or a message to be freed with flagos_shim_free. */
char* flagos_shim_watch_device_names(FlagosAsked asked);

/* Makes torch read "cuda" in device strings as "flagos", for good. The device must have its name. Returns NULL, or a
   message to be freed with flagos_shim_free. */
char* flagos_shim_alias_cuda(void);

/* Registers the operators by which Python gets the backend `flagos` of torch.distributed. Returns NULL, or a message
   to be freed with flagos_shim_free. */
char* flagos_shim_open_comm(const FlagosCommApi* api);

/* `name` is an `aten::name.overload` that runs on flagos, `why_not` the reason why the native device has no kernel for
   it or NULL, and `on_cpu_too` says whether it can be run on copies of its arguments on the CPU. */
typedef void (*FlagosVisitOp)(const char* name, const char* why_not, int on_cpu_too, void* context);

/* Calls `visit` with every operator that runs on flagos. */
void flagos_shim_each_op(FlagosVisitOp visit, void* context);

typedef void (*FlagosVisitComposite)(const char* name, void* context);

/* Calls `visit` with every operator that has no kernel on flagos for strided tensors and that torch composes of other
   operators. Some have a kernel for nested or quantized tensors, but a route cannot name such a kernel alone. */
void flagos_shim_each_composite(FlagosVisitComposite visit, void* context);

/* Native views of a compiled graph's arguments, by the address that flagos::views_create gave. `original` is the
 * TensorImpl of a number that a view was made of, which may have ended. `point` points each view at the TensorImpl of
 * its number and returns 1, or 0 when the call needs new views. `rest` takes the memory from them and returns 1, or 0
 * when somebody still holds one. All with the GIL, and by one call of the graph at a time. */
const void* flagos_shim_views_original(int64_t views, size_t number);
int32_t flagos_shim_views_point(int64_t views, const void* const* tensors);
int32_t flagos_shim_views_rest(int64_t views);
void flagos_shim_views_destroy(int64_t views);

/* The version of the torch headers this was built with, as in torch.__version__ without the local part. */
const char* flagos_shim_torch_version(void);

void flagos_shim_free(char* message);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif /* FLAGOS_SHIM_H */
