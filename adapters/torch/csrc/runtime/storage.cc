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

c10::Storage foreign_twin(const c10::Storage& flagos_storage) {
  c10::StorageImpl* impl = flagos_storage.unsafeGetStorageImpl();
  TORCH_CHECK(impl->device_type() == kFlagos, "flagos: a tensor on ", impl->device(), " was taken for one on flagos");
  return ForeignTwins::instance().of(impl);
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
