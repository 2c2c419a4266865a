// SPDX-License-Identifier: Apache-2.0
// An operator of libopapi as its table has it, and its arguments as phase 1 has seen them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "nnopbase.h"

namespace simulated_ascend {

enum class Type : uint8_t {
  kTensor,
  kTensorList,
  kScalar,
  kScalarList,
  kIntArray,
  kFloatArray,
  kBoolArray,
  kInteger,
  kBool,
  kReal,
  kDtype,
  kText
};

enum Flag : unsigned {
  kOptional = 1,     // may be NULL
  kReads = 2,        // what it holds is used
  kWrites = 4,       // a result
  kContiguous = 8,   // no strides
  kImage = 16,       // its format must name the dimensions
  kConvertible = 32, // a result of another dtype is converted to its own
  kDynamic = 64,     // holds the largest result; the shape is set by the work
  kShape = 128,      // of any shape that has as many elements
  kAbsent = 256,     // must be NULL here: not simulated
  kShort = 512,      // a list of at most 50
  // How the dtype follows from that of the first list.
  kOfScalar = 1024,  // FLOAT, BFLOAT16: FLOAT, DOUBLE; FLOAT16: FLOAT16, DOUBLE; integers: INT32, INT64
  kOfScalars = 2048, // floating: FLOAT, DOUBLE; integers: INT64
  kOfTensor = 4096,  // BFLOAT16: FLOAT; small integers: INT32; otherwise the same
  kSame = 8192,      // the same
};

struct Parameter {
  const char* name;
  Type type;
  unsigned flags;
  int least_rank;
  int most_rank;
  uint64_t dtypes; // one bit for each number of a dtype
};

// A value by the prototype's type, widened.
union Value {
  const void* handle;
  int64_t integer;
  double real;
};

struct Function {
  const char* name;
  const Parameter* parameters;
  int count;
  const char* program; // what it computes, in the language of program.h
  bool can_repeat;
  std::atomic<uint64_t> prepared{0}; // calls of phase 1
  std::atomic<uint64_t> called{0};   // calls of phase 2
  std::atomic<uint64_t> queued{0};
  std::atomic<uint64_t> deterministic{0}; // calls of phase 1 with that setting
};

struct Argument {
  bool given = false;
  std::vector<View> views;   // of a tensor, or of a list's elements
  std::vector<bool> present; // of a list's elements
  std::vector<Scalar> scalars;
  std::vector<int64_t> integers;
  std::vector<double> reals;
  std::string text;
  const void* handle = nullptr; // of a tensor
};

using Arguments = std::vector<Argument>;

// What came after CANN 8.1, NULL at the end.
extern const char* const newer_functions[];

void add_functions(Function* functions, size_t count);
int phase_one(Function& function, const Value* values, uint64_t* workspace_size, void** executor);
int phase_two(Function& function, void* workspace, uint64_t workspace_size, void* executor, void* stream);

// Bytes from the first element to the end of the last.
size_t extent(const View& view);
std::string text_of(const int64_t* sizes, size_t rank);

// An overlap of two views other than that they are the same.
bool overlap_in_part(const View& one, const View& other);

} // namespace simulated_ascend
