// SPDX-License-Identifier: Apache-2.0
// What the work of a simulated library runs on: the flagos host vendor, or the simulated Ascend.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace simulated {

// Memory that work uses.
struct Use {
  const void* address;
  size_t bytes;
  bool writes;
};

// Runs `work` when the stream got there; the stream fails if its result is false. False when it cannot be queued.
bool queue(const char* function, void* stream, const std::vector<Use>& uses, std::function<bool()> work);
bool is_stream(void* stream);
bool is_captured(void* stream);
// Where queued work reaches memory; NULL, after a complaint, if it may not.
char* reach(const void* address, size_t bytes);

// Records what is wrong with a call that is refused with this code, or with 0 that the vendor would not notice.
void complain(const char* function, const std::string& what, int code = 0);

// A function that queues nothing begins with it; false if it must fail.
bool begin(const char* function);

// The chip that HCCL is on: an Ascend 950 or one before.
bool is_ascend();
bool is_950();
// The thread's device, among those of the host; negative where ranks may share one.
int device();

// How long ranks are waited for, and what happens then.
double seconds_to_connect();
double seconds_to_wait();
void nobody_came();

} // namespace simulated
