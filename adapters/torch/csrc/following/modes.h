// SPDX-License-Identifier: Apache-2.0
// The settings of torch that kernels ask for beside their arguments.
#pragma once

#include <cstdint>

namespace flagos::following {

struct Modes {
  // Those of this thread now, as a word. Without `multiplies` the precision of products is left out, which takes a
  // tenth of a followed call to look up.
  static uint64_t now(bool multiplies);

  // Has kernels see the settings of a word for a scope. `multiplies` is that of the word.
  class Scope {
   public:
    Scope(uint64_t word, bool multiplies);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    uint64_t word_;
    uint64_t before_;
    bool multiplies_;
  };
};

} // namespace flagos::following
