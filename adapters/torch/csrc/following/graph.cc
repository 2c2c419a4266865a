// SPDX-License-Identifier: Apache-2.0
#include "following/graph.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

#include "following/key.h"
#include "following/modes.h"
#include "following/storage.h"
#include "runtime/below_functionality.h"
#include "runtime/pool_memory.h"
#include "runtime/scoped.h"
#include "runtime/storage.h"
#include "runtime/stream.h"

namespace flagos::following {

at::Tensor Made::make(c10::DeviceIndex device) const {
  const c10::Device label = label_of(device);
  c10::DataPtr data = block != nullptr ? block->take(label, /*by_address=*/false) : c10::DataPtr(nullptr, label);
  c10::Storage storage(
      c10::make_intrusive<c10::StorageImpl>(
          c10::StorageImpl::use_byte_size_t{}, static_cast<int64_t>(nbytes), std::move(data), allocator, resizable));
  if (native->by_copies) {
    note_birth(storage.data());
  } else {
    storage = wrap_storage(std::move(storage), device);
  }
  if (block != nullptr) {
    block->belongs_to(storage);
  }
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), dtype);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return tensor;
}

namespace {

constexpr c10::DispatchKeySet kFlagosKeys(c10::DispatchKey::PrivateUse1);

// Of the kernels that serve calls again.
c10::DispatchKeySet kernel_keys() {
  return native->by_copies ? kFlagosKeys : native->keys;
}

void count_write(const at::Tensor& tensor) {
  if (tensor.defined() && tensor.unsafeGetTensorImpl()->version_counter().enabled()) {
    tensor.unsafeGetTensorImpl()->bump_version();
  }
}

// Tensors for kernels over the memory of flagos ones, which they do not hold: native ones, or, where the kernels are a
// library's or the operator says how it repeats, again flagos ones.
class Addressed {
 public:
  explicit Addressed(bool are_native) : are_native_(are_native && !native->by_copies) {}

  std::optional<c10::IValue> value(const c10::IValue& from) {
    if (from.isTensor()) {
      return c10::IValue(tensor(from.toTensor()));
    }
    if (from.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const c10::IValue& each : from.toListRef()) {
        list.push_back(tensor(each.toTensor()));
      }
      return c10::IValue(std::move(list));
    }
    if (from.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const c10::IValue& each : from.toListRef()) {
        list.push_back(each.isTensor() ? std::optional<at::Tensor>(tensor(each.toTensor())) : std::nullopt);
      }
      return c10::IValue(std::move(list));
    }
    if (are_native_ && from.isDevice() && from.toDevice().type() == kFlagos) {
      return c10::IValue(native_device(from.toDevice().has_index() ? from.toDevice().index() : current_device()));
    }
    return from;
  }

 private:
  at::Tensor tensor(const at::Tensor& from) {
    if (!from.defined()) {
      return from;
    }
    const c10::TensorImpl* impl = from.unsafeGetTensorImpl();
    if (impl->device().type() == c10::DeviceType::CPU) { // a number
      const at::AutoDispatchBelowAutograd below;
      at::Tensor number = from.clone();
      number.unsafeGetTensorImpl()->set_wrapped_number(impl->is_wrapped_number());
      return number;
    }
    for (const auto& [seen, to] : tensors_) {
      if (seen == impl) {
        return to;
      }
    }
    c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
    auto& addressed = storages_[storage];
    if (!addressed) {
      addressed = c10::Storage(
          c10::Storage::use_byte_size_t{},
          storage->nbytes(),
          c10::DataPtr(const_cast<void*>(storage->data()), label_of(impl->device().index())),
          /*allocator=*/nullptr,
          /*resizable=*/false);
      if (!are_native_ && !native->by_copies) {
        addressed = wrap_storage(std::move(addressed), impl->device().index());
      }
    }
    at::Tensor to = at::detail::make_tensor<c10::TensorImpl>(
        c10::Storage(addressed), are_native_ ? native->keys : kFlagosKeys, impl->dtype());
    to.unsafeGetTensorImpl()->set_sizes_and_strides(impl->sizes(), impl->strides(), impl->storage_offset());
    if (impl->is_wrapped_number()) {
      to.unsafeGetTensorImpl()->set_wrapped_number(true);
    }
    tensors_.emplace_back(impl, to);
    return to;
  }

  bool are_native_;
  std::vector<std::pair<const c10::TensorImpl*, at::Tensor>> tensors_;
  std::unordered_map<const c10::StorageImpl*, c10::Storage> storages_;
};

