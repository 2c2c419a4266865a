// SPDX-License-Identifier: Apache-2.0
#include "call.h"

#include "device.h"
#include "event.h"
#include "handles.h"
#include "report.h"
#include "settings.h"
#include "stream.h"

namespace simulated_ascend {

Thread& thread() {
  static thread_local Thread self;
  return self;
}

Call::Call(const char* function, unsigned needs) : function(function), lock(mutex) {
  const uint64_t nth = count_call(function);
  if (forked) {
    code = refuse(kInternalError, "called in a forked child of a process that uses the device");
    return;
  }
  if (in_function && !(needs & kInFunction)) {
    code = refuse(kParamInvalid, "called in a host function");
    return;
  }
  if ((needs & kInit) && !initialized) {
    code = refuse(kUninitialize, "called before aclInit");
    return;
  }
  if ((needs & kContext) == kContext) {
    const auto& current = thread().context;
    if (!current || !current->alive) {
      code = refuse(kContextNull, current ? "the thread's context was destroyed" : "the thread has no context");
      return;
    }
    if (const int lost = devices()[current->device].lost) {
      code = fail(lost, "the device is lost");
      return;
    }
  }
  for (const Fault& each : settings().faults) {
    if (each.nth == nth && each.function == function) {
      if (needs & kQueues) {
        fault = each.code;
      } else {
        code = fail(each.code, "a fault was asked for");
      }
    }
  }
}

int Call::refuse(int with, const std::string& why) {
  record_misuse(function, with, why);
  return fail(with, why);
}

int Call::fail(int with, const std::string& why) {
  thread().error = "E" + std::to_string(with) + ": " + function + ": " + why;
  code = with;
  return with;
}

void Call::record(const std::string& what) {
  record_misuse(function, kSuccess, what);
}

Context& Call::context() const {
  return *thread().context;
}

std::shared_ptr<void> Call::untyped(void* handle, int kind) {
  std::string why;
  auto found = find_handle(handle, static_cast<Kind>(kind), &why);
  if (!found)
    refuse(kInvalidHandle, why);
  return found;
}

std::shared_ptr<Stream> Call::stream(aclrtStream handle) {
  if (!handle)
    return default_stream(thread().context);
  auto found = object<Stream>(handle, static_cast<int>(Kind::kStream));
  if (found && found->context != thread().context) {
    refuse(kStreamContext, "the stream belongs to another context than the thread's");
    return nullptr;
  }
  return found;
}

std::shared_ptr<Event> Call::event(aclrtEvent handle) {
  return object<Event>(handle, static_cast<int>(Kind::kEvent));
}

} // namespace simulated_ascend
