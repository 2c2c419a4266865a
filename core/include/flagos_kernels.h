/* The interface of kernels: what a library implements, beside flagos_vendor.h, so that its chip computes.
 * SPDX-License-Identifier: Apache-2.0
 * Generated from core/src/vendors/library/kernels/types.rs by `cargo run -p flagos-core --example header`: do not edit. */

#ifndef FLAGOS_KERNELS_H
#define FLAGOS_KERNELS_H

#include <stddef.h>
#include <stdint.h>
#include "flagos_vendor.h"

/**
 * Version of the interface, major. Host and library must agree on it.
 */
#define FLAGOS_KERNELS_MAJOR 1

/**
 * Version of the interface, minor: raised when members are appended, or bits, tags or reserved slots get a meaning.
 * Host and library of different minor versions work together.
 */
#define FLAGOS_KERNELS_MINOR 2

/**
 * `FlagosKernelTensor::dtype`: unsigned, 8 bits. The numbers are those of torch's `c10::ScalarType`; a tensor may have
 * one that has no name here.
 */
#define FLAGOS_DTYPE_UINT8 0

/**
 * `FlagosKernelTensor::dtype`: signed, 8 bits.
 */
#define FLAGOS_DTYPE_INT8 1

/**
 * `FlagosKernelTensor::dtype`: signed, 16 bits.
 */
#define FLAGOS_DTYPE_INT16 2

/**
 * `FlagosKernelTensor::dtype`: signed, 32 bits.
 */
#define FLAGOS_DTYPE_INT32 3

/**
 * `FlagosKernelTensor::dtype`: signed, 64 bits.
 */
#define FLAGOS_DTYPE_INT64 4

/**
 * `FlagosKernelTensor::dtype`: IEEE 754 binary16.
 */
#define FLAGOS_DTYPE_FLOAT16 5

/**
 * `FlagosKernelTensor::dtype`: IEEE 754 binary32.
 */
#define FLAGOS_DTYPE_FLOAT32 6

/**
 * `FlagosKernelTensor::dtype`: IEEE 754 binary64.
 */
#define FLAGOS_DTYPE_FLOAT64 7

/**
 * `FlagosKernelTensor::dtype`: real and imaginary part, each binary16.
 */
#define FLAGOS_DTYPE_COMPLEX32 8

/**
 * `FlagosKernelTensor::dtype`: real and imaginary part, each binary32.
 */
#define FLAGOS_DTYPE_COMPLEX64 9

/**
 * `FlagosKernelTensor::dtype`: real and imaginary part, each binary64.
 */
#define FLAGOS_DTYPE_COMPLEX128 10

/**
 * `FlagosKernelTensor::dtype`: a byte, 0 or 1.
 */
#define FLAGOS_DTYPE_BOOL 11

/**
 * `FlagosKernelTensor::dtype`: the upper 16 bits of a binary32.
 */
#define FLAGOS_DTYPE_BFLOAT16 15

/**
 * `FlagosKernelTensor::dtype`: 8 bits, 5 of the exponent.
 */
#define FLAGOS_DTYPE_FLOAT8_E5M2 23

/**
 * `FlagosKernelTensor::dtype`: 8 bits, 4 of the exponent, finite.
 */
#define FLAGOS_DTYPE_FLOAT8_E4M3FN 24

/**
 * `FlagosKernelTensor::dtype`: 8 bits, 5 of the exponent, finite, without a negative zero.
 */
#define FLAGOS_DTYPE_FLOAT8_E5M2FNUZ 25

/**
 * `FlagosKernelTensor::dtype`: 8 bits, 4 of the exponent, finite, without a negative zero.
 */
#define FLAGOS_DTYPE_FLOAT8_E4M3FNUZ 26

/**
 * `FlagosKernelTensor::dtype`: unsigned, 16 bits.
 */
#define FLAGOS_DTYPE_UINT16 27

/**
 * `FlagosKernelTensor::dtype`: unsigned, 32 bits.
 */
#define FLAGOS_DTYPE_UINT32 28

/**
 * `FlagosKernelTensor::dtype`: unsigned, 64 bits.
 */
#define FLAGOS_DTYPE_UINT64 29