bool is_storage_of(const torch::jit::Stack& arguments, const c10::StorageImpl* storage) {
  const auto has_it = [&](const at::Tensor& tensor) {
    return tensor.defined() && tensor.has_storage() && tensor.storage().unsafeGetStorageImpl() == storage;
  };
  return std::any_of(arguments.begin(), arguments.end(), [&](const c10::IValue& value) {
    if (value.isTensorList()) {
      const auto& list = value.toListRef();
      return std::any_of(list.begin(), list.end(), [&](const c10::IValue& each) { return has_it(each.toTensor()); });
    }
    return value.isTensor() && has_it(value.toTensor());
  });
}

} // namespace

bool Call::describe(const torch::jit::Stack& arguments, c10::ArrayRef<c10::IValue> given) {
  // What it was given must be as it was: the key tells sizes and addresses.
  Key after;
  if (!after.read(op->id, words[1], arguments, arguments.size()) || after.words() != words) {
    return false;
  }
  const c10::InferenceMode normal(false);
  Addressed over(/*are_native=*/!op->repeats);
  for (const c10::IValue& argument : arguments) {
    auto value = over.value(argument);
    if (!value.has_value()) {
      return false;
    }
    addressed.push_back(std::move(*value));
  }
  return std::all_of(given.begin(), given.end(), [&](const c10::IValue& value) {
    return describe(arguments, value, results.emplace_back());
  });
}

bool Call::describe(const torch::jit::Stack& arguments, const c10::IValue& value, Result& result) {
  if (value.isTensorList()) {
    result.what = Result::What::kList;
    for (const c10::IValue& each : value.toListRef()) {
      if (!describe(arguments, each, result.parts.emplace_back()) ||
          result.parts.back().what == Result::What::kArgument) {
        return false;
      }
    }
    return true;
  }
  if (value.isInt() || value.isBool() || value.isDouble()) {
    result.what = Result::What::kNumber;
    result.number = value;
    return true;
  }
  if (!value.isTensor()) {
    return false;
  }
  const at::Tensor& tensor = value.toTensor();
  if (!tensor.defined()) {
    result.what = Result::What::kUndefined;
    return true;
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].isTensor() && arguments[i].toTensor().is_same(tensor)) {
      result.what = Result::What::kArgument;
      result.place = i;
      return true;
    }
  }
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (impl->device().type() != kFlagos || !is_plain(impl) || impl->is_wrapped_number()) {
    return false;
  }
  c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  c10::StorageImpl* owner = owner_of(storage);
  if (owner == nullptr) {
    return false;
  }
  Block* block = block_of(owner->data_ptr());
  if (block == nullptr && (storage->nbytes() != 0 || is_storage_of(arguments, storage))) {
    return false;
  }
  if (block != nullptr &&
      (std::find(blocks.begin(), blocks.end(), block) == blocks.end() || block->data() != storage->data() ||
       std::any_of(made.begin(), made.end(), [&](const Made& other) { return other.block == block; }))) {
    return false; // an argument's, or that of another result
  }
  made.push_back({
      .block = block,
      .nbytes = storage->nbytes(),
      .allocator = owner->allocator(),
      .resizable = owner->resizable(),
      .offset = impl->storage_offset(),
      .sizes = {impl->sizes().begin(), impl->sizes().end()},
      .strides = {impl->strides().begin(), impl->strides().end()},
      .dtype = impl->dtype(),
  });
  result.what = Result::What::kMade;
  result.place = made.size() - 1;
  return true;
}

void Call::make_results(c10::ArrayRef<c10::IValue> arguments, torch::jit::Stack& stack, c10::DeviceIndex device) const {
  if (op->counts) {
    for (size_t i = 0; i < arguments.size(); ++i) {
      if ((op->written >> i & 1U) == 0) {
        continue;
      }
      if (arguments[i].isTensor()) {
        count_write(arguments[i].toTensor());
      } else if (arguments[i].isTensorList()) {
        for (const c10::IValue& each : arguments[i].toListRef()) {
          count_write(each.toTensor());
        }
      }
    }
  }
  for (const Result& result : results) {
    switch (result.what) {
      case Result::What::kUndefined:
        stack.emplace_back(at::Tensor());
        break;
      case Result::What::kArgument:
        stack.push_back(arguments[result.place]);
        break;
      case Result::What::kMade:
        stack.emplace_back(made[result.place].make(device));
        break;
      case Result::What::kNumber:
        stack.push_back(result.number);
        break;
      case Result::What::kList: {
        c10::List<at::Tensor> list;
        list.reserve(result.parts.size());
        for (const Result& part : result.parts) {
          list.push_back(part.what == Result::What::kMade ? made[part.place].make(device) : at::Tensor());
        }
        stack.emplace_back(std::move(list));
        break;
      }
    }
  }
}

