// SPDX-License-Identifier: Apache-2.0
// What decides a call's work: its operator, its numbers, and of each tensor the address and the geometry. Two calls
// with equal keys do the same to the same memory.
#pragma once

#include <ATen/core/stack.h>

#include <cstdint>
#include <vector>

#include "runtime/native.h"

namespace flagos::following {

class Key {
 public:
  // The key of a call with the arguments on top of the stack. False if such a call cannot be followed; what a watch
  // asks holds nevertheless.
  bool read(uint64_t op, uint64_t modes, const torch::jit::Stack& stack, size_t num_arguments);

  const std::vector<uint64_t>& words() const {
    return words_;
  }
  uint64_t hash() const;
  // What a watch asks: the kinds of the arguments, without sizes and numbers, and the memory of tensors.
  uint64_t kinds() const {
    return kinds_;
  }
  const std::vector<const void*>& addresses() const {
    return addresses_;
  }
  // The device of the flagos tensors; -1 without any.
  c10::DeviceIndex device() const {
    return device_;
  }

 private:
  void value(const c10::IValue& value);
  void tensor(const at::Tensor& tensor);
  void word(uint64_t word) {
    words_.push_back(word);
  }
  // A word that tells the kind of an argument.
  void kind(uint64_t word) {
    kinds_ = mixed(kinds_, word);
    words_.push_back(word);
  }
  static uint64_t mixed(uint64_t hash, uint64_t word) {
    hash = (hash ^ word) * 0x9E3779B97F4A7C15ULL;
    return hash ^ hash >> 32U;
  }

  std::vector<uint64_t> words_;
  std::vector<const void*> addresses_;
  std::vector<const c10::TensorImpl*> tensors_;
  uint64_t kinds_ = 0;
  c10::DeviceIndex device_ = -1;
  bool plain_ = true;
};

// Whether a tensor is nothing but its sizes, strides, offset, dtype and memory.
bool is_plain(const c10::TensorImpl* tensor);

} // namespace flagos::following
