// SPDX-License-Identifier: Apache-2.0
#include "runtime/storage.h"

#include <mutex>
#include <unordered_map>
#include <utility>

namespace flagos {

namespace {

// The native storages over memory from outside, by flagos storage. Each lives as long as some call uses it.
class ForeignTwins {
 public:
  static ForeignTwins& instance() {
    static auto* twins = new ForeignTwins; // never destroyed: storages may end after static destruction
    return *twins;
  }

  c10::Storage of(c10::StorageImpl* foreign) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto known = twins_.find(foreign);
    if (known != twins_.end()) {
      if (auto twin = known->second.lock()) {
        return c10::Storage(std::move(twin));
      }
    }
    c10::raw::intrusive_ptr::incref(foreign);
    auto twin = c10::make_intrusive<c10::StorageImpl>(
        c10::StorageImpl::use_byte_size_t{},
        foreign->nbytes(),
        c10::DataPtr(const_cast<void*>(foreign->data()), foreign, &release, native_device(foreign->device().index())),
        /*allocator=*/nullptr,
        /*resizable=*/false);
    twins_.insert_or_assign(foreign, Weak(twin));
    return c10::Storage(std::move(twin));
  }

 private:
  using Weak = c10::weak_intrusive_ptr<c10::StorageImpl>;

  // The deleter of a native storage's memory: the last call that used it is over.
  static void release(void* context) {
    auto* foreign = static_cast<c10::StorageImpl*>(context);
    instance().forget(foreign);
    c10::raw::intrusive_ptr::decref(foreign);
  }

  void forget(c10::StorageImpl* foreign) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = twins_.find(foreign);
    if (found != twins_.end() && found->second.expired()) { // another thread may have made the next one already
      twins_.erase(found);
    }
  }

  std::mutex mutex_;
  std::unordered_map<c10::StorageImpl*, Weak> twins_;
};

} // namespace

namespace {

Mirrors& mirrors_of_call() {
  Mirrors* mirrors = Mirrors::current();
  TORCH_INTERNAL_ASSERT(mirrors != nullptr, "flagos: device memory is read outside of a call");
  return *mirrors;
}

void check_flagos(const c10::Storage& storage) {
  TORCH_CHECK(
      storage.device_type() == kFlagos, "flagos: a tensor on ", storage.device(), " was taken for one on flagos");
}

} // namespace

c10::Storage native_storage_without_twin(const c10::TensorImpl* tensor) {
  const c10::Storage& storage = tensor->unsafe_storage();
  check_flagos(storage);
  return native->by_copies ? mirrors_of_call().fetch(tensor)
                           : ForeignTwins::instance().of(storage.unsafeGetStorageImpl());
}

c10::Storage native_storage_without_twin(const c10::Storage& storage) {
  check_flagos(storage);
  return native->by_copies ? mirrors_of_call().fetch(storage)
                           : ForeignTwins::instance().of(storage.unsafeGetStorageImpl());
}

c10::StorageImpl* resizable_twin(c10::StorageImpl* storage) {
  c10::StorageImpl* twin = twin_of(storage->data_ptr());
  TORCH_CHECK(twin != nullptr, "flagos: storage over memory that came from outside cannot be resized");
  return twin;
}

void give_twin(c10::StorageImpl* storage, c10::StorageImpl* twin, c10::DataPtr data, size_t nbytes) {
  twin->set_data_ptr_noswap(std::move(data));
  twin->set_nbytes(nbytes);
  refresh_from_twin(storage, twin, storage->device().index());
}

void refresh_from_twin(c10::StorageImpl* flagos_storage, c10::StorageImpl* twin, c10::DeviceIndex device) {
  twin->mutable_data_ptr(); // materializes copy-on-write memory, as wrap_storage does
  if (flagos_storage->data() != twin->data() || twin_of(flagos_storage->data_ptr()) != twin) {
    flagos_storage->set_data_ptr_noswap(
        twin_data_ptr(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(twin), device));
  }
  if (flagos_storage->nbytes() != twin->nbytes()) {
    flagos_storage->set_nbytes(twin->nbytes());
  }
}

} // namespace flagos
