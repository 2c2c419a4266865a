// SPDX-License-Identifier: Apache-2.0
// libnnopbase: what describes arguments of operators, and executors.
#include "nnopbase.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>

#include "simulated_ascend.h"

#define NN_FUNC extern "C" __attribute__((visibility("default")))

namespace simulated_ascend {

namespace {

constexpr size_t kStep = 64;
constexpr size_t kSpan = size_t{1} << 36;
constexpr size_t kHandles = kSpan / kStep;

constexpr int kThings = static_cast<int>(Thing::kCount);
const char* const kNames[] =
    {"tensor", "scalar", "int array", "float array", "bool array", "tensor list", "scalar list", "executor"};
const char* const kPlurals[] = {
    "tensors",
    "scalars",
    "int_arrays",
    "float_arrays",
    "bool_arrays",
    "tensor_lists",
    "scalar_lists",
    "executors",
    nullptr};

// Created and destroyed by kind; far apart, as several threads count.
struct alignas(64) Count {
  std::atomic<int64_t> live{0};
};
Count counts[kThings];

void* reserve(size_t bytes, int protection) {
  void* memory = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    std::fprintf(stderr, "simulated nnopbase cannot reserve addresses\n");
    std::abort();
  }
  return memory;
}

// An entry is an object's address, or 2 * kind + 1 of one that was destroyed.
using Entry = std::atomic<uintptr_t>;
const uintptr_t base = reinterpret_cast<uintptr_t>(reserve(kSpan, PROT_NONE));
Entry* const entries = static_cast<Entry*>(reserve(kHandles * sizeof(Entry), PROT_READ | PROT_WRITE));
std::atomic<size_t> made{0};

Entry* entry_of(const void* handle) {
  const uintptr_t offset = reinterpret_cast<uintptr_t>(handle) - base;
  const size_t index = offset / kStep;
  return offset % kStep || index == 0 || index > made.load(std::memory_order_acquire) ? nullptr : &entries[index];
}

void* add(Object* object) {
  const size_t index = made.fetch_add(1, std::memory_order_acq_rel) + 1;
  if (index >= kHandles) {
    std::fprintf(stderr, "simulated nnopbase has no handle left\n");
    std::abort();
  }
  entries[index].store(reinterpret_cast<uintptr_t>(object), std::memory_order_release);
  counts[static_cast<int>(object->thing)].live.fetch_add(1, std::memory_order_relaxed);
  return reinterpret_cast<void*>(base + index * kStep);
}

Object* remove(const void* handle, Thing thing, std::string* why) {
  Object* object = find(handle, thing, why);
  if (object) {
    entry_of(handle)->store(static_cast<uintptr_t>(thing) * 2 + 1, std::memory_order_release);
    counts[static_cast<int>(thing)].live.fetch_sub(1, std::memory_order_relaxed);
  }
  return object;
}

// Held while work sets the shape of a tensor, which is not destroyed meanwhile.
auto& shapes = *new std::mutex;

void end(Tensor* tensor) {
  if (tensor->unknown_shape.load())
    std::lock_guard<std::mutex> lock(shapes);
  delete tensor;
}

template <class T>
void end(T* object) {
  delete object;
}

template <class T>
int destroy(const char* function, const void* handle, Thing thing) {
  if (!handle)
    return 0;
  std::string why;
  if (Object* object = remove(handle, thing, &why)) {
    end(static_cast<T*>(object));
  } else {
    simulated_ascend_record(function, why.c_str());
  }
  return 0;
}

template <class T>
T* get(const char* function, const void* handle, Thing thing, int* code) {
  std::string why;
  T* object = find<T>(handle, thing, &why);
  if (object)
    return object;
  *code = handle ? kBadParameter : kNullPointer;
  if (handle)
    simulated_ascend_record(function, why.c_str());
  else
    simulated_ascend_refuse(function, kNullPointer, why.c_str());
  return nullptr;
}

template <class T>
T* make(Thing thing) {
  T* object = new T;
  object->thing = thing;
  return object;
}

// Whether all is well; otherwise it has been recorded.
bool describe(
    const char* function,
    View& view,
    const int64_t* sizes,
    uint64_t rank,
    int dtype,
    const int64_t* strides,
    int64_t offset,
    int format,
    const int64_t* storage,
    uint64_t storage_rank,
    void* data) {
  const char* why = nullptr;
  if (rank > kMaxRank || storage_rank > kMaxRank)
    why = "more than 8 dimensions";
  else if ((rank && !sizes) || (storage_rank && !storage))
    why = "dimensions are NULL";
  if (!why) {
    view.rank = static_cast<int>(rank);
    view.storage_rank = static_cast<int>(storage_rank);
    std::memcpy(view.sizes, sizes, rank * sizeof(int64_t));
    std::memcpy(view.storage, storage, storage_rank * sizeof(int64_t));
    if (strides) {
      std::memcpy(view.strides, strides, rank * sizeof(int64_t));
    } else {
      int64_t step = 1;
      for (int dim = view.rank; dim-- > 0;) {
        view.strides[dim] = step;
        step *= view.sizes[dim];
      }
    }
    for (int dim = 0; dim < view.rank; ++dim) {
      if (view.sizes[dim] < 0 || view.strides[dim] < 0)
        why = "a size or a stride is negative";
    }
    for (int dim = 0; dim < view.storage_rank; ++dim) {
      if (view.storage[dim] < 0)
        why = "a size of the storage is negative";
    }
    if (offset < 0)
      why = "the offset is negative";
  }
  if (why) {
    simulated_ascend_refuse(function, kBadParameter, why);
    return false;
  }
  view.dtype = dtype;
  view.format = format;
  view.offset = offset;
  view.data = data;
  return true;
}

size_t live_of(const char* kind) {
  for (int thing = 0; thing < kThings; ++thing) {
    if (std::strcmp(kind, kPlurals[thing]) == 0)
      return static_cast<size_t>(counts[thing].live.load(std::memory_order_relaxed));
  }
  return SIZE_MAX;
}

__attribute__((constructor)) void join() {
  const simulated_ascend_part part{kPlurals, live_of, [](const char*) { return UINT64_MAX; }, [] {}};
  simulated_ascend_join(&part);
  const char* const newer[] = {nullptr};
  simulated_ascend_hide(reinterpret_cast<const void*>(&join), newer, nullptr);
}

thread_local void* fresh = nullptr;

template <class T, class Value>
void* make_array(const char* function, Thing thing, const Value* values, uint64_t count) {
  if (count && !values) {
    simulated_ascend_refuse(function, kNullPointer, "values are NULL");
    return nullptr;
  }
  T* object = make<T>(thing);
  object->values.assign(values, values + count);
  return add(object);
}

template <class T>
int array_size(const char* function, const void* handle, Thing thing, uint64_t* size) {
  int code = 0;
  const T* object = get<T>(function, handle, thing, &code);
  if (!object)
    return code;
  if (!size)
    return simulated_ascend_refuse(function, kNullPointer, "the output is NULL");
  *size = object->values.size();
  return 0;
}

template <class T>
int list_size(const char* function, const void* handle, Thing thing, uint64_t* size) {
  int code = 0;
  const T* object = get<T>(function, handle, thing, &code);
  if (!object)
    return code;
  if (!size)
    return simulated_ascend_refuse(function, kNullPointer, "the output is NULL");
  *size = object->elements.size();
  return 0;
}

template <class T>
void* make_list(const char* function, Thing thing, Thing element, const void* const* handles, uint64_t count) {
  if (count && !handles) {
    simulated_ascend_refuse(function, kNullPointer, "elements are NULL");
    return nullptr;
  }
  std::string why;
  for (uint64_t index = 0; index < count; ++index) {
    if (handles[index] && !find(handles[index], element, &why)) {
      simulated_ascend_record(function, ("element " + std::to_string(index) + ": " + why).c_str());
      return nullptr;
    }
  }
  T* object = make<T>(thing);
  object->elements.assign(handles, handles + count);
  return add(object);
}

template <class T>
int destroy_list(const char* function, const void* handle, Thing thing, int (*destroy_element)(const void*)) {
  if (!handle)
    return 0;
  std::string why;
  Object* object = remove(handle, thing, &why);
  if (!object) {
    simulated_ascend_record(function, why.c_str());
    return 0;
  }
  std::unique_ptr<T> list(static_cast<T*>(object));
  for (const void* element : list->elements)
    destroy_element(element);
  return 0;
}

int copy_dims(const char* function, const int64_t* from, int rank, int64_t** out, uint64_t* count) {
  if (!out || !count)
    return simulated_ascend_refuse(function, kNullPointer, "an output is NULL");
  // The caller gives it back with delete[].
  *out = new int64_t[static_cast<size_t>(rank)];
  std::memcpy(*out, from, static_cast<size_t>(rank) * sizeof(int64_t));
  *count = static_cast<uint64_t>(rank);
  return 0;
}

Tensor* tensor_of(const char* function, const void* handle, int* code) {
  return get<Tensor>(function, handle, Thing::kTensor, code);
}

// One member of a tensor's view.
template <typename T>
int read_view(const char* function, const void* handle, T View::* member, T* out) {
  int code = 0;
  const Tensor* tensor = tensor_of(function, handle, &code);
  if (!tensor)
    return code;
  if (!out)
    return simulated_ascend_refuse(function, kNullPointer, "the output is NULL");
  *out = tensor->view.*member;
  return 0;
}

// An address for one of an executor's tensors.
int set_address(
    const char* function,
    const void* executor_handle,
    size_t index,
    const void* tensor_handle,
    void* address,
    bool Slot::* counted) {
  int code = simulated_ascend_has_faults() ? simulated_ascend_begin(function, 0) : 0;
  if (code)
    return code;
  if (!executor_handle || !tensor_handle)
    return simulated_ascend_refuse(function, kInnerNullPointer, "the executor or the tensor is NULL");
  const auto* executor = get<Executor>(function, executor_handle, Thing::kExecutor, &code);
  Tensor* tensor = executor ? tensor_of(function, tensor_handle, &code) : nullptr;
  if (!tensor)
    return code;
  if (!executor->is_checked) {
    tensor->view.data = address;
    return 0;
  }
  if (!executor->repeatable)
    simulated_ascend_record(function, "the executor is not repeatable");
  const Slot* found = nullptr;
  size_t at = 0;
  for (const Slot& slot : executor->slots) {
    if (counted && !(slot.*counted))
      continue;
    if (at++ == index)
      found = &slot;
  }
  if (!found)
    return simulated_ascend_refuse(
        function,
        kBadParameter,
        ("there is no index " + std::to_string(index) + " among " + std::to_string(at)).c_str());
  if (!found->handle)
    return simulated_ascend_refuse(function, kBadParameter, "the argument was left out in phase 1");
  if (found->handle != tensor_handle)
    simulated_ascend_record(function, ("index " + std::to_string(index) + " is another tensor").c_str());
  if (reinterpret_cast<uintptr_t>(address) % 32)
    simulated_ascend_record(function, "the address is not aligned to 32 bytes");
  tensor->view.data = address;
  return 0;
}

int set_dynamic_address(
    const char* function,
    const void* executor_handle,
    size_t argument,
    size_t element,
    const void* list_handle,
    void* address,
    bool Slot::* counted) {
  int code = 0;
  if (!executor_handle || !list_handle)
    return simulated_ascend_refuse(function, kInnerNullPointer, "the executor or the list is NULL");
  const auto* executor = get<Executor>(function, executor_handle, Thing::kExecutor, &code);
  const auto* list = executor ? get<TensorList>(function, list_handle, Thing::kTensorList, &code) : nullptr;
  if (!list)
    return code;
  if (!executor->repeatable)
    simulated_ascend_record(function, "the executor is not repeatable");
  if (element >= list->elements.size())
    return simulated_ascend_refuse(function, kBadParameter, "the list has no such element");
  if (!executor->is_checked) {
    Tensor* tensor = tensor_of(function, list->elements[element], &code);
    if (tensor)
      tensor->view.data = address;
    return code;
  }
  // Places count inputs, outputs, or both, each argument once.
  const void* found = nullptr;
  size_t at = 0;
  size_t last = SIZE_MAX;
  for (const Slot& slot : executor->slots) {
    if ((counted && !(slot.*counted)) || slot.argument == last)
      continue;
    last = slot.argument;
    if (at++ == argument)
      found = slot.list;
  }
  if (argument >= at)
    return simulated_ascend_refuse(function, kBadParameter, "the operator has no such argument");
  if (found != list_handle)
    simulated_ascend_record(function, ("argument " + std::to_string(argument) + " is not this list").c_str());
  if (reinterpret_cast<uintptr_t>(address) % 32)
    simulated_ascend_record(function, "the address is not aligned to 32 bytes");
  Tensor* tensor = tensor_of(function, list->elements[element], &code);
  if (!tensor)
    return code;
  tensor->view.data = address;
  return 0;
}

} // namespace