/**
 * `FlagosKernelTensor::flags`: `data` is host memory and readable at once, of a tensor without dimensions. Copy the
 * value in `run`, since the memory is valid no longer.
 */
#define FLAGOS_TENSOR_HOST 1

/**
 * `FlagosKernelTensor::flags`: the tensor stands for a number of the program, and takes part in type promotion as one.
 */
#define FLAGOS_TENSOR_NUMBER 2

/**
 * `FlagosKernelTensor::flags`: elements stand for their conjugates. Never set in version 1.0: the host resolves it.
 */
#define FLAGOS_TENSOR_CONJUGATE 4

/**
 * `FlagosKernelTensor::flags`: elements stand for their negatives. Never set in version 1.0: the host resolves it.
 */
#define FLAGOS_TENSOR_NEGATIVE 8

/**
 * `FlagosKernelValue::tag`: no value: None, an undefined tensor, a generator or a device.
 */
#define FLAGOS_VALUE_NONE 0

/**
 * `FlagosKernelValue::tag`: `as.tensor`.
 */
#define FLAGOS_VALUE_TENSOR 1

/**
 * `FlagosKernelValue::tag`: `count` of `as.tensors`.
 */
#define FLAGOS_VALUE_TENSORS 2

/**
 * `FlagosKernelValue::tag`: `as.integer`; also a layout or a memory format, as torch numbers them.
 */
#define FLAGOS_VALUE_INT 3

/**
 * `FlagosKernelValue::tag`: `as.real`.
 */
#define FLAGOS_VALUE_FLOAT 4

/**
 * `FlagosKernelValue::tag`: `as.reals`, the real and the imaginary part; `count` is 2.
 */
#define FLAGOS_VALUE_COMPLEX 5

/**
 * `FlagosKernelValue::tag`: `as.integer`, 0 or 1.
 */
#define FLAGOS_VALUE_BOOL 6

/**
 * `FlagosKernelValue::tag`: `as.text`, UTF-8, which ends with NUL; `count` is the number of bytes before it.
 */
#define FLAGOS_VALUE_TEXT 7

/**
 * `FlagosKernelValue::tag`: `count` of `as.integers`.
 */
#define FLAGOS_VALUE_INTS 8

/**
 * `FlagosKernelValue::tag`: `count` of `as.reals`.
 */
#define FLAGOS_VALUE_FLOATS 9

/**
 * `FlagosKernelValue::tag`: `count` of `as.bools`, each 0 or 1.
 */
#define FLAGOS_VALUE_BOOLS 10

/**
 * `FlagosKernelValue::tag`: `as.integer`, one of `FLAGOS_DTYPE_*`.
 */
#define FLAGOS_VALUE_DTYPE 11

/**
 * `FlagosKernelCall::flags`: the user asks for algorithms that give the same bits each time. A kernel that has none
 * declines.
 */
#define FLAGOS_CALL_DETERMINISTIC 1

/**
 * `FlagosKernels::flags`: kernels post their work where the host lets them (`FlagosKernelCall::post`), and call `flush`
 * before they queue work by themselves or wait for the stream. Before it calls a kernel of another library, the host waits
 * until everything posted has been queued.
 */
#define FLAGOS_KERNELS_POST 1

/**
 * The implementation of an operator, as the library keeps it.
 */
typedef struct FlagosKernel FlagosKernel;

/**
 * A tensor of a call: strided, and of the call's device unless `flags` says otherwise. Strides are never negative, and
 * 0 where elements are repeated.
 */
typedef struct FlagosKernelTensor {
  /**
   * `sizeof(FlagosKernelTensor)` of the host: members beyond it do not exist.
   */
  size_t struct_size;
  /**
   * The first element; may be NULL where there is no element.
   */
  void *data;
  /**
   * The memory that all elements lie in; may be NULL where there is no element.
   */
  void *storage;
  /**
   * The bytes from `storage` that belong to it. Other tensors of the call may lie in the same storage.
   */
  size_t storage_nbytes;
  /**
   * The number of elements along each of `num_dims` dimensions.
   */
  const int64_t *sizes;
  /**
   * From one index to the next along each of `num_dims` dimensions, in elements.
   */
  const int64_t *strides;
  /**
   * The product of `sizes`: 1 without dimensions.
   */
  int64_t num_elements;
  /**
   * The number of dimensions, at least 0. NULL `sizes` and `strides` are allowed for 0.
   */
  int32_t num_dims;
  /**
   * The type of the elements: one of `FLAGOS_DTYPE_*`.
   */
  int32_t dtype;
  /**
   * Bits `FLAGOS_TENSOR_*`.
   */
  uint32_t flags;
  /**
   * 0.
   */
  uint32_t reserved_word;
} FlagosKernelTensor;

