// SPDX-License-Identifier: Apache-2.0
#include "vendor_library/call.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/List.h>

#include <cstring>
#include <mutex>

#include "aten/alias.h"
#include "runtime/allocator.h"
#include "runtime/generator.h"
#include "torch_version.h"

namespace flagos {

namespace {

constexpr c10::DispatchKeySet kNotOffered(
    {c10::DispatchKey::Conjugate,
     c10::DispatchKey::Negative,
     c10::DispatchKey::ZeroTensor,
     c10::DispatchKey::Python,
     c10::DispatchKey::NestedTensor,
     c10::DispatchKey::Quantized});

uint64_t bits(double value) {
  uint64_t word = 0;
  std::memcpy(&word, &value, sizeof(word));
  return word;
}

// The device memory that a kernel has asked for, given back to the pool when the call has been queued: the pool reuses
// it in the order of the stream.
struct Workspaces {
  c10::DeviceIndex device;
  std::vector<std::optional<std::vector<int64_t>>>* sizes;
  c10::SmallVector<void*, 4> blocks;
  int32_t failure = FLAGOS_OK;

  ~Workspaces() {
    for (void* block : blocks) {
      free_from_pool(block);
    }
  }
};

// The text with `?` for every byte that is not of UTF-8: Python could not read it.
std::string printable(std::string text) {
  const auto continues = [&](size_t place) {
    return place < text.size() && (static_cast<unsigned char>(text[place]) & 0xC0U) == 0x80U;
  };
  for (size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const size_t more = byte < 0x80 ? 0
        : (byte >> 5U) == 0x6       ? 1
        : (byte >> 4U) == 0xE       ? 2
        : (byte >> 3U) == 0x1E      ? 3
                                    : 4;
    bool whole = more < 4;
    for (size_t k = 1; whole && k <= more; ++k) {
      whole = continues(i + k);
    }
    if (!whole) {
      text[i] = '?';
    }
    i += whole ? more + 1 : 1;
  }
  return text;
}

// What the user has to know of a status beside the library's own text.
std::string meaning(int32_t status) {
  switch (status) {
    case FLAGOS_VENDOR_INVALID_ARGUMENT:
    case FLAGOS_VENDOR_CONFIG:
    case FLAGOS_VENDOR_OUT_OF_MEMORY:
    case FLAGOS_VENDOR_DEVICE:
      return "";
    case FLAGOS_VENDOR_DEVICE_LOST:
      return "; the device is lost, and this process has to be restarted";
    case FLAGOS_VENDOR_INTERNAL:
      return "; this is a defect of the vendor's library";
    default:
      return "; status " + std::to_string(status) + " has no meaning, which is a defect of the vendor's library";
  }
}

int32_t give_workspace(void* context, size_t nbytes, void** address) noexcept {
  auto* workspaces = static_cast<Workspaces*>(context);
  void* block = nullptr;
  const int32_t status = core->mem_alloc_at(workspaces->device, current_stream(workspaces->device), nbytes, &block);
  if (status != FLAGOS_OK) {
    workspaces->failure = status;
    return status; // the statuses of both interfaces have the same numbers
  }
  workspaces->blocks.push_back(block);
  *address = block;
  return FLAGOS_VENDOR_OK;
}

int32_t set_sizes(void* context, size_t output, const int64_t* sizes, size_t num_dims) noexcept {
  auto& all = *static_cast<Workspaces*>(context)->sizes;
  if (output >= all.size() || (sizes == nullptr && num_dims != 0)) {
    return FLAGOS_VENDOR_INVALID_ARGUMENT;
  }
  try {
    all[output].emplace(sizes, sizes + num_dims);
  } catch (const std::bad_alloc&) {
    return FLAGOS_VENDOR_OUT_OF_MEMORY;
  }
  return FLAGOS_VENDOR_OK;
}

} // namespace

void LibraryCall::note(const c10::TensorImpl* tensor, uint32_t flags) {
  const c10::StorageImpl* storage = tensor->unsafe_storage().unsafeGetStorageImpl();
  auto* const memory = static_cast<char*>(const_cast<void*>(storage->data()));
  const auto sizes = tensor->sizes();
  tensors_.push_back(
      {sizeof(FlagosKernelTensor),
       memory == nullptr ? nullptr : memory + tensor->storage_offset() * static_cast<int64_t>(tensor->itemsize()),
       memory,
       storage->nbytes(),
       sizes.data(),
       tensor->strides().data(),
       tensor->numel(),
       static_cast<int32_t>(sizes.size()),
       static_cast<int32_t>(c10::typeMetaToScalarType(tensor->dtype())),
       flags,
       0});
}

void CallSignature::finish() {
  constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15;
  for (const uint64_t word : words) {
    hash = (hash ^ word) * kMultiplier;
    hash ^= hash >> 29;
  }
}

void LibraryCall::add_word(uint64_t word) {
  signature_.words.push_back(word);
  dtypes_.words.push_back(word);
}

void LibraryCall::add_words(const c10::TensorImpl* tensor, uint64_t flags) {
  const auto sizes = tensor->sizes();
  const uint64_t dtype = static_cast<uint64_t>(FLAGOS_VALUE_TENSOR) |
      static_cast<uint64_t>(c10::typeMetaToScalarType(tensor->dtype())) << 8 | flags << 32;
  // Tensors without dimensions are of less weight in type promotion.
  dtypes_.words.push_back(dtype | static_cast<uint64_t>(sizes.empty()) << 16);
  signature_.words.push_back(dtype | sizes.size() << 16);
  for (const int64_t size : sizes) {
    signature_.words.push_back(static_cast<uint64_t>(size));
  }
  for (const int64_t stride : tensor->strides()) {
    signature_.words.push_back(static_cast<uint64_t>(stride));
  }
}

bool LibraryCall::add_tensor(const at::Tensor& tensor, std::string& why_not) {
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (C10_UNLIKELY(impl->layout() != c10::kStrided || impl->key_set().has_any(kNotOffered) || !impl->has_storage())) {
    why_not = "an argument is not a plain strided tensor";
    return false;
  }
  if (C10_UNLIKELY(has_names(impl))) { // the CPU's kernels know what becomes of names
    why_not = "an argument has named dimensions";
    return false;
  }
  if (C10_UNLIKELY(!is_flagos(tensor))) {
    if (!tensor.is_cpu() || tensor.dim() != 0) {
      why_not = "an argument is on " + tensor.device().str();
      return false;
    }
    // The kernel reads the value in `run`: the memory is the host's.
    const uint32_t flags = FLAGOS_TENSOR_HOST | (impl->is_wrapped_number() ? FLAGOS_TENSOR_NUMBER : 0);
    add_words(impl, flags);
    note(impl, flags);
    return true;
  }
  const c10::DeviceIndex index = impl->device().index();
  if (C10_UNLIKELY(device_ >= 0 && device_ != index)) {
    why_not = "the arguments are on two devices";
    return false;
  }
  device_ = index;
  const uint32_t flags = impl->is_wrapped_number() ? FLAGOS_TENSOR_NUMBER : 0;
  add_words(impl, flags);
  note(impl, flags);
  inputs_.push_back(impl);
  return true;
}

template <class List>
bool LibraryCall::add_tensors(const List& list, FlagosKernelValue& value, std::string& why_not) {
  value.tag = FLAGOS_VALUE_TENSORS;
  value.count = static_cast<uint32_t>(list.size());
  value.as.integer = static_cast<int64_t>(listed_.size());
  add_word(static_cast<uint64_t>(FLAGOS_VALUE_TENSORS) | list.size() << 8);
  for (size_t i = 0; i < list.size(); ++i) {
    const std::optional<at::Tensor> tensor = list.get(i);
    if (!tensor.has_value() || !tensor->defined()) {
      add_word(FLAGOS_VALUE_NONE);
      listed_.push_back(-1);
      continue;
    }
    listed_.push_back(static_cast<int64_t>(tensors_.size()));
    if (!add_tensor(*tensor, why_not)) {
      return false;
    }
  }
  return true;
}

void LibraryCall::add_number(const c10::IValue& from, FlagosKernelValue& value) {
  if (from.isInt()) {
    value.tag = FLAGOS_VALUE_INT;
    value.as.integer = from.toInt();
  } else if (from.isDouble()) {
    value.tag = FLAGOS_VALUE_FLOAT;
    value.as.real = from.toDouble();
  } else if (from.isBool()) {
    value.tag = FLAGOS_VALUE_BOOL;
    value.as.integer = static_cast<int64_t>(from.toBool());
  } else {
    const c10::complex<double> number = from.toComplexDouble();
    value.tag = FLAGOS_VALUE_COMPLEX;
    value.count = 2;
    value.as.integer = static_cast<int64_t>(reals_.size());
    reals_.push_back(number.real());
    reals_.push_back(number.imag());
  }
}

bool LibraryCall::add(const c10::IValue& value, ArgumentKind kind, bool has_tensors, std::string& why_not) {
  values_.push_back({FLAGOS_VALUE_NONE, 0, {}});
  FlagosKernelValue& to = values_.back();
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    if (!tensor.defined()) {
      add_word(FLAGOS_VALUE_NONE);
      return true;
    }
    to.tag = FLAGOS_VALUE_TENSOR;
    to.as.integer = static_cast<int64_t>(tensors_.size());
    return add_tensor(tensor, why_not);
  }
  if (value.isNone() || kind == ArgumentKind::kNothing) {
    if (value.isGenerator()) {
      generator_ = value.toGenerator();
    } else if (value.isDevice() && value.toDevice().has_index()) {
      device_ = value.toDevice().index();
    }
    add_word(FLAGOS_VALUE_NONE);
    return true;
  }
  if (value.isInt() || value.isDouble() || value.isBool() || value.isComplexDouble()) {
    add_number(value, to);
    add_word(static_cast<uint64_t>(to.tag));
    if (kind == ArgumentKind::kDtype) {
      to.tag = FLAGOS_VALUE_DTYPE;
    }
    // The number itself says nothing of shapes where it is only computed with.
    if (kind != ArgumentKind::kNumber || !has_tensors) {
      add_word(value.isDouble() ? bits(value.toDouble()) : static_cast<uint64_t>(to.as.integer));
    }
    return true;
  }
  if (value.isTensorList()) {
    return add_tensors(value.toTensorList(), to, why_not);
  }
  if (value.isOptionalTensorList()) {
    return add_tensors(value.toOptionalTensorList(), to, why_not);
  }
  if (value.isIntList()) {
    const auto list = value.toIntList();
    to = {FLAGOS_VALUE_INTS, static_cast<uint32_t>(list.size()), {}};
    to.as.integer = static_cast<int64_t>(integers_.size());
    add_word(static_cast<uint64_t>(FLAGOS_VALUE_INTS) | list.size() << 8);
    for (const int64_t element : list) {
      integers_.push_back(element);
      add_word(static_cast<uint64_t>(element));
    }
    return true;
  }
  if (value.isDoubleList()) {
    const auto list = value.toDoubleList();
    to = {FLAGOS_VALUE_FLOATS, static_cast<uint32_t>(list.size()), {}};
    to.as.integer = static_cast<int64_t>(reals_.size());
    add_word(static_cast<uint64_t>(FLAGOS_VALUE_FLOATS) | list.size() << 8);
    for (const double element : list) {
      reals_.push_back(element);
      add_word(bits(element));
    }
    return true;
  }
  if (value.isBoolList()) {
    const auto list = value.toBoolList();
    to = {FLAGOS_VALUE_BOOLS, static_cast<uint32_t>(list.size()), {}};
    to.as.integer = static_cast<int64_t>(bools_.size());
    add_word(static_cast<uint64_t>(FLAGOS_VALUE_BOOLS) | list.size() << 8);
    for (const bool element : list) {
      bools_.push_back(static_cast<uint8_t>(element));
      add_word(static_cast<uint64_t>(element));
    }
    return true;
  }
  if (value.isString()) {
    const std::string& text = value.toStringRef();
    to = {FLAGOS_VALUE_TEXT, static_cast<uint32_t>(text.size()), {}};
    to.as.text = text.c_str();
    add_word(static_cast<uint64_t>(FLAGOS_VALUE_TEXT) | text.size() << 8);
    add_word(std::hash<std::string>()(text));
    return true;
  }
  why_not = "an argument is of a kind that kernels of libraries do not take: " + value.tagKind();
  return false;
}

