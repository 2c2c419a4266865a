// SPDX-License-Identifier: Apache-2.0
// The memory that calls allocate while they are recorded.
#pragma once

#include <vector>

#include "following/graph.h"
#include "following/memory.h"
#include "runtime/native.h"
#include "runtime/pending.h"
#include "runtime/stream.h"

namespace flagos::following {

// A stream of a device.
struct Where {
  c10::DeviceIndex device = -1;
  uint64_t stream = 0;
  bool operator==(const Where&) const = default;
};

// The stream that calls are followed on as the current one, for a scope.
class OnStream {
 public:
  explicit OnStream(const Where& where)
      : device_(where.device), index_(where.device), before_(current_stream(where.device)) {
    set(where.stream);
  }
  ~OnStream() {
    set(before_);
  }
  OnStream(const OnStream&) = delete;
  OnStream& operator=(const OnStream&) = delete;

 private:
  void set(uint64_t stream) const {
    if (current_stream(index_) != stream) {
      native->set_stream(index_, stream);
    }
  }

  DeviceScope device_;
  c10::DeviceIndex index_;
  uint64_t before_;
};

// Memory of the pool, on the stream that is followed and not on that of a capture.
c10::DataPtr allocate_block(size_t nbytes, const Where& where);

// Serves the allocations of a recorded call.
class Script final : public PlannedMemory {
 public:
  // `looks`: only looks how long the tensors live, so that their memory can be planned.
  Script(Blocks& blocks, Position& position, const Where& where, bool looks)
      : blocks_(blocks), position_(position), where_(where), looks_(looks) {}

  c10::DataPtr allocate(size_t nbytes, c10::Device label) override;

  // What the call allocated.
  std::vector<Block*> used() const {
    return {position_.blocks.begin(), position_.blocks.begin() + static_cast<ptrdiff_t>(next_)};
  }

 private:
  Blocks& blocks_;
  Position& position_;
  Where where_;
  bool looks_;
  size_t next_ = 0;
};

} // namespace flagos::following
