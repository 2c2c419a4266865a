// SPDX-License-Identifier: Apache-2.0
// What handles are for, and what is alive.
#pragma once

#include <memory>
#include <string>

#include "../../kit/simulated/machine.h"

namespace simulated_ascend {

enum class Kind { kContext, kStream, kEvent, kModel };

const char* name_of(Kind kind);

using machine::destroy_handle;
// All under the lock.
void* make_handle(Kind kind, std::shared_ptr<void> object);
// The object of a live handle of this kind; otherwise nothing, and the reason in words.
std::shared_ptr<void> find_handle(void* handle, Kind kind, std::string* why);
size_t live_handles(Kind kind);

// The number of live objects by the names of simulated_ascend_live.
size_t live(const std::string& kind);
// Records what is alive as leaks; the number of kinds that were.
void record_leaks(const char* function);

} // namespace simulated_ascend