bool LibraryCall::describe(const torch::jit::Stack& stack, size_t first, const Form& form, std::string& why_not) {
  add_word(static_cast<uint64_t>(c10::typeMetaToScalarType(c10::get_default_dtype())));
  for (size_t i = 0; i < form.arguments.size(); ++i) {
    if (!add(stack[first + i], form.arguments[i], form.has_tensors, why_not)) {
      return false;
    }
  }
  if (device_ < 0) {
    device_ = current_device();
  }
  signature_.finish();
  dtypes_.finish();
  return true;
}

void LibraryCall::add_output(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    output_places_.push_back(-1);
    return;
  }
  output_places_.push_back(static_cast<int64_t>(tensors_.size()));
  note(tensor.unsafeGetTensorImpl(), 0);
}

const std::vector<int64_t>* LibraryCall::sizes_of(size_t output) const {
  return output < sizes_.size() && sizes_[output].has_value() ? &*sizes_[output] : nullptr;
}

void LibraryCall::settle() {
  for (const int64_t place : output_places_) {
    outputs_.push_back(place < 0 ? nullptr : &tensors_[static_cast<size_t>(place)]);
  }
  for (const int64_t place : listed_) {
    list_.push_back(place < 0 ? nullptr : &tensors_[static_cast<size_t>(place)]);
  }
  for (FlagosKernelValue& value : values_) {
    const auto place = static_cast<size_t>(value.as.integer);
    switch (value.tag) {
      case FLAGOS_VALUE_TENSOR:
        value.as.tensor = &tensors_[place];
        break;
      case FLAGOS_VALUE_TENSORS:
        value.as.tensors = list_.data() + place;
        break;
      case FLAGOS_VALUE_INTS:
        value.as.integers = integers_.data() + place;
        break;
      case FLAGOS_VALUE_FLOATS:
      case FLAGOS_VALUE_COMPLEX:
        value.as.reals = reals_.data() + place;
        break;
      case FLAGOS_VALUE_BOOLS:
        value.as.bools = bools_.data() + place;
        break;
      default:
        break;
    }
  }
}

