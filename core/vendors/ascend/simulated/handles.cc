// SPDX-License-Identifier: Apache-2.0
#include "handles.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "device.h"
#include "memory.h"
#include "report.h"

namespace simulated_ascend {

namespace {

constexpr size_t kStep = 64;
constexpr size_t kSpan = size_t{1} << 34;

struct Entry {
  Kind kind;
  std::shared_ptr<void> object;
};

auto& entries = *new std::vector<Entry>;
size_t alive[static_cast<int>(Kind::kNone)];
char* base = nullptr;

} // namespace

const char* name_of(Kind kind) {
  static const char* const names[] = {"context", "stream", "event", "model", "task group"};
  return names[static_cast<int>(kind)];
}

void* make_handle(Kind kind, std::shared_ptr<void> object) {
  if (!base)
    base = static_cast<char*>(mmap(nullptr, kSpan, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  // The first is left out, so that a handle that was moved back by one is none.
  const size_t index = entries.size() + 1;
  if (base == MAP_FAILED || index * kStep >= kSpan) {
    std::fprintf(stderr, "simulated ACL has no handle left\n");
    std::abort();
  }
  entries.push_back({kind, std::move(object)});
  ++alive[static_cast<int>(kind)];
  return base + index * kStep;
}

static Entry* entry_of(void* handle) {
  const uintptr_t offset = reinterpret_cast<uintptr_t>(handle) - reinterpret_cast<uintptr_t>(base);
  const size_t index = offset / kStep;
  if (!base || offset % kStep || index == 0 || index > entries.size())
    return nullptr;
  return &entries[index - 1];
}

void destroy_handle(void* handle) {
  Entry* entry = entry_of(handle);
  if (entry && entry->object) {
    entry->object.reset();
    --alive[static_cast<int>(entry->kind)];
  }
}

std::shared_ptr<void> find_handle(void* handle, Kind kind, std::string* why) {
  const Entry* entry = entry_of(handle);
  if (!entry) {
    *why = handle ? std::string("not a ") + name_of(kind) : std::string("the ") + name_of(kind) + " is NULL";
    return nullptr;
  }
  if (entry->kind != kind) {
    *why = std::string("the handle of a different kind: ") + name_of(entry->kind) + ", not " + name_of(kind);
    return nullptr;
  }
  if (!entry->object)
    *why = std::string("the ") + name_of(kind) + " was destroyed";
  return entry->object;
}

size_t live_handles(Kind kind) {
  return alive[static_cast<int>(kind)];
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
