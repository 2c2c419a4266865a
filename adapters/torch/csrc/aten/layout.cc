// SPDX-License-Identifier: Apache-2.0
#include "aten/layout.h"

#include <ATen/NestedTensorImpl.h>
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/quantized/QTensorImpl.h>

namespace flagos {

namespace {

at::SparseTensorImpl* sparse_impl(const at::Tensor& tensor) {
  return static_cast<at::SparseTensorImpl*>(tensor.unsafeGetTensorImpl());
}

at::SparseCsrTensorImpl* compressed_impl(const at::Tensor& tensor) {
  return static_cast<at::SparseCsrTensorImpl*>(tensor.unsafeGetTensorImpl());
}

at::QTensorImpl* quantized_impl(const at::Tensor& tensor) {
  return static_cast<at::QTensorImpl*>(tensor.unsafeGetTensorImpl());
}

bool is_compressed(c10::Layout layout) {
  return layout == c10::kSparseCsr || layout == c10::kSparseCsc || layout == c10::kSparseBsr ||
      layout == c10::kSparseBsc;
}

// A sparse COO tensor of `key` whose parts are `map` of the parts of `from`.
template <class Map>
at::Tensor map_sparse(const at::Tensor& from, c10::DispatchKey key, Map map) {
  const auto* impl = sparse_impl(from);
  auto to = at::detail::make_tensor<at::SparseTensorImpl>(c10::DispatchKeySet(key), from.dtype());
  auto* to_impl = sparse_impl(to);
  to_impl->resize_(impl->sparse_dim(), impl->dense_dim(), from.sizes());
  to_impl->set_indices_and_values_unsafe(map(impl->indices()), map(impl->values()));
  to_impl->set_coalesced(impl->coalesced());
  return to;
}

template <class Map>
at::Tensor map_compressed(const at::Tensor& from, c10::DispatchKey key, c10::Device device, Map map) {
  const auto* impl = compressed_impl(from);
  auto to =
      at::detail::make_tensor<at::SparseCsrTensorImpl>(c10::DispatchKeySet(key), device, from.layout(), from.dtype());
  compressed_impl(to)->set_member_tensors(
      map(impl->compressed_indices()), map(impl->plain_indices()), map(impl->values()), from.sizes());
  return to;
}

at::Tensor quantized_alias(const at::Tensor& tensor) {
  const auto* from = quantized_impl(tensor);
  auto alias = at::detail::make_tensor<at::QTensorImpl>(
      native_storage(tensor.unsafeGetTensorImpl()),
      c10::DispatchKeySet(native->quantized),
      from->dtype(),
      quantized_impl(tensor)->quantizer());
  alias.unsafeGetTensorImpl()->set_sizes_and_strides(from->sizes(), from->strides(), from->storage_offset());
  return alias;
}

at::Tensor wrap_quantized(const at::Tensor& native, StorageSource& source) {
  auto wrapped = at::detail::make_tensor<at::QTensorImpl>(
      source.flagos_storage(native.storage()),
      c10::DispatchKeySet(c10::DispatchKey::QuantizedPrivateUse1),
      native.dtype(),
      quantized_impl(native)->quantizer());
  wrapped.unsafeGetTensorImpl()->set_sizes_and_strides(native.sizes(), native.strides(), native.storage_offset());
  return wrapped;
}

at::native::NestedTensorImpl* nested_impl(const at::Tensor& tensor) {
  return at::native::get_nested_tensor_impl(tensor);
}

// A nested tensor over `buffer`; sizes, strides and offsets are CPU tensors on every device.
at::Tensor renest(const at::Tensor& from, at::Tensor buffer) {
  const auto* impl = nested_impl(from);
  return at::detail::make_tensor<at::native::NestedTensorImpl>(
      std::move(buffer), impl->get_nested_sizes(), impl->get_nested_strides(), impl->get_storage_offsets());
}

void sync_dense(const at::Tensor& original, const at::Tensor& alias, StorageSource& source) {
  c10::TensorImpl* impl = original.unsafeGetTensorImpl();
  const c10::StorageImpl* storage = original.storage().unsafeGetStorageImpl();
  const c10::StorageImpl* native = alias.storage().unsafeGetStorageImpl();
  if (C10_UNLIKELY(!is_native_storage(native, storage))) { // set_ gave the alias another storage
    impl->set_storage_keep_dtype(source.flagos_storage(alias.storage()));
  }
  sync_mutated(impl, alias.unsafeGetTensorImpl(), source.device());
}

} // namespace

at::Tensor alias_of(const at::Tensor& tensor) {
  const c10::Layout layout = tensor.layout();
  if (C10_LIKELY(layout == c10::kStrided)) {
    if (C10_UNLIKELY(tensor.is_nested())) {
      return renest(tensor, dense_alias(nested_impl(tensor)->get_unsafe_storage_as_tensor()));
    }
    return C10_UNLIKELY(tensor.is_quantized()) ? quantized_alias(tensor) : dense_alias(tensor);
  }
  if (layout == c10::kSparse) {
    return map_sparse(tensor, native->sparse, [](const at::Tensor& part) { return alias_of(part); });
  }
  if (is_compressed(layout)) {
    return map_compressed(
        tensor, native->compressed, native_device(tensor.device().index()), [](const at::Tensor& part) {
          return alias_of(part);
        });
  }
  TORCH_CHECK_NOT_IMPLEMENTED(false, "flagos: tensors of layout ", layout, " are not supported on flagos");
}

at::Tensor with_requires_grad(const at::Tensor& alias) {
  at::Tensor shown = alias;
  if (alias.layout() == c10::kStrided) { // dense aliases lack the autograd keys that requires_grad needs
    const c10::TensorImpl* from = alias.unsafeGetTensorImpl();
    shown = at::detail::make_tensor<c10::TensorImpl>(
        c10::Storage(alias.storage()), c10::DispatchKeySet(native->dense), from->dtype());
    shown.unsafeGetTensorImpl()->set_sizes_and_strides(from->sizes(), from->strides(), from->storage_offset());
    shown.unsafeGetTensorImpl()->_set_conj(from->is_conj());
    shown.unsafeGetTensorImpl()->_set_neg(from->is_neg());
  }
  shown.unsafeGetTensorImpl()->set_requires_grad(true);
  return shown;
}

at::Tensor wrap_result(at::Tensor native, StorageSource& source) {
  const c10::Layout layout = native.layout();
  if (C10_LIKELY(layout == c10::kStrided)) {
    if (C10_UNLIKELY(native.is_nested())) {
      const at::Tensor buffer = nested_impl(native)->get_unsafe_storage_as_tensor();
      return renest(native, view_of(buffer, source.flagos_storage(buffer.storage())));
    }
    if (C10_UNLIKELY(native.is_quantized())) {
      return wrap_quantized(native, source);
    }
    if (C10_UNLIKELY(!native.has_storage())) {
      return native;
    }
    if (C10_LIKELY(native.storage().use_count() == 1)) {
      return wrap_dense(std::move(native), source.device());
    }
    return view_of(native, source.flagos_storage(native.storage()));
  }
  const auto wrap = [&](const at::Tensor& part) { return wrap_result(part, source); };
  if (layout == c10::kSparse) {
    return map_sparse(native, c10::DispatchKey::SparsePrivateUse1, wrap);
  }
  if (is_compressed(layout)) {
    return map_compressed(native, c10::DispatchKey::SparseCsrPrivateUse1, c10::Device(kFlagos, source.device()), wrap);
  }
  return native;
}

at::Tensor view_of_nested(const at::Tensor& base, const at::Tensor& like) {
  if (like.is_nested()) {
    const auto* impl = nested_impl(like);
    return at::detail::make_tensor<at::native::NestedTensorImpl>(
        c10::TensorImpl::VIEW, base, impl->get_nested_sizes(), impl->get_nested_strides(), impl->get_storage_offsets());
  }
  const at::Tensor buffer = nested_impl(base)->get_unsafe_storage_as_tensor();
  auto view = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(base.storage()), buffer.key_set(), like.dtype());
  view.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  return view;
}

