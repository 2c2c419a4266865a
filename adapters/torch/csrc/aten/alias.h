// SPDX-License-Identifier: Apache-2.0
// Aliases: native tensors over the twins of flagos tensors, and flagos tensors over native results.
//
// An operator is served by a native kernel on aliases of its arguments. An alias is an object of its own over the twin,
// so no tensor that another thread can see changes its device for the length of a call.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

#include <deque>
#include <forward_list>

#include "runtime/storage.h"

namespace flagos {

// A new alias of a dense flagos tensor, with its sizes, strides, offset and bits. It has neither autograd keys nor a
// version counter: kernels below autograd need neither.
at::Tensor dense_alias(const at::Tensor& tensor);

// The same with a version counter of its own, for kernels that count their writes: they ask for one. What was written
// is counted when the call ends. A kernel that raised the argument's own counter could not be told from another thread.
at::Tensor counted_alias(const at::Tensor& tensor);

// A native tensor over the twin of a dense flagos tensor that shares its version counter, so that autograd notices
// writes through either. Autograd does not connect the two.
at::Tensor shared_alias(const at::Tensor& tensor);

// An alias that `shared_alias` gave, pointed at another tensor: whether it can be, in this thread's mode of inference;
// the pointing; and the end of it, which leaves the alias empty.
bool can_be_shared(c10::TensorImpl* tensor); // on flagos, and nothing of what `dense_alias` serves
bool can_share(c10::TensorImpl* tensor, c10::TensorImpl* alias);
void share(c10::TensorImpl* tensor, c10::TensorImpl* alias, LastLent& lent);
void let_go(c10::TensorImpl* alias);

// A flagos tensor over the memory of a dense native one, likewise.
at::Tensor share_with_flagos(const at::Tensor& native);

// An argument of a call and its alias.
struct Alias {
  c10::TensorImpl* original = nullptr;
  at::Tensor native;
  bool borrows = false; // its storage without a reference of its own
};

// The aliases of one thread's calls, as a stack: a call inside a call takes its aliases on top. Binding an existing
// TensorImpl to an argument costs half of building one, so the pool keeps those that nobody holds when a call ends.
class AliasPool {
 public:
  static AliasPool& of_this_thread() {
    return C10_LIKELY(current_ != nullptr) ? *current_ : create();
  }

  size_t used() const {
    return used_;
  }

  Alias& operator[](size_t place) {
    return C10_LIKELY(place < kSize) ? aliases_[place] : more_[place - kSize];
  }

  // An alias of `from`, valid until it is given back; null for a tensor that needs `dense_alias`.
  at::Tensor* take(c10::TensorImpl* from);

  // The same for a tensor that is read, or written in a list: the caller holds `from` until the alias is given back,
  // and no kernel gives the alias another storage, so it borrows the twin. That saves two atomic operations.
  at::Tensor* borrow(c10::TensorImpl* from);

  // The same two with a version counter of their own: see `counted_alias`. They keep it.
  at::Tensor* take_counted(c10::TensorImpl* from);
  at::Tensor* borrow_counted(c10::TensorImpl* from);

  // Gives back all aliases but the first `used`. The pool drops those that somebody still holds.
  void give_back(size_t used);

 private:
  static constexpr size_t kSize = 64;   // enough for nested calls without lists of tensors
  static constexpr size_t kMore = 8192; // further aliases for lists of tensors: two megabytes at most
  static AliasPool& create();

  // The first unused alias; null when all are in use.
  Alias* free();

  template <bool kBorrows>
  at::Tensor* bind(c10::TensorImpl* from);

  static thread_local AliasPool* current_ __attribute__((tls_model("initial-exec")));

  size_t used_ = 0;
  Alias aliases_[kSize];
  std::deque<Alias> more_; // a deque, because its elements never move
};

// The aliases of one call.
class Aliases {
 public:
  Aliases() : first_(pool_.used()) {}
  ~Aliases() {
    pool_.give_back(first_);
  }
  Aliases(const Aliases&) = delete;
  Aliases& operator=(const Aliases&) = delete;

  // The alias of a dense flagos tensor, valid as long as the call.
  at::Tensor& of(const at::Tensor& tensor) {
    at::Tensor* alias = pool_.take(tensor.unsafeGetTensorImpl());
    return C10_LIKELY(alias != nullptr) ? *alias : outside_the_pool(tensor, dense_alias(tensor));
  }

  // The same for a tensor that is only read.
  at::Tensor& read(const at::Tensor& tensor) {
    at::Tensor* alias = pool_.borrow(tensor.unsafeGetTensorImpl());
    return C10_LIKELY(alias != nullptr) ? *alias : outside_the_pool(tensor, dense_alias(tensor));
  }

  // To be called before a kernel may give the alias another storage, and for one that lives on.
  static void own(Alias& alias);

  // The same as `read`, as a `counted_alias`.
  at::Tensor& counted_of(const at::Tensor& tensor) {
    at::Tensor* alias = pool_.borrow_counted(tensor.unsafeGetTensorImpl());
    return C10_LIKELY(alias != nullptr) ? *alias : outside_the_pool(tensor, flagos::counted_alias(tensor));
  }

  // The same; null for a tensor that needs `dense_alias`. With `counted` as a `counted_alias`.
  at::Tensor* pooled(const at::Tensor& tensor, bool counted) {
    c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
    return counted ? pool_.take_counted(impl) : pool_.take(impl);
  }

  // The first alias that satisfies the predicate; null when none does. Not to be called while a nested call has
  // aliases.
  template <class Predicate>
  const Alias* find(const Predicate& predicate) const {
    for (size_t place = first_; place < pool_.used(); ++place) {
      if (predicate(pool_[place])) {
        return &pool_[place];
      }
    }
    for (const Alias& alias : others_) {
      if (predicate(alias)) {
        return &alias;
      }
    }
    return nullptr;
  }

 private:
  at::Tensor& outside_the_pool(const at::Tensor& tensor, at::Tensor alias);

  AliasPool& pool_ = AliasPool::of_this_thread();
  size_t first_;
  std::forward_list<Alias> others_;
};

// A flagos tensor over `flagos_storage`, with sizes, strides, offset, dtype and bits of `native`.
at::Tensor view_of(const at::Tensor& native, c10::Storage flagos_storage);

// The flagos tensor of a dense native one: the same TensorImpl, relabelled, when nobody else holds it, otherwise a new
// one over the same bytes.
at::Tensor wrap_dense(at::Tensor native, c10::DeviceIndex device);

// After a kernel wrote to `alias`: gives `original` the sizes, strides, dtype and bits of `alias`, and its storage the
// address and size of a twin that was reallocated.
void sync_mutated(c10::TensorImpl* original, c10::TensorImpl* alias, c10::DeviceIndex device);

inline bool is_flagos(const at::TensorBase& tensor) {
  return tensor.is_privateuseone();
}

// Raises torch's own error about tensors on several devices.
[[noreturn]] void raise_mixed_devices(c10::Device a, c10::Device b);

} // namespace flagos
