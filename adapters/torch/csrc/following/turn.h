// SPDX-License-Identifier: Apache-2.0
// Automatic graphs: calls that repeat are captured in chunks, and followed when they come again. A followed call costs
// a comparison and its results; its chunk is launched when the last call has come.
#pragma once

#include <ATen/core/stack.h>

#include <mutex>

#include "following/operator.h"
#include "runtime/pending.h"

namespace flagos::following {

struct Record; // of the call in progress

// Whether this thread's calls are parts of one that graphs have seen, which are not to be seen by themselves: whether
// it was recorded would make another run of them.
extern thread_local bool is_part;

// The turn of one call: it has been followed, or it is to be served natively while the turn lasts.
class Turn {
 public:
  // Replaces the arguments on top of the stack by the results if the call was followed.
  Turn(Operator& op, torch::jit::Stack& stack);
  ~Turn();
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  bool followed() const {
    return followed_;
  }
  // Whether the call is to be served by `serve`, on the stack.
  bool records() const {
    return record_ != nullptr;
  }
  // Serves the call by `natively` and notes what it did. `natively` may be called twice.
  template <class Natively>
  void serve(torch::jit::Stack& stack, const Natively& natively) {
    arguments_.assign(stack.end() - static_cast<ptrdiff_t>(num_arguments()), stack.end());
    bool done = false;
    {
      const Serving serving;
      try {
        natively(stack);
        done = true;
      } catch (...) {
        if (!is_deferred()) { // the call's own error
          throw;
        }
      }
    }
    if (done) {
      note(stack);
    } else { // it cannot be captured
      give_up();
      stack.resize(stack.size() - std::min(stack.size(), num_arguments()));
      stack.insert(stack.end(), arguments_.begin(), arguments_.end());
      natively(stack);
    }
  }

 private:
  // The native kernel runs.
  class Serving {
   public:
    Serving();
    ~Serving();
    Serving(const Serving&) = delete;
    Serving& operator=(const Serving&) = delete;
  };

  size_t num_arguments() const;
  bool is_deferred() const;
  void note(const torch::jit::Stack& stack);
  void give_up();

  // Dropped when the lock is: the end of a tensor may ask for Python's.
  torch::jit::Stack arguments_;
  std::unique_lock<std::recursive_mutex> lock_;
  Record* record_ = nullptr;
  bool followed_ = false;
};

} // namespace flagos::following
