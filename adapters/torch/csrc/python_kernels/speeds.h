// SPDX-License-Identifier: Apache-2.0
// Classes of calls by what their speed depends on, and those in which an implementation was measured to be faster than
// the native kernel. `FLAGOS_FLAGGEMS=auto` has it serve no others.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <string>
#include <vector>

namespace flagos {

// How an operator's calls fall into classes. A class is: dtypes, layouts, the magnitudes of sizes (`size_class`) where
// the device's time counts, dimensions to work along, and numbers that say how (not the numbers of pointwise
// operators). Calls of fewer elements than `kSmall` are one class whatever their sizes: they take as long as the host
// needs.
class CallClasses {
 public:
  static constexpr int64_t kSmall = 16384;

  explicit CallClasses(const c10::OperatorHandle& op);

  // The class of a call whose arguments are the last values of the stack, as a number.
  uint64_t number(const torch::jit::Stack& stack) const;
  // The same in words.
  std::string words(const torch::jit::Stack& stack) const;

 private:
  enum class Kind : uint8_t {
    kPlain,
    kAlong,   // names dimensions
    kIgnored, // says where and how a result lies
  };

  template <class Sink>
  void describe(const torch::jit::Stack& stack, Sink& sink) const;

  std::vector<Kind> kinds_; // of each argument
  bool pointwise_;
};

// The classes in which one implementation was measured to be faster. Immutable.
class Speeds {
 public:
  Speeds(const c10::OperatorHandle& op, std::vector<uint64_t> faster);

  bool faster(const torch::jit::Stack& stack) const;

 private:
  CallClasses classes_;
  std::vector<uint64_t> faster_; // sorted
};

} // namespace flagos
