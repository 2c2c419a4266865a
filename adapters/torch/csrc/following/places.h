// SPDX-License-Identifier: Apache-2.0
// Where the calls are in the runs that repeat.
#pragma once

#include <algorithm>
#include <array>

#include "following/graph.h"

namespace flagos::following {

// Where the calls are in a run that repeats; nowhere if `trace` is null.
struct Place {
  Trace* trace = nullptr;
  size_t at = 0;

  Position& position() const {
    return trace->positions[at];
  }
};

// The last operators, from which the place in a run follows.
class Recent {
 public:
  static constexpr size_t kOrdered = 4; // of which `order` tells

  void push(uint64_t op) {
    std::move_backward(ops_.begin(), ops_.end() - 1, ops_.end());
    ops_[0] = op;
  }
  uint64_t order() const;
  // Whether all of them are those before a place.
  bool leads_to(const Place& place) const;

 private:
  std::array<uint64_t, 12> ops_{}; // the last one first
};

} // namespace flagos::following