const char* name_of(Thing thing) {
  return kNames[static_cast<int>(thing)];
}

bool View::is_contiguous() const {
  int64_t step = 1;
  for (int dim = rank; dim-- > 0;) {
    if (sizes[dim] == 0)
      return true;
    if (sizes[dim] != 1 && strides[dim] != step)
      return false;
    step *= sizes[dim];
  }
  return true;
}

Object* find(const void* handle, Thing thing, std::string* why) {
  const Entry* entry = entry_of(handle);
  const uintptr_t value = entry ? entry->load(std::memory_order_acquire) : 0;
  if (value && !(value & 1)) {
    auto* object = reinterpret_cast<Object*>(value);
    if (object->thing == thing)
      return object;
    *why = std::string("a ") + name_of(object->thing) + ", not a " + name_of(thing);
    return nullptr;
  }
  if (value)
    *why = std::string("the ") + name_of(static_cast<Thing>(value / 2)) + " was destroyed";
  else
    *why = handle ? std::string("not a ") + name_of(thing) : std::string("the ") + name_of(thing) + " is NULL";
  return nullptr;
}

void set_shape(const void* handle, const int64_t* sizes, int rank) {
  std::lock_guard<std::mutex> lock(shapes);
  std::string why;
  auto* tensor = find<Tensor>(handle, Thing::kTensor, &why);
  if (!tensor)
    return;
  if (sizes) {
    View& view = tensor->view;
    view.rank = rank;
    int64_t step = 1;
    for (int dim = rank; dim-- > 0;) {
      view.sizes[dim] = sizes[dim];
      view.strides[dim] = step;
      step *= sizes[dim];
    }
  }
  --tensor->unknown_shape;
}

