// SPDX-License-Identifier: Apache-2.0
#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>

#include "aten/alias.h"
#include "runtime/transfer.h"
#include "torch_version.h"
#include "vendor_library/register.h"

namespace flagos {

namespace {

// Gives a tensor a geometry, and its storage the bytes that it needs.
void set_geometry(const at::Tensor& tensor, at::IntArrayRef size, at::IntArrayRef stride, int64_t offset) {
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  const size_t needed = at::detail::computeStorageNbytes(size, stride, impl->itemsize(), static_cast<size_t>(offset));
  c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  if (impl->itemsize() != 0 && c10::multiply_integers(size) != 0 && needed > storage->nbytes()) {
    TORCH_CHECK(storage->resizable(), "Trying to resize storage that is not resizable");
    native->resize(storage, needed);
  }
  impl->set_sizes_and_strides(size, stride, offset);
}

std::vector<int64_t> dense_strides(at::IntArrayRef size) {
  std::vector<int64_t> strides(size.size(), 1);
  for (size_t i = size.size(); i-- > 1;) {
    strides[i - 1] = strides[i] * std::max<int64_t>(size[i], 1);
  }
  return strides;
}

void check_device(const at::Tensor& self, c10::Device source) {
  if (self.device() != source) {
    raise_mixed_devices(self.device(), source);
  }
}

at::Tensor&
set_storage_offset(at::Tensor& self, at::Storage source, int64_t offset, at::IntArrayRef size, at::IntArrayRef stride) {
  Slot<at::_ops::set__source_Storage_storage_offset>::enter();
  check_device(self, source.device());
  at::native::checkSetStorage(self, std::move(source), offset, size, stride);
  // torch takes no strides for contiguous ones
  set_geometry(self, size, stride.data() == nullptr ? dense_strides(size) : stride.vec(), offset);
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source) {
  Slot<at::_ops::set__source_Storage>::enter();
  check_device(self, source.device());
  const auto size = static_cast<int64_t>(source.nbytes() / self.dtype().itemsize());
  at::native::checkSetStorage(self, std::move(source), int64_t(0), at::IntArrayRef(size), at::IntArrayRef());
  set_geometry(self, size, {1}, 0);
  return self;
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  Slot<at::_ops::set__source_Tensor>::enter();
  if (self.unsafeGetTensorImpl() != source.unsafeGetTensorImpl()) {
    check_device(self, source.device());
    at::native::checkSetStorage(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
    set_geometry(self, source.sizes(), source.strides(), source.storage_offset());
  }
  return self;
}

at::Tensor& set_empty(at::Tensor& self) {
  Slot<at::_ops::set_>::enter();
  self.unsafeGetTensorImpl()->set_storage_keep_dtype(at::empty({0}, self.options()).storage());
  set_geometry(self, {0}, {1}, 0);
  return self;
}

bool is_set_to(const at::Tensor& self, const at::Tensor& other) {
  Slot<at::_ops::is_set_to>::enter();
  return self.storage().unsafeGetStorageImpl() == other.storage().unsafeGetStorageImpl() &&
      self.storage_offset() == other.storage_offset() && self.sizes() == other.sizes() &&
      self.strides() == other.strides();
}

const at::Tensor& resize(const at::Tensor& self, at::IntArrayRef size, std::optional<c10::MemoryFormat> memory_format) {
  Slot<at::_ops::resize_>::enter();
  if (resize_named(self, size, memory_format)) {
    return self;
  }
  const size_t before = self.storage().nbytes();
  if (self.sizes() != size) {
    set_geometry(self, size, dense_strides(size), self.storage_offset());
  }
  if (memory_format.has_value()) {
    TORCH_CHECK(*memory_format != c10::MemoryFormat::Preserve, "Unsupported memory format ", *memory_format);
    self.unsafeGetTensorImpl()->empty_tensor_restride(*memory_format);
  }
  const at::Context& context = at::globalContext();
  if (C10_UNLIKELY(context.deterministicAlgorithms()) && context.deterministicFillUninitializedMemory()) {
    at::native::fill_resize_deterministic_(self, static_cast<int64_t>(before));
  }
  return self;
}

at::Tensor view_as_real(const at::Tensor& self) {
  Slot<at::_ops::view_as_real>::enter();
  return at::native::view_as_real(self);
}

at::Tensor view_as_complex(const at::Tensor& self) {
  Slot<at::_ops::view_as_complex>::enter();
  return at::native::view_as_complex(self);
}

// `tensor.item()`: the element is copied to the host, which is what the program asks for and no fallback.
at::Scalar local_scalar_dense(const at::Tensor& self) {
  Slot<at::_ops::_local_scalar_dense>::enter();
  const at::Tensor element = at::empty({}, self.options().device(c10::kCPU));
  try {
    queue_copy(self.device().index(), element.mutable_data_ptr(), self.const_data_ptr(), self.itemsize());
    wait_for_stream(self.device().index());
  } catch (c10::Error& error) {
    name_while_capturing(error, Slot<at::_ops::_local_scalar_dense>::name);
    throw;
  }
  return element.item();
}

} // namespace

void register_metadata_operators(Registrar& registrar) {
  registrar.kernel<at::_ops::set__source_Storage_storage_offset>(TORCH_FN(set_storage_offset));
  registrar.kernel<at::_ops::set__source_Storage>(TORCH_FN(set_storage));
  registrar.kernel<at::_ops::set__source_Tensor>(TORCH_FN(set_tensor));
  registrar.kernel<at::_ops::set_>(TORCH_FN(set_empty));
  registrar.kernel<at::_ops::is_set_to>(TORCH_FN(is_set_to));
  registrar.kernel<at::_ops::resize_>(TORCH_FN(resize));
  registrar.kernel<at::_ops::view_as_real>(TORCH_FN(view_as_real));
  registrar.kernel<at::_ops::view_as_complex>(TORCH_FN(view_as_complex));
  registrar.kernel<at::_ops::_local_scalar_dense>(TORCH_FN(local_scalar_dense));
}

} // namespace flagos