void Call::run(c10::DeviceIndex device) const {
  if (op->only_allocates) {
    return;
  }
  const torch::jit::Stack stack = repeat(device);
  const size_t first = stack.size() - results.size();
  for (size_t i = 0; i < results.size(); ++i) {
    place(results[i], stack[first + i], device);
  }
}

// What the kernel gives for the same arguments.
torch::jit::Stack Call::repeat(c10::DeviceIndex device) const {
  torch::jit::Stack stack = addressed;
  const NativePoolScope pool(device);
  const BelowFunctionality below;
  const Modes::Scope modes(words[1], op->multiplies);
  const Scoped counted(repeats_call, true);
  if (op->repeats) {
    op->repeats(stack);
  } else {
    op->op.redispatchBoxed(kernel_keys(), &stack);
  }
  return stack;
}

namespace {

// Gives a call the blocks that it had before, in the same order, whoever has them now.
class SameBlocks final : public PlannedMemory {
 public:
  explicit SameBlocks(const std::vector<Block*>& blocks) : blocks_(blocks), before_(planned_memory) {
    planned_memory = this;
  }
  ~SameBlocks() override {
    planned_memory = before_;
  }
  SameBlocks(const SameBlocks&) = delete;
  SameBlocks& operator=(const SameBlocks&) = delete;

  c10::DataPtr allocate(size_t nbytes, c10::Device label) override {
    if (nbytes == 0) {
      return {};
    }
    if (next_ == blocks_.size() || blocks_[next_]->size < nbytes) {
      differs_ = true;
      return {};
    }
    return {blocks_[next_++]->data(), label};
  }
  bool gave_all() const {
    return !differs_ && next_ == blocks_.size();
  }

 private:
  const std::vector<Block*>& blocks_;
  PlannedMemory* before_;
  size_t next_ = 0;
  bool differs_ = false;
};

} // namespace

bool Call::queue_again(c10::DeviceIndex device) const {
  if (op->only_allocates) {
    return true;
  }
  const SameBlocks same(blocks);
  const torch::jit::Stack stack = repeat(device);
  const size_t first = stack.size() - results.size();
  for (size_t i = 0; i < results.size(); ++i) {
    if (!is_in_place(results[i], stack[first + i])) {
      return false;
    }
  }
  return same.gave_all();
}

// Whether a result is where the program has it.
bool Call::is_in_place(const Result& result, const c10::IValue& value) const {
  if (result.what == Result::What::kList) {
    const auto& list = value.toListRef();
    for (size_t i = 0; i < list.size(); ++i) {
      if (!is_in_place(result.parts[i], list[i])) {
        return false;
      }
    }
    return list.size() == result.parts.size();
  }
  if (result.what != Result::What::kMade || made[result.place].block == nullptr) {
    return true;
  }
  const Made& to = made[result.place];
  const at::Tensor& from = value.toTensor();
  return from.sizes() == to.sizes && from.strides() == to.strides && from.dtype() == to.dtype &&
      from.storage_offset() == to.offset && from.storage().data() == to.block->data();
}

// Puts what the kernel made where the program has it.
void Call::place(const Result& result, const c10::IValue& value, c10::DeviceIndex device) const {
  if (result.what == Result::What::kList) {
    const auto& list = value.toListRef();
    for (size_t i = 0; i < list.size(); ++i) {
      place(result.parts[i], list[i], device);
    }
    return;
  }
  if (result.what != Result::What::kMade || made[result.place].block == nullptr) {
    return;
  }
  const Made& to = made[result.place];
  const at::Tensor& from = value.toTensor();
  TORCH_INTERNAL_ASSERT(
      from.sizes() == to.sizes && from.strides() == to.strides && from.dtype() == to.dtype &&
          from.storage_offset() == to.offset,
      "flagos: ",
      op->op.operator_name(),
      " gave a result of another shape than before for the same arguments; set FLAGOS_GRAPHS=off and report it");
  const size_t before = static_cast<size_t>(to.offset) * to.dtype.itemsize();
  if (from.is_cpu() && !native->host_computes()) { // the state of random numbers, which captured attention has there
    at::from_blob(
        static_cast<char*>(to.block->data()) + before,
        to.sizes,
        to.strides,
        from.options().device(native_device(device)))
        .copy_(from);
    return;
  }
  flagos::native->copy_bytes(
      static_cast<char*>(to.block->data()) + before,
      from.const_data_ptr(),
      std::min(to.nbytes, from.storage().nbytes()) - before,
      device);
}

bool Call::uses(const Block* block, const void* address) const {
  return std::find(words.begin(), words.end(), reinterpret_cast<uint64_t>(address)) != words.end() ||
      (block != nullptr && std::find(blocks.begin(), blocks.end(), block) != blocks.end());
}

} // namespace flagos::following
