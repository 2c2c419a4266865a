// SPDX-License-Identifier: Apache-2.0
// The functions of the runtime that torch computes by, found in the libraries that it has loaded.
#pragma once

#include <string>

namespace flagos {

// The address of cuda`name`, or of what has its place in another vendor's runtime; null where there is none. A function
// has one type in every runtime.
void* find_runtime_function(const std::string& vendor, const std::string& name);

// Throws NotImplementedError if there is none.
void* need_runtime_function(const std::string& vendor, const std::string& name);

// cudaStreamCaptureModeRelaxed: nothing is forbidden to a thread because others capture.
constexpr int kRelaxed = 2;

// Gives this thread another mode of captures and returns the one before; nothing is done where a runtime has none.
int exchange_capture_mode(const std::string& vendor, int mode);

} // namespace flagos
