// SPDX-License-Identifier: Apache-2.0
#include "aten/twin.h"

#include <cstring>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace flagos {

void release_twin(void* twin) {
  c10::raw::intrusive_ptr::decref(static_cast<c10::StorageImpl*>(twin));
}

namespace {

// The native storages over memory from outside that calls use just now, by the flagos storage of each. Kernels tell by
// the storage whether what they write overlaps what they read, so that one call must not be given two.
class ForeignTwins {
 public:
  static ForeignTwins& instance() {
    static auto* twins = new ForeignTwins; // storages may end after everything else
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

  // The last call that used the twin of this flagos storage is over.
  static void release(void* context) {
    auto* foreign = static_cast<c10::StorageImpl*>(context);
    instance().forget(foreign);
    c10::raw::intrusive_ptr::decref(foreign);
  }

  void forget(c10::StorageImpl* foreign) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = twins_.find(foreign);
    if (found != twins_.end() && found->second.expired()) { // another thread may have made the next one
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

namespace {

// A flagos storage that owns `native`, which is left empty.
inline __attribute__((always_inline)) c10::Storage storage_over(c10::Storage& native, c10::DeviceIndex device) {
  c10::StorageImpl* impl = native.unsafeGetStorageImpl();
  // Copy-on-write memory would move under the flagos pointer at the first write.
  impl->mutable_data_ptr();
  const auto nbytes = static_cast<int64_t>(impl->nbytes());
  const bool resizable = impl->resizable();
  return c10::Storage(
      c10::Storage::use_byte_size_t{},
      nbytes,
      twin_data_ptr(c10::intrusive_ptr<c10::StorageImpl>::reclaim(native.unsafeReleaseStorageImpl()), device),
      device_allocator(),
      resizable);
}

void copy_names(const c10::TensorImpl* from, c10::TensorImpl* to) {
  if (C10_UNLIKELY(from->has_named_tensor_meta())) {
    to->set_named_tensor_meta(from->named_tensor_meta()->clone());
  }
}

// Element by element: most tensors have few dimensions.
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

// The backend's key, and that of tensors of zeros without memory where `from` is one.
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

// What torch keeps to TensorImpl and its subclasses, of any TensorImpl.
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
  static bool is_extended(const c10::TensorImpl* impl) {
    return impl->*(&Members::extra_meta_) != nullptr;
  }

  // Sizes, strides, offset, type, and what follows from them, and the device: `copy_generic_tensor_metadata` for a
  // tensor that is not extended, in a third of its instructions.
  static void copy(const c10::TensorImpl* from_impl, c10::TensorImpl* to_impl) {
    const auto* from = static_cast<const Members*>(from_impl);
    auto* to = static_cast<Members*>(to_impl);
    to->sizes_and_strides_ = from->sizes_and_strides_;
    to->storage_offset_ = from->storage_offset_;
    to->numel_ = from->numel_;
    // The type, the device and the flags lie side by side in one word: flag by flag they cost forty instructions.
    const auto* first = reinterpret_cast<const char*>(&from->data_type_);
    const auto* behind = reinterpret_cast<const char*>(&from->key_set_);
    std::memcpy(static_cast<void*>(&to->data_type_), first, static_cast<size_t>(behind - first));
    to->allow_tensor_metadata_change_ = true;
  }

  // As `_change_backend_component_keys`, of a native tensor to flagos.
  static void show_under_flagos(c10::TensorImpl* impl, c10::DeviceIndex device) {
    static const c10::DispatchKeySet marks = c10::DispatchKeySet(c10::BackendComponent::PrivateUse1Bit) |
        c10::DispatchKeySet(c10::DispatchKey::AutocastPrivateUse1);
    auto* members = static_cast<Members*>(impl);
    members->device_opt_ = c10::Device(kFlagos, device);
    members->key_set_ =
        c10::DispatchKeySet::from_raw_repr(members->key_set_.raw_repr() & ~native.marks.raw_repr()) | marks;
  }
};

// Whether nobody but the pool knows of the tensor, and no call has left anything in it that binding does not replace.
bool reusable(const at::Tensor& tensor) {
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  return tensor.getIntrusivePtr().is_uniquely_owned() && impl->key_set() == native.keys &&
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
  (void)owner; // constructed by its first use
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

at::Tensor* AliasPool::take(c10::TensorImpl* from) {
  // The bits of conjugates, negatives and zeros, names, and sizes that are symbols or Python's are rare.
  constexpr c10::DispatchKeySet kRare(
      {c10::DispatchKey::Conjugate,
       c10::DispatchKey::Negative,
       c10::DispatchKey::ZeroTensor,
       c10::DispatchKey::Named,
       c10::DispatchKey::Python});
  if (C10_UNLIKELY(from->key_set().has_any(kRare) || Members::is_extended(from))) {
    return nullptr;
  }
  Alias* free = this->free();
  if (C10_UNLIKELY(free == nullptr)) {
    return nullptr;
  }
  Alias& alias = *free;
  c10::Storage storage = twin_storage(from->unsafe_storage());
  const c10::Device device = native_device(from->device().index());
  if (C10_UNLIKELY(!alias.native.defined())) {
    alias.native =
        at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, std::move(storage), native.keys, from->dtype());
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

at::Tensor* AliasPool::take_counted(c10::TensorImpl* from) {
  at::Tensor* alias = take(from);
  if (C10_LIKELY(alias != nullptr)) {
    // Not by its setter: an alias has the keys of a tensor of inference mode, which has no counter.
    Members::version_counter(alias->unsafeGetTensorImpl()) = from->version_counter();
  }
  return alias;
}

void AliasPool::give_back(size_t used) {
  while (used_ > used) {
    at::Tensor& tensor = (*this)[--used_].native;
    if (C10_LIKELY(reusable(tensor))) {
      Members::version_counter(tensor.unsafeGetTensorImpl()) = c10::VariableVersion(c10::VariableVersion::DISABLED);
      Members::storage(tensor.unsafeGetTensorImpl()) = c10::Storage(); // last: its end may run anything
    } else {
      const at::Tensor dropped = std::move(tensor); // what its end runs finds the place empty
    }
  }
}

at::Tensor& Aliases::outside_the_pool(const at::Tensor& tensor) {
  return others_.emplace_front(Alias{tensor.unsafeGetTensorImpl(), dense_alias(tensor)}).native;
}

at::Tensor dense_alias(const at::Tensor& tensor) {
  const c10::TensorImpl* from = tensor.unsafeGetTensorImpl();
  auto alias = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, twin_storage(from->unsafe_storage()), keys_like(from, native.dense), from->dtype());
  c10::TensorImpl* to = alias.unsafeGetTensorImpl();
  to->set_sizes_and_strides(from->sizes(), from->strides(), from->storage_offset());
  copy_bits(from, to);
  return alias;
}

at::Tensor view_of(const at::Tensor& native, c10::Storage flagos_storage) {
  const c10::TensorImpl* from = native.unsafeGetTensorImpl();
  auto view = at::detail::make_tensor<c10::TensorImpl>(
      std::move(flagos_storage), keys_like(from, c10::DispatchKey::PrivateUse1), from->dtype());
  c10::TensorImpl* to = view.unsafeGetTensorImpl();
  to->set_sizes_and_strides(from->sizes(), from->strides(), from->storage_offset());
  copy_bits(from, to);
  return view;
}

c10::Storage wrap_storage(c10::Storage native, c10::DeviceIndex device) {
  return storage_over(native, device);
}

at::Tensor wrap_dense(at::Tensor native, c10::DeviceIndex device) {
  c10::TensorImpl* impl = native.unsafeGetTensorImpl();
  const bool exclusive = native.use_count() == 1 && !impl->is_inference() == !c10::InferenceMode::is_enabled() &&
      impl->allow_tensor_metadata_change();
  if (C10_UNLIKELY(!exclusive)) {
    return view_of(native, wrap_storage(impl->unsafe_storage(), device));
  }
  c10::Storage& storage = Members::storage(impl);
  storage = storage_over(storage, device);
  Members::show_under_flagos(impl, device);
  return native;
}

void refresh_from_twin(c10::StorageImpl* flagos_storage, c10::StorageImpl* twin, c10::DeviceIndex device) {
  twin->mutable_data_ptr(); // see wrap_storage on copy-on-write
  if (flagos_storage->data() != twin->data() || twin_of(flagos_storage->data_ptr()) != twin) {
    flagos_storage->set_data_ptr_noswap(
        twin_data_ptr(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(twin), device));
  }
  if (flagos_storage->nbytes() != twin->nbytes()) {
    flagos_storage->set_nbytes(twin->nbytes());
  }
}

void sync_mutated(c10::TensorImpl* original, c10::TensorImpl* alias, c10::DeviceIndex device) {
  const c10::Storage& alias_storage = alias->unsafe_storage();
  c10::StorageImpl* native = alias_storage.unsafeGetStorageImpl();
  c10::StorageImpl* storage = original->unsafe_storage().unsafeGetStorageImpl();
  c10::StorageImpl* twin = twin_of(storage->data_ptr());
  if (C10_LIKELY(twin == native)) {
    if (C10_UNLIKELY(storage->data() != native->data() || storage->nbytes() != native->nbytes())) {
      refresh_from_twin(storage, native, device);
    }
  } else if (twin != nullptr || native->data_ptr().get_context() != storage) {
    // The kernel gave the tensor another storage (set_).
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