void* add_executor(Executor* executor) {
  executor->thing = Thing::kExecutor;
  return add(executor);
}

void remove_executor(const void* handle) {
  std::string why;
  remove(handle, Thing::kExecutor, &why);
}

void* fresh_executor() {
  return fresh;
}

void set_fresh_executor(void* handle) {
  fresh = handle;
}

namespace {

struct Type {
  int dtype;
  size_t size;
  const char* name;
};
const Type kTypes[] = {
    {0, 4, "FLOAT"},
    {1, 2, "FLOAT16"},
    {2, 1, "INT8"},
    {3, 4, "INT32"},
    {4, 1, "UINT8"},
    {6, 2, "INT16"},
    {7, 2, "UINT16"},
    {8, 4, "UINT32"},
    {9, 8, "INT64"},
    {10, 8, "UINT64"},
    {11, 8, "DOUBLE"},
    {12, 1, "BOOL"},
    {16, 8, "COMPLEX64"},
    {17, 16, "COMPLEX128"},
    {27, 2, "BFLOAT16"},
    {33, 4, "COMPLEX32"}};

} // namespace

size_t itemsize(int dtype) {
  for (const Type& type : kTypes) {
    if (type.dtype == dtype)
      return type.size;
  }
  return 0;
}

const char* dtype_name(int dtype) {
  for (const Type& type : kTypes) {
    if (type.dtype == dtype)
      return type.name;
  }
  return "an unknown dtype";
}

} // namespace simulated_ascend

