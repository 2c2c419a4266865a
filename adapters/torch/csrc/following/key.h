// SPDX-License-Identifier: Apache-2.0
// What decides a call's work: its operator, its numbers, and of each tensor the address and the geometry. Two calls
// with equal keys do the same to the same memory.
#pragma once

#include <ATen/core/stack.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <vector>

#include "runtime/native.h"

namespace flagos::following {

class Key {
 public:
  // The key of a call with the arguments on top of the stack. False if such a call cannot be followed; what a watch
  // asks holds nevertheless.
  bool read(uint64_t op, uint64_t modes, const torch::jit::Stack& stack, size_t num_arguments);

  c10::ArrayRef<uint64_t> words() const {
    return {words_.data(), size_};
  }
  // What a watch asks: the kinds of the arguments, without sizes and numbers, and the memory of tensors.
  uint64_t kinds() const {
    return kinds_;
  }
  const std::vector<const void*>& addresses() const {
    return addresses_;
  }
  // A hash of all but that memory. It costs as much as the key.
  uint64_t numbers() const;
  // The device of the flagos tensors; -1 without any.
  c10::DeviceIndex device() const {
    return device_;
  }

 private:
  void value(const c10::IValue& value);
  void tensor(const at::Tensor& tensor);
  void word(uint64_t word) {
    if (C10_UNLIKELY(size_ == words_.size())) {
      words_.resize(2 * size_);
    }
    words_[size_++] = word;
  }
  // A word that tells the kind of an argument.
  void kind(uint64_t word) {
    kinds_ = mixed(kinds_, word);
    this->word(word);
  }
  static uint64_t mixed(uint64_t hash, uint64_t word) {
    hash = (hash ^ word) * 0x9E3779B97F4A7C15ULL;
    return hash ^ hash >> 32U;
  }

  // The tensors among which a key says which are the same.
  static constexpr size_t kCompared = 8;

  std::vector<uint64_t> words_ = std::vector<uint64_t>(256); // with room: of these, `size_` are the key's
  size_t size_ = 0;
  std::vector<const void*> addresses_;
  c10::SmallVector<const c10::TensorImpl*, kCompared> tensors_;
  uint64_t kinds_ = 0;
  c10::DeviceIndex device_ = -1;
  bool plain_ = true;
};

// Whether a tensor is nothing but its sizes, strides, offset, dtype and memory.
bool is_plain(const c10::TensorImpl* tensor);

} // namespace flagos::following
