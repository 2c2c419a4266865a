// SPDX-License-Identifier: Apache-2.0
// The device guard: current device, streams and events for torch's device-generic code.
#pragma once

namespace flagos {

void register_guard();

} // namespace flagos
