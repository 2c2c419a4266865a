// SPDX-License-Identifier: Apache-2.0
// What operators compute, told in a small language that calls ATen's operators by name.
//
//   statement := names "=" expression, with ";" between statements; a name of a parameter is a result
//   expression := sums and products of calls, names, numbers, texts, lists, "x if c else y"
//   call := ATen's operator "name.overload(arguments, name=argument)", or "@name(arguments)" of helpers.cc
#pragma once

#include <string>

#include "opapi.h"

namespace simulated_ascend {

struct Verdict {
  int code = 0; // 0: all is well
  std::string why;
};

// Compares results' shapes and dtypes, by a trial on other values, if the arguments are small.
Verdict infer(const Function& function, const Arguments& arguments);
// Computes, in memory that the host can reach.
Verdict compute(const Function& function, const Arguments& arguments);

} // namespace simulated_ascend
