// SPDX-License-Identifier: Apache-2.0
// The twin of a flagos tensor: a native tensor over the same bytes.
//
// The storage of a flagos tensor owns a native StorageImpl through its DataPtr's context. Serving an operator
// natively builds a fresh TensorImpl over that twin, so no object that another thread can see is ever retagged.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

#include <deque>
#include <forward_list>

#include "runtime/allocator.h"

namespace flagos {

// Deleter of every flagos DataPtr that has a twin: drops the reference on the native StorageImpl.
void release_twin(void* twin);

// A flagos DataPtr that owns `native`.
inline c10::DataPtr twin_data_ptr(c10::intrusive_ptr<c10::StorageImpl> native, c10::DeviceIndex device) {
  void* data = const_cast<void*>(native->data());
  return {data, native.release(), &release_twin, c10::Device(kFlagos, device)};
}

// The native StorageImpl a flagos DataPtr owns, borrowed; null for memory that came from outside (from_blob, DLPack).
inline c10::StorageImpl* twin_of(const c10::DataPtr& flagos_data) {
  return flagos_data.get_deleter() == &release_twin ? static_cast<c10::StorageImpl*>(flagos_data.get_context())
                                                    : nullptr;
}

// A native storage over the bytes of memory that has no twin; it keeps `flagos_storage` alive.
c10::Storage foreign_twin(const c10::Storage& flagos_storage);

// The native storage of a flagos storage.
inline c10::Storage twin_storage(const c10::Storage& flagos_storage) {
  c10::StorageImpl* impl = flagos_storage.unsafeGetStorageImpl();
  c10::StorageImpl* twin = twin_of(impl->_mutable_data_ptr_no_checks());
  if (C10_LIKELY(twin != nullptr)) {
    return c10::Storage(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(twin));
  }
  return foreign_twin(flagos_storage);
}

// A flagos storage that owns `native`.
c10::Storage wrap_storage(c10::Storage native, c10::DeviceIndex device);

// A fresh native TensorImpl over the twin of a dense flagos tensor, with its sizes, strides, offset and bits.
// It carries no autograd keys and no version counter: kernels below autograd need neither.
at::Tensor dense_alias(const at::Tensor& tensor);

// A tensor of a call and its twin.
struct Alias {
  c10::TensorImpl* original = nullptr;
  at::Tensor native;
};

// The aliases of a thread's calls. Binding a TensorImpl that is there costs half of building one, so a thread keeps
// those that nobody holds when a call ends. Calls inside calls take theirs on top.
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

  // What `dense_alias` gives, valid until it is given back; null when it is to be built instead.
  at::Tensor* take(c10::TensorImpl* from);

  // The same, for kernels that count what they write: it shares the version counter.
  at::Tensor* take_counted(c10::TensorImpl* from);

  // Gives back all but the first `used`. Tensors that someone still holds are left to them.
  void give_back(size_t used);

 private:
  static constexpr size_t kSize = 64;   // what calls without lists of tensors need
  static constexpr size_t kMore = 8192; // and with them: some two megabytes at the most
  static AliasPool& create();

  // The first that is free; null when all are in use.
  Alias* free();

  static thread_local AliasPool* current_ __attribute__((tls_model("initial-exec")));

  size_t used_ = 0;
  Alias aliases_[kSize];
  std::deque<Alias> more_; // never moves what it has
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
    return C10_LIKELY(alias != nullptr) ? *alias : outside_the_pool(tensor);
  }

  // The same, and null when it is to be built by other means. `counted`: it shares the version counter.
  at::Tensor* pooled(const at::Tensor& tensor, bool counted) {
    c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
    return counted ? pool_.take_counted(impl) : pool_.take(impl);
  }

  // The first that satisfies; null when none does. Not while a call inside this one has aliases.
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
  at::Tensor& outside_the_pool(const at::Tensor& tensor);

  AliasPool& pool_ = AliasPool::of_this_thread();
  size_t first_;
  std::forward_list<Alias> others_;
};

// A flagos tensor with the metadata of `native` over `flagos_storage`.
at::Tensor view_of(const at::Tensor& native, c10::Storage flagos_storage);

// Turns a native tensor that nobody else holds into a flagos tensor; otherwise makes a flagos tensor that shares
// its bytes. Dense layouts only.
at::Tensor wrap_dense(at::Tensor native, c10::DeviceIndex device);

// After a kernel mutated `alias`: gives `original` the alias's sizes and strides, and its storage the twin's
// possibly reallocated bytes.
void sync_mutated(c10::TensorImpl* original, c10::TensorImpl* alias, c10::DeviceIndex device);

// Gives a flagos storage the bytes and size its twin has now (after the twin was resized).
void refresh_from_twin(c10::StorageImpl* flagos_storage, c10::StorageImpl* twin, c10::DeviceIndex device);

inline bool is_flagos(const at::TensorBase& tensor) {
  return tensor.is_privateuseone();
}

// Raises torch's own error about tensors on several devices.
[[noreturn]] void raise_mixed_devices(c10::Device a, c10::Device b);

} // namespace flagos
