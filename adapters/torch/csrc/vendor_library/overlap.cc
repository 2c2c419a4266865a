// SPDX-License-Identifier: Apache-2.0
#include "vendor_library/overlap.h"

#include <c10/util/SmallVector.h>

#include <algorithm>

namespace flagos {

namespace {

// The addresses from the first element to behind the last one. Strides are never negative.
std::pair<uintptr_t, uintptr_t> addresses(const c10::TensorImpl* tensor) {
  const auto first = reinterpret_cast<uintptr_t>(tensor->unsafe_storage().unsafeGetStorageImpl()->data()) +
      static_cast<uintptr_t>(tensor->storage_offset()) * tensor->itemsize();
  uintptr_t elements = 1;
  for (int64_t i = 0; i < tensor->dim(); ++i) {
    if (tensor->size(i) == 0) {
      return {first, first};
    }
    elements += static_cast<uintptr_t>((tensor->size(i) - 1) * tensor->stride(i));
  }
  return {first, first + elements * tensor->itemsize()};
}

// A dimension of two tensors: the stride, and the sizes in each.
struct Dimension {
  int64_t stride;
  int64_t a_size;
  int64_t b_size;
};

// Whether two of the elements that these dimensions span may lie `distance` apart. The greatest stride comes first, and
// each is greater than what the ones behind it reach, so that few multiples of it come close to the distance.
bool may_meet(const Dimension* dimension, const Dimension* end, int64_t distance) {
  if (dimension == end) {
    return distance == 0;
  }
  const int64_t nearest = distance / dimension->stride;
  for (int64_t steps = nearest - 1; steps <= nearest + 1; ++steps) {
    const bool is_within = -dimension->b_size < steps && steps < dimension->a_size;
    const int64_t rest = distance - steps * dimension->stride;
    if (is_within && std::abs(rest) < dimension->stride && may_meet(dimension + 1, end, rest)) {
      return true;
    }
  }
  return false;
}

// Whether no element of one lies in the other although their ranges intersect: the parts of a tensor that `chunk` along
// the last dimension gives, or its columns. Told for tensors of one dtype and of the same strides.
bool interleave(const c10::TensorImpl* a, const c10::TensorImpl* b, int64_t bytes_apart) {
  const auto itemsize = static_cast<int64_t>(a->itemsize());
  if (a->dtype() != b->dtype() || a->strides() != b->strides() || bytes_apart % itemsize != 0 || may_overlap(a) ||
      may_overlap(b)) {
    return false;
  }
  c10::SmallVector<Dimension, 6> dimensions;
  for (int64_t i = 0; i < a->dim(); ++i) {
    if (a->size(i) != 1 || b->size(i) != 1) {
      dimensions.push_back({a->stride(i), a->size(i), b->size(i)});
    }
  }
  std::sort(dimensions.begin(), dimensions.end(), [](const Dimension& one, const Dimension& other) {
    return one.stride > other.stride;
  });
  return !may_meet(dimensions.begin(), dimensions.end(), bytes_apart / itemsize);
}

} // namespace

bool may_overlap(const c10::TensorImpl* tensor) {
  c10::SmallVector<std::pair<int64_t, int64_t>, 6> dimensions; // strides and sizes
  for (int64_t i = 0; i < tensor->dim(); ++i) {
    if (tensor->size(i) != 1) {
      dimensions.emplace_back(tensor->stride(i), tensor->size(i));
    }
  }
  std::sort(dimensions.begin(), dimensions.end());
  int64_t reach = 0; // from the first element to the last one, of the dimensions seen so far
  for (const auto& [stride, size] : dimensions) {
    if (stride <= reach) {
      return true;
    }
    reach += stride * (size - 1);
  }
  return false;
}

bool same_elements(const c10::TensorImpl* a, const c10::TensorImpl* b) {
  return a == b ||
      (a->dtype() == b->dtype() && a->sizes() == b->sizes() && a->strides() == b->strides() &&
       addresses(a) == addresses(b));
}

bool may_share(const c10::TensorImpl* a, const c10::TensorImpl* b) {
  const auto [a_first, a_end] = addresses(a);
  const auto [b_first, b_end] = addresses(b);
  return a_first < b_end && b_first < a_end && !interleave(a, b, static_cast<int64_t>(b_first - a_first));
}

bool share_memory(c10::ArrayRef<c10::TensorImpl*> tensors) {
  c10::SmallVector<std::pair<uintptr_t, uintptr_t>, 16> ranges;
  for (const c10::TensorImpl* tensor : tensors) {
    const auto range = addresses(tensor);
    if (range.first != range.second) {
      ranges.push_back(range);
    }
  }
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].first < ranges[i - 1].second) {
      return true;
    }
  }
  return false;
}

} // namespace flagos