using namespace simulated_ascend;

NN_FUNC void* aclCreateTensor(
    const int64_t* sizes,
    uint64_t rank,
    int dtype,
    const int64_t* strides,
    int64_t offset,
    int format,
    const int64_t* storage,
    uint64_t storage_rank,
    void* data) {
  Tensor* tensor = make<Tensor>(Thing::kTensor);
  if (!describe(__func__, tensor->view, sizes, rank, dtype, strides, offset, format, storage, storage_rank, data)) {
    delete tensor;
    return nullptr;
  }
  return add(tensor);
}

NN_FUNC int aclInitTensor(
    void* handle,
    const int64_t* sizes,
    uint64_t rank,
    int dtype,
    const int64_t* strides,
    int64_t offset,
    int format,
    const int64_t* storage,
    uint64_t storage_rank,
    void* data) {
  int code = 0;
  Tensor* tensor = tensor_of(__func__, handle, &code);
  if (!tensor)
    return code;
  View view;
  if (!describe(__func__, view, sizes, rank, dtype, strides, offset, format, storage, storage_rank, data))
    return kBadParameter;
  tensor->view = view;
  return 0;
}

NN_FUNC void* aclCreateScalar(void* value, int dtype) {
  const size_t size = itemsize(dtype);
  if (!value || !size) {
    simulated_ascend_refuse(
        __func__, value ? kBadParameter : kNullPointer, value ? "an unknown dtype" : "the value is NULL");
    return nullptr;
  }
  Scalar* scalar = make<Scalar>(Thing::kScalar);
  scalar->dtype = dtype;
  const auto read = [value](auto out) {
    std::memcpy(&out, value, sizeof(out));
    return out;
  };
  const auto widen = [](uint32_t bits) {
    float out;
    std::memcpy(&out, &bits, sizeof(out));
    return static_cast<double>(out);
  };
  const auto half = [&read]() {
    const uint16_t bits = read(uint16_t{});
    const int exponent = bits >> 10 & 31;
    const int mantissa = bits & 1023;
    double out = exponent == 31 ? (mantissa ? __builtin_nan("") : __builtin_inf())
        : exponent              ? __builtin_ldexp(1024 + mantissa, exponent - 25)
                                : __builtin_ldexp(mantissa, -24);
    return bits >> 15 ? -out : out;
  };
  switch (dtype) {
    case 0:
      scalar->real = static_cast<double>(read(float{}));
      break;
    case 1:
      scalar->real = half();
      break;
    case 2:
      scalar->integer = read(int8_t{});
      break;
    case 3:
      scalar->integer = read(int32_t{});
      break;
    case 4:
      scalar->integer = read(uint8_t{});
      break;
    case 6:
      scalar->integer = read(int16_t{});
      break;
    case 7:
      scalar->integer = read(uint16_t{});
      break;
    case 8:
      scalar->integer = read(uint32_t{});
      break;
    case 9:
    case 10:
      scalar->integer = read(int64_t{});
      break;
    case 11:
      scalar->real = read(double{});
      break;
    case 12:
      scalar->integer = read(uint8_t{}) != 0;
      break;
    case 16: {
      float parts[2];
      std::memcpy(parts, value, sizeof(parts));
      scalar->real = static_cast<double>(parts[0]);
      scalar->imaginary = static_cast<double>(parts[1]);
      break;
    }
    case 17: {
      double parts[2];
      std::memcpy(parts, value, sizeof(parts));
      scalar->real = parts[0];
      scalar->imaginary = parts[1];
      break;
    }
    case 27:
      scalar->real = widen(static_cast<uint32_t>(read(uint16_t{})) << 16);
      break;
    default:
      break;
  }
  if (scalar->integer)
    scalar->real = static_cast<double>(scalar->integer);
  return add(scalar);
}

