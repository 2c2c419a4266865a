// SPDX-License-Identifier: Apache-2.0
#include "runtime/mirrors.h"

#include <c10/core/CPUAllocator.h>

#include <algorithm>

#include "runtime/allocator.h"

namespace flagos {

namespace {

struct Bytes {
  size_t begin;
  size_t end;
};

// The bytes of a storage from the first element of a tensor to its last one.
Bytes bytes_of(const c10::TensorImpl* tensor) {
  if (tensor->numel() == 0) {
    return {0, 0};
  }
  const auto sizes = tensor->sizes();
  const auto strides = tensor->strides();
  int64_t last = tensor->storage_offset();
  for (size_t i = 0; i < sizes.size(); ++i) {
    last += (sizes[i] - 1) * strides[i];
  }
  const size_t item = tensor->itemsize();
  const size_t size = tensor->unsafe_storage().nbytes();
  const size_t begin = static_cast<size_t>(tensor->storage_offset()) * item;
  return {std::min(begin, size), std::min((static_cast<size_t>(last) + 1) * item, size)};
}

// Visits the longest runs of neighbouring elements of a tensor, as offsets and lengths in elements.
template <class Visit>
void each_run(const c10::TensorImpl* tensor, Visit visit) {
  struct Dimension {
    int64_t size;
    int64_t stride;
  };
  c10::SmallVector<Dimension, 8> dimensions;
  for (int64_t i = 0; i < tensor->dim(); ++i) {
    if (tensor->size(i) != 1) {
      dimensions.push_back({tensor->size(i), tensor->stride(i)});
    }
  }
  std::sort(
      dimensions.begin(), dimensions.end(), [](const Dimension& a, const Dimension& b) { return a.stride < b.stride; });
  int64_t run = 1;
  size_t inner = 0; // dimensions that are within a run
  while (inner < dimensions.size() && dimensions[inner].stride == run) {
    run *= dimensions[inner].size;
    ++inner;
  }
  c10::SmallVector<int64_t, 8> index(dimensions.size(), 0);
  int64_t offset = tensor->storage_offset();
  while (true) {
    visit(offset, run);
    size_t place = inner;
    for (; place < dimensions.size(); ++place) {
      offset += dimensions[place].stride;
      if (++index[place] < dimensions[place].size) {
        break;
      }
      offset -= dimensions[place].stride * dimensions[place].size;
      index[place] = 0;
    }
    if (place == dimensions.size()) {
      return;
    }
  }
}

c10::DataPtr host_memory(size_t nbytes) {
  return c10::GetCPUAllocator()->allocate(nbytes);
}

} // namespace

thread_local Mirrors* Mirrors::current_ = nullptr;

Mirrors::~Mirrors() {
  // Copies still run into memory that ends here, also when the call has thrown. A device that is lost was told.
  if (queued_ >= 0) {
    core->stream_sync(queued_, current_stream(queued_));
  }
}

Mirrors::Mirror* Mirrors::find(const c10::StorageImpl* storage) {
  const auto found = std::find_if(mirrors_.begin(), mirrors_.end(), [&](const Mirror& mirror) {
    return mirror.original.unsafeGetStorageImpl() == storage;
  });
  return found == mirrors_.end() ? nullptr : &*found;
}

Mirrors::Mirror& Mirrors::of(const c10::Storage& storage) {
  const c10::StorageImpl* impl = storage.unsafeGetStorageImpl();
  if (Mirror* known = find(impl)) {
    return *known;
  }
  // Zeros without memory have none here either.
  c10::DataPtr data = impl->data() == nullptr ? c10::DataPtr(nullptr, c10::kCPU) : host_memory(impl->nbytes());
  auto mirror = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t{}, impl->nbytes(), std::move(data), c10::GetCPUAllocator(), impl->resizable());
  mirrors_.push_back({storage, c10::Storage(std::move(mirror)), 0, 0});
  return mirrors_.back();
}

void Mirrors::queue(c10::DeviceIndex device, void* to, const void* from, size_t nbytes) {
  if (queued_ >= 0 && queued_ != device) {
    wait();
  }
  queued_ = device;
  queue_copy(device, to, from, nbytes);
}

