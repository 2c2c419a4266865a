// SPDX-License-Identifier: Apache-2.0
#include "aten/alias.h"

#include <cstring>
#include <utility>

#include "torch_version.h"

namespace flagos {

namespace {

// Compares element by element, which is faster than IntArrayRef's memcmp for the few dimensions of most tensors.
bool same_geometry(const c10::TensorImpl* a, const c10::TensorImpl* b) {
  const auto dimensions = a->sizes().size();
  if (dimensions != b->sizes().size() || a->storage_offset() != b->storage_offset()) {
    return false;
  }
  const int64_t *sizes = a->sizes().data(), *strides = a->strides().data();
  const int64_t *other_sizes = b->sizes().data(), *other_strides = b->strides().data();
  for (size_t i = 0; i < dimensions; ++i) {
    if (sizes[i] != other_sizes[i] || strides[i] != other_strides[i]) {
      return false;
    }
  }
  return true;
}

// The key of the backend; with ZeroTensor's when `from` is a tensor of zeros without memory.
c10::DispatchKeySet keys_like(const c10::TensorImpl* from, c10::DispatchKey backend) {
  return C10_UNLIKELY(from->_is_zerotensor()) ? c10::DispatchKeySet({backend, c10::DispatchKey::ZeroTensor})
                                              : c10::DispatchKeySet(backend);
}

void copy_bits(const c10::TensorImpl* from, c10::TensorImpl* to) {
  if (C10_UNLIKELY(from->is_wrapped_number())) {
    to->set_wrapped_number(true);
  }
  if (C10_UNLIKELY(from->is_conj())) {
    to->_set_conj(true);
  }
  if (C10_UNLIKELY(from->is_neg())) {
    to->_set_neg(true);
  }
  copy_names(from, to);
}

// Access to protected members of any TensorImpl.
struct Members : c10::TensorImpl {
  static c10::Storage& storage(c10::TensorImpl* impl) {
    return impl->*(&Members::storage_);
  }
  static std::optional<c10::Device>& device(c10::TensorImpl* impl) {
    return impl->*(&Members::device_opt_);
  }
  static c10::VariableVersion& version_counter(c10::TensorImpl* impl) {
    return impl->*(&Members::version_counter_);
  }
  // One dimension of no elements.
  static void be_empty(c10::TensorImpl* impl) {
    impl->set_sizes_contiguous(c10::IntArrayRef({0}));
    impl->*(&Members::storage_offset_) = 0;
  }
  // Most aliases have the counter already: it is one pointer, which costs two atomic operations to copy.
  static void share_version(const c10::TensorImpl* from, c10::TensorImpl* to) {
    static_assert(sizeof(c10::VariableVersion) == sizeof(void*));
    const c10::VariableVersion& counter = from->version_counter();
    if (std::memcmp(&version_counter(to), &counter, sizeof counter) != 0) {
      version_counter(to) = counter;
    }
  }
  static bool is_extended(const c10::TensorImpl* impl) {
    return impl->*(&Members::extra_meta_) != nullptr;
  }

  // Copies sizes, strides, offset, dtype, device and the flags derived from them. Does what
  // `copy_generic_tensor_metadata` does for a tensor without extra_meta_, in a third of its instructions.
  static void copy(const c10::TensorImpl* from_impl, c10::TensorImpl* to_impl) {
    const auto* from = static_cast<const Members*>(from_impl);
    auto* to = static_cast<Members*>(to_impl);
    to->sizes_and_strides_ = from->sizes_and_strides_;
    to->storage_offset_ = from->storage_offset_;
    to->numel_ = from->numel_;
    // dtype, device and flags lie side by side: one memcpy instead of forty instructions for single flags.
    const auto* first = reinterpret_cast<const char*>(&from->data_type_);
    const auto* behind = reinterpret_cast<const char*>(&from->key_set_);
    std::memcpy(static_cast<void*>(&to->data_type_), first, static_cast<size_t>(behind - first));
    to->allow_tensor_metadata_change_ = true;
  }

