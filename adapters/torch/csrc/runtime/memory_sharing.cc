// SPDX-License-Identifier: Apache-2.0
#include "runtime/memory_sharing.h"

#include <c10/core/StorageImpl.h>

#include <memory>
#include <tuple>

#include "runtime/stream.h"

namespace flagos {

namespace {

// Memory of another process, and the byte by which that is told that it is no longer used.
struct Imported {
  int32_t device;
  void* address;
  at::Tensor in_use;
};

void close(void* context) {
  const std::unique_ptr<Imported> imported(static_cast<Imported*>(context));
  core->memory_close(imported->device, imported->address);
  __atomic_store_n(static_cast<uint8_t*>(imported->in_use.mutable_data_ptr()), uint8_t{0}, __ATOMIC_RELEASE);
}

std::tuple<std::string, int64_t, int64_t> memory_export(const c10::Storage& storage) {
  TORCH_CHECK(storage.device_type() == kFlagos, "flagos: expected storage of a flagos device, got ", storage.device());
  char* text = nullptr;
  size_t offset = 0;
  size_t nbytes = 0;
  check(core->memory_export(storage.device().index(), storage.data(), &text, &offset, &nbytes));
  std::string key = text;
  core->string_free(text);
  return {std::move(key), static_cast<int64_t>(offset), static_cast<int64_t>(nbytes)};
}

// `nbytes` at `offset` of the memory with this key, which has `whole` bytes.
at::Tensor memory_import(
    const std::string& key,
    int64_t device,
    int64_t offset,
    int64_t whole,
    int64_t nbytes,
    const at::Tensor& in_use) {
  check_device_index(device);
  TORCH_CHECK(
      offset >= 0 && nbytes >= 0 && offset <= whole && nbytes <= whole - offset,
      "flagos: a message has bytes outside of its memory");
  TORCH_CHECK(in_use.is_cpu() && in_use.numel() == 1 && in_use.itemsize() == 1, "flagos: expected a byte on the CPU");
  open_device();
  void* address = nullptr;
  check(core->memory_import(static_cast<int32_t>(device), key.c_str(), static_cast<size_t>(whole), &address));
  const c10::Device place(kFlagos, static_cast<c10::DeviceIndex>(device));
  auto imported = std::make_unique<Imported>(Imported{static_cast<int32_t>(device), address, in_use});
  c10::DataPtr data(static_cast<char*>(address) + offset, imported.release(), &close, place);
  auto bytes = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(
          c10::Storage::use_byte_size_t(), static_cast<size_t>(nbytes), std::move(data), nullptr, /*resizable=*/false),
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      caffe2::TypeMeta::Make<uint8_t>());
  bytes.unsafeGetTensorImpl()->set_sizes_contiguous({nbytes});
  return bytes;
}

} // namespace

void register_memory_sharing(torch::Library& library) {
  // Throws, with the reason, where memory cannot be shared.
  library.def("memory_sharing() -> ()", [] {
    open_device();
    check(core->memory_sharing());
  });
  library.def("memory_export(Storage storage) -> (str, int, int)", &memory_export);
  library.def(
      "memory_import(str key, int device, int offset, int whole, int nbytes, Tensor in_use) -> Tensor", &memory_import);
}

} // namespace flagos