/**
 * The content of a value: the member that its tag names. A list may be NULL where `count` is 0.
 */
typedef union FlagosKernelContent {
  /**
   * A tensor, not NULL.
   */
  const struct FlagosKernelTensor *tensor;
  /**
   * Tensors; NULL for those that are undefined.
   */
  const struct FlagosKernelTensor *const *tensors;
  /**
   * A whole number.
   */
  int64_t integer;
  /**
   * A floating-point number.
   */
  double real;
  /**
   * A text.
   */
  const char *text;
  /**
   * Whole numbers.
   */
  const int64_t *integers;
  /**
   * Floating-point numbers.
   */
  const double *reals;
  /**
   * Booleans.
   */
  const uint8_t *bools;
} FlagosKernelContent;

/**
 * An argument of a call. Its size is fixed within a major version, since arguments lie side by side.
 */
typedef struct FlagosKernelValue {
  /**
   * One of `FLAGOS_VALUE_*`.
   */
  int32_t tag;
  /**
   * The length of a list or a text.
   */
  uint32_t count;
  /**
   * The value.
   */
  union FlagosKernelContent as;
} FlagosKernelValue;

/**
 * A call of an operator. The struct and all it points at are valid during `run` only: a kernel copies what its queued
 * work needs, such as sizes and strides. Device memory of the tensors stays valid until the work queued on `stream`
 * during `run` has finished.
 */
typedef struct FlagosKernelCall {
  /**
   * `sizeof(FlagosKernelCall)` of the host: members beyond it do not exist.
   */
  size_t struct_size;
  /**
   * The opened vendor.
   */
  FlagosVendorInstance *instance;
  /**
   * The stream to queue on, of `device`.
   */
  FlagosVendorStream *stream;
  /**
   * The device of the tensors.
   */
  int32_t device;
  /**
   * Bits `FLAGOS_CALL_*`.
   */
  uint32_t flags;
  /**
   * The arguments in the order of the operator's schema, with those that the program left out. `out` arguments are
   * not among them. A `Scalar` is an INT, FLOAT, COMPLEX or BOOL.
   */
  const struct FlagosKernelValue *arguments;
  /**
   * The number of `arguments`.
   */
  size_t num_arguments;
  /**
   * The results in the order of the operator's schema, those of a list one after the other; NULL for a result that
   * is not wanted. Of an operator that writes to several arguments these arguments. The host has allocated them with the shape, strides and dtype that torch gives them. An output may
   * be an argument (in place) or lie in other memory, and overlaps no argument in part.
   */
  const struct FlagosKernelTensor *const *outputs;
  /**
   * The number of `outputs`.
   */
  size_t num_outputs;
  /**
   * Gives device memory, aligned to 512 bytes, to work that is queued on `stream` during this call: the host reuses
   * it in the order of the stream. May be called several times, on the thread of `run`. Returns one of
   * `FLAGOS_VENDOR_*`, and writes the address on success. After a failure `run` returns that status, and the host
   * knows the text.
   */
  int32_t (*workspace)(void *context, size_t nbytes, void **address);
  /**
   * What `workspace` is called with.
   */
  void *context;
  /**
   * The seed of the random numbers.
   */
  uint64_t seed;
  /**
   * With `seed` the beginning of the random numbers of this call. Another call gets another pair, unless the program
   * sets its generator back, and then the numbers have to be the same again: as many as the call draws, they are a
   * function of `seed`, `offset` and their index.
   */
  uint64_t offset;
  /**
   * Tells the sizes of a result that depend on elements, as those of `aten::nonzero`. The host has allocated the most
   * elements that there can be, side by side, and the result consists of the first of them. To be called on the thread
   * of `run`, after the work. Returns one of `FLAGOS_VENDOR_*`. NULL in hosts of version 1.0, which ask for no such
   * operators.
   */
  int32_t (*resize)(void *context, size_t output, const int64_t *sizes, size_t num_dims);
  /**
   * Takes a part of the call that queues work on `stream`, to be called on another thread, or at once, in the order in
   * which parts of the stream are posted: `run(argument, 1)` queues the work and returns one of `FLAGOS_VENDOR_*`, with
   * the text in `last_error` of that thread; `run(argument, 0)` only frees what belongs to the part. Exactly one of them is
   * called once, also where `post` fails. A call cannot be declined any more there. The memory of the call's tensors
   * and workspaces is valid then, and `FlagosKernelCall` is not. Returns one of `FLAGOS_VENDOR_*`; after a failure, which
   * may be of an earlier call, `run` of the kernel returns that status, and the host knows the text. NULL where the host
   * wants everything to be queued during the call.
   */
  int32_t (*post)(void *context, int32_t (*run)(void *argument, int32_t queues), void *argument);
  /**
   * Waits until everything that was posted for `stream` has been queued. Returns as `post` does. NULL where there is
   * nothing to wait for.
   */
  int32_t (*flush)(void *context);
  /**
   * NULL.
   */
  const void *reserved[5];
} FlagosKernelCall;

