// SPDX-License-Identifier: Apache-2.0
// What the libraries that compute over the simulated runtime need of it: work on its streams, and its memory.
#pragma once

#include <cstddef>

extern "C" {

// Memory that work uses.
struct simulated_metax_use {
  const void* address;
  size_t bytes;
};

// Runs `run(argument)` when the stream gets there, and at each launch of a graph that it was captured for; at the end
// `destroy(argument)`. A result of `run` other than 0 loses the device. The result is that of a call of the runtime:
// memory that no device has and a stream of another device are refused, and then nothing is destroyed.
int simulated_metax_queue(
    const char* call,
    void* stream,
    int (*run)(void*),
    void* argument,
    void (*destroy)(void*),
    const simulated_metax_use* uses,
    size_t count);

// Where the device's work touches these bytes; NULL where no block has all of them.
void* simulated_metax_reach(const void* address, size_t bytes);

// The device of the block at an address, -1 for page-locked memory of the host, -2 for any other.
int simulated_metax_place(const void* address);

// Refuses a call with this code, as the runtime does, and reports it; code 0 is a report alone.
int simulated_metax_refuse(const char* call, int code, const char* what);

// The number that the machine has for the current device, whatever this process sees; -1 without one.
int simulated_metax_device();

// Whether a device was ever current for a call that uses it.
int simulated_metax_is_used(int device);

} // extern "C"
