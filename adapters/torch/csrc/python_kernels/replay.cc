// SPDX-License-Identifier: Apache-2.0
#include "python_kernels/replay.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/fill_ops.h>

#include <cstring>
#include <deque>

#include "aten/register.h"
#include "aten/twin.h"
#include "runtime/stream.h"

namespace flagos {

namespace {

// Reads the words of a recording; what it lacks or has too much of is an error.
class Reader {
 public:
  explicit Reader(c10::ArrayRef<int64_t> words) : words_(words) {}

  int64_t next() {
    TORCH_CHECK(at_ < words_.size(), "flagos: a recording ends too early, after ", at_, " words");
    return words_[at_++];
  }
  size_t count(size_t most = 1U << 20U) {
    const int64_t value = next();
    TORCH_CHECK(
        value >= 0 && static_cast<size_t>(value) <= most, "flagos: a recording counts ", value, " at word ", at_ - 1);
    return static_cast<size_t>(value);
  }
  std::vector<int64_t> list() {
    std::vector<int64_t> values(count());
    for (int64_t& value : values) {
      value = next();
    }
    return values;
  }
  void end() const {
    TORCH_CHECK(at_ == words_.size(), "flagos: a recording of ", words_.size(), " words was read after ", at_);
  }

 private:
  c10::ArrayRef<int64_t> words_;
  size_t at_ = 0;
};

int64_t read_memory(Reader& reader, size_t num_inputs, size_t num_blocks) {
  const int64_t memory = reader.next();
  TORCH_CHECK(
      memory < static_cast<int64_t>(num_inputs) && memory >= -static_cast<int64_t>(num_blocks),
      "flagos: a recording names memory ",
      memory,
      " of ",
      num_inputs,
      " arguments and ",
      num_blocks,
      " blocks");
  return memory;
}

Place read_place(Reader& reader, size_t num_inputs, size_t num_blocks) {
  Place place;
  place.memory = read_memory(reader, num_inputs, num_blocks);
  place.offset = reader.next();
  place.dtype = static_cast<c10::ScalarType>(reader.count(static_cast<size_t>(c10::ScalarType::NumOptions)));
  place.sizes = reader.list();
  place.strides = reader.list();
  TORCH_CHECK(place.sizes.size() == place.strides.size(), "flagos: a recording has sizes without strides");
  return place;
}

// kind: 0 integer, 1 double, 2 bool
c10::Scalar read_scalar(Reader& reader) {
  const int64_t kind = reader.next();
  const int64_t word = reader.next();
  if (kind == 1) {
    double value = 0;
    std::memcpy(&value, &word, sizeof(value));
    return value;
  }
  return kind == 2 ? c10::Scalar(word != 0) : c10::Scalar(word);
}

// What a parameter of a kernel is.
enum ParameterKind : uint8_t { kConstant, kPointer, kTensorMap };

FlagosTensorMap read_map(Reader& reader) {
  FlagosTensorMap map{};
  map.data_type = static_cast<uint32_t>(reader.count());
  map.rank = static_cast<uint32_t>(reader.count(5));
  for (uint32_t i = 0; i < map.rank; ++i) {
    map.shape[i] = static_cast<uint64_t>(reader.next());
    map.strides[i] = static_cast<uint64_t>(reader.next());
    map.block[i] = static_cast<uint32_t>(reader.count());
  }
  map.swizzle = static_cast<uint32_t>(reader.count());
  map.fills_with_nan = static_cast<uint32_t>(reader.count(1));
  return map;
}

Launch read_launch(Reader& reader, size_t num_inputs, size_t num_blocks) {
  FlagosLaunchDesc description{};
  description.function = static_cast<uint64_t>(reader.next());
  for (auto* dimensions : {description.grid, description.block, description.cluster}) {
    for (int i = 0; i < 3; ++i) {
      dimensions[i] = static_cast<uint32_t>(reader.count(UINT32_MAX));
    }
  }
  description.shared_bytes = static_cast<uint32_t>(reader.count(UINT32_MAX));
  description.flags = static_cast<uint32_t>(reader.count(UINT32_MAX));
  Launch launch;
  std::vector<FlagosLaunchParam> parameters(reader.count());
  std::deque<FlagosTensorMap> maps; // whose elements stay where they are
  for (FlagosLaunchParam& parameter : parameters) {
    parameter.size = static_cast<uint32_t>(reader.count());
    const auto kind = static_cast<ParameterKind>(reader.count(kTensorMap));
    parameter.pointer = kind == kConstant ? -1 : static_cast<int32_t>(launch.memories.size());
    if (kind != kConstant) {
      launch.memories.push_back(read_memory(reader, num_inputs, num_blocks));
    }
    parameter.value = static_cast<uint64_t>(reader.next());
    parameter.map = kind == kTensorMap ? &maps.emplace_back(read_map(reader)) : nullptr;
  }
  description.params = parameters.data();
  description.num_params = parameters.size();
  check(core->launch_create(&description, &launch.launch));
  return launch;
}

// What the memories of a running program are. Blocks live until the end of the call; whoever uses them afterwards does
// so on the same stream.
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

// A native tensor at `place`, for a copy or a fill.
at::Tensor native_tensor(const Memories& memories, const Place& place) {
  c10::Storage storage;
  int64_t first = place.offset;
  if (place.memory >= 0) {
    const c10::TensorImpl* input = memories.signature.inputs[static_cast<size_t>(place.memory)];
    storage = twin_storage(input->unsafe_storage());
    first += input->storage_offset() * static_cast<int64_t>(input->itemsize());
  } else {
    const auto block = static_cast<size_t>(-1 - place.memory);
    if (memories.returned[block]) {
      storage = twin_storage(memories.returned[block]);
    } else {
      const c10::DataPtr& data = memories.scratch[block];
      storage = c10::Storage(
          c10::Storage::use_byte_size_t{},
          int64_t(1) << 62, // checked when it was recorded
          c10::DataPtr(data.get(), data.device()),
          nullptr,
          false);
    }
  }
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, std::move(storage), native.keys, c10::scalarTypeToTypeMeta(place.dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(
      place.sizes, place.strides, first / static_cast<int64_t>(c10::elementSize(place.dtype)));
  return tensor;
}

at::Tensor flagos_tensor(const Memories& memories, const Place& place) {
  const auto block = static_cast<size_t>(-1 - place.memory);
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(memories.returned[block]),
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::scalarTypeToTypeMeta(place.dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(
      place.sizes, place.strides, place.offset / static_cast<int64_t>(c10::elementSize(place.dtype)));
  return tensor;
}

} // namespace

std::unique_ptr<Program> Program::read(c10::ArrayRef<int64_t> words, size_t num_inputs) {
  Reader reader(words);
  auto program = std::make_unique<Program>();
  const size_t num_blocks = reader.count();
  for (size_t i = 0; i < num_blocks; ++i) {
    program->blocks_.push_back({reader.next(), false});
  }
  program->steps_.resize(reader.count());
  for (Step& step : program->steps_) {
    step.kind = static_cast<Step::Kind>(reader.count(2));
    switch (step.kind) {
      case Step::kLaunch:
        step.launch = read_launch(reader, num_inputs, num_blocks);
        ++program->num_launches_;
        break;
      case Step::kFill:
        step.fill.target = read_place(reader, num_inputs, num_blocks);
        step.fill.value = read_scalar(reader);
        break;
      case Step::kCopy:
        step.copy.target = read_place(reader, num_inputs, num_blocks);
        step.copy.source = read_place(reader, num_inputs, num_blocks);
        break;
    }
  }
  program->results_.resize(reader.count());
  for (Result& result : program->results_) {
    result.argument = reader.next();
    if (result.argument >= 0) {
      TORCH_CHECK(static_cast<size_t>(result.argument) < num_inputs, "flagos: a recording returns an argument beyond");
      continue;
    }
    result.place = read_place(reader, 0, num_blocks);
    program->blocks_[static_cast<size_t>(-1 - result.place.memory)].returned = true;
  }
  reader.end();
  return program;
}

Program::~Program() {
  for (const Step& step : steps_) {
    if (step.kind == Step::kLaunch && step.launch.launch != nullptr) {
      core->launch_free(step.launch.launch);
    }
  }
}

void Program::run(const Signature& signature, torch::jit::Stack* stack, size_t num_arguments) const {
  const DeviceScope scope(signature.device);
  Memories memories{signature, {}, {}};
  memories.returned.resize(blocks_.size());
  memories.scratch.resize(blocks_.size());
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const auto nbytes = static_cast<size_t>(blocks_[i].nbytes);
    if (blocks_[i].returned) {
      c10::Allocator* allocator = device_allocator();
      memories.returned[i] = c10::Storage(
          c10::make_intrusive<c10::StorageImpl>(
              c10::StorageImpl::use_byte_size_t(),
              blocks_[i].nbytes,
              allocator->allocate(nbytes),
              allocator,
              /*resizable=*/true));
    } else {
      memories.scratch[i] = at::detail::getCUDAHooks().getCUDADeviceAllocator()->allocate(nbytes);
    }
  }
  uint64_t stream = 0;
  if (num_launches_ != 0) {
    const c10::impl::DeviceGuardImplInterface* guard = cuda_guard();
    const c10::Device device(c10::DeviceType::CUDA, signature.device);
    stream = reinterpret_cast<uint64_t>(guard->getStreamNativeHandle(guard->getStream(device)));
  }
  for (const Step& step : steps_) {
    if (C10_LIKELY(step.kind == Step::kLaunch)) {
      c10::SmallVector<uint64_t, 16> pointers;
      for (const int64_t memory : step.launch.memories) {
        pointers.push_back(memories.address(memory));
      }
      check(core->launch_run(step.launch.launch, stream, pointers.data(), pointers.size()));
      continue;
    }
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    if (step.kind == Step::kFill) {
      at::Tensor target = native_tensor(memories, step.fill.target);
      at::_ops::fill__Scalar::redispatch(native.keys, target, step.fill.value);
    } else {
      at::Tensor target = native_tensor(memories, step.copy.target);
      at::_ops::copy_::redispatch(native.keys, target, native_tensor(memories, step.copy.source), false);
    }
  }
  c10::SmallVector<at::Tensor, 3> results;
  for (const Result& result : results_) {
    results.push_back(
        result.argument >= 0 ? at::Tensor(
                                   c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::reclaim_copy(
                                       signature.inputs[static_cast<size_t>(result.argument)]))
                             : flagos_tensor(memories, result.place));
  }
  torch::jit::drop(*stack, num_arguments);
  for (at::Tensor& result : results) {
    stack->emplace_back(std::move(result));
  }
}

Recordings::~Recordings() {
  for (auto& bucket : buckets_) {
    Recorded* entry = bucket.load(std::memory_order_acquire);
    while (entry != nullptr) {
      Recorded* next = entry->next;
      delete entry->program.load(std::memory_order_acquire);
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
      recorded.program.store(Program::read(words, num_inputs).release(), std::memory_order_release);
    } catch (const c10::Error& error) { // the call itself was made: it is just not repeated
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
