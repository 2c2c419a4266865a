// SPDX-License-Identifier: Apache-2.0
#include "python_kernels/replay.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/fill_ops.h>

#include <cstring>
#include <optional>

#include "aten/alias.h"
#include "runtime/below_functionality.h"
#include "runtime/stream.h"

namespace flagos {

namespace {

// The memory of one run. Blocks are freed at the end of the call: later uses of the same bytes follow on the same
// stream.
struct Memories {
  const Signature& signature;
  c10::SmallVector<c10::Storage, 4> returned; // by block; empty for the others
  c10::SmallVector<c10::DataPtr, 4> scratch;  // by block likewise

  uint64_t address(int64_t memory) const {
    if (memory >= 0) {
      return Signature::address_of(signature.inputs[static_cast<size_t>(memory)]);
    }
    const auto block = static_cast<size_t>(-1 - memory);
    return reinterpret_cast<uint64_t>(returned[block] ? returned[block].data() : scratch[block].get());
  }
};

// Gives `tensor` the layout of `place`, whose offset counts from `first`, in bytes.
at::Tensor laid_out(at::Tensor tensor, const FlagosPlace& place, int64_t first = 0) {
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(
      {place.sizes, place.rank},
      {place.strides, place.rank},
      (first + place.offset) / static_cast<int64_t>(tensor.itemsize()));
  return tensor;
}

caffe2::TypeMeta dtype_of(const FlagosPlace& place) {
  return c10::scalarTypeToTypeMeta(static_cast<c10::ScalarType>(place.dtype));
}

// A native tensor at `place`, for a copy or a fill.
at::Tensor native_tensor(const Memories& memories, const FlagosPlace& place) {
  c10::Storage storage;
  int64_t first = 0;
  const auto block = static_cast<size_t>(-1 - place.memory);
  if (place.memory >= 0) {
    const c10::TensorImpl* input = memories.signature.inputs[static_cast<size_t>(place.memory)];
    storage = native_storage(input);
    first = input->storage_offset() * static_cast<int64_t>(input->itemsize());
  } else if (memories.returned[block]) {
    storage = native_storage(memories.returned[block]);
  } else {
    const c10::DataPtr& data = memories.scratch[block];
    storage = c10::Storage(
        c10::Storage::use_byte_size_t{},
        int64_t(1) << 62, // unlimited: the recorder has checked the bounds
        c10::DataPtr(data.get(), data.device()),
        nullptr,
        false);
  }
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, std::move(storage), native->keys, dtype_of(place));
  return laid_out(std::move(tensor), place, first);
}

// The handle of the current stream in the native device's library.
uint64_t stream_handle(c10::DeviceIndex device) {
  const c10::impl::DeviceGuardImplInterface* guard = native_guard();
  return reinterpret_cast<uint64_t>(guard->getStreamNativeHandle(guard->getStream(c10::Device(native->type, device))));
}

c10::Scalar number_of(const FlagosStep& step) {
  switch (step.number_kind) {
    case FLAGOS_NUMBER_DOUBLE:
      return step.real;
    case FLAGOS_NUMBER_BOOL:
      return step.integer != 0;
    default:
      return step.integer;
  }
}

} // namespace

Program::Program(c10::ArrayRef<int64_t> words, size_t num_inputs) {
  constexpr auto kDtypes = static_cast<uint32_t>(c10::ScalarType::NumOptions);
  check(core->recording_read(words.data(), words.size(), num_inputs, kDtypes, &recording_));
}

void Program::run(const Signature& signature, torch::jit::Stack* stack, size_t num_arguments) const {
  const DeviceScope scope(signature.device);
  launch_before_unseen_call("a kernel of Python");
  drain_current_stream(signature.device); // where the host computes; elsewhere it throws in a forked child
  const c10::ArrayRef<FlagosBlock> blocks(recording_->blocks, recording_->num_blocks);
  Memories memories{signature, {}, {}};
  memories.returned.resize(blocks.size());
  memories.scratch.resize(blocks.size());
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto nbytes = static_cast<size_t>(blocks[i].nbytes);
    if (blocks[i].returned != 0) {
      c10::Allocator* allocator = device_allocator();
      memories.returned[i] = c10::Storage(
          c10::make_intrusive<c10::StorageImpl>(
              c10::StorageImpl::use_byte_size_t(),
              blocks[i].nbytes,
              allocator->allocate(nbytes),
              allocator,
              /*resizable=*/true));
    } else {
      memories.scratch[i] = c10::GetAllocator(native->type)->allocate(nbytes);
    }
  }
  std::optional<uint64_t> stream; // where nothing is launched, streams may have no handle
  for (const FlagosStep& step : c10::ArrayRef<FlagosStep>(recording_->steps, recording_->num_steps)) {
    if (C10_LIKELY(step.kind == FLAGOS_STEP_LAUNCH)) {
      c10::SmallVector<uint64_t, 16> pointers;
      for (const int64_t memory : at::IntArrayRef(step.memories, step.num_memories)) {
        pointers.push_back(memories.address(memory));
      }
      if (!stream.has_value()) {
        stream = stream_handle(signature.device);
      }
      check(core->launch_run(step.launch, *stream, pointers.data(), pointers.size()));
      continue;
    }
    const BelowFunctionality below;
    at::Tensor target = native_tensor(memories, step.target);
    if (step.kind == FLAGOS_STEP_FILL) {
      at::_ops::fill__Scalar::redispatch(native->keys, target, number_of(step));
    } else {
      at::_ops::copy_::redispatch(native->keys, target, native_tensor(memories, step.source), false);
    }
  }
  c10::SmallVector<at::Tensor, 3> results;
  for (const FlagosOutput& result : c10::ArrayRef<FlagosOutput>(recording_->results, recording_->num_results)) {
    if (result.argument >= 0) {
      results.emplace_back(
          c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::reclaim_copy(
              signature.inputs[static_cast<size_t>(result.argument)]));
    } else {
      auto made = at::detail::make_tensor<c10::TensorImpl>(
          c10::Storage(memories.returned[static_cast<size_t>(-1 - result.place.memory)]),
          c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
          dtype_of(result.place));
      results.push_back(laid_out(std::move(made), result.place));
    }
  }
  torch::jit::drop(*stack, num_arguments);
  for (at::Tensor& result : results) {
    stack->emplace_back(std::move(result));
  }
}