bool LibraryCall::run(
    const FlagosKernels& kernels,
    const FlagosKernel* kernel,
    const Form& form,
    std::string& why_not) {
  settle();
  FlagosKernelCall call{};
  call.struct_size = sizeof(call);
  check(core->stream_library(device_, current_stream(device_), &call.instance, &call.stream));
  call.device = device_;
  call.flags = at::globalContext().deterministicAlgorithms() ? FLAGOS_CALL_DETERMINISTIC : 0;
  call.arguments = values_.data();
  call.num_arguments = values_.size();
  call.outputs = outputs_.data();
  call.num_outputs = outputs_.size();
  sizes_.resize(outputs_.size());
  Workspaces workspaces{device_, &sizes_, {}};
  call.workspace = &give_workspace;
  call.resize = &set_sizes;
  call.context = &workspaces;
  at::Generator drawn_from;
  at::CPUGeneratorImpl* generator = nullptr;
  std::optional<at::mt19937> before;
  std::unique_lock<std::mutex> drawing;
  if (form.random) {
    if (native->is_capturing(device_)) {
      raise(
          FLAGOS_UNSUPPORTED,
          "flagos: " + form.name +
              " draws random numbers, which every run of the graph that is being captured would repeat: draw them "
              "before "
              "the capture, into a tensor that the graph reads (vendor: " +
              native->vendor + ")");
    }
    // The generator is the CPU's, so that all that falls back draws from it too: a number of it seeds the call.
    const at::Generator& given = generator_.defined() ? generator_ : default_generator(device_);
    drawn_from = native_generator(given);
    generator = at::check_generator<at::CPUGeneratorImpl>(drawn_from);
    // Until the kernel has taken the call: one that declines has drawn nothing.
    drawing = std::unique_lock<std::mutex>(generator->mutex_);
    before = generator->engine();
    call.seed = generator->random64();
  }
  const int32_t status = kernels.run(kernel, &call);
  if (C10_UNLIKELY(generator != nullptr && status == FLAGOS_VENDOR_UNSUPPORTED)) {
    generator->set_engine(*before);
  }
  // A kernel that goes on without its workspace has computed nothing.
  if (C10_UNLIKELY(workspaces.failure != FLAGOS_OK)) {
    raise(workspaces.failure);
  }
  if (C10_LIKELY(status == FLAGOS_VENDOR_OK)) {
    return true;
  }
  const char* text = kernels.last_error();
  const std::string message = printable(text != nullptr ? text : "the vendor's library gives no reason");
  if (status == FLAGOS_VENDOR_UNSUPPORTED) {
    why_not = message;
    return false;
  }
  raise(status, "flagos: " + form.name + ": " + message + meaning(status) + " (vendor: " + native->vendor + ")");
}

} // namespace flagos