NN_FUNC void* aclCreateIntArray(const int64_t* values, uint64_t count) {
  return make_array<IntArray>(__func__, Thing::kIntArray, values, count);
}

NN_FUNC void* aclCreateFloatArray(const float* values, uint64_t count) {
  return make_array<FloatArray>(__func__, Thing::kFloatArray, values, count);
}

NN_FUNC void* aclCreateBoolArray(const bool* values, uint64_t count) {
  return make_array<BoolArray>(__func__, Thing::kBoolArray, values, count);
}

NN_FUNC void* aclCreateTensorList(const void* const* tensors, uint64_t count) {
  return make_list<TensorList>(__func__, Thing::kTensorList, Thing::kTensor, tensors, count);
}

NN_FUNC void* aclCreateScalarList(const void* const* scalars, uint64_t count) {
  return make_list<ScalarList>(__func__, Thing::kScalarList, Thing::kScalar, scalars, count);
}

NN_FUNC int aclDestroyTensor(const void* handle) {
  return destroy<Tensor>(__func__, handle, Thing::kTensor);
}

NN_FUNC int aclDestroyScalar(const void* handle) {
  return destroy<Scalar>(__func__, handle, Thing::kScalar);
}

NN_FUNC int aclDestroyIntArray(const void* handle) {
  return destroy<IntArray>(__func__, handle, Thing::kIntArray);
}

