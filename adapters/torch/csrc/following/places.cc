// SPDX-License-Identifier: Apache-2.0
#include "following/places.h"

namespace flagos::following {

bool Recent::leads_to(const Place& place) const {
  const size_t length = place.trace->positions.size();
  for (size_t back = 0; back < ops_.size(); ++back) {
    if (place.trace->positions[(place.at + back * length - back) % length].op != ops_[back]) {
      return false;
    }
  }
  return true;
}

uint64_t Recent::order() const {
  uint64_t order = 0;
  for (size_t back = 0; back < kOrdered; ++back) {
    order = (order ^ ops_[back]) * 0x9E3779B97F4A7C15ULL;
    order ^= order >> 29U;
  }
  return order;
}

} // namespace flagos::following
