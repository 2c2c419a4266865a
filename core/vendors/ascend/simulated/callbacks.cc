// SPDX-License-Identifier: Apache-2.0
// Functions of the host in the order of a stream: on the stream's own thread, or by a thread that asks for reports.
#include <pthread.h>

#include <deque>
#include <map>
#include <set>

#include "call.h"
#include "capture.h"
#include "stream.h"

namespace simulated_ascend {

namespace {

struct Report {
  aclrtCallback function;
  void* user;
  std::shared_ptr<bool> done;
};

// By the thread that is subscribed.
auto& reports = *new std::map<uint64_t, std::deque<Report>>;
auto& subscriptions = *new std::map<uint64_t, std::set<Stream*>>;

// Whether the stream launches functions in one way alone.
void check_one_way(Call& call, const Stream& stream) {
  if (stream.launched_callbacks && stream.launched_host_functions)
    call.record("aclrtLaunchCallback and aclrtLaunchHostFunc on one stream");
}

} // namespace

} // namespace simulated_ascend

using namespace simulated_ascend;

ACL_FUNC aclError aclrtLaunchHostFunc(aclrtStream handle, aclrtCallback function, void* user) {
  ENTER(kContext | kQueues);
  const auto stream = function ? call.stream(handle) : nullptr;
  if (!function)
    return call.refuse(kParamInvalid, "the function is NULL");
  if (!stream)
    return call.code;
  stream->launched_host_functions = true;
  check_one_way(call, *stream);
  return submit(
      call,
      stream,
      {call.function,
       [function, user] {
         machine::run_on_host(function, user);
         return 0;
       },
       {}});
}

ACL_FUNC aclError aclrtSubscribeReport(uint64_t thread_id, aclrtStream handle) {
  ENTER(kContext);
  const auto stream = call.stream(handle);
  if (!stream)
    return call.code;
  if (stream->subscriber)
    return call.refuse(kStreamSubscribe, "a thread is subscribed to the stream already");
  if (thread_id == 0)
    return call.refuse(kParamInvalid, "there is no such thread");
  stream->subscriber = thread_id;
  subscriptions[thread_id].insert(stream.get());
  return kSuccess;
}

ACL_FUNC aclError aclrtUnSubscribeReport(uint64_t thread_id, aclrtStream handle) {
  ENTER(kContext);
  const auto stream = call.stream(handle);
  if (!stream)
    return call.code;
  if (!stream->subscriber || stream->subscriber != thread_id)
    return call.refuse(kThreadSubscribe, "the thread is not subscribed to the stream");
  stream->subscriber = 0;
  subscriptions[thread_id].erase(stream.get());
  return kSuccess;
}

ACL_FUNC aclError aclrtLaunchCallback(aclrtCallback function, void* user, int block, aclrtStream handle) {
  ENTER(kContext | kQueues);
  const auto stream = function ? call.stream(handle) : nullptr;
  if (!function || block < 0 || block > 1)
    return call.refuse(kParamInvalid, "the function is NULL, or there is no such way to block");
  if (!stream)
    return call.code;
  if (!stream->subscriber)
    return call.refuse(kStreamNoCallback, "no thread is subscribed to the stream");
  stream->launched_callbacks = true;
  check_one_way(call, *stream);
  return submit(
      call,
      stream,
      {call.function,
       [function, user, block, subscriber = stream->subscriber] {
         std::unique_lock<std::mutex> lock(mutex);
         const auto done = std::make_shared<bool>(false);
         reports[subscriber].push_back({function, user, done});
         changed.notify_all();
         if (block)
           changed.wait(lock, [&] { return *done; });
         return 0;
       },
       {}});
}

ACL_FUNC aclError aclrtProcessReport(int32_t timeout_ms) {
  ENTER(kInit);
  const auto self = static_cast<uint64_t>(pthread_self());
  if (timeout_ms == 0 || timeout_ms < -1)
    return call.refuse(kParamInvalid, "a timeout must be positive, or -1");
  auto& mine = reports[self];
  // A thread may ask before the first stream is subscribed; that is told, not held against it.
  if (mine.empty() && subscriptions[self].empty())
    return call.fail(kThreadSubscribe, "the thread is subscribed to no stream");
  if (!call.wait(timeout_ms, [&] { return !mine.empty(); }))
    return call.fail(kWaitTimeout, "there was nothing to report");
  const Report report = mine.front();
  mine.pop_front();
  call.lock.unlock();
  machine::run_on_host(report.function, report.user);
  call.lock.lock();
  *report.done = true;
  changed.notify_all();
  return kSuccess;
}
