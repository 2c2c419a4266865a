// SPDX-License-Identifier: Apache-2.0
// Recordings of the calls of one operator, and their replay without Python.
//
// A recording lists what an implementation in Python did for one signature: the memory it allocated, the kernels it
// launched with their arguments, and the tensors it returned. torch_fl/python_kernels/capture.py makes recordings, as
// lists of integers.
#pragma once

#include <ATen/core/stack.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "following/operator.h"
#include "python_kernels/signature.h"
#include "runtime/core.h"

namespace flagos {

// One recorded call, ready to run. Immutable.
class Program {
 public:
  // Reads a recording; throws if it is malformed. `num_inputs` is the number of flagos tensors in the signature.
  Program(c10::ArrayRef<int64_t> words, size_t num_inputs);
  ~Program() {
    core->recording_free(recording_);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // Repeats the recorded call with the arguments on the stack, which `signature` describes; leaves the results there.
  void run(const Signature& signature, torch::jit::Stack* stack, size_t num_arguments) const;

  // The call as automatic graphs know it. A program that they asked for stays: they repeat it.
  following::Operator& followed(const c10::OperatorHandle& op, uint64_t written) const;

  struct End {
    void operator()(const Program* program) const {
      if (program != nullptr && program->followed_.load(std::memory_order_acquire) == nullptr) {
        delete program;
      }
    }
  };

 private:
  FlagosRecording* recording_ = nullptr;
  mutable std::atomic<following::Operator*> followed_{nullptr};
};

// The number of changes to globals of Python modules, on which recordings depend and of which signatures say nothing.
std::atomic<uint64_t>& generation();

// The recordings of one signature.
struct Recorded {
  c10::SmallVector<uint64_t, 64> words;
  uint64_t hash = 0;
  Recorded* next = nullptr;
  std::atomic<const Program*> program{nullptr};
  std::atomic<uint64_t> replays{0};
  std::atomic<bool> refused{false};
  std::atomic<uint32_t> before{0}; // calls that the native kernel served until the signature had come often enough
  std::mutex mutex;                // guards the members below
  int calls = 0;
  int recordings = 0;
  std::vector<int64_t> last;
  std::string reason;  // why the signature is not replayed
  bool packed = false; // the program is of a pack
};

// The recordings of one operator. `find` takes no lock, because entries are only added.
class Recordings {
 public:
  Recordings() = default;
  ~Recordings();
  Recordings(const Recordings&) = delete;
  Recordings& operator=(const Recordings&) = delete;

  Recorded* find(const Signature& signature) const;
  // Null when the limit is reached.
  Recorded* find_or_add(const Signature& signature);
  // Forgets all recordings if `generation` has changed since the last call.
  void refresh() {
    const uint64_t now = generation().load(std::memory_order_acquire);
    if (C10_UNLIKELY(generation_.load(std::memory_order_acquire) != now)) {
      forget(now);
    }
  }

  // Takes a recording. Once two in succession are equal, the signature is replayed.
  static void offer(Recorded& recorded, std::vector<int64_t> words, size_t num_inputs);
  // Takes a recording of a pack, which is replayed from now on; false, with a reason kept, where it cannot be.
  static bool adopt(Recorded& recorded, const std::function<std::vector<int64_t>()>& words, size_t num_inputs);
  static void refuse(Recorded& recorded, std::string reason);
  // Notes a call whose recording is void because `generation` changed meanwhile.
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
  static constexpr int kPatience = 4;    // recordings of one signature before it is refused
  static constexpr size_t kMost = 16384; // signatures
  std::atomic<Recorded*> buckets_[kBuckets] = {};
  std::mutex mutex_; // guards additions
  size_t size_ = 0;
  std::atomic<uint64_t> generation_{0};
  std::vector<std::unique_ptr<const Program, Program::End>>
      forgotten_; // kept, because another thread may still run one
};

} // namespace flagos
