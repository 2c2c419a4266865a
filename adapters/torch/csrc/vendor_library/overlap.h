// SPDX-License-Identifier: Apache-2.0
// Whether tensors share memory, by their geometry alone.
#pragma once

#include <c10/core/TensorImpl.h>
#include <c10/util/ArrayRef.h>

namespace flagos {

// Whether two elements of a tensor may lie at one place.
bool may_overlap(const c10::TensorImpl* tensor);

// Whether two tensors are the same elements in the same order.
bool same_elements(const c10::TensorImpl* a, const c10::TensorImpl* b);

// Whether an element of one may lie in the other.
bool may_share(const c10::TensorImpl* a, const c10::TensorImpl* b);

// Whether any two share memory, other than by being one tensor: then the order of a list's operations counts.
bool share_memory(c10::ArrayRef<c10::TensorImpl*> tensors);

} // namespace flagos
