// What the files of the example chip share: texts of errors, and the way of a kernel's work to its stream.

#ifndef EXAMPLE_CHIP_H
#define EXAMPLE_CHIP_H

#include "flagos_vendor.h"

// Keeps the text for `last_error`, and returns the status.
__attribute__((format(printf, 2, 3))) int32_t chip_fail(int32_t status, const char* format, ...);

const char* chip_last_error(void);

// Memory that work uses. `data` is the address that the host knows, and the chip's own once the work runs. With 0 bytes
// it is left alone.
typedef struct ChipMemory {
  char* data;
  size_t nbytes;
} ChipMemory;

enum { CHIP_MEMORIES = 8, CHIP_FAILURE = 96 };

// Work of a kernel, on the heap.
typedef struct ChipWork {
  void (*compute)(struct ChipWork* work);
  size_t nbytes; // of all of the work, of which this is the beginning
  ChipMemory memory[CHIP_MEMORIES];
  char failure[CHIP_FAILURE]; // the reason why the work failed, if it did; the device can still be used
} ChipWork;

// Queues work on a stream, which frees it after it has run, or after the graph that has captured it. On failure the
// work stays the caller's.
int32_t chip_queue(struct FlagosVendorStream* stream, ChipWork* work);

#endif
