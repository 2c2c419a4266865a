// SPDX-License-Identifier: Apache-2.0
// Random generators of the flagos device.
#pragma once

#include <ATen/core/Generator.h>

#include "runtime/core.h"

namespace flagos {

// A flagos generator drives a native one. The default generator of the host vendor drives the CPU's own default
// generator, so that a whole program draws the numbers it would draw on the CPU for the same seed.
const at::Generator& default_generator(c10::DeviceIndex device);

at::Generator make_generator(c10::DeviceIndex device);

// The native generator behind `generator`; raises if it belongs to another device.
at::Generator native_generator(const at::Generator& generator);

} // namespace flagos
