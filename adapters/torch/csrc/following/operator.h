// SPDX-License-Identifier: Apache-2.0
// Operators as automatic graphs see them.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace flagos::following {

struct Operator {
  using Repeats = std::function<void(torch::jit::Stack&)>;

  // `written`: bit i, argument i is written; `counts`: the kernel raises the versions of what it writes.
  Operator(const c10::OperatorHandle& op, uint64_t written, bool counts, const char* why_native, Repeats repeats = {});

  c10::OperatorHandle op;
  uint64_t id;
  size_t num_arguments;
  size_t num_results;
  uint64_t written;
  bool counts;
  bool only_allocates = false; // there is no work to repeat
  bool multiplies;             // whether kernels may ask for the precision of products
  const char* why_native;      // why no call can be followed; null if some can
  // Does a call again on flagos tensors; where it is empty, the dispatcher's kernel does.
  Repeats repeats;
  std::optional<size_t>
      dropout;          // the argument that is the share of what is dropped: at 0 the operator draws no numbers
  int64_t followed = 0; // calls

  bool draws(c10::ArrayRef<c10::IValue> arguments) const {
    return dropout.has_value() && !(arguments[*dropout].isDouble() && arguments[*dropout].toDouble() == 0.0);
  }
};

// The operators whose calls automatic graphs see, by their qualified names.
class Operators {
 public:
  using Make = Operator& (*)();

  static Operators& instance();
  // Of a kernel whose `Operator` is made at its first call.
  void add(const std::string& name, Make make);
  void add(Operator& op);
  // Null for an operator whose calls go by automatic graphs. Never one that says how it repeats.
  Operator* find(const std::string& name);
  // Those that were called while the program wanted graphs, and others.
  std::vector<const Operator*> made() const;

 private:
  struct Entry {
    Operator* op = nullptr;
    Make make = nullptr;
  };

  mutable std::mutex mutex_;
  std::unordered_map<std::string, Entry> entries_;
  std::vector<const Operator*> repeating_; // those that say how
};

} // namespace flagos::following
