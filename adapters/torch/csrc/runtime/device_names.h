// SPDX-License-Identifier: Apache-2.0
// The meaning of device strings. Beside another accelerator flagos is registered only when a program first names a
// flagos device, because torch takes a registered PrivateUse1 device for the accelerator of the process. Where torch
// has no CUDA devices, `cuda` can be another name of flagos.
#pragma once

#include "shim.h"

namespace flagos {

// Makes torch call `asked` before it reads the first device string that names flagos. Idempotent. Throws if this build
// of torch reads device strings in a way that cannot be redirected.
void watch_device_names(FlagosAsked asked);

// Stops calling `asked`: the device is registered under its name.
void stop_watching_device_names();

// Makes "cuda" and "cuda:N" mean the flagos device, for good and in every thread. Idempotent. Throws if this build of
// torch reads device strings in a way that cannot be redirected.
void alias_cuda();

} // namespace flagos