following::Operator& Program::followed(const c10::OperatorHandle& op, uint64_t written) const {
  if (following::Operator* known = followed_.load(std::memory_order_acquire)) {
    return *known;
  }
  static std::mutex making;
  const std::lock_guard<std::mutex> lock(making);
  following::Operator* made = followed_.load(std::memory_order_acquire);
  if (made == nullptr) {
    const size_t num_arguments = op.schema().arguments().size();
    const auto repeats = [this, num_arguments](torch::jit::Stack& stack) {
      Signature signature;
      TORCH_INTERNAL_ASSERT(signature.describe(stack, num_arguments), "flagos: a followed call has no signature");
      run(signature, &stack, num_arguments);
    };
    made = new following::Operator(op, written, /*counts=*/false, /*why_native=*/nullptr, repeats);
    followed_.store(made, std::memory_order_release);
  }
  return *made;
}

Recordings::~Recordings() {
  for (auto& bucket : buckets_) {
    Recorded* entry = bucket.load(std::memory_order_acquire);
    while (entry != nullptr) {
      Recorded* next = entry->next;
      Program::End()(entry->program.load(std::memory_order_acquire));
      delete entry;
      entry = next;
    }
  }
}

Recorded* Recordings::find(const Signature& signature) const {
  const size_t bucket = signature.hash % kBuckets;
  for (Recorded* entry = buckets_[bucket].load(std::memory_order_acquire); entry != nullptr; entry = entry->next) {
    if (entry->hash == signature.hash && entry->words.size() == signature.words.size() &&
        std::memcmp(entry->words.data(), signature.words.data(), entry->words.size() * sizeof(uint64_t)) == 0) {
      return entry;
    }
  }
  return nullptr;
}

Recorded* Recordings::find_or_add(const Signature& signature) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (Recorded* found = find(signature)) {
    return found;
  }
  if (size_ >= kMost) {
    return nullptr;
  }
  ++size_;
  auto entry = std::make_unique<Recorded>();
  entry->words = signature.words;
  entry->hash = signature.hash;
  std::atomic<Recorded*>& bucket = buckets_[signature.hash % kBuckets];
  entry->next = bucket.load(std::memory_order_relaxed);
  bucket.store(entry.get(), std::memory_order_release);
  return entry.release();
}

std::atomic<uint64_t>& generation() {
  static std::atomic<uint64_t> counted{0};
  return counted;
}

void Recordings::forget(uint64_t now) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (generation_.load(std::memory_order_relaxed) == now) {
    return; // another thread was first
  }
  each([this](Recorded& entry) {
    const std::lock_guard<std::mutex> entry_lock(entry.mutex);
    if (const Program* program = entry.program.exchange(nullptr, std::memory_order_acq_rel)) {
      forgotten_.emplace_back(program);
    }
    entry.refused.store(false, std::memory_order_relaxed);
    entry.calls = 0;
    entry.recordings = 0;
    entry.last.clear();
    entry.reason.clear();
    entry.packed = false;
  });
  generation_.store(now, std::memory_order_release);
}

void Recordings::offer(Recorded& recorded, std::vector<int64_t> words, size_t num_inputs) {
  const std::lock_guard<std::mutex> lock(recorded.mutex);
  if (recorded.program.load(std::memory_order_acquire) != nullptr || recorded.refused.load()) {
    return; // another thread was first
  }
  ++recorded.recordings;
  if (recorded.recordings > 1 && recorded.last == words) {
    recorded.last = {};
    try {
      recorded.program.store(new Program(words, num_inputs), std::memory_order_release);
    } catch (const c10::Error& error) { // the call itself succeeded; it is just not replayed
      recorded.reason = error.what_without_backtrace();
      recorded.refused.store(true);
    }
    return;
  }
  recorded.last = std::move(words);
  if (recorded.recordings >= kPatience) {
    recorded.reason = "it launches something else each time, for the same arguments";
    recorded.refused.store(true);
  }
}

bool Recordings::adopt(Recorded& recorded, const std::function<std::vector<int64_t>()>& words, size_t num_inputs) {
  const std::lock_guard<std::mutex> lock(recorded.mutex);
  if (recorded.program.load(std::memory_order_acquire) != nullptr || recorded.refused.load()) {
    return !recorded.refused.load(); // another thread was first
  }
  try {
    recorded.program.store(new Program(words(), num_inputs), std::memory_order_release);
    recorded.packed = true;
    return true;
  } catch (const c10::Error& error) {
    recorded.reason = error.what_without_backtrace();
    recorded.refused.store(true);
    return false;
  }
}

void Recordings::disturb(Recorded& recorded) {
  const std::lock_guard<std::mutex> lock(recorded.mutex);
  recorded.last = {};
  if (++recorded.recordings >= kPatience) {
    recorded.reason = "globals of the modules it reads change while it runs";
    recorded.refused.store(true);
  }
}

void Recordings::refuse(Recorded& recorded, std::string reason) {
  const std::lock_guard<std::mutex> lock(recorded.mutex);
  recorded.reason = std::move(reason);
  recorded.refused.store(true);
}

} // namespace flagos
