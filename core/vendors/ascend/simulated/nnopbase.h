// SPDX-License-Identifier: Apache-2.0
// The objects of libnnopbase as libopapi sees them. Handles are addresses that nobody can read and that are never used
// again; what they stand for is found here.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#define NN_SHARED __attribute__((visibility("default")))

namespace simulated_ascend {

constexpr int kNullPointer = 161001;
constexpr int kBadParameter = 161002;
constexpr int kInner = 561000;
constexpr int kInnerNullPointer = 561103;
constexpr int kMaxRank = 8;

// Kinds of objects; a handle of one is not taken for another.
enum class Thing : int {
  kTensor,
  kScalar,
  kIntArray,
  kFloatArray,
  kBoolArray,
  kTensorList,
  kScalarList,
  kExecutor,
  kCount
};

NN_SHARED const char* name_of(Thing thing);

struct Object {
  Thing thing;
};

// What aclCreateTensor was given, copied.
struct View {
  int rank = 0;
  int storage_rank = 0;
  int dtype = -1;
  int format = -1;
  int64_t offset = 0; // in elements
  int64_t sizes[kMaxRank];
  int64_t strides[kMaxRank];
  int64_t storage[kMaxRank];
  void* data = nullptr;

  int64_t numel() const {
    int64_t all = 1;
    for (int dim = 0; dim < rank; ++dim)
      all *= sizes[dim];
    return all;
  }
  int64_t storage_numel() const {
    int64_t all = 1;
    for (int dim = 0; dim < storage_rank; ++dim)
      all *= storage[dim];
    return all;
  }
  NN_SHARED bool is_contiguous() const;
};

struct Tensor : Object {
  View view;
  std::atomic<int> unknown_shape{0}; // work that will set it has not run
};

struct Scalar : Object {
  int dtype;
  double real = 0; // also of integers as far as it goes
  double imaginary = 0;
  int64_t integer = 0; // of integers and bool
};

struct IntArray : Object {
  std::vector<int64_t> values;
};
struct FloatArray : Object {
  std::vector<float> values;
};
struct BoolArray : Object {
  std::vector<bool> values;
};
// Handles of the elements; NULL is allowed in lists of indices.
struct TensorList : Object {
  std::vector<const void*> elements;
};
struct ScalarList : Object {
  std::vector<const void*> elements;
};

// A tensor of an executor, in the order of the arguments; elements of lists count one by one.
struct Slot {
  const void* handle = nullptr; // NULL: an argument that was left out
  const void* list = nullptr;
  size_t argument = 0; // the place of the argument among those with tensors
  size_t element = 0;  // its place in the list
  bool reads = false;
  bool writes = false;
  View view; // as phase 1 has seen it
};

struct Executor : Object {
  std::vector<Slot> slots;
  bool repeatable = false;
  bool can_repeat = true;
  bool is_checked = true; // knows its tensors
  uint64_t runs = 0;
  void (*destroy)(Executor*) = nullptr;
};

// The object of a live handle; otherwise nothing, and the reason in words, which begin with what it is.
NN_SHARED Object* find(const void* handle, Thing thing, std::string* why);
template <class T>
T* find(const void* handle, Thing thing, std::string* why) {
  return static_cast<T*>(find(handle, thing, why));
}
// What work has found to be a tensor's shape, if the tensor is still there; with no sizes, that it did not find out.
NN_SHARED void set_shape(const void* handle, const int64_t* sizes, int rank);
NN_SHARED void* add_executor(Executor* executor);
// Forgets a live executor, without destroying it.
NN_SHARED void remove_executor(const void* handle);
NN_SHARED size_t itemsize(int dtype);
NN_SHARED const char* dtype_name(int dtype);
// The thread's last call was the phase 1 that has made this executor, which only then may be made repeatable.
NN_SHARED void* fresh_executor();
NN_SHARED void set_fresh_executor(void* handle);

} // namespace simulated_ascend
