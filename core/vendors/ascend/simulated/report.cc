// SPDX-License-Identifier: Apache-2.0
#include "report.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <deque>
#include <map>
#include <vector>

#include "call.h"
#include "handles.h"
#include "memory.h"
#include "settings.h"
#include "simulated_ascend.h"

namespace simulated_ascend {

namespace {

// Never destroyed: threads of streams use them until the process has ended.
auto& misuses = *new std::deque<std::string>;
auto& calls = *new std::map<std::string, uint64_t>;
auto& parts = *new std::vector<simulated_ascend_part>;

// At once and in one write, so that a process that is killed has told, and lines of several processes stay whole.
void append(const std::string& line) {
  if (settings().report.empty())
    return;
  const int file = open(settings().report.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  const std::string text = line + "\n";
  if (file < 0 || write(file, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    std::fprintf(stderr, "SIMULATED_ASCEND_REPORT cannot be written; it lacks: %s\n", line.c_str());
  if (file >= 0)
    close(file);
}

} // namespace

void record_misuse(const std::string& function, int code, const std::string& what) {
  std::string line = function + ": " + what;
  line += code ? " (refused: " + std::to_string(code) + ")" : " (not noticed by the vendor)";
  append(line);
  misuses.push_back(std::move(line));
}

uint64_t count_call(const char* function) {
  return ++calls[function];
}

const std::vector<simulated_ascend_part>& joined_parts() {
  return parts;
}

} // namespace simulated_ascend

using namespace simulated_ascend;

ACL_FUNC size_t simulated_ascend_misuses(void) {
  std::lock_guard<std::mutex> lock(mutex);
  return misuses.size();
}

ACL_FUNC const char* simulated_ascend_misuse(size_t index) {
  std::lock_guard<std::mutex> lock(mutex);
  return index < misuses.size() ? misuses[index].c_str() : nullptr;
}

ACL_FUNC void simulated_ascend_reset(void) {
  std::lock_guard<std::mutex> lock(mutex);
  misuses.clear();
  calls.clear();
  for (const auto& part : parts)
    part.reset();
}

ACL_FUNC uint64_t simulated_ascend_calls(const char* function) {
  std::lock_guard<std::mutex> lock(mutex);
  for (const auto& part : parts) {
    const uint64_t count = part.calls(function);
    if (count != UINT64_MAX)
      return count;
  }
  const auto found = calls.find(function);
  return found == calls.end() ? 0 : found->second;
}

ACL_FUNC void simulated_ascend_record(const char* function, const char* what) {
  std::lock_guard<std::mutex> lock(mutex);
  record_misuse(function, 0, what);
}

ACL_FUNC int simulated_ascend_refuse(const char* function, int code, const char* what) {
  std::lock_guard<std::mutex> lock(mutex);
  record_misuse(function, code, what);
  thread().error = "E" + std::to_string(code) + ": " + function + ": " + what;
  return code;
}

ACL_FUNC void simulated_ascend_join(const simulated_ascend_part* part) {
  std::lock_guard<std::mutex> lock(mutex);
  parts.push_back(*part);
}

ACL_FUNC int simulated_ascend_begin(const char* function, int needs_context) {
  return Call(function, needs_context ? kContext : kNothing).code;
}

ACL_FUNC int simulated_ascend_has_faults(void) {
  return !settings().faults.empty();
}

ACL_FUNC void simulated_ascend_set_error(const char* text) {
  thread().error = text;
}

ACL_FUNC size_t simulated_ascend_live(const char* kind) {
  std::lock_guard<std::mutex> lock(mutex);
  return live(kind);
}

namespace {

// Processes that end without aclFinalize keep what their allocator has cached, so that this is asked for.
__attribute__((destructor)) void report_at_exit() {
  if (!settings().leaks_at_exit || forked)
    return;
  std::lock_guard<std::mutex> lock(mutex);
  record_leaks("exit");
}

} // namespace
