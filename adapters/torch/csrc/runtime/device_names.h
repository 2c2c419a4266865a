// SPDX-License-Identifier: Apache-2.0
// Notices when a program first names a flagos device. Beside another accelerator flagos is registered only then,
// because torch takes a registered PrivateUse1 device for the accelerator of the process.
#pragma once

#include "shim.h"

namespace flagos {

// Makes torch call `asked` before it reads the first device string that names flagos. Idempotent. Throws if this build
// of torch reads device strings in a way that cannot be redirected.
void watch_device_names(FlagosAsked asked);

// Stops calling `asked`: the device is registered under its name.
void stop_watching_device_names();

} // namespace flagos
