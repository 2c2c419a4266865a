// SPDX-License-Identifier: Apache-2.0
#include "following/key.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "following/storage.h"

namespace flagos::following {

namespace {

// What values are, in the words of a key.
enum class Kind : uint64_t {
  kNone = 1,
  kTensor,
  kUndefined,
  kNumber,
  kList,
  kInt,
  kDouble,
  kBool,
  kText,
  kDevice,
  kComplex
};

constexpr uint64_t code(Kind kind) {
  return static_cast<uint64_t>(kind);
}

uint64_t bits_of(double value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

constexpr c10::DispatchKeySet kAllowed = c10::DispatchKeySet(
    {c10::DispatchKey::PrivateUse1,
     c10::DispatchKey::AutogradPrivateUse1,
     c10::DispatchKey::AutocastPrivateUse1,
     c10::DispatchKey::ADInplaceOrView,
     c10::DispatchKey::BackendSelect});

} // namespace

bool is_plain(const c10::TensorImpl* tensor) {
  struct Members : c10::TensorImpl {
    static bool is_extended(const c10::TensorImpl* impl) {
      return impl->*(&Members::extra_meta_) != nullptr;
    }
  };
  return (tensor->key_set().raw_repr() & ~kAllowed.raw_repr()) == 0 && !Members::is_extended(tensor) &&
      tensor->has_storage();
}

bool Key::read(uint64_t op, uint64_t modes, const torch::jit::Stack& stack, size_t num_arguments) {
  size_ = 0;
  addresses_.clear();
  tensors_.clear();
  device_ = -1;
  plain_ = true;
  kinds_ = 0;
  word(op);
  word(modes);
  for (size_t i = stack.size() - num_arguments; i < stack.size(); ++i) {
    value(stack[i]);
  }
  return plain_;
}

uint64_t Key::numbers() const {
  uint64_t hash = 0;
  auto address = addresses_.begin();
  for (const uint64_t word : words()) {
    if (address != addresses_.end() && word == reinterpret_cast<uint64_t>(*address)) {
      ++address;
    } else {
      hash = mixed(hash, word);
    }
  }
  return hash;
}

void Key::tensor(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    kind(code(Kind::kUndefined));
    return;
  }
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  const uint64_t dtype = static_cast<uint64_t>(c10::typeMetaToScalarType(impl->dtype())) << 8U;
  const auto sizes = impl->sizes();
  if (impl->device().type() == c10::DeviceType::CPU && sizes.empty() && impl->layout() == c10::kStrided &&
      impl->itemsize() <= 16 && impl->data() != nullptr) {
    // A number: kernels get its value.
    kind(code(Kind::kNumber) | dtype | static_cast<uint64_t>(impl->is_wrapped_number()) << 16U);
    uint64_t bits[2] = {};
    std::memcpy(static_cast<void*>(bits), impl->data(), impl->itemsize());
    word(bits[0]);
    word(bits[1]);
    return;
  }
  // Memory of others may be theirs again before the call is launched: it has no twin.
  const auto is_ours = [](const c10::StorageImpl* storage) {
    return storage->nbytes() == 0 || owned_memory(storage->data_ptr()) != nullptr;
  };
  if (!is_plain(impl) || impl->device().type() != kFlagos || (device_ >= 0 && device_ != impl->device().index()) ||
      !is_ours(impl->unsafe_storage().unsafeGetStorageImpl())) {
    plain_ = false;
    kind(code(Kind::kTensor));
    return;
  }
  device_ = impl->device().index();
  kind(
      code(Kind::kTensor) | dtype | static_cast<uint64_t>(impl->is_wrapped_number()) << 16U |
      static_cast<uint64_t>(sizes.size()) << 24U);
  for (const int64_t size : sizes) {
    word(static_cast<uint64_t>(size));
  }
  for (const int64_t stride : impl->strides()) {
    word(static_cast<uint64_t>(stride));
  }
  // Tensors of inference mode are not to be written outside of it.
  const bool is_inference = !impl->key_set().has_any(c10::inplace_or_view_ks);
  word(static_cast<uint64_t>(impl->storage_offset()) << 1U | static_cast<uint64_t>(is_inference));
  const c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  word(storage->nbytes());
  word(reinterpret_cast<uint64_t>(storage->data()));
  addresses_.push_back(storage->data());
  // Kernels ask whether two arguments are one tensor. Of lists they do not.
  if (tensors_.size() < kCompared) {
    const auto seen = std::find(tensors_.begin(), tensors_.end(), impl);
    word(static_cast<uint64_t>(seen - tensors_.begin()));
    tensors_.push_back(impl);
  }
}

void Key::value(const c10::IValue& value) {
  if (value.isTensor()) {
    tensor(value.toTensor());
  } else if (value.isNone()) {
    kind(code(Kind::kNone));
  } else if (value.isInt()) {
    kind(code(Kind::kInt));
    word(static_cast<uint64_t>(value.toInt()));
  } else if (value.isDouble()) {
    kind(code(Kind::kDouble));
    word(bits_of(value.toDouble()));
  } else if (value.isBool()) {
    word(code(Kind::kBool) | static_cast<uint64_t>(value.toBool()) << 8U);
  } else if (value.isComplexDouble()) {
    word(code(Kind::kComplex));
    word(bits_of(value.toComplexDouble().real()));
    word(bits_of(value.toComplexDouble().imag()));
  } else if (value.isList()) {
    const auto& list = value.toListRef();
    kind(code(Kind::kList));
    word(list.size());
    for (const c10::IValue& each : list) {
      this->value(each);
    }
  } else if (value.isString()) {
    const std::string_view text = value.toStringView();
    word(code(Kind::kText) | text.size() << 8U);
    for (size_t i = 0; i < text.size(); i += 8) {
      uint64_t part = 0;
      std::memcpy(&part, text.data() + i, std::min<size_t>(8, text.size() - i));
      word(part);
    }
  } else if (value.isDevice()) {
    const c10::Device device = value.toDevice();
    word(
        code(Kind::kDevice) | static_cast<uint64_t>(static_cast<uint8_t>(device.type())) << 8U |
        static_cast<uint64_t>(static_cast<uint8_t>(device.index())) << 16U);
  } else {
    plain_ = false; // symbols, generators, streams, storages, objects
  }
}

} // namespace flagos::following