NN_FUNC int aclDestroyFloatArray(const void* handle) {
  return destroy<FloatArray>(__func__, handle, Thing::kFloatArray);
}

NN_FUNC int aclDestroyBoolArray(const void* handle) {
  return destroy<BoolArray>(__func__, handle, Thing::kBoolArray);
}

NN_FUNC int aclDestroyTensorList(const void* handle) {
  return destroy_list<TensorList>(__func__, handle, Thing::kTensorList, aclDestroyTensor);
}

NN_FUNC int aclDestroyScalarList(const void* handle) {
  return destroy_list<ScalarList>(__func__, handle, Thing::kScalarList, aclDestroyScalar);
}

NN_FUNC int aclGetViewShape(const void* handle, int64_t** dims, uint64_t* count) {
  int code = 0;
  const Tensor* tensor = tensor_of(__func__, handle, &code);
  if (!tensor)
    return code;
  if (tensor->unknown_shape.load())
    simulated_ascend_record(__func__, "the work that sets the shape has not run");
  return copy_dims(__func__, tensor->view.sizes, tensor->view.rank, dims, count);
}

NN_FUNC int aclGetStorageShape(const void* handle, int64_t** dims, uint64_t* count) {
  int code = 0;
  const Tensor* tensor = tensor_of(__func__, handle, &code);
  return tensor ? copy_dims(__func__, tensor->view.storage, tensor->view.storage_rank, dims, count) : code;
}

NN_FUNC int aclGetViewStrides(const void* handle, int64_t** strides, uint64_t* count) {
  int code = 0;
  const Tensor* tensor = tensor_of(__func__, handle, &code);
  return tensor ? copy_dims(__func__, tensor->view.strides, tensor->view.rank, strides, count) : code;
}

NN_FUNC int aclGetViewOffset(const void* handle, int64_t* offset) {
  return read_view(__func__, handle, &View::offset, offset);
}

NN_FUNC int aclGetFormat(const void* handle, int* format) {
  return read_view(__func__, handle, &View::format, format);
}

NN_FUNC int aclGetDataType(const void* handle, int* dtype) {
  return read_view(__func__, handle, &View::dtype, dtype);
}

NN_FUNC int aclGetIntArraySize(const void* handle, uint64_t* size) {
  return array_size<IntArray>(__func__, handle, Thing::kIntArray, size);
}

NN_FUNC int aclGetFloatArraySize(const void* handle, uint64_t* size) {
  return array_size<FloatArray>(__func__, handle, Thing::kFloatArray, size);
}

NN_FUNC int aclGetBoolArraySize(const void* handle, uint64_t* size) {
  return array_size<BoolArray>(__func__, handle, Thing::kBoolArray, size);
}

NN_FUNC int aclGetTensorListSize(const void* handle, uint64_t* size) {
  return list_size<TensorList>(__func__, handle, Thing::kTensorList, size);
}

NN_FUNC int aclGetScalarListSize(const void* handle, uint64_t* size) {
  return list_size<ScalarList>(__func__, handle, Thing::kScalarList, size);
}

