// SPDX-License-Identifier: Apache-2.0
// `torch.ops.flagos`: what the Python package needs and torch's generic API does not offer.
#pragma once

namespace flagos {

void register_library();

} // namespace flagos