void each_part(const at::Tensor& tensor, c10::function_ref<void(const c10::TensorImpl*)> visit) {
  const c10::Layout layout = tensor.layout();
  const auto part = [&](const at::Tensor& part) { each_part(part, visit); };
  if (layout == c10::kSparse) {
    part(sparse_impl(tensor)->indices());
    part(sparse_impl(tensor)->values());
  } else if (is_compressed(layout)) {
    part(compressed_impl(tensor)->compressed_indices());
    part(compressed_impl(tensor)->plain_indices());
    part(compressed_impl(tensor)->values());
  } else if (tensor.is_nested()) {
    part(nested_impl(tensor)->get_unsafe_storage_as_tensor());
  } else if (tensor.has_storage()) {
    visit(tensor.unsafeGetTensorImpl());
  }
}

void sync_layout(const at::Tensor& original, const at::Tensor& alias, StorageSource& source) {
  const c10::Layout layout = original.layout();
  if (C10_LIKELY(layout == c10::kStrided)) {
    if (alias.layout() == c10::kStrided && !alias.is_nested() && alias.has_storage() && original.has_storage()) {
      sync_dense(original, alias, source);
      if (C10_UNLIKELY(original.is_quantized())) {
        quantized_impl(original)->set_quantizer_(quantized_impl(alias)->quantizer());
      }
    }
    return;
  }
  const auto wrap = [&](const at::Tensor& part) { return wrap_result(part, source); };
  if (layout == c10::kSparse) {
    const auto* from = sparse_impl(alias);
    auto* to = sparse_impl(original);
    to->raw_resize_(from->sparse_dim(), from->dense_dim(), alias.sizes());
    to->set_indices_and_values_unsafe(wrap(from->indices()), wrap(from->values()));
    to->set_coalesced(from->coalesced());
  } else if (is_compressed(layout)) {
    const auto* from = compressed_impl(alias);
    compressed_impl(original)->set_member_tensors(
        wrap(from->compressed_indices()), wrap(from->plain_indices()), wrap(from->values()), alias.sizes());
  }
}

} // namespace flagos