/**
 * The kernels of a library. Lives, and stays as it is, as long as the process.
 *
 * The rules of `FlagosVendor` hold: every function may be called from any thread, lets no exception out, and returns
 * one of `FLAGOS_VENDOR_*`.
 */
typedef struct FlagosKernels {
  /**
   * `sizeof(FlagosKernels)` of the library: members beyond it do not exist.
   */
  size_t struct_size;
  /**
   * `FLAGOS_KERNELS_MAJOR` of the library.
   */
  uint32_t major;
  /**
   * `FLAGOS_KERNELS_MINOR` of the library.
   */
  uint32_t minor;
  /**
   * The text of the last failure on this thread, as `FlagosVendor::last_error`. May be the same function.
   */
  const char *(*last_error)(void);
  /**
   * Writes the kernel of an operator, such as `aten::add.Tensor`, which lives as long as the process. In-place and
   * `out` forms are asked for by the name of the functional operator, and differ in their outputs alone.
   * `FLAGOS_VENDOR_UNSUPPORTED` where there is no such kernel. Initialises nothing.
   */
  int32_t (*find)(const char *name, const struct FlagosKernel **kernel);
  /**
   * Queues the call on its stream, and does not wait. `FLAGOS_VENDOR_UNSUPPORTED` declines the call: nothing is
   * queued or written, the host computes it, and `last_error` tells why. Any other failure is the program's. Failures
   * of queued work are reported as those of copies are.
   */
  int32_t (*run)(const struct FlagosKernel *kernel, const struct FlagosKernelCall *call);
  /**
   * The names that `find` knows, for reports, ended by NULL. NULL for a library that does not tell.
   */
  const char *const *names;
  /**
   * Bits `FLAGOS_KERNELS_*`.
   */
  uint64_t flags;
  /**
   * NULL.
   */
  const void *reserved[15];
} FlagosKernels;

/**
 * The function that a library with kernels exports beside `flagos_vendor`, named `flagos_kernels`. Returns its table, of
 * a major version that the host takes, or NULL, and then writes the reason (static text). The versions in `host` are
 * those of this interface. Initialises nothing, and may be called again. Without the function there are no kernels,
 * which a vendor with `FLAGOS_VENDOR_SERVED_BY_LIBRARY` may not lack.
 */
typedef const struct FlagosKernels *(*FlagosKernelsEntry)(const FlagosVendorHost *host,
                                                          const char **reason);

#endif  /* FLAGOS_KERNELS_H */

#if defined(__cplusplus)
extern "C"
#endif
FLAGOS_VENDOR_EXPORT const FlagosKernels *flagos_kernels(const FlagosVendorHost *host, const char **reason);
