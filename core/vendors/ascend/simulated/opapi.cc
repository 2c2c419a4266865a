// SPDX-License-Identifier: Apache-2.0
// The two phases of every operator: what the vendor's library checks, and what it cannot notice.
#include "opapi.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <thread>

#include "program.h"
#include "simulated_ascend.h"

namespace simulated_ascend {

namespace {

constexpr int kDeviceFailure = 507015;

uint64_t setting(const char* name, uint64_t otherwise) {
  const char* text = std::getenv((std::string("SIMULATED_ASCEND_") + name).c_str());
  if (!text)
    return otherwise;
  char* end = nullptr;
  const uint64_t value = std::strtoull(text, &end, 10);
  if (end == text || *end) {
    std::fprintf(stderr, "SIMULATED_ASCEND_%s cannot be read: %s\n", name, text);
    std::abort();
  }
  return value;
}

const bool computes = setting("COMPUTE", 1) != 0;
const uint64_t workspace_seed = setting("WORKSPACE", 1);
const uint64_t delay_us = setting("DELAY_US", 0);
const std::chrono::nanoseconds launch_time(setting("LAUNCH_NS", 0));
const bool has_faults = simulated_ascend_has_faults() != 0;

std::vector<Function*>& functions() {
  static auto& all = *new std::vector<Function*>;
  return all;
}

Function* function_of(const char* name) {
  for (Function* each : functions()) {
    if (std::strcmp(each->name, name) == 0)
      return each;
  }
  return nullptr;
}

uint64_t calls_of(const char* name) {
  const std::string phase(name);
  const std::string end = "GetWorkspaceSize";
  const bool is_first =
      phase.size() > end.size() && phase.compare(phase.size() - end.size(), std::string::npos, end) == 0;
  const Function* found = function_of(is_first ? phase.substr(0, phase.size() - end.size()).c_str() : name);
  if (!found)
    return UINT64_MAX;
  return is_first ? found->prepared : found->called;
}

const char* const kNoKinds[] = {nullptr};

__attribute__((constructor)) void join() {
  const simulated_ascend_part part{
      kNoKinds,
      [](const char*) { return SIZE_MAX; },
      calls_of,
      [] {
        for (Function* each : functions())
          each->prepared = each->called = each->queued = each->deterministic = 0;
      }};
  simulated_ascend_join(&part);
  simulated_ascend_hide(reinterpret_cast<const void*>(&join), newer_functions, "aclnn");
}

// Often none, mostly little, now and then much.
uint64_t next_workspace() {
  if (!workspace_seed)
    return 0;
  static std::atomic<uint64_t> threads{0};
  static thread_local uint64_t state = workspace_seed * 0x9e3779b97f4a7c15u + ++threads * 0xbf58476d1ce4e5b9u;
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  const uint64_t kind = state % 16;
  const uint64_t size = state >> 8;
  if (kind < 5)
    return 0;
  return kind < 15 ? (size % 512 + 1) * 32 : (size % 64 + 1) * 16384;
}

struct Prepared : Executor {
  Function* function = nullptr;
  std::shared_ptr<Arguments> arguments;
  uint64_t workspace_size = 0;
  bool is_empty = false; // nothing to compute
};

void destroy(Executor* executor) {
  delete static_cast<Prepared*>(executor);
}

// One call of phase 1.
class Phase {
 public:
  Phase(Function& function) : function_(function), name_(std::string(function.name) + "GetWorkspaceSize") {}

  int refuse(int code, const std::string& why) {
    return simulated_ascend_refuse(name_.c_str(), code, why.c_str());
  }
  void record(const std::string& why) {
    simulated_ascend_record(name_.c_str(), why.c_str());
  }
  const char* name() const {
    return name_.c_str();
  }

  int take(const Parameter& parameter, const Value& value, Argument& out, std::vector<Slot>& slots, size_t place);

 private:
  int take_tensor(const Parameter& parameter, const std::string& label, const void* handle, Argument& out);
  int check_view(const Parameter& parameter, const std::string& label, const View& view);
  int check_memory(const std::string& label, const View& view);

