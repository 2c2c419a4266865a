// SPDX-License-Identifier: Apache-2.0
// Keys of a caller's dispatch that must not reach native kernels.
#pragma once

#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace flagos {

// Native kernels run on aliases, which nobody but the call knows. Autograd and the counting of views and writes saw the
// call already. A tracer would record the aliases as constants, and autocast of the native device is not that of
// flagos. functorch, functionalization and Python's modes are off by the time a kernel runs.
class BelowFunctionality {
 private:
  c10::impl::ExcludeDispatchKeyGuard guard_{
      c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset |
      c10::DispatchKeySet(c10::DispatchKey::Tracer)};
};

} // namespace flagos
