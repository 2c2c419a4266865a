// SPDX-License-Identifier: Apache-2.0
// Recorded calls of one operator, and their replay without Python.
//
// A recording says what an implementation written in Python did for one signature: which memory it made, which kernels
// it launched with which arguments, and what it returned. torch_fl/python_kernels/capture.py makes recordings; the
// words it hands over are read here.
#pragma once

#include <ATen/core/stack.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "python_kernels/signature.h"
#include "runtime/core.h"

namespace flagos {

// A tensor as (which memory, its type and layout). Memory is an argument's, or made by the call.
struct Place {
  int64_t memory = 0; // i: the i-th flagos tensor among the arguments; -1-k: the k-th block made
  int64_t offset = 0; // bytes from that argument's first element, or from the block's beginning
  c10::ScalarType dtype = c10::kByte;
  std::vector<int64_t> sizes, strides;
};

struct Launch {
  FlagosLaunch* launch = nullptr; // the core's
  std::vector<int64_t> memories;  // of its pointers, as in Place; offsets are the core's business
};

struct Fill {
  Place target;
  c10::Scalar value;
};

struct Copy {
  Place target, source;
};

// One recorded call, ready to run. Immutable.
class Program {
 public:
  // Reads a recording; raises when it is not one. `num_inputs` are the flagos tensors of the signature.
  static std::unique_ptr<Program> read(c10::ArrayRef<int64_t> words, size_t num_inputs);
  ~Program();
  Program() = default;
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // Does what was recorded to the arguments on the stack, which `signature` describes, and replaces them by results.
  void run(const Signature& signature, torch::jit::Stack* stack, size_t num_arguments) const;

 private:
  struct Step {
    enum Kind : uint8_t { kLaunch, kFill, kCopy } kind;
    Launch launch;
    Fill fill;
    Copy copy;
  };
  struct Result {
    int64_t argument = -1; // this argument's tensor itself, when not negative
    Place place;
  };
  struct Block {
    int64_t nbytes;
    bool returned; // some result lies in it
  };
  std::vector<Block> blocks_;
  std::vector<Step> steps_;
  std::vector<Result> results_;
  size_t num_launches_ = 0;
};

// Counts the changes to what recordings depend on and signatures do not say: globals of Python modules.
std::atomic<uint64_t>& generation();

// What is known of one signature.
struct Recorded {
  c10::SmallVector<uint64_t, 64> words;
  uint64_t hash = 0;
  Recorded* next = nullptr;
  std::atomic<const Program*> program{nullptr};
  std::atomic<uint64_t> replays{0};
  std::atomic<bool> refused{false};
  std::mutex mutex; // of what follows
  int calls = 0;
  int recordings = 0;
  std::vector<int64_t> last;
  std::string reason; // why it is not replayed
};

// The recordings of one operator. Reading takes no lock; what was added stays until the end.
class Recordings {
 public:
  Recordings() = default;
  ~Recordings();
  Recordings(const Recordings&) = delete;
  Recordings& operator=(const Recordings&) = delete;

  Recorded* find(const Signature& signature) const;
  // Null when there are too many already.
  Recorded* find_or_add(const Signature& signature);
  // Forgets everything when what recordings depend on has changed since the last time; see `generation`.
  void refresh() {
    const uint64_t now = generation().load(std::memory_order_acquire);
    if (C10_UNLIKELY(generation_.load(std::memory_order_acquire) != now)) {
      forget(now);
    }
  }

  // Takes a recording; when it is the same as the one before, the signature is replayed from now on.
  static void offer(Recorded& recorded, std::vector<int64_t> words, size_t num_inputs);
  static void refuse(Recorded& recorded, std::string reason);
  // A call during which the generation changed says nothing.
  static void disturb(Recorded& recorded);

  template <class Visit>
  void each(Visit visit) const {
    for (const auto& bucket : buckets_) {
      for (Recorded* entry = bucket.load(std::memory_order_acquire); entry != nullptr; entry = entry->next) {
        visit(*entry);
      }
    }
  }

 private:
  void forget(uint64_t now);

  static constexpr size_t kBuckets = 1024;
  static constexpr int kPatience = 4; // recordings of one signature
  static constexpr size_t kMost = 16384;
  std::atomic<Recorded*> buckets_[kBuckets] = {};
  std::mutex mutex_; // of additions
  size_t size_ = 0;
  std::atomic<uint64_t> generation_{0};
  std::vector<std::unique_ptr<const Program>> forgotten_; // another thread may still run them
};

} // namespace flagos
