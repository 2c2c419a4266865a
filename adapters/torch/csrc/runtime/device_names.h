// SPDX-License-Identifier: Apache-2.0
// The moment when a program first names a flagos device. Beside another accelerator the device is not registered until
// then, since a registered one is what torch takes for the accelerator.
#pragma once

#include "shim.h"

namespace flagos {

// Has torch call `asked` before it reads the first device string that names flagos. Idempotent. Throws when this torch
// reads device strings where it cannot be noticed.
void watch_device_names(FlagosAsked asked);

// The device has its name: there is nothing to wait for.
void stop_watching_device_names();

} // namespace flagos
