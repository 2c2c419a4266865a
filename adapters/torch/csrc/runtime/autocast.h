// SPDX-License-Identifier: Apache-2.0
// Automatic mixed precision: torch's own operator lists, for flagos.
#pragma once

namespace flagos {

void register_autocast();

} // namespace flagos
