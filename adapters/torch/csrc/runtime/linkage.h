// SPDX-License-Identifier: Apache-2.0
// Calls that one of torch's libraries makes into another, answered here instead.
#pragma once

namespace flagos {

// Has the loaded library `library` (as "libtorch_cpu.so") call `target` where it calls `symbol` of another library,
// from now on and in every thread. False where it does not call it through its procedure linkage table. Throws when the
// table cannot be written to.
bool redirect(const char* library, const char* symbol, void* target);

} // namespace flagos
