// SPDX-License-Identifier: Apache-2.0
// Mirrors: copies of flagos storages in host memory for the length of a call, where the host cannot touch device
// memory.
//
// A mirror has the size of its storage, so that tensors over one keep their offsets and overlaps, but only the bytes of
// the tensors that the call uses are fetched, and only elements of tensors that it writes go back.
#pragma once

#include <c10/core/Storage.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/SmallVector.h>

#include "runtime/scoped.h"
#include "runtime/transfer.h"

namespace flagos {

class Mirrors {
 public:
  Mirrors() : scope_(current_, this) {}
  // Waits for copies that are still queued.
  ~Mirrors();
  Mirrors(const Mirrors&) = delete;
  Mirrors& operator=(const Mirrors&) = delete;

  // Those of the call in progress on this thread; null outside of calls.
  static Mirrors* current() {
    return current_;
  }

  // The mirror of a storage, with the bytes of this tensor; they are there after `wait`.
  c10::Storage fetch(const c10::TensorImpl* tensor);
  // The same with all bytes.
  c10::Storage fetch(const c10::Storage& storage);

  // Whether `fetch` fetches bytes: not for tensors of which every element is going to be written.
  bool fetches = true;

  // The flagos storage of a mirror; undefined for any other native storage.
  c10::Storage original(const c10::StorageImpl* native) const;

  // Gives a flagos storage the size that a kernel gave its mirror.
  void follow_size(c10::StorageImpl* storage);
  // Queues the elements of a tensor for the way back. Its storage has a mirror, or nothing happens.
  void write_back(const c10::TensorImpl* tensor);

  // A flagos storage with the bytes of a native one, which is kept until they are there.
  c10::Storage upload(c10::Storage native, c10::DeviceIndex device);

  // Waits for everything queued so far.
  void wait();

 private:
  struct Mirror {
    c10::Storage original;
    c10::Storage mirror;
    size_t begin; // of the bytes that were fetched
    size_t end;
  };
  Mirror& of(const c10::Storage& storage);
  Mirror* find(const c10::StorageImpl* storage);
  void fetch(Mirror& mirror, size_t begin, size_t end);
  void queue(c10::DeviceIndex device, void* to, const void* from, size_t nbytes);

  static thread_local Mirrors* current_;

  Scoped<Mirrors*> scope_;
  c10::SmallVector<Mirror, 4> mirrors_;
  c10::SmallVector<c10::Storage, 4> uploads_;
  c10::DeviceIndex queued_ = -1; // the device that copies are queued on
};

// The flagos storage of `native`, whose bytes are there when this returns or, within a call, when that ends.
c10::Storage upload(c10::Storage native, c10::DeviceIndex device);

} // namespace flagos