  // Relabels a native tensor as a flagos one; the keys change as in `_change_backend_component_keys`.
  static void relabel_as_flagos(c10::TensorImpl* impl, c10::DeviceIndex device) {
    static const c10::DispatchKeySet marks = c10::DispatchKeySet(c10::BackendComponent::PrivateUse1Bit) |
        c10::DispatchKeySet(c10::DispatchKey::AutocastPrivateUse1);
    auto* members = static_cast<Members*>(impl);
    members->device_opt_ = c10::Device(kFlagos, device);
    members->key_set_ =
        c10::DispatchKeySet::from_raw_repr(members->key_set_.raw_repr() & ~native->marks.raw_repr()) | marks;
  }
};

// Tensors that `dense_alias` serves: lazy conjugates and negatives, zeros without memory, named dimensions, symbolic
// sizes and sizes that Python computes.
bool is_rare(const c10::TensorImpl* from) {
  constexpr c10::DispatchKeySet kRare(
      {c10::DispatchKey::Conjugate,
       c10::DispatchKey::Negative,
       c10::DispatchKey::ZeroTensor,
       c10::DispatchKey::Python});
  return from->key_set().has_any(kRare | kNamed) || Members::is_extended(from);
}

// Whether only the pool holds the tensor, and no kernel has left state in it that the next binding would not replace.
bool reusable(const at::Tensor& tensor) {
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  return tensor.getIntrusivePtr().is_uniquely_owned() && impl->key_set() == native->keys &&
      impl->pyobj_slot()->load_pyobj() == nullptr && impl->autograd_meta() == nullptr && !Members::is_extended(impl) &&
      impl->allow_tensor_metadata_change();
}

} // namespace

thread_local AliasPool* AliasPool::current_ = nullptr;

AliasPool& AliasPool::create() {
  struct Owner {
    ~Owner() {
      delete std::exchange(current_, nullptr);
    }
  };
  static thread_local Owner owner;
  (void)owner; // naming it constructs it
  current_ = new AliasPool();
  return *current_;
}

inline Alias* AliasPool::free() {
  if (C10_UNLIKELY(used_ == kSize + more_.size())) {
    if (more_.size() == kMore) {
      return nullptr;
    }
    more_.emplace_back();
  }
  return &(*this)[used_];
}

template <bool kBorrows>
inline at::Tensor* AliasPool::bind(c10::TensorImpl* from) {
  if (C10_UNLIKELY(is_rare(from))) {
    return nullptr;
  }
  Alias* free = this->free();
  if (C10_UNLIKELY(free == nullptr)) {
    return nullptr;
  }
  Alias& alias = *free;
  c10::StorageImpl* twin =
      kBorrows ? twin_of(from->unsafe_storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks()) : nullptr;
  alias.borrows = twin != nullptr;
  c10::Storage storage =
      alias.borrows ? c10::Storage(c10::intrusive_ptr<c10::StorageImpl>::reclaim(twin)) : native_storage(from);
  const c10::Device device = native_device(from->device().index());
  if (C10_UNLIKELY(!alias.native.defined())) {
    alias.native = at::detail::make_tensor<c10::TensorImpl>(
        c10::TensorImpl::VIEW, std::move(storage), native->keys, from->dtype());
  } else {
    Members::storage(alias.native.unsafeGetTensorImpl()) = std::move(storage);
  }
  c10::TensorImpl* to = alias.native.unsafeGetTensorImpl();
  Members::copy(from, to);
  Members::device(to) = device;
  alias.original = from;
  ++used_;
  return &alias.native;
}

at::Tensor* AliasPool::take(c10::TensorImpl* from) {
  return bind<false>(from);
}

at::Tensor* AliasPool::borrow(c10::TensorImpl* from) {
  return bind<true>(from);
}

namespace {

void give_counter(c10::TensorImpl* alias) {
  // The setter refuses: by its keys an alias is an inference tensor, which has no counter.
  if (C10_UNLIKELY(!alias->version_counter().enabled())) {
    Members::version_counter(alias) = c10::VariableVersion(0);
  }
}

at::Tensor* counted(at::Tensor* alias) {
  if (C10_LIKELY(alias != nullptr)) {
    give_counter(alias->unsafeGetTensorImpl());
  }
  return alias;
}

} // namespace

at::Tensor* AliasPool::take_counted(c10::TensorImpl* from) {
  return counted(take(from));
}

at::Tensor* AliasPool::borrow_counted(c10::TensorImpl* from) {
  return counted(borrow(from));
}

void AliasPool::give_back(size_t used) {
  while (used_ > used) {
    Alias& alias = (*this)[--used_];
    at::Tensor& tensor = alias.native;
    if (C10_LIKELY(reusable(tensor))) {
      c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
      if (C10_LIKELY(alias.borrows)) {
        Members::storage(impl).unsafeReleaseStorageImpl();
      } else {
        Members::storage(impl) = c10::Storage(); // last: a deleter may run any code
      }
    } else {
      Aliases::own(alias);                          // somebody still holds it
      const at::Tensor dropped = std::move(tensor); // moved out first: a deleter may run code that uses the pool
    }
  }
}

void Aliases::own(Alias& alias) {
  if (std::exchange(alias.borrows, false)) {
    c10::raw::intrusive_ptr::incref(alias.native.storage().unsafeGetStorageImpl());
  }
}

at::Tensor& Aliases::outside_the_pool(const at::Tensor& tensor, at::Tensor alias) {
  return others_.emplace_front(Alias{tensor.unsafeGetTensorImpl(), std::move(alias)}).native;
}

at::Tensor dense_alias(const at::Tensor& tensor) {
  const c10::TensorImpl* from = tensor.unsafeGetTensorImpl();
  auto alias = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, native_storage(from), keys_like(from, native->dense), from->dtype());
  c10::TensorImpl* to = alias.unsafeGetTensorImpl();
  to->set_sizes_and_strides(from->sizes(), from->strides(), from->storage_offset());
  copy_bits(from, to);
  return alias;
}