  Function& function_;
  std::string name_;
};

bool is_format(int format) {
  static const std::set<int> all{0, 1, 2, 3, 4, 12, 16, 27, 29, 30, 32, 33, 35, 47};
  return all.count(format) != 0;
}

bool is_base_format(int format) {
  static const std::set<int> all{0, 1, 2, 16, 27, 30, 35, 47};
  return all.count(format) != 0;
}

int Phase::check_memory(const std::string& label, const View& view) {
  const auto size = static_cast<uint64_t>(itemsize(view.dtype));
  const auto storage = static_cast<uint64_t>(view.storage_numel()) * size;
  if (view.numel() == 0)
    return 0;
  if (!view.data)
    return refuse(kNullPointer, label + " has elements and no memory");
  const uint64_t end = static_cast<uint64_t>(view.offset) * size + extent(view);
  if (end > storage) {
    return refuse(
        kBadParameter,
        label + " ends " + std::to_string(end - storage) + " bytes beyond its storage of " + std::to_string(storage));
  }
  uint64_t begin = 0;
  uint64_t bytes = 0;
  const int place = simulated_ascend_block(view.data, &begin, &bytes);
  if (place != 1) {
    record(label + (place ? " is memory of the host" : " is not in memory of a device that is allocated"));
    return kBadParameter;
  }
  const uint64_t first = reinterpret_cast<uintptr_t>(view.data) - begin;
  if (first + storage > bytes) {
    record(label + " has a storage " + std::to_string(first + storage - bytes) + " bytes beyond the end of its block");
    return kBadParameter;
  }
  if (reinterpret_cast<uintptr_t>(view.data) % 32)
    record(label + " is not aligned to 32 bytes");
  return 0;
}

int Phase::check_view(const Parameter& parameter, const std::string& label, const View& view) {
  const unsigned flags = parameter.flags;
  if (!itemsize(view.dtype))
    return refuse(kBadParameter, label + " has an unknown dtype: " + std::to_string(view.dtype));
  if (!is_format(view.format))
    return refuse(kBadParameter, label + " has an unknown format: " + std::to_string(view.format));
  if (!is_base_format(view.format))
    return refuse(kBadParameter, label + " has a private format: " + std::to_string(view.format));
  if (!(parameter.dtypes >> view.dtype & 1))
    return refuse(kBadParameter, label + " cannot be " + dtype_name(view.dtype));
  if (view.rank < parameter.least_rank || view.rank > parameter.most_rank)
    return refuse(kBadParameter, label + " cannot have " + std::to_string(view.rank) + " dimensions");
  // A batch alone, and more dimensions than have names, are written as they come.
  if ((flags & kImage) && view.rank >= 3 && view.rank <= 5 && (view.format == 2 || view.format == 35))
    return refuse(kBadParameter, label + " needs a format that names its dimensions");
  if ((flags & kImage) && (view.format == 1 || view.format == 27))
    return refuse(kBadParameter, label + " cannot be NHWC on this chip");
  if ((flags & kContiguous) && !view.is_contiguous())
    return refuse(kBadParameter, label + " must be contiguous");
  if ((flags & kWrites) && view.numel() > 1) {
    for (int dim = 0; dim < view.rank; ++dim) {
      if (view.sizes[dim] > 1 && view.strides[dim] == 0)
        return refuse(kBadParameter, label + " is written and overlaps itself");
    }
  }
  return check_memory(label, view);
}

int Phase::take_tensor(const Parameter& parameter, const std::string& label, const void* handle, Argument& out) {
  std::string why;
  auto* tensor = find<Tensor>(handle, Thing::kTensor, &why);
  if (!tensor) {
    record(label + ": " + why);
    return kBadParameter;
  }
  if (tensor->unknown_shape.load() && (parameter.flags & kReads))
    record(label + ": the work that sets its shape has not run");
  out.views.push_back(tensor->view);
  out.present.push_back(true);
  return check_view(parameter, label, tensor->view);
}

int Phase::take(const Parameter& parameter, const Value& value, Argument& out, std::vector<Slot>& slots, size_t place) {
  const std::string label = parameter.name;
  const bool is_handle = parameter.type <= Type::kBoolArray || parameter.type == Type::kText;
  if (is_handle && !value.handle) {
    if (parameter.type == Type::kTensor)
      slots.push_back(
          {nullptr, nullptr, place, 0, (parameter.flags & kReads) != 0, (parameter.flags & kWrites) != 0, {}});
    return parameter.flags & (kOptional | kAbsent) ? 0 : refuse(kNullPointer, label + " is NULL");
  }
  if (parameter.flags & kAbsent)
    return refuse(kBadParameter, label + " is not simulated");
  out.given = true;
  std::string why;
  const auto lacks = [&] {
    record(label + ": " + why);
    return kBadParameter;
  };
  const auto add_slot = [&](const void* handle, const void* list, size_t element, const View& view) {
    slots.push_back(
        {handle, list, place, element, (parameter.flags & kReads) != 0, (parameter.flags & kWrites) != 0, view});
  };
  switch (parameter.type) {
    case Type::kTensor: {
      const int code = take_tensor(parameter, label, value.handle, out);
      if (code)
        return code;
      out.handle = value.handle;
      add_slot(value.handle, nullptr, 0, out.views[0]);
      return 0;
    }
    case Type::kTensorList: {
      const auto* list = find<TensorList>(value.handle, Thing::kTensorList, &why);
      if (!list)
        return lacks();
      if ((parameter.flags & kShort) && list->elements.size() > 50)
        return refuse(kBadParameter, label + " has more than 50 tensors: " + std::to_string(list->elements.size()));
      for (size_t index = 0; index < list->elements.size(); ++index) {
        const std::string each = label + "[" + std::to_string(index) + "]";
        const void* handle = list->elements[index];
        if (handle) {
          const int code = take_tensor(parameter, each, handle, out);
          if (code)
            return code;
        } else {
          if (!(parameter.flags & kOptional))
            return refuse(kNullPointer, each + " is NULL");
          out.views.emplace_back();
          out.present.push_back(false);
        }
        add_slot(handle, value.handle, index, out.views.back());
      }
      return 0;
    }
    case Type::kScalar: {
      const auto* scalar = find<Scalar>(value.handle, Thing::kScalar, &why);
      if (!scalar)
        return lacks();
      if (!(parameter.dtypes >> scalar->dtype & 1))
        return refuse(kBadParameter, label + " cannot be " + dtype_name(scalar->dtype));
      out.scalars.push_back(*scalar);
      return 0;
    }
    case Type::kScalarList: {
      const auto* list = find<ScalarList>(value.handle, Thing::kScalarList, &why);
      if (!list)
        return lacks();
      for (const void* handle : list->elements) {
        const auto* scalar = find<Scalar>(handle, Thing::kScalar, &why);
        if (!scalar)
          return lacks();
        if (!(parameter.dtypes >> scalar->dtype & 1))
          return refuse(kBadParameter, label + " cannot hold " + dtype_name(scalar->dtype));
        out.scalars.push_back(*scalar);
      }
      return 0;
    }
    case Type::kIntArray: {
      const auto* array = find<IntArray>(value.handle, Thing::kIntArray, &why);
      if (!array)
        return lacks();
      out.integers = array->values;
      return 0;
    }
    case Type::kFloatArray: {
      const auto* array = find<FloatArray>(value.handle, Thing::kFloatArray, &why);
      if (!array)
        return lacks();
      out.reals.assign(array->values.begin(), array->values.end());
      return 0;
    }
    case Type::kBoolArray: {
      const auto* array = find<BoolArray>(value.handle, Thing::kBoolArray, &why);
      if (!array)
        return lacks();
      out.integers.assign(array->values.begin(), array->values.end());
      return 0;
    }
    case Type::kBool:
      if (value.integer != 0 && value.integer != 1)
        record(label + " is neither true nor false: " + std::to_string(value.integer));
      out.integers.push_back(value.integer != 0);
      return 0;
    case Type::kInteger:
      out.integers.push_back(value.integer);
      return 0;
    case Type::kDtype:
      if (!itemsize(static_cast<int>(value.integer)))
        return refuse(kBadParameter, label + " is an unknown dtype: " + std::to_string(value.integer));
      if (!(parameter.dtypes >> value.integer & 1))
        return refuse(kBadParameter, label + " cannot be " + dtype_name(static_cast<int>(value.integer)));
      out.integers.push_back(value.integer);
      return 0;
    case Type::kReal:
      out.reals.push_back(value.real);
      return 0;
    case Type::kText:
      out.text = static_cast<const char*>(value.handle);
      return 0;
  }
  return 0;
}

// Whether a scalar, or a tensor of scalars, may have this dtype beside tensors of another.
bool follows(unsigned flags, int dtype, int of) {
  const bool is_floating = of == 0 || of == 1 || of == 27;
  if (flags & kOfScalar)
    return is_floating ? dtype == (of == 1 ? 1 : 0) || dtype == 11 : dtype == 3 || dtype == 9;
  if (flags & kOfScalars)
    return is_floating ? dtype == 0 || dtype == 11 : dtype == 9;
  if (flags & kOfTensor)
    return dtype == (of == 27 ? 0 : is_floating ? of : 3);
  return dtype == of;
}

int check_dtypes(Phase& phase, const Function& function, const Arguments& arguments) {
  int of = -1;
  for (int index = 0; index < function.count && of < 0; ++index) {
    const auto& views = arguments[static_cast<size_t>(index)].views;
    if (function.parameters[index].type == Type::kTensorList && !views.empty())
      of = views[0].dtype;
  }
  for (int index = 0; index < function.count && of >= 0; ++index) {
    const Parameter& parameter = function.parameters[index];
    const Argument& argument = arguments[static_cast<size_t>(index)];
    if (!(parameter.flags & (kOfScalar | kOfScalars | kOfTensor | kSame)))
      continue;
    const auto check = [&](int dtype) {
      return follows(parameter.flags, dtype, of)
          ? 0
          : phase.refuse(
                kBadParameter,
                std::string(parameter.name) + " cannot be " + dtype_name(dtype) + " for tensors of " + dtype_name(of));
    };
    for (const View& view : argument.views) {
      if (const int code = check(view.dtype))
        return code;
    }
    for (const Scalar& scalar : argument.scalars) {
      if (const int code = check(scalar.dtype))
        return code;
    }
  }
  return 0;
}

bool same(const View& one, const View& other) {
  if (one.data != other.data || one.offset != other.offset || one.rank != other.rank ||
      itemsize(one.dtype) != itemsize(other.dtype))
    return false;
  for (int dim = 0; dim < one.rank; ++dim) {
    if (one.sizes[dim] != other.sizes[dim] || (one.sizes[dim] > 1 && one.strides[dim] != other.strides[dim]))
      return false;
  }
  return true;
}

uintptr_t first_byte(const View& view) {
  return reinterpret_cast<uintptr_t>(view.data) + static_cast<size_t>(view.offset) * itemsize(view.dtype);
}

// Marks the bytes of each element.
void mark(const View& view, uintptr_t base, std::vector<bool>& bytes, bool* hit) {
  const size_t size = itemsize(view.dtype);
  std::vector<int64_t> index(static_cast<size_t>(view.rank), 0);
  for (;;) {
    int64_t at = 0;
    for (int dim = 0; dim < view.rank; ++dim)
      at += index[static_cast<size_t>(dim)] * view.strides[dim];
    const size_t begin = first_byte(view) - base + static_cast<size_t>(at) * size;
    for (size_t byte = begin; byte < begin + size; ++byte) {
      if (hit) {
        *hit = *hit || (byte < bytes.size() && bytes[byte]);
      } else {
        bytes[byte] = true;
      }
    }
    int dim = view.rank;
    while (dim-- > 0) {
      if (++index[static_cast<size_t>(dim)] < view.sizes[dim])
        break;
      index[static_cast<size_t>(dim)] = 0;
    }
    if (dim < 0)
      return;
  }
}

int check_overlaps(Phase& phase, const std::vector<Slot>& slots, const Function& function) {
  std::vector<const char*> names;
  for (int index = 0; index < function.count; ++index) {
    if (function.parameters[index].type <= Type::kTensorList)
      names.push_back(function.parameters[index].name);
  }
  for (const Slot& result : slots) {
    if (!result.writes || !result.handle)
      continue;
    for (const Slot& other : slots) {
      if (&other == &result || !other.handle || (other.writes && &other < &result))
        continue;
      // The same argument twice is one tensor, except as two results.
      if (overlap_in_part(result.view, other.view) ||
          (other.writes && result.view.numel() && same(result.view, other.view))) {
        phase.record(
            std::string(names[result.argument]) + " and " + names[other.argument] + " overlap" +
            (other.writes ? ", and are both results" : " in part"));
        return kBadParameter;
      }
    }
  }
  return 0;
}

struct Task {
  Function* function;
  std::shared_ptr<Arguments> arguments;
  void* workspace;
  uint64_t workspace_size;
  std::vector<const void*> dynamic; // tensors whose shape the work sets
  uint64_t number;
};

std::atomic<uint64_t> tasks{0};

// Threads of streams compute until the process ends, and torch's own state must outlive that.
std::atomic<int> running{0};
std::atomic<bool> ending{false};

// Destroyed before what torch made when it was loaded, which was earlier.
struct Ending {
  const int process = getpid();
  ~Ending() {
    // A forked child has none of the threads.
    if (getpid() != process)
      return;
    ending = true;
    while (running.load())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
};
const Ending end;

struct Running {
  Running() {
    ++running;
  }
  ~Running() {
    --running;
  }
};

int run(void* argument) {
  const auto& task = *static_cast<const Task*>(argument);
  const Running counted;
  if (ending)
    return 0;
  const char* name = task.function->name;
  auto* memory = task.workspace_size
      ? static_cast<unsigned char*>(simulated_ascend_address(task.workspace, task.workspace_size))
      : nullptr;
  const auto garbage = static_cast<unsigned char>(task.number * 73 + 11);
  if (task.workspace_size && !memory)
    return kDeviceFailure;
  if (memory)
    std::memset(memory, garbage, task.workspace_size);
  if (delay_us && memory)
    std::this_thread::sleep_for(std::chrono::microseconds(delay_us / 4));
  const Verdict verdict = compute(*task.function, *task.arguments);
  if (memory) {
    const bool kept =
        std::all_of(memory, memory + task.workspace_size, [garbage](unsigned char each) { return each == garbage; });
    if (!kept)
      simulated_ascend_record(name, "other work has changed the workspace");
  }
  if (!verdict.code)
    return 0;
  if (verdict.code == kDeviceFailure)
    simulated_ascend_record(name, verdict.why.c_str());
  else
    simulated_ascend_refuse(name, verdict.code, verdict.why.c_str());
  return kDeviceFailure;
}

std::vector<simulated_ascend_use> uses_of(const std::vector<Slot>& slots, void* workspace, uint64_t size) {
  std::vector<simulated_ascend_use> uses;
  for (const Slot& slot : slots) {
    if (slot.handle && slot.view.numel())
      uses.push_back({reinterpret_cast<const void*>(first_byte(slot.view)), extent(slot.view), slot.writes});
  }
  if (size)
    uses.push_back({workspace, size, 1});
  return uses;
}

int phase_one_unchecked(Function& function, uint64_t* workspace_size, void** out) {
  auto* executor = new Prepared;
  executor->function = &function;
  executor->destroy = destroy;
  executor->can_repeat = function.can_repeat;
  executor->is_checked = false;
  executor->workspace_size = next_workspace();
  *workspace_size = executor->workspace_size;
  *out = add_executor(executor);
  set_fresh_executor(*out);
  return 0;
}

int phase_two_unchecked(Function& function, void* handle) {
  std::string why;
  auto* executor = static_cast<Prepared*>(find<Executor>(handle, Thing::kExecutor, &why));
  if (!executor)
    return simulated_ascend_refuse(function.name, kNullPointer, why.c_str());
  if (launch_time.count() != 0) {
    const auto end = std::chrono::steady_clock::now() + launch_time;
    while (std::chrono::steady_clock::now() < end) {
    }
  }
  if (!executor->repeatable) {
    remove_executor(handle);
    delete executor;
  }
  return 0;
}

// Destroys an ordinary executor at the end of phase 2, however it ends.
struct Spending {
  void* handle;
  Prepared* executor;
  ~Spending() {
    if (!executor->repeatable) {
      remove_executor(handle);
      delete executor;
    }
  }
};

} // namespace

size_t extent(const View& view) {
  int64_t last = 0;
  for (int dim = 0; dim < view.rank; ++dim) {
    if (view.sizes[dim] == 0)
      return 0;
    last += (view.sizes[dim] - 1) * view.strides[dim];
  }
  return static_cast<size_t>(last + 1) * itemsize(view.dtype);
}

std::string text_of(const int64_t* sizes, size_t rank) {
  std::string all = "[";
  for (size_t dim = 0; dim < rank; ++dim)
    all += (dim ? ", " : "") + std::to_string(sizes[dim]);
  return all + "]";
}

bool overlap_in_part(const View& one, const View& other) {
  const size_t one_size = extent(one);
  const size_t other_size = extent(other);
  const uintptr_t one_first = first_byte(one);
  const uintptr_t other_first = first_byte(other);
  if (!one_size || !other_size || one_first + one_size <= other_first || other_first + other_size <= one_first)
    return false;
  if (same(one, other))
    return false;
  if (one.is_contiguous() && other.is_contiguous()) {
    // The same bytes under two shapes are the same elements in the same order.
    return one_first != other_first || one_size != other_size || itemsize(one.dtype) != itemsize(other.dtype);
  }
  // Larger ones are believed.
  if (one_size > (size_t{1} << 22) || other_size > (size_t{1} << 22))
    return false;
  std::vector<bool> bytes(one_size, false);
  mark(one, one_first, bytes, nullptr);
  if (other_first >= one_first) {
    bool hit = false;
    mark(other, one_first, bytes, &hit);
    return hit;
  }
  return overlap_in_part(other, one);
}

void add_functions(Function* all, size_t count) {
  for (size_t index = 0; index < count; ++index)
    functions().push_back(&all[index]);
}

int phase_one(Function& function, const Value* values, uint64_t* workspace_size, void** out) {
  function.prepared.fetch_add(1, std::memory_order_relaxed);
  if (!computes && !has_faults)
    return phase_one_unchecked(function, workspace_size, out);
  set_fresh_executor(nullptr);
  Phase phase(function);
  if (const int code = simulated_ascend_begin(phase.name(), 1))
    return code;
  if (!computes)
    return phase_one_unchecked(function, workspace_size, out);
  if (!workspace_size || !out)
    return phase.refuse(kNullPointer, "an output of phase 1 is NULL");

  auto executor = std::make_unique<Prepared>();
  executor->arguments = std::make_shared<Arguments>(static_cast<size_t>(function.count));
  size_t place = 0;
  bool has_results = false;
  bool has_elements = false;
  for (int index = 0; index < function.count; ++index) {
    const Parameter& parameter = function.parameters[index];
    Argument& argument = (*executor->arguments)[static_cast<size_t>(index)];
    if (const int code = phase.take(parameter, values[index], argument, executor->slots, place))
      return code;
    if (parameter.type <= Type::kTensorList)
      ++place;
    if ((parameter.flags & kWrites) && argument.given) {
      has_results = true;
      for (const View& view : argument.views)
        has_elements = has_elements || view.numel();
    }
  }
  if (const int code = check_dtypes(phase, function, *executor->arguments))
    return code;
  if (const int code = check_overlaps(phase, executor->slots, function))
    return code;
  const Verdict verdict = infer(function, *executor->arguments);
  if (verdict.code)
    return phase.refuse(verdict.code, verdict.why);

  executor->function = &function;
  executor->destroy = destroy;
  executor->can_repeat = function.can_repeat;
  executor->is_empty = has_results && !has_elements;
  executor->workspace_size = executor->is_empty ? 0 : next_workspace();
  if (simulated_ascend_deterministic())
    function.deterministic.fetch_add(1, std::memory_order_relaxed);
  *workspace_size = executor->workspace_size;
  *out = add_executor(executor.release());
  set_fresh_executor(*out);
  return 0;
}

int phase_two(Function& function, void* workspace, uint64_t workspace_size, void* handle, void* stream) {
  function.called.fetch_add(1, std::memory_order_relaxed);
  if (!computes)
    return phase_two_unchecked(function, handle);
  set_fresh_executor(nullptr);
  const char* name = function.name;
  std::string why;
  auto* executor = static_cast<Prepared*>(find<Executor>(handle, Thing::kExecutor, &why));
  if (!executor) {
    if (!handle)
      return simulated_ascend_refuse(name, kNullPointer, why.c_str());
    simulated_ascend_record(name, why.c_str());
    return kBadParameter;
  }
  if (executor->function != &function) {
    simulated_ascend_record(name, (std::string("the executor belongs to ") + executor->function->name).c_str());
    return kBadParameter;
  }
  const Spending spending{handle, executor};
  if (executor->workspace_size && !workspace)
    return simulated_ascend_refuse(name, kNullPointer, "the workspace is NULL");
  if (workspace_size < executor->workspace_size) {
    simulated_ascend_record(
        name,
        ("a workspace of " + std::to_string(workspace_size) + " bytes where " +
         std::to_string(executor->workspace_size) + " are needed")
            .c_str());
    return kBadParameter;
  }
  ++executor->runs;

  // Tensors must be as phase 1 has seen them; of a repeatable executor the addresses may be others.
  bool moved = false;
  std::vector<Slot> slots = executor->slots;
  for (Slot& slot : slots) {
    if (!slot.handle)
      continue;
    const char* parameter = "a tensor";
    size_t place = 0;
    for (int index = 0; index < function.count; ++index) {
      if (function.parameters[index].type <= Type::kTensorList && place++ == slot.argument)
        parameter = function.parameters[index].name;
    }
    const auto* tensor = find<Tensor>(slot.handle, Thing::kTensor, &why);
    if (!tensor) {
      simulated_ascend_record(name, (std::string(parameter) + ": " + why + " before phase 2").c_str());
      if (executor->repeatable)
        return kBadParameter;
      continue;
    }
    View now = tensor->view;
    if (now.data != slot.view.data) {
      if (!executor->repeatable)
        simulated_ascend_record(name, (std::string(parameter) + " was moved between the phases").c_str());
      moved = true;
      slot.view.data = now.data;
    }
    now.data = slot.view.data;
    if (!same(now, slot.view) || now.dtype != slot.view.dtype) {
      simulated_ascend_record(name, (std::string(parameter) + " has another shape than in phase 1").c_str());
      return kBadParameter;
    }
  }
  auto arguments = executor->arguments;
  if (moved) {
    arguments = std::make_shared<Arguments>(*arguments);
    size_t at = 0;
    for (int index = 0; index < function.count; ++index) {
      Argument& argument = (*arguments)[static_cast<size_t>(index)];
      if (function.parameters[index].type > Type::kTensorList)
        continue;
      if (!argument.given) {
        at += function.parameters[index].type == Type::kTensor;
        continue;
      }
      for (View& view : argument.views)
        view.data = slots[at++].view.data;
    }
  }
  if (executor->is_empty)
    return simulated_ascend_begin(name, 1);

  auto task = std::make_unique<Task>();
  task->function = &function;
  task->arguments = arguments;
  task->workspace = workspace;
  task->workspace_size = executor->workspace_size;
  task->number = ++tasks;
  for (int index = 0; index < function.count; ++index) {
    const Argument& argument = (*arguments)[static_cast<size_t>(index)];
    if (!(function.parameters[index].flags & kDynamic) || !argument.handle)
      continue;
    if (auto* tensor = find<Tensor>(argument.handle, Thing::kTensor, &why))
      ++tensor->unknown_shape;
  }
  const auto uses = uses_of(slots, workspace, executor->workspace_size);
  const int code = simulated_ascend_launch_owned(
      stream,
      name,
      run,
      task.release(),
      [](void* argument) { delete static_cast<Task*>(argument); },
      uses.data(),
      uses.size());
  if (!code)
    function.queued.fetch_add(1, std::memory_order_relaxed);
  return code;
}

} // namespace simulated_ascend

using namespace simulated_ascend;

extern "C" __attribute__((visibility("default"))) const char* simulated_ascend_operator(size_t index) {
  return index < functions().size() ? functions()[index]->name : nullptr;
}

extern "C" __attribute__((visibility("default"))) uint64_t simulated_ascend_operator_tasks(const char* name) {
  const Function* found = function_of(name);
  return found ? found->queued.load() : 0;
}

extern "C" __attribute__((visibility("default"))) uint64_t simulated_ascend_operator_deterministic(const char* name) {
  const Function* found = function_of(name);
  return found ? found->deterministic.load() : 0;
}
