// SPDX-License-Identifier: Apache-2.0
#include "handles.h"

#include <utility>
#include <vector>

#include "device.h"
#include "memory.h"
#include "report.h"

namespace simulated_ascend {

const char* name_of(Kind kind) {
  static const char* const names[] = {"context", "stream", "event", "model"};
  return names[static_cast<int>(kind)];
}

void* make_handle(Kind kind, std::shared_ptr<void> object) {
  return machine::make_handle(static_cast<int>(kind), std::move(object));
}

std::shared_ptr<void> find_handle(void* handle, Kind kind, std::string* why) {
  const machine::Handle found = machine::find_handle(handle);
  if (found.kind == -1) {
    *why = handle ? std::string("not a ") + name_of(kind) : std::string("the ") + name_of(kind) + " is NULL";
    return nullptr;
  }
  if (found.kind != static_cast<int>(kind)) {
    *why = std::string("the handle of a different kind: ") + name_of(static_cast<Kind>(found.kind)) + ", not " +
        name_of(kind);
    return nullptr;
  }
  if (!found.object)
    *why = std::string("the ") + name_of(kind) + " was destroyed";
  return found.object;
}

size_t live_handles(Kind kind) {
  return machine::live_handles(static_cast<int>(kind));
}

size_t live(const std::string& kind) {
  if (kind == "contexts")
    return live_handles(Kind::kContext) - implicit_contexts();
  if (kind == "streams")
    return live_handles(Kind::kStream) - default_streams();
  if (kind == "events")
    return live_handles(Kind::kEvent);
  if (kind == "models")
    return live_handles(Kind::kModel);
  for (const auto& part : joined_parts()) {
    for (const char* const* each = part.kinds; *each; ++each) {
      if (kind == *each)
        return part.live(*each);
    }
  }
  return live_memory(kind);
}

void record_leaks(const char* function) {
  std::vector<const char*> kinds{
      "contexts", "streams", "events", "models", "blocks", "host_blocks", "registered", "imported"};
  for (const auto& part : joined_parts()) {
    for (const char* const* each = part.kinds; *each; ++each)
      kinds.push_back(*each);
  }
  for (const char* kind : kinds) {
    if (const size_t count = live(kind))
      record_misuse(function, 0, "leak: " + std::to_string(count) + " " + kind);
  }
}

} // namespace simulated_ascend
