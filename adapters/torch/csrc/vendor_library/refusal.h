// SPDX-License-Identifier: Apache-2.0
// The reason why a vendor's library does not serve an operator or a call.
#pragma once

#include <c10/macros/Macros.h>

#include <memory>
#include <string>

namespace flagos {

// True if the library refuses, and then with the reason. A word: what is served costs a comparison.
class [[nodiscard]] Refusal {
 public:
  Refusal() = default;
  explicit Refusal(std::string reason) : reason_(std::make_unique<const std::string>(std::move(reason))) {}

  explicit operator bool() const {
    return C10_UNLIKELY(reason_ != nullptr);
  }
  const std::string& reason() const {
    return *reason_;
  }

 private:
  std::unique_ptr<const std::string> reason_;
};

} // namespace flagos
