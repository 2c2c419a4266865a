/* SPDX-License-Identifier: Apache-2.0 */
/* C functions of the flagos device of PyTorch, for programs in C and C++ that queue work of their own beside torch's.
 *
 * They are in the library that `torch_fl.library_path()` names, which is loaded once `torch_fl` is imported: open it
 * with dlopen and look the function up, or have Python open it for all, `ctypes.CDLL(torch_fl.library_path(),
 * ctypes.RTLD_GLOBAL)`, before a library that was linked without it. `torch_fl/include` has this header. */
#ifndef FLAGOS_TORCH_H
#define FLAGOS_TORCH_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Writes the calling thread's current stream of a flagos device, -1 for the current one, as the vendor's own library
 * knows it: a cudaStream_t (NULL for the default stream), an aclrtStream, an mcStream_t. Where the vendor has no such
 * handles, as on the host, it is a number: 0 for the default stream. The stream lives as long as the process.
 *
 * Returns 0, or another number and writes nothing: the device is not registered, or has no such index. */
__attribute__((visibility("default"))) int32_t flagos_current_stream(int32_t device, void** stream);

#ifdef __cplusplus
}
#endif

#endif /* FLAGOS_TORCH_H */