void Mirrors::fetch(Mirror& mirror, size_t begin, size_t end) {
  const c10::StorageImpl* from = mirror.original.unsafeGetStorageImpl();
  if (!fetches || begin == end || from->data() == nullptr) {
    return;
  }
  const auto copy = [&](size_t first, size_t last) {
    queue(
        from->device().index(),
        static_cast<char*>(mirror.mirror.mutable_data()) + first,
        static_cast<const char*>(from->data()) + first,
        last - first);
  };
  if (mirror.begin == mirror.end) {
    copy(begin, end);
    mirror.begin = begin;
    mirror.end = end;
    return;
  }
  if (begin < mirror.begin) {
    copy(begin, mirror.begin);
    mirror.begin = begin;
  }
  if (end > mirror.end) {
    copy(mirror.end, end);
    mirror.end = end;
  }
}

c10::Storage Mirrors::fetch(const c10::TensorImpl* tensor) {
  Mirror& mirror = of(tensor->unsafe_storage());
  const Bytes bytes = bytes_of(tensor);
  fetch(mirror, bytes.begin, bytes.end);
  return mirror.mirror;
}

c10::Storage Mirrors::fetch(const c10::Storage& storage) {
  Mirror& mirror = of(storage);
  fetch(mirror, 0, storage.nbytes());
  return mirror.mirror;
}

c10::Storage Mirrors::original(const c10::StorageImpl* native) const {
  for (const Mirror& mirror : mirrors_) {
    if (mirror.mirror.unsafeGetStorageImpl() == native) {
      return mirror.original;
    }
  }
  return {};
}

void Mirrors::follow_size(c10::StorageImpl* storage) {
  const Mirror* mirror = find(storage);
  if (mirror != nullptr && mirror->mirror.nbytes() != storage->nbytes()) {
    native->resize(storage, mirror->mirror.nbytes());
  }
}

void Mirrors::write_back(const c10::TensorImpl* tensor) {
  const c10::StorageImpl* to = tensor->unsafe_storage().unsafeGetStorageImpl();
  const Mirror* mirror = find(to);
  if (mirror == nullptr || tensor->numel() == 0 || to->data() == nullptr) {
    return;
  }
  const auto* from = static_cast<const char*>(mirror->mirror.data());
  auto* const address = static_cast<char*>(const_cast<void*>(to->data()));
  const c10::DeviceIndex device = to->device().index();
  if (tensor->is_non_overlapping_and_dense_default()) {
    const Bytes bytes = bytes_of(tensor);
    queue(device, address + bytes.begin, from + bytes.begin, bytes.end - bytes.begin);
    return;
  }
  const auto item = static_cast<int64_t>(tensor->itemsize());
  each_run(tensor, [&](int64_t offset, int64_t length) {
    queue(device, address + offset * item, from + offset * item, static_cast<size_t>(length * item));
  });
}

c10::Storage Mirrors::upload(c10::Storage native, c10::DeviceIndex device) {
  c10::StorageImpl* impl = native.unsafeGetStorageImpl();
  const size_t nbytes = impl->nbytes();
  c10::Storage storage(
      c10::Storage::use_byte_size_t{},
      static_cast<int64_t>(nbytes),
      allocate_from_pool(nbytes, device, c10::Device(kFlagos, device)),
      device_allocator(),
      impl->resizable());
  if (nbytes != 0 && impl->data() != nullptr) {
    queue(device, storage.mutable_data(), impl->data(), nbytes);
    uploads_.push_back(std::move(native));
  }
  return storage;
}

void Mirrors::wait() {
  if (queued_ >= 0) {
    wait_for_stream(std::exchange(queued_, c10::DeviceIndex(-1)));
  }
}

c10::Storage upload(c10::Storage native, c10::DeviceIndex device) {
  if (Mirrors* mirrors = Mirrors::current()) {
    return mirrors->upload(std::move(native), device);
  }
  Mirrors mirrors;
  c10::Storage storage = mirrors.upload(std::move(native), device);
  mirrors.wait();
  return storage;
}

} // namespace flagos