NN_FUNC int aclSetAclOpExecutorRepeatable(void* handle) {
  int code = 0;
  if (!handle)
    return simulated_ascend_refuse(__func__, kInnerNullPointer, "the executor is NULL");
  auto* executor = get<Executor>(__func__, handle, Thing::kExecutor, &code);
  if (!executor)
    return code;
  if (executor->repeatable) {
    simulated_ascend_record(__func__, "the executor is repeatable already");
    return 0;
  }
  if (fresh_executor() != handle)
    simulated_ascend_record(__func__, "not called right after phase 1");
  if (!executor->can_repeat) {
    // No misuse: nothing but this tells the caller.
    simulated_ascend_set_error("E561000: aclSetAclOpExecutorRepeatable: the operator copies what it was given");
    return kInner;
  }
  executor->repeatable = true;
  return 0;
}

NN_FUNC int aclDestroyAclOpExecutor(void* handle) {
  int code = 0;
  if (!handle)
    return simulated_ascend_refuse(__func__, kInnerNullPointer, "the executor is NULL");
  auto* executor = get<Executor>(__func__, handle, Thing::kExecutor, &code);
  if (!executor)
    return code;
  remove_executor(handle);
  executor->destroy(executor);
  return 0;
}

NN_FUNC int aclSetInputTensorAddr(void* executor, size_t index, void* tensor, void* address) {
  return set_address(__func__, executor, index, tensor, address, &Slot::reads);
}

NN_FUNC int aclSetOutputTensorAddr(void* executor, size_t index, void* tensor, void* address) {
  return set_address(__func__, executor, index, tensor, address, &Slot::writes);
}

NN_FUNC int aclSetTensorAddr(void* executor, size_t index, void* tensor, void* address) {
  return set_address(__func__, executor, index, tensor, address, nullptr);
}

NN_FUNC int aclSetDynamicInputTensorAddr(void* executor, size_t argument, size_t element, void* list, void* address) {
  return set_dynamic_address(__func__, executor, argument, element, list, address, &Slot::reads);
}

NN_FUNC int aclSetDynamicOutputTensorAddr(void* executor, size_t argument, size_t element, void* list, void* address) {
  return set_dynamic_address(__func__, executor, argument, element, list, address, &Slot::writes);
}

NN_FUNC int aclSetDynamicTensorAddr(void* executor, size_t argument, size_t element, void* list, void* address) {
  return set_dynamic_address(__func__, executor, argument, element, list, address, nullptr);
}

// The same with a capital letter, as older callers have them.
#define ALIAS(name, ...) NN_FUNC int A##name(__VA_ARGS__) __attribute__((alias("a" #name)))
ALIAS(clSetInputTensorAddr, void*, size_t, void*, void*);
ALIAS(clSetOutputTensorAddr, void*, size_t, void*, void*);
ALIAS(clSetTensorAddr, void*, size_t, void*, void*);
ALIAS(clSetDynamicInputTensorAddr, void*, size_t, size_t, void*, void*);
ALIAS(clSetDynamicOutputTensorAddr, void*, size_t, size_t, void*, void*);
ALIAS(clSetDynamicTensorAddr, void*, size_t, size_t, void*, void*);

NN_FUNC int aclSetRawTensorAddr(void* handle, void* address) {
  int code = 0;
  Tensor* tensor = tensor_of(__func__, handle, &code);
  if (!tensor)
    return code;
  if (reinterpret_cast<uintptr_t>(address) % 32)
    simulated_ascend_record(__func__, "the address is not aligned to 32 bytes");
  tensor->view.data = address;
  return 0;
}

NN_FUNC int aclGetRawTensorAddr(const void* handle, void** address) {
  int code = 0;
  const Tensor* tensor = tensor_of(__func__, handle, &code);
  if (!tensor)
    return code;
  if (!address)
    return simulated_ascend_refuse(__func__, kNullPointer, "the output is NULL");
  *address = tensor->view.data;
  return 0;
}

namespace {

std::atomic<bool> started{false};

} // namespace

NN_FUNC int aclnnInit(const char*) {
  const int code = simulated_ascend_begin(__func__, 0);
  if (code)
    return code;
  started = true;
  return 0;
}

NN_FUNC int aclnnFinalize(void) {
  const int code = simulated_ascend_begin(__func__, 0);
  if (code)
    return code;
  if (!started.exchange(false))
    simulated_ascend_record(__func__, "not initialised, or finalised already");
  return 0;
}
