// SPDX-License-Identifier: Apache-2.0
#include "python_kernels/signature.h"

#include <ATen/Context.h>
#include <ATen/core/List.h>
#include <c10/core/GradMode.h>

#include <cstring>

#include "aten/alias.h"
#include "runtime/stream.h"
#include "torch_version.h"

namespace flagos {

namespace {

// The lowest bits of a value's first word.
enum Tag : uint64_t {
  kNone,
  kTensor,
  kNumberTensor,
  kUndefined,
  kInt,
  kDouble,
  kComplex,
  kBool,
  kString,
  kDevice,
  kIntList,
  kDoubleList,
  kBoolList,
  kTensorList,
  kOptionalTensorList,
};

// Kernels are specialised on whether an address is a multiple of this.
constexpr uintptr_t kPointerAlignment = 16;

constexpr c10::DispatchKeySet kNotDense(
    {c10::DispatchKey::ZeroTensor, c10::DispatchKey::NestedTensor, c10::DispatchKey::Quantized});

uint64_t bits(double value) {
  uint64_t word = 0;
  std::memcpy(&word, &value, sizeof(word));
  return word;
}

uint64_t header(Tag tag, uint64_t count) {
  return static_cast<uint64_t>(tag) | count << 8;
}

// Modes that change results or dtypes of results.
uint64_t modes() {
  const auto& context = at::globalContext();
  return static_cast<uint64_t>(context.deterministicAlgorithms()) |
      static_cast<uint64_t>(c10::GradMode::is_enabled()) << 1 |
      static_cast<uint64_t>(c10::typeMetaToScalarType(c10::get_default_dtype())) << 8;
}

} // namespace

bool Signature::add_elsewhere(const c10::TensorImpl* impl) {
  // The host reads the values of CPU scalars and of numbers in the place of tensors, so they belong to the signature.
  constexpr size_t kLargest = 16;
  if (impl->device_type() != c10::DeviceType::CPU || impl->dim() != 0 || impl->layout() != c10::kStrided ||
      impl->itemsize() > kLargest || !impl->has_storage() || impl->is_conj() || impl->is_neg()) {
    return false;
  }
  uint64_t value[2] = {0, 0};
  std::memcpy(value, impl->data(), impl->itemsize());
  words.push_back(
      static_cast<uint64_t>(kNumberTensor) | static_cast<uint64_t>(impl->is_wrapped_number()) << 8 |
      static_cast<uint64_t>(c10::typeMetaToScalarType(impl->dtype())) << 16);
  words.push_back(value[0]);
  words.push_back(value[1]);
  return true;
}

bool Signature::add(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    words.push_back(kUndefined);
    return true;
  }
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (C10_UNLIKELY(!is_flagos(tensor))) {
    return add_elsewhere(impl);
  }
  // Dense tensors only: their keys are those of the backend, of autograd, of views and of autocast.
  if (C10_UNLIKELY(
          impl->layout() != c10::kStrided || impl->is_python_dispatch() || impl->is_conj() || impl->is_neg() ||
          !impl->has_storage() || impl->is_wrapped_number() || has_names(impl) || impl->key_set().has_any(kNotDense))) {
    return false;
  }
  const c10::DeviceIndex index = impl->device().index();
  if (C10_UNLIKELY(device >= 0 && device != index)) {
    return false; // several devices: the call itself will throw
  }
  device = index;
  const uint64_t address = address_of(impl);
  const auto begin = reinterpret_cast<uintptr_t>(impl->unsafe_storage().data());
  const uintptr_t end = begin + impl->unsafe_storage().nbytes();
  uint64_t shares = 0; // 1 + the first earlier tensor over the same memory
  uint64_t same = 0;   // 1 + the earlier argument that is this very tensor
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto other = reinterpret_cast<uintptr_t>(inputs[i]->unsafe_storage().data());
    if (same == 0 && inputs[i] == impl) {
      same = i + 1;
    }
    if (other == begin) {
      shares = shares == 0 && begin != 0 ? i + 1 : shares;
    } else if (begin < other + inputs[i]->unsafe_storage().nbytes() && other < end) {
      return false; // one storage lies inside another (from_blob, DLPack)
    }
  }
  const auto sizes = impl->sizes();
  const auto strides = impl->strides();
  words.push_back(
      static_cast<uint64_t>(kTensor) | static_cast<uint64_t>(c10::typeMetaToScalarType(impl->dtype())) << 8 |
      static_cast<uint64_t>(sizes.size()) << 16 | static_cast<uint64_t>(address % kPointerAlignment == 0) << 24 |
      static_cast<uint64_t>(impl->numel() == 0) << 25 | shares << 32 | same << 48);
  for (const int64_t size : sizes) {
    words.push_back(static_cast<uint64_t>(size));
  }
  for (const int64_t stride : strides) {
    words.push_back(static_cast<uint64_t>(stride));
  }
  if (shares != 0) {
    aliased = true;
    words.push_back(address - address_of(inputs[shares - 1]));
  }
  inputs.push_back(impl);
  return true;
}

