// SPDX-License-Identifier: Apache-2.0
// Random generators of the flagos device.
#pragma once

#include <ATen/core/Generator.h>

#include "runtime/core.h"

namespace flagos {

// A flagos generator wraps a native one. The host vendor's default generator wraps the CPU's default generator, so that
// a program draws the same numbers as on the CPU for the same seed.
const at::Generator& default_generator(c10::DeviceIndex device);

// How often a flagos generator was given a seed or a state: what was drawn from it before is then out of date.
uint64_t times_set(const at::Generator& generator);

at::Generator make_generator(c10::DeviceIndex device);

// The native generator inside `generator`; throws if `generator` belongs to another device.
at::Generator native_generator(const at::Generator& generator);

} // namespace flagos