at::Tensor counted_alias(const at::Tensor& tensor) {
  at::Tensor alias = dense_alias(tensor);
  give_counter(alias.unsafeGetTensorImpl());
  return alias;
}

namespace {

// A tensor of `backend` over `storage`, with sizes, strides, offset, dtype and bits of `like`.
at::Tensor tensor_over(c10::Storage storage, const at::Tensor& like, c10::DispatchKey backend) {
  const c10::TensorImpl* from = like.unsafeGetTensorImpl();
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), keys_like(from, backend), from->dtype());
  c10::TensorImpl* to = tensor.unsafeGetTensorImpl();
  to->set_sizes_and_strides(from->sizes(), from->strides(), from->storage_offset());
  copy_bits(from, to);
  return tensor;
}

at::Tensor share_version(const at::Tensor& from, at::Tensor to) {
  if (!from.is_inference() && !to.is_inference()) {
    to.unsafeGetTensorImpl()->set_version_counter(from.unsafeGetTensorImpl()->version_counter());
  }
  return to;
}

} // namespace

at::Tensor shared_alias(const at::Tensor& tensor) {
  lend(tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
  return share_version(tensor, tensor_over(native_storage(tensor.storage()), tensor, native->dense));
}

bool can_be_shared(c10::TensorImpl* tensor) {
  return tensor->is_privateuseone() && !is_rare(tensor);
}

bool can_share(c10::TensorImpl* tensor, c10::TensorImpl* alias) {
  return can_be_shared(tensor) && alias->device().type() == native->type && !is_rare(alias) &&
      tensor->is_inference() == alias->is_inference() && alias->is_inference() == c10::InferenceMode::is_enabled() &&
      alias->autograd_meta() == nullptr && alias->allow_tensor_metadata_change();
}

void share(c10::TensorImpl* tensor, c10::TensorImpl* alias, LastLent& lent) {
  lent.lend(tensor->unsafe_storage().unsafeGetStorageImpl());
  const c10::Device device = native_device(tensor->device().index());
  Members::storage(alias) = native_storage(tensor);
  Members::copy(tensor, alias);
  Members::device(alias) = device;
  Members::share_version(tensor, alias);
}

void let_go(c10::TensorImpl* alias) {
  // Not no storage at all: an object that Python's collector lists may be printed.
  static const auto* nothing = new c10::Storage(
      c10::Storage::use_byte_size_t{},
      0,
      c10::DataPtr(nullptr, native_device(0)),
      /*allocator=*/nullptr,
      /*resizable=*/false);
  Members::be_empty(alias);
  Members::storage(alias) = *nothing; // last: a deleter may run any code
}

at::Tensor share_with_flagos(const at::Tensor& native) {
  open_device();
  const c10::Device device = native.device(); // that of the host has no index
  const c10::DeviceIndex index = device.has_index() ? device.index() : current_device();
  at::Tensor shared = share_version(native, view_of(native, wrap_storage(native.storage(), index)));
  lend(shared.storage().unsafeGetStorageImpl());
  return shared;
}

at::Tensor view_of(const at::Tensor& native, c10::Storage flagos_storage) {
  return tensor_over(std::move(flagos_storage), native, c10::DispatchKey::PrivateUse1);
}

at::Tensor wrap_dense(at::Tensor native, c10::DeviceIndex device) {
  c10::TensorImpl* impl = native.unsafeGetTensorImpl();
  const bool exclusive = native.use_count() == 1 && !impl->is_inference() == !c10::InferenceMode::is_enabled() &&
      impl->allow_tensor_metadata_change();
  if (C10_UNLIKELY(!exclusive)) {
    return view_of(native, wrap_storage(impl->unsafe_storage(), device));
  }
  c10::Storage& storage = Members::storage(impl);
  storage = wrap_storage(std::move(storage), device);
  Members::relabel_as_flagos(impl, device);
  return native;
}

void sync_mutated(c10::TensorImpl* original, c10::TensorImpl* alias, c10::DeviceIndex device) {
  const c10::Storage& alias_storage = alias->unsafe_storage();
  c10::StorageImpl* native = alias_storage.unsafeGetStorageImpl();
  c10::StorageImpl* storage = original->unsafe_storage().unsafeGetStorageImpl();
  c10::StorageImpl* twin = twin_of(storage->data_ptr());
  if (C10_UNLIKELY(flagos::native->by_copies)) {
    Mirrors::current()->follow_size(storage);
  } else if (C10_LIKELY(twin == native)) {
    if (C10_UNLIKELY(storage->data() != native->data() || storage->nbytes() != native->nbytes())) {
      refresh_from_twin(storage, native, device);
    }
  } else if (twin != nullptr || native->data_ptr().get_context() != storage) {
    // set_ gave the alias another storage.
    original->set_storage_keep_dtype(wrap_storage(alias_storage, device));
  }
  if (C10_UNLIKELY(original->dtype() != alias->dtype())) {
    original->set_storage_and_dtype(original->unsafe_storage(), alias->dtype());
  }
  if (C10_UNLIKELY(!same_geometry(original, alias))) {
    original->set_sizes_and_strides(alias->sizes(), alias->strides(), alias->storage_offset());
  }
  if (C10_UNLIKELY(original->is_neg() != alias->is_neg())) {
    original->_set_neg(alias->is_neg());
  }
  if (C10_UNLIKELY(original->is_conj() != alias->is_conj())) {
    original->_set_conj(alias->is_conj());
  }
  copy_names(alias, original);
}

void raise_mixed_devices(c10::Device a, c10::Device b) {
  TORCH_CHECK(
      false,
      "Expected all tensors to be on the same device, but found at least two devices, ",
      a,
      " and ",
      b,
      "! Move one of them, for instance with .to(\"",
      a.type() == kFlagos ? a : b,
      "\").");
  throw std::logic_error("unreachable");
}

} // namespace flagos