bool Signature::add(const c10::IValue& value) {
  if (value.isTensor()) {
    return add(value.toTensor());
  }
  if (value.isNone()) {
    words.push_back(kNone);
  } else if (value.isInt()) {
    words.push_back(kInt);
    words.push_back(static_cast<uint64_t>(value.toInt()));
  } else if (value.isBool()) {
    words.push_back(header(kBool, static_cast<uint64_t>(value.toBool())));
  } else if (value.isDouble()) {
    words.push_back(kDouble);
    words.push_back(bits(value.toDouble()));
  } else if (value.isComplexDouble()) {
    const c10::complex<double> number = value.toComplexDouble();
    words.push_back(kComplex);
    words.push_back(bits(number.real()));
    words.push_back(bits(number.imag()));
  } else if (value.isDevice()) {
    const c10::Device where = value.toDevice();
    words.push_back(
        header(kDevice, static_cast<uint64_t>(where.type()) | static_cast<uint64_t>(where.index() + 1) << 8));
    if (where.type() != kFlagos || (where.has_index() && device >= 0 && where.index() != device)) {
      return false;
    }
    if (where.has_index()) {
      device = where.index();
    }
  } else if (value.isIntList()) {
    const auto list = value.toIntList();
    words.push_back(header(kIntList, list.size()));
    for (const int64_t element : list) {
      words.push_back(static_cast<uint64_t>(element));
    }
  } else if (value.isDoubleList()) {
    const auto list = value.toDoubleList();
    words.push_back(header(kDoubleList, list.size()));
    for (const double element : list) {
      words.push_back(bits(element));
    }
  } else if (value.isBoolList()) {
    const auto list = value.toBoolList();
    words.push_back(header(kBoolList, list.size()));
    for (const bool element : list) {
      words.push_back(static_cast<uint64_t>(element));
    }
  } else if (value.isTensorList()) {
    const auto list = value.toTensorList();
    words.push_back(header(kTensorList, list.size()));
    for (const at::Tensor& tensor : list) {
      if (!add(tensor)) {
        return false;
      }
    }
  } else if (value.isOptionalTensorList()) {
    const auto list = value.toOptionalTensorList();
    words.push_back(header(kOptionalTensorList, list.size()));
    for (const std::optional<at::Tensor> tensor : list) {
      if (!add(tensor.value_or(at::Tensor()))) {
        return false;
      }
    }
  } else if (value.isString()) {
    const std::string_view text = value.toStringView();
    words.push_back(header(kString, text.size()));
    for (size_t at = 0; at < text.size(); at += sizeof(uint64_t)) {
      uint64_t word = 0;
      std::memcpy(&word, text.data() + at, std::min(sizeof(word), text.size() - at));
      words.push_back(word);
    }
  } else {
    return false; // a generator, a storage, a symbolic number...
  }
  return true;
}

bool Signature::describe(const torch::jit::Stack& stack, size_t count) {
  const auto& context = at::globalContext();
  if (C10_UNLIKELY(context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory())) {
    return false; // new memory is then filled from Python
  }
  words.push_back(modes());
  for (size_t i = stack.size() - count; i < stack.size(); ++i) {
    if (!add(stack[i])) {
      return false;
    }
  }
  if (device < 0) {
    device = current_device();
  }
  words.push_back(static_cast<uint64_t>(device));
  constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15;
  for (const uint64_t word : words) {
    hash = (hash ^ word) * kMultiplier;
    hash ^= hash >> 29;
  }
  return true;
}

} // namespace flagos
