// SPDX-License-Identifier: Apache-2.0
// Redirects calls that one of torch's libraries makes into another.
#pragma once

namespace flagos {

// Makes the loaded library `library` (such as "libtorch_cpu.so") call `target` instead of `symbol` of another library,
// from now on and in every thread. Returns false if the library does not call `symbol` through its procedure linkage
// table or its global offset table. Throws if the table cannot be written to.
bool redirect(const char* library, const char* symbol, void* target);

} // namespace flagos
