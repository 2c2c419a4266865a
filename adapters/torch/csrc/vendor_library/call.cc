// SPDX-License-Identifier: Apache-2.0
#include "vendor_library/call.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/List.h>

#include <cstring>
#include <mutex>
#include <string_view>

#include "aten/alias.h"
#include "runtime/allocator.h"
#include "runtime/generator.h"
#include "torch_version.h"
#include "vendor_library/queue.h"

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

// What the host does for a kernel during `run`. The device memory that the kernel has asked for is given back to the
// pool afterwards: the pool reuses it in the order of the stream, in which posted parts are queued too.
struct Services {
  c10::DeviceIndex device;
  const char* name; // of the operator, for the life of the process
  std::vector<std::optional<std::vector<int64_t>>>* sizes;
  c10::SmallVector<void*, 4> blocks;
  int32_t failure = FLAGOS_OK;

  // The statuses of both interfaces have the same numbers.
  int32_t noted(int32_t status) {
    failure = status == FLAGOS_OK ? failure : status;
    return status;
  }

  ~Services() {
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

// Advice for the user about a status, beside the library's own text.
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

// The seed of a call that draws random numbers. The generator is the CPU's, so that all that falls back draws from it
// too: a number of it seeds the call. It is held until the kernel has taken the call.
class Drawing {
 public:
  Drawing(const at::Generator& given, c10::DeviceIndex device, const Form& form)
      : generator_(native_generator(allowed(device, form) && given.defined() ? given : default_generator(device))),
        impl_(at::check_generator<at::CPUGeneratorImpl>(generator_)),
        held_(impl_->mutex_),
        before_(impl_->engine()),
        seed_(impl_->random64()) {}

  uint64_t seed() const {
    return seed_;
  }
  // A kernel that declines has drawn nothing.
  void take_back() {
    impl_->set_engine(before_);
  }

 private:
  // True, or throws.
  static bool allowed(c10::DeviceIndex device, const Form& form) {
    if (native->is_capturing(device)) {
      raise(
          FLAGOS_UNSUPPORTED,
          "flagos: " + form.name +
              " draws random numbers, which every run of the graph that is being captured would repeat: draw them "
              "before the capture, into a tensor that the graph reads (vendor: " +
              native->vendor + ")");
    }
    return true;
  }

  at::Generator generator_;
  at::CPUGeneratorImpl* impl_;
  std::unique_lock<std::mutex> held_;
  at::mt19937 before_;
  uint64_t seed_;
};

int32_t give_workspace(void* context, size_t nbytes, void** address) noexcept {
  auto* services = static_cast<Services*>(context);
  void* block = nullptr;
  const int32_t status =
      services->noted(core->mem_alloc_at(services->device, current_stream(services->device), nbytes, &block));
  if (status != FLAGOS_OK) {
    return status;
  }
  services->blocks.push_back(block);
  *address = block;
  return FLAGOS_VENDOR_OK;
}

int32_t post(void* context, int32_t (*run)(void*, int32_t), void* argument) noexcept {
  auto* services = static_cast<Services*>(context);
  return services->noted(
      core->stream_post(services->device, current_stream(services->device), services->name, run, argument));
}

int32_t flush(void* context) noexcept {
  auto* services = static_cast<Services*>(context);
  return services->noted(core->stream_flush(services->device, current_stream(services->device)));
}

int32_t set_sizes(void* context, size_t output, const int64_t* sizes, size_t num_dims) noexcept {
  auto& all = *static_cast<Services*>(context)->sizes;
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

Refusal LibraryCall::add_tensor(const at::Tensor& tensor) {
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (C10_UNLIKELY(impl->layout() != c10::kStrided || impl->key_set().has_any(kNotOffered) || !impl->has_storage())) {
    return Refusal("an argument is not a plain strided tensor");
  }
  if (C10_UNLIKELY(has_names(impl))) { // the CPU's kernels know what becomes of names
    return Refusal("an argument has named dimensions");
  }
  const uint32_t flags = impl->is_wrapped_number() ? FLAGOS_TENSOR_NUMBER : 0;
  if (C10_UNLIKELY(!is_flagos(tensor))) {
    if (!tensor.is_cpu() || tensor.dim() != 0) {
      return Refusal("an argument is on " + tensor.device().str());
    }
    note(impl, flags | FLAGOS_TENSOR_HOST); // the kernel reads the value in `run`
    return {};
  }
  const c10::DeviceIndex index = impl->device().index();
  if (C10_UNLIKELY(device_ >= 0 && device_ != index)) {
    return Refusal("the arguments are on two devices");
  }
  device_ = index;
  note(impl, flags);
  inputs_.push_back(impl);
  return {};
}

template <class List>
Refusal LibraryCall::add_tensors(const List& list) {
  values_.back() = {FLAGOS_VALUE_TENSORS, static_cast<uint32_t>(list.size()), {}};
  values_.back().as.integer = static_cast<int64_t>(listed_.size());
  for (size_t i = 0; i < list.size(); ++i) {
    const std::optional<at::Tensor> tensor = list.get(i);
    if (!tensor.has_value() || !tensor->defined()) {
      listed_.push_back(-1);
      continue;
    }
    listed_.push_back(static_cast<int64_t>(tensors_.size()));
    if (Refusal refusal = add_tensor(*tensor)) {
      return refusal;
    }
  }
  return {};
}

void LibraryCall::add_number(const c10::IValue& number, ArgumentKind kind) {
  FlagosKernelValue& to = values_.back();
  if (number.isInt()) {
    to.tag = kind == ArgumentKind::kDtype ? FLAGOS_VALUE_DTYPE : FLAGOS_VALUE_INT;
    to.as.integer = number.toInt();
  } else if (number.isDouble()) {
    to.tag = FLAGOS_VALUE_FLOAT;
    to.as.real = number.toDouble();
  } else if (number.isBool()) {
    to.tag = FLAGOS_VALUE_BOOL;
    to.as.integer = static_cast<int64_t>(number.toBool());
  } else {
    const c10::complex<double> complex = number.toComplexDouble();
    to.tag = FLAGOS_VALUE_COMPLEX;
    to.count = 2;
    to.as.integer = static_cast<int64_t>(reals_.size());
    reals_.push_back(complex.real());
    reals_.push_back(complex.imag());
  }
}

template <class List, class Store>
void LibraryCall::add_list(const List& list, int32_t tag, Store& store) {
  values_.back() = {tag, static_cast<uint32_t>(list.size()), {}};
  values_.back().as.integer = static_cast<int64_t>(store.size());
  for (const typename List::value_type element : list) {
    store.push_back(static_cast<typename Store::value_type>(element));
  }
}

Refusal LibraryCall::add(const c10::IValue& value, ArgumentKind kind) {
  values_.push_back({FLAGOS_VALUE_NONE, 0, {}});
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    if (!tensor.defined()) {
      return {};
    }
    values_.back().tag = FLAGOS_VALUE_TENSOR;
    values_.back().as.integer = static_cast<int64_t>(tensors_.size());
    return add_tensor(tensor);
  }
  if (value.isNone() || kind == ArgumentKind::kNothing) {
    if (value.isGenerator()) {
      generator_ = value.toGenerator();
    } else if (value.isDevice() && value.toDevice().has_index()) {
      device_ = value.toDevice().index();
    }
  } else if (value.isInt() || value.isDouble() || value.isBool() || value.isComplexDouble()) {
    add_number(value, kind);
  } else if (value.isTensorList()) {
    return add_tensors(value.toTensorList());
  } else if (value.isOptionalTensorList()) {
    return add_tensors(value.toOptionalTensorList());
  } else if (value.isIntList()) {
    add_list(value.toIntList(), FLAGOS_VALUE_INTS, integers_);
  } else if (value.isDoubleList()) {
    add_list(value.toDoubleList(), FLAGOS_VALUE_FLOATS, reals_);
  } else if (value.isBoolList()) {
    add_list(value.toBoolList(), FLAGOS_VALUE_BOOLS, bools_);
  } else if (value.isString()) {
    const std::string& text = value.toStringRef();
    values_.back() = {FLAGOS_VALUE_TEXT, static_cast<uint32_t>(text.size()), {}};
    values_.back().as.text = text.c_str();
  } else {
    return Refusal("an argument is of a kind that kernels of libraries do not take: " + value.tagKind());
  }
  return {};
}

Refusal LibraryCall::describe(const torch::jit::Stack& stack, size_t first, const Form& form) {
  for (size_t i = 0; i < form.arguments.size(); ++i) {
    if (Refusal refusal = add(stack[first + i], form.arguments[i])) {
      return refusal;
    }
  }
  if (device_ < 0) {
    device_ = current_device();
  }
  return {};
}

// Words of the description in which calls differ whose results have other shapes or dtypes.
template <bool kWithShapes>
CallSignature LibraryCall::digest(const Form& form) const {
  CallSignature signature;
  auto& words = signature.words;
  const auto add_tensor = [&](const FlagosKernelTensor& tensor) {
    const auto dims = static_cast<uint64_t>(tensor.num_dims);
    // Without shapes: tensors without dimensions are of less weight in type promotion.
    words.push_back(
        static_cast<uint64_t>(FLAGOS_VALUE_TENSOR) | static_cast<uint64_t>(tensor.dtype) << 8 |
        (kWithShapes ? dims : static_cast<uint64_t>(dims == 0)) << 16 | static_cast<uint64_t>(tensor.flags) << 32);
    if constexpr (kWithShapes) {
      words.append(tensor.sizes, tensor.sizes + dims);
      words.append(tensor.strides, tensor.strides + dims);
    }
  };
  words.push_back(static_cast<uint64_t>(c10::typeMetaToScalarType(c10::get_default_dtype())));
  for (size_t i = 0; i < values_.size(); ++i) {
    const FlagosKernelValue& value = values_[i];
    const auto place = static_cast<size_t>(value.as.integer);
    if (value.tag == FLAGOS_VALUE_TENSOR) {
      add_tensor(tensors_[place]);
      continue;
    }
    words.push_back(static_cast<uint64_t>(value.tag) | static_cast<uint64_t>(value.count) << 8);
    switch (value.tag) {
      case FLAGOS_VALUE_INT:
      case FLAGOS_VALUE_DTYPE:
      case FLAGOS_VALUE_FLOAT:
      case FLAGOS_VALUE_BOOL:
        // The number itself says nothing of shapes where it is only computed with.
        if (form.arguments[i] != ArgumentKind::kNumber || !form.has_tensors) {
          words.push_back(
              value.tag == FLAGOS_VALUE_FLOAT ? bits(value.as.real) : static_cast<uint64_t>(value.as.integer));
        }
        break;
      case FLAGOS_VALUE_TENSORS:
        for (size_t k = place; k < place + value.count; ++k) {
          if (listed_[k] < 0) {
            words.push_back(FLAGOS_VALUE_NONE);
          } else {
            add_tensor(tensors_[static_cast<size_t>(listed_[k])]);
          }
        }
        break;
      case FLAGOS_VALUE_INTS:
        words.append(integers_.begin() + place, integers_.begin() + place + value.count);
        break;
      case FLAGOS_VALUE_FLOATS:
        for (size_t k = place; k < place + value.count; ++k) {
          words.push_back(bits(reals_[k]));
        }
        break;
      case FLAGOS_VALUE_BOOLS:
        words.append(bools_.begin() + place, bools_.begin() + place + value.count);
        break;
      case FLAGOS_VALUE_TEXT:
        words.push_back(std::hash<std::string_view>()({value.as.text, value.count}));
        break;
      default:
        break;
    }
  }
  constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15;
  for (const uint64_t word : words) {
    signature.hash = (signature.hash ^ word) * kMultiplier;
    signature.hash ^= signature.hash >> 29;
  }
  return signature;
}

CallSignature LibraryCall::signature(const Form& form) const {
  return digest</*kWithShapes=*/true>(form);
}

CallSignature LibraryCall::dtypes(const Form& form) const {
  return digest</*kWithShapes=*/false>(form);
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

Refusal LibraryCall::run(const FlagosKernels& kernels, const FlagosKernel* kernel, const Form& form) {
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
  Services services{device_, form.name.c_str(), &sizes_, {}};
  call.workspace = &give_workspace;
  call.resize = &set_sizes;
  call.context = &services;
  if (may_calls_be_queued()) {
    call.post = is_queue_wanted() ? &post : nullptr;
    call.flush = &flush;
  }
  std::optional<Drawing> drawing;
  if (form.random) {
    drawing.emplace(generator_, device_, form);
    call.seed = drawing->seed();
  }
  const int32_t status = kernels.run(kernel, &call);
  if (C10_UNLIKELY(drawing.has_value() && status == FLAGOS_VENDOR_UNSUPPORTED)) {
    drawing->take_back();
  }
  // A kernel that goes on without its workspace has computed nothing; a part that could not be posted is not queued.
  if (C10_UNLIKELY(services.failure != FLAGOS_OK)) {
    raise(services.failure);
  }
  if (C10_LIKELY(status == FLAGOS_VENDOR_OK)) {
    return {};
  }
  const char* text = kernels.last_error();
  std::string message = printable(text != nullptr ? text : "the vendor's library gives no reason");
  if (status == FLAGOS_VENDOR_UNSUPPORTED) {
    return Refusal(std::move(message));
  }
  raise(status, "flagos: " + form.name + ": " + message + meaning(status) + " (vendor: " + native->vendor + ")");
}

} // namespace flagos
