// SPDX-License-Identifier: Apache-2.0
// Every function of the interface begins with a Call: the lock, what the function needs, and how it ends.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>

#include "../../kit/simulated/machine.h"
#include "acl.h"

namespace simulated_ascend {

struct Context;
struct Stream;
struct Event;

using machine::changed;
using machine::forked;
using machine::in_function;
using machine::initialized;
using machine::mutex;

struct Thread {
  std::shared_ptr<Context> context;
  std::string error;
  std::string fetched; // what the caller of aclGetRecentErrMsg holds
  int capture_mode = kGlobal;
};
Thread& thread();

enum Needs : unsigned {
  kNothing = 0,
  kInit = 1,
  kContext = 3,
  kQueues = 4,     // a fault of this function is one of the work it queues
  kInFunction = 8, // a host function may call it
};

class Call {
 public:
  Call(const char* function, unsigned needs);

  // The vendor's library refuses it: error text, and a misuse.
  int refuse(int code, const std::string& why);
  // No fault of the caller: error text alone.
  int fail(int code, const std::string& why);
  // The vendor's library would not notice.
  void record(const std::string& what);

  // The stream of a handle, NULL being the context's default; nothing if `code` says why.
  std::shared_ptr<Stream> stream(aclrtStream handle);
  std::shared_ptr<Event> event(aclrtEvent handle);
  template <class Object>
  std::shared_ptr<Object> object(void* handle, int kind) {
    return std::static_pointer_cast<Object>(untyped(handle, kind));
  }

  Context& context() const;

  // Waits until `done`, for this long unless negative; whether it came to be.
  template <class Done>
  bool wait(int timeout_ms, Done done) {
    if (timeout_ms < 0) {
      changed.wait(lock, done);
      return true;
    }
    return changed.wait_for(lock, std::chrono::milliseconds(timeout_ms), done);
  }

  const char* const function;
  std::unique_lock<std::mutex> lock;
  int code = kSuccess;
  int fault = kSuccess; // of the work it queues

 private:
  std::shared_ptr<void> untyped(void* handle, int kind);
};

} // namespace simulated_ascend

// The function returns here if what it needs is not there.
#define ENTER(needs)          \
  Call call(__func__, needs); \
  if (call.code != kSuccess)  \
    return call.code;         \
  static_cast<void>(call)
