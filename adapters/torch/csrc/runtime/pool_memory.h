// SPDX-License-Identifier: Apache-2.0
// What automatic graphs ask where flagos storages own memory of the core's pool themselves: on devices whose memory the
// host cannot touch.
#pragma once

#include <c10/core/Allocator.h>

#include <shared_mutex>

namespace flagos {

// Whether memory is the pool's, for one storage alone.
bool is_from_pool(const c10::DataPtr& memory);

// Keeps memory until the calls that are pending are launched, since they may read it; false if it need not wait. Null
// as long as nothing was followed in the process.
extern bool (*keep_pool_memory)(void* data);

// Whether this thread repeats a call that the program has made before, which is counted already.
extern thread_local bool repeats_call __attribute__((tls_model("initial-exec")));

// How often this thread has waited for a device: a call that does so is not for graphs.
extern thread_local uint64_t times_waited __attribute__((tls_model("initial-exec")));

// Shared by those who wait for a whole device, which no thread may while work is captured.
extern std::shared_mutex waits_for_device;

} // namespace flagos
