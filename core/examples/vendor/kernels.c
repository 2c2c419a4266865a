// The kernels of the example chip, over flagos_kernels.h.
//
// `run` looks whether a kernel can compute a call, and declines it at once if not: then the host computes it. Else it
// copies what the work needs of the call, which is valid no longer than `run`, and queues the work on the stream. There
// the memory of the tensors is the chip's.
//
// Values are loaded into rows of double or int64_t, whatever their dtype, computed there, and stored. Sums are in
// double.
//
// Read from the end: the table, the list of kernels, then one of them.

#include "flagos_kernels.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chip.h"

enum { MAX_DIMS = 8, ROW = 256 };

// The tensors of a kernel, by their places in its work: results, arguments, and memory for the kernel itself.
enum { OUT, MEAN, RSTD, IN, OTHER, BIAS, SPACE, OPERANDS };
enum { WEIGHT = OTHER, INDICES = OTHER };
_Static_assert((int)OPERANDS <= (int)CHIP_MEMORIES, "every operand has its memory");

// ------------------------------------------------------------------------------------------------ types

typedef struct Operand {
  int32_t dtype;
  int32_t num_dims;
  int64_t sizes[MAX_DIMS];
  int64_t strides[MAX_DIMS]; // in elements
} Operand;

// Nested loops over dimensions, the last one the innermost, with the steps of each operand.
typedef struct Loop {
  int32_t num_dims; // at least 1
  int64_t sizes[MAX_DIMS];
  int64_t strides[OPERANDS][MAX_DIMS];
} Loop;

// Elements on their way through the chip.
typedef union Row {
  double real[ROW];
  int64_t whole[ROW];
} Row;

// A number of the program: a whole one, or a floating-point one. `real` is its value in both cases.
typedef struct Number {
  bool is_whole;
  int64_t whole;
  double real;
} Number;

typedef struct Work Work;

struct FlagosKernel {
  const char* name;
  // Checks the call and prepares its work, or declines. `FLAGOS_VENDOR_OK` with no `compute` says that nothing is to
  // do.
  int32_t (*prepare)(const FlagosKernelCall* call, Work* work);
};

// Computes a row in place: `b` is the other argument's, if there is one, and `index` that of the first element.
typedef void RowFunction(const Work* work, Row* a, const Row* b, int64_t count, int64_t index);

struct Work {
  ChipWork chip; // begins the work, so that one is the other
  Operand operands[OPERANDS];
  Loop loop;  // over the results, as far as they are independent
  Loop inner; // over what makes one of them
  RowFunction* row;
  bool is_whole; // the numbers to compute with
  Number number;
  double low, high, epsilon;
  uint64_t seed;
  double sum, largest, mean, scale; // of the result that is being computed
  uint64_t whole_sum;
  char numbers[OPERANDS][16]; // elements of tensors in host memory
};

// ------------------------------------------------------------------------------------------------ dtypes

static size_t size_of(int32_t dtype) {
  switch (dtype) {
    case FLAGOS_DTYPE_UINT8:
    case FLAGOS_DTYPE_INT8:
    case FLAGOS_DTYPE_BOOL:
    case FLAGOS_DTYPE_FLOAT8_E5M2:
    case FLAGOS_DTYPE_FLOAT8_E4M3FN:
    case FLAGOS_DTYPE_FLOAT8_E5M2FNUZ:
    case FLAGOS_DTYPE_FLOAT8_E4M3FNUZ:
      return 1;
    case FLAGOS_DTYPE_INT16:
    case FLAGOS_DTYPE_UINT16:
    case FLAGOS_DTYPE_FLOAT16:
    case FLAGOS_DTYPE_BFLOAT16:
      return 2;
    case FLAGOS_DTYPE_INT32:
    case FLAGOS_DTYPE_UINT32:
    case FLAGOS_DTYPE_FLOAT32:
    case FLAGOS_DTYPE_COMPLEX32:
      return 4;
    case FLAGOS_DTYPE_INT64:
    case FLAGOS_DTYPE_UINT64:
    case FLAGOS_DTYPE_FLOAT64:
    case FLAGOS_DTYPE_COMPLEX64:
      return 8;
    case FLAGOS_DTYPE_COMPLEX128:
      return 16;
    default:
      return 0; // unknown to this chip
  }
}

static bool is_real(int32_t dtype) {
  return dtype == FLAGOS_DTYPE_FLOAT32 || dtype == FLAGOS_DTYPE_FLOAT64 || dtype == FLAGOS_DTYPE_FLOAT16 ||
      dtype == FLAGOS_DTYPE_BFLOAT16;
}

// Whether int64_t has all values of the dtype.
static bool is_whole(int32_t dtype) {
  return dtype == FLAGOS_DTYPE_BOOL || (dtype >= FLAGOS_DTYPE_UINT8 && dtype <= FLAGOS_DTYPE_INT64) ||
      dtype == FLAGOS_DTYPE_UINT16 || dtype == FLAGOS_DTYPE_UINT32;
}

static uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static float of_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static float from_bfloat16(uint16_t bits) {
  return of_bits((uint32_t)bits << 16);
}

// To the nearest, and in the middle to the even one, as below.
static uint16_t to_bfloat16(float value) {
  const uint32_t bits = bits_of(value);
  if (isnan(value))
    return 0x7fc0;
  return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

static float from_float16(uint16_t bits) {
  const uint32_t sign = (uint32_t)(bits & 0x8000) << 16, magnitude = bits & 0x7fff;
  // The exponents of the two types are 112 apart, which also makes small numbers normal.
  uint32_t wide = bits_of(of_bits(magnitude << 13) * 0x1p112f);
  if (magnitude >= 0x7c00) // infinite, or not a number
    wide |= 0x7f800000;
  return of_bits(sign | wide);
}

static uint16_t to_float16(float value) {
  const uint32_t bits = bits_of(value), sign = (bits >> 16) & 0x8000, magnitude = bits & 0x7fffffff;
  if (isnan(value))
    return 0x7e00;
  if (magnitude >= bits_of(65536.0f))
    return (uint16_t)(sign | 0x7c00);
  if (magnitude < bits_of(0x1p-14f)) // the sum with 0.5 rounds to what float16 has below its normal numbers
    return (uint16_t)(sign | (bits_of(of_bits(magnitude) + 0.5f) - bits_of(0.5f)));
  return (uint16_t)(sign | ((magnitude - (112u << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13));
}

static int64_t to_whole(double value) {
  return value >= -0x1p63 && value < 0x1p63 ? (int64_t)value : INT64_MIN;
}

// ------------------------------------------------------------------------------------------------ rows

// Loads `count` elements that lie `stride` elements apart: the whole dtypes as int64_t, the others as double.
static void load(int32_t dtype, const void* from, int64_t stride, int64_t count, Row* row) {
  switch (dtype) {
#define LOAD(of, type, member, value)                 \
  case of:                                            \
    for (int64_t i = 0; i < count; i++) {             \
      const type x = ((const type*)from)[i * stride]; \
      row->member[i] = value;                         \
    }                                                 \
    break;
    LOAD(FLAGOS_DTYPE_BOOL, uint8_t, whole, x != 0)
    LOAD(FLAGOS_DTYPE_UINT8, uint8_t, whole, x)
    LOAD(FLAGOS_DTYPE_UINT16, uint16_t, whole, x)
    LOAD(FLAGOS_DTYPE_UINT32, uint32_t, whole, x)
    LOAD(FLAGOS_DTYPE_INT8, int8_t, whole, x)
    LOAD(FLAGOS_DTYPE_INT16, int16_t, whole, x)
    LOAD(FLAGOS_DTYPE_INT32, int32_t, whole, x)
    LOAD(FLAGOS_DTYPE_INT64, int64_t, whole, x)
    LOAD(FLAGOS_DTYPE_FLOAT16, uint16_t, real, from_float16(x))
    LOAD(FLAGOS_DTYPE_BFLOAT16, uint16_t, real, from_bfloat16(x))
    LOAD(FLAGOS_DTYPE_FLOAT32, float, real, x)
    LOAD(FLAGOS_DTYPE_FLOAT64, double, real, x)
#undef LOAD
  }
}

// Stores a row, of int64_t or of double, as elements of any dtype that has a row.
static void store(int32_t dtype, void* to, int64_t stride, int64_t count, const Row* row, bool whole) {
  switch (dtype) {
#define STORE(of, type, of_whole, of_real)          \
  case of:                                          \
    for (int64_t i = 0; whole && i < count; i++) {  \
      const int64_t x = row->whole[i];              \
      ((type*)to)[i * stride] = (type)(of_whole);   \
    }                                               \
    for (int64_t i = 0; !whole && i < count; i++) { \
      const double x = row->real[i];                \
      ((type*)to)[i * stride] = (type)(of_real);    \
    }                                               \
    break;
    STORE(FLAGOS_DTYPE_BOOL, uint8_t, x != 0, x != 0)
    STORE(FLAGOS_DTYPE_UINT8, uint8_t, x, to_whole(x))
    STORE(FLAGOS_DTYPE_UINT16, uint16_t, x, to_whole(x))
    STORE(FLAGOS_DTYPE_UINT32, uint32_t, x, to_whole(x))
    STORE(FLAGOS_DTYPE_INT8, int8_t, x, to_whole(x))
    STORE(FLAGOS_DTYPE_INT16, int16_t, x, to_whole(x))
    STORE(FLAGOS_DTYPE_INT32, int32_t, x, to_whole(x))
    STORE(FLAGOS_DTYPE_INT64, int64_t, x, to_whole(x))
    STORE(FLAGOS_DTYPE_FLOAT16, uint16_t, to_float16((float)x), to_float16((float)x))
    STORE(FLAGOS_DTYPE_BFLOAT16, uint16_t, to_bfloat16((float)x), to_bfloat16((float)x))
    STORE(FLAGOS_DTYPE_FLOAT32, float, x, x)
    STORE(FLAGOS_DTYPE_FLOAT64, double, x, x)
#undef STORE
  }
}

// Whether an element of the dtype keeps the number, up to rounding.
static bool holds(int32_t dtype, const Number* number) {
  Row row = {.real = {number->real}};
  double kept = 0;
  if (number->is_whole)
    row.whole[0] = number->whole;
  store(dtype, &kept, 1, 1, &row, number->is_whole);
  load(dtype, &kept, 1, 1, &row);
  if (is_whole(dtype))
    return row.whole[0] == number->whole && number->whole != INT64_MIN;
  return is_real(dtype) && (isfinite(row.real[0]) || !isfinite(number->real));
}

// An element of 16 bytes.
typedef struct Wide {
  uint64_t words[2];
} Wide;

// Copies elements of `size` bytes, whatever they are.
static void copy(char* to, int64_t to_stride, const char* from, int64_t from_stride, int64_t count, size_t size) {
  if (to_stride == 1 && from_stride == 1) {
    memmove(to, from, (size_t)count * size);
    return;
  }
  switch (size) {
#define COPY(type)                                                       \
  case sizeof(type):                                                     \
    for (int64_t i = 0; i < count; i++)                                  \
      ((type*)to)[i * to_stride] = ((const type*)from)[i * from_stride]; \
    break;
    COPY(uint8_t)
    COPY(uint16_t)
    COPY(uint32_t)
    COPY(uint64_t)
    COPY(Wide)
#undef COPY
  }
}

// ------------------------------------------------------------------------------------------------ loops

// Loops over these sizes, with no step for any operand.
static Loop loop_over(int32_t num_dims, const int64_t* sizes) {
  Loop loop = {.num_dims = num_dims == 0 ? 1 : num_dims, .sizes = {1}};
  for (int32_t dim = 0; dim < num_dims; dim++)
    loop.sizes[dim] = sizes[dim];
  return loop;
}

// Lets an operand take part, repeated along the dimensions that it lacks or has once. Fails for other shapes.
static bool broadcast(Loop* loop, int slot, const Operand* operand) {
  const int32_t missing = loop->num_dims - operand->num_dims;
  for (int32_t dim = 0; dim < operand->num_dims; dim++) {
    const int64_t size = operand->sizes[dim];
    if (dim + missing < 0 ? size != 1 : size != 1 && size != loop->sizes[dim + missing])
      return false;
    if (dim + missing >= 0 && size != 1)
      loop->strides[slot][dim + missing] = operand->strides[dim];
  }
  return true;
}

// Makes one dimension of two wherever each operand steps through them evenly: rows become longer.
static void join(Loop* loop) {
  int32_t kept = 0;
  for (int32_t dim = 1; dim < loop->num_dims; dim++) {
    if (loop->sizes[dim] == 1)
      continue;
    bool even = true;
    for (int slot = 0; slot < OPERANDS; slot++)
      even &= loop->strides[slot][kept] == loop->strides[slot][dim] * loop->sizes[dim];
    if (even || loop->sizes[kept] == 1)
      loop->sizes[kept] *= loop->sizes[dim];
    else
      loop->sizes[++kept] = loop->sizes[dim];
    for (int slot = 0; slot < OPERANDS; slot++)
      loop->strides[slot][kept] = loop->strides[slot][dim];
  }
  loop->num_dims = kept + 1;
}

// A part of the innermost dimension: where each operand has it, in elements from its first, and the index of its first
// element among all of the loop.
typedef void Body(Work* work, const int64_t* at, int64_t count, int64_t index);

// Calls `body` for parts of at most ROW elements, in order, with the offsets of `at` added.
static void each(Work* work, const Loop* loop, const int64_t* at, Body* body) {
  const int32_t last = loop->num_dims - 1;
  int64_t position[MAX_DIMS] = {0};
  int64_t begin[OPERANDS] = {0};
  for (int32_t dim = 0; dim <= last; dim++) {
    if (loop->sizes[dim] == 0)
      return;
  }
  for (int slot = 0; slot < OPERANDS && at != NULL; slot++)
    begin[slot] = at[slot];
  for (int64_t index = 0;; index += loop->sizes[last]) {
    for (int64_t start = 0; start < loop->sizes[last]; start += ROW) {
      const int64_t rest = loop->sizes[last] - start;
      int64_t part[OPERANDS];
      for (int slot = 0; slot < OPERANDS; slot++)
        part[slot] = begin[slot] + start * loop->strides[slot][last];
      body(work, part, rest < ROW ? rest : ROW, index + start);
    }
    int32_t dim = last - 1;
    for (; dim >= 0; dim--) {
      const bool more = ++position[dim] < loop->sizes[dim];
      const int64_t steps = more ? 1 : 1 - loop->sizes[dim];
      for (int slot = 0; slot < OPERANDS; slot++)
        begin[slot] += steps * loop->strides[slot][dim];
      if (more)
        break;
      position[dim] = 0;
    }
    if (dim < 0)
      return;
  }
}

// ------------------------------------------------------------------------------------------------ calls

// The host computes the call, and tells this reason.
#define DECLINE(...) chip_fail(FLAGOS_VENDOR_UNSUPPORTED, __VA_ARGS__)

// A tensor among the arguments; NULL for None.
static const FlagosKernelTensor* tensor(const FlagosKernelCall* call, size_t index) {
  if (index >= call->num_arguments || call->arguments[index].tag != FLAGOS_VALUE_TENSOR)
    return NULL;
  return call->arguments[index].as.tensor;
}

static bool number(const FlagosKernelCall* call, size_t index, Number* value) {
  if (index >= call->num_arguments)
    return false;
  const FlagosKernelValue* given = &call->arguments[index];
  switch (given->tag) {
    case FLAGOS_VALUE_INT:
    case FLAGOS_VALUE_BOOL:
      *value = (Number){true, given->as.integer, (double)given->as.integer};
      return true;
    case FLAGOS_VALUE_FLOAT:
      *value = (Number){false, to_whole(given->as.real), given->as.real};
      return true;
    default:
      return false;
  }
}

// Takes a tensor into the work, with the bytes from its first element to its last one.
static int32_t take(Work* work, int slot, const FlagosKernelTensor* given) {
  Operand* operand = &work->operands[slot];
  if (given == NULL)
    return DECLINE("an argument is not the tensor that the kernel expects");
  if (given->num_dims > MAX_DIMS)
    return DECLINE("a tensor has %d dimensions, and the chip takes %d", given->num_dims, MAX_DIMS);
  const size_t size = size_of(given->dtype);
  if (size == 0)
    return DECLINE("the chip does not know the dtype %d", given->dtype);
  if (given->flags & (FLAGOS_TENSOR_CONJUGATE | FLAGOS_TENSOR_NEGATIVE))
    return DECLINE("a tensor stands for its conjugate or negative");
  operand->dtype = given->dtype;
  operand->num_dims = given->num_dims;
  int64_t last = 0;
  for (int32_t dim = 0; dim < given->num_dims; dim++) {
    operand->sizes[dim] = given->sizes[dim];
    operand->strides[dim] = given->strides[dim];
    last += (given->sizes[dim] - 1) * given->strides[dim];
  }
  work->chip.memory[slot].data = given->data;
  work->chip.memory[slot].nbytes = given->num_elements == 0 ? 0 : (size_t)(last + 1) * size;
  if (given->flags & FLAGOS_TENSOR_HOST) { // kept here, because its memory is the host's
    memcpy(work->numbers[slot], given->data, size);
    work->chip.memory[slot] = (ChipMemory){work->numbers[slot], 0};
  }
  return FLAGOS_VENDOR_OK;
}

// Takes a result that the host has allocated.
static int32_t result(Work* work, int slot, const FlagosKernelCall* call, size_t index) {
  if (index >= call->num_outputs || call->outputs[index] == NULL)
    return DECLINE("the result %zu is not wanted", index);
  return take(work, slot, call->outputs[index]);
}

static bool is_empty(const Operand* operand) {
  for (int32_t dim = 0; dim < operand->num_dims; dim++) {
    if (operand->sizes[dim] == 0)
      return true;
  }
  return false;
}

#define TRY(call)                  \
  do {                             \
    const int32_t tried = (call);  \
    if (tried != FLAGOS_VENDOR_OK) \
      return tried;                \
  } while (0)

// ------------------------------------------------------------------------------------------------ element by element

static char* element(const Work* work, int slot, int64_t at) {
  return work->chip.memory[slot].data + at * (int64_t)size_of(work->operands[slot].dtype);
}

static void compute_rows(Work* work, const int64_t* at, int64_t count, int64_t index) {
  const int32_t last = work->loop.num_dims - 1;
  Row rows[2];
  for (int slot = IN; slot <= OTHER; slot++) {
    const Operand* operand = &work->operands[slot];
    if (work->chip.memory[slot].data != NULL)
      load(operand->dtype, element(work, slot, at[slot]), work->loop.strides[slot][last], count, &rows[slot - IN]);
  }
  work->row(work, &rows[0], &rows[1], count, index);
  store(
      work->operands[OUT].dtype,
      element(work, OUT, at[OUT]),
      work->loop.strides[OUT][last],
      count,
      &rows[0],
      work->is_whole);
}

static void compute_elements(ChipWork* chip) {
  Work* work = (Work*)chip;
  each(work, &work->loop, NULL, compute_rows);
}

// Prepares the work of a row function, over the tensors that have been taken.
static int32_t by_rows(Work* work, RowFunction* row) {
  const Operand* out = &work->operands[OUT];
  work->loop = loop_over(out->num_dims, out->sizes);
  for (int slot = OUT; slot <= OTHER; slot++) {
    if (!broadcast(&work->loop, slot, &work->operands[slot]))
      return DECLINE("the shapes of the tensors do not go together");
  }
  join(&work->loop);
  work->row = row;
  if (!is_empty(out))
    work->chip.compute = compute_elements;
  return FLAGOS_VENDOR_OK;
}

// Takes the arguments and the result of an operator that computes with numbers of one dtype.
static int32_t arithmetic(const FlagosKernelCall* call, Work* work, size_t tensors, RowFunction* row) {
  TRY(result(work, OUT, call, 0));
  const int32_t dtype = work->operands[OUT].dtype;
  work->is_whole = is_whole(dtype);
  if (dtype == FLAGOS_DTYPE_BOOL || !(work->is_whole || is_real(dtype)))
    return DECLINE("the chip does not compute with the dtype %d", dtype);
  for (int slot = IN; slot < IN + (int)tensors; slot++) {
    const FlagosKernelTensor* given = tensor(call, (size_t)(slot - IN));
    TRY(take(work, slot, given));
    if (given->dtype == dtype)
      continue;
    if (!(given->flags & FLAGOS_TENSOR_HOST) || is_real(given->dtype) + is_whole(given->dtype) == 0 ||
        (is_real(given->dtype) && work->is_whole))
      return DECLINE("the tensors have the dtypes %d and %d", given->dtype, dtype);
    // A number takes the dtype of the others, as far as they are computed with.
    const int32_t computed = work->is_whole ? FLAGOS_DTYPE_INT64
        : dtype == FLAGOS_DTYPE_FLOAT64     ? FLAGOS_DTYPE_FLOAT64
                                            : FLAGOS_DTYPE_FLOAT32;
    Row value;
    load(given->dtype, work->numbers[slot], 1, 1, &value);
    store(computed, work->numbers[slot], 1, 1, &value, is_whole(given->dtype));
    work->operands[slot].dtype = computed;
  }
  return by_rows(work, row);
}

// Whole numbers wrap around, for which C has the unsigned ones.
static void add_row(const Work* work, Row* a, const Row* b, int64_t count, int64_t index) {
  (void)index;
  for (int64_t i = 0; i < count; i++) {
    if (work->is_whole)
      a->whole[i] = (int64_t)((uint64_t)a->whole[i] + (uint64_t)work->number.whole * (uint64_t)b->whole[i]);
    else
      a->real[i] += work->number.real * b->real[i];
  }
}

// add.Tensor(self, other, *, alpha=1)
static int32_t add(const FlagosKernelCall* call, Work* work) {
  TRY(arithmetic(call, work, 2, add_row));
  if (!number(call, 2, &work->number) || (work->is_whole && !work->number.is_whole))
    return DECLINE("alpha is not a number of the tensors' kind");
  if (work->operands[OUT].dtype != FLAGOS_DTYPE_FLOAT64)
    work->number.real = (float)work->number.real;
  return FLAGOS_VENDOR_OK;
}

static void mul_row(const Work* work, Row* a, const Row* b, int64_t count, int64_t index) {
  (void)index;
  for (int64_t i = 0; i < count; i++) {
    if (work->is_whole)
      a->whole[i] = (int64_t)((uint64_t)a->whole[i] * (uint64_t)b->whole[i]);
    else
      a->real[i] *= b->real[i];
  }
}

// mul.Tensor(self, other)
static int32_t mul(const FlagosKernelCall* call, Work* work) {
  return arithmetic(call, work, 2, mul_row);
}

static void neg_row(const Work* work, Row* a, const Row* b, int64_t count, int64_t index) {
  (void)b, (void)index;
  for (int64_t i = 0; i < count; i++) {
    if (work->is_whole)
      a->whole[i] = (int64_t)(0 - (uint64_t)a->whole[i]);
    else
      a->real[i] = -a->real[i];
  }
}

// neg(self)
static int32_t neg(const FlagosKernelCall* call, Work* work) {
  return arithmetic(call, work, 1, neg_row);
}

// What is not a number stays so.
static void relu_row(const Work* work, Row* a, const Row* b, int64_t count, int64_t index) {
  (void)b, (void)index;
  for (int64_t i = 0; i < count; i++) {
    if (work->is_whole)
      a->whole[i] = a->whole[i] < 0 ? 0 : a->whole[i];
    else
      a->real[i] = a->real[i] < 0 ? 0 : a->real[i];
  }
}

// relu(self)
static int32_t relu(const FlagosKernelCall* call, Work* work) {
  return arithmetic(call, work, 1, relu_row);
}

static void same_row(const Work* work, Row* a, const Row* b, int64_t count, int64_t index) {
  (void)work, (void)a, (void)b, (void)count, (void)index;
}

static void copy_elements(Work* work, const int64_t* at, int64_t count, int64_t index) {
  (void)index;
  const int32_t last = work->loop.num_dims - 1;
  copy(
      element(work, OUT, at[OUT]),
      work->loop.strides[OUT][last],
      element(work, IN, at[IN]),
      work->loop.strides[IN][last],
      count,
      size_of(work->operands[OUT].dtype));
}

static void compute_copy(ChipWork* chip) {
  Work* work = (Work*)chip;
  each(work, &work->loop, NULL, copy_elements);
}

// copy_(self, src, non_blocking)
static int32_t copy_or_cast(const FlagosKernelCall* call, Work* work) {
  TRY(result(work, OUT, call, 0));
  TRY(take(work, IN, tensor(call, 1)));
  const int32_t from = work->operands[IN].dtype, to = work->operands[OUT].dtype;
  work->is_whole = is_whole(from);
  if (from != to && (!(is_whole(from) || is_real(from)) || !(is_whole(to) || is_real(to))))
    return DECLINE("the chip does not cast the dtype %d to %d", from, to);
  TRY(by_rows(work, same_row));
  if (from == to && work->chip.compute != NULL)
    work->chip.compute = compute_copy;
  return FLAGOS_VENDOR_OK;
}

static void fill_row(const Work* work, Row* a, const Row* b, int64_t count, int64_t index) {
  (void)b, (void)index;
  for (int64_t i = 0; i < count; i++) {
    if (work->is_whole)
      a->whole[i] = work->number.whole;
    else
      a->real[i] = work->number.real;
  }
}

// fill_.Scalar(self, value)
static int32_t fill(const FlagosKernelCall* call, Work* work) {
  TRY(result(work, OUT, call, 0));
  if (!number(call, 1, &work->number) || !holds(work->operands[OUT].dtype, &work->number))
    return DECLINE("the dtype %d does not hold the number", work->operands[OUT].dtype);
  work->is_whole = work->number.is_whole;
  return by_rows(work, fill_row);
}

// ------------------------------------------------------------------------------------------------ random numbers

static uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// The index-th random number of the call, from 0 to below 1, with `bits` bits.
static double random_number(const Work* work, int64_t index, int bits) {
  const uint64_t number = mix(work->seed + (uint64_t)index * 0x9e3779b97f4a7c15);
  return (double)(number >> (64 - bits)) / (double)((uint64_t)1 << bits);
}

static void bernoulli_row(const Work* work, Row* a, const Row* b, int64_t count, int64_t index) {
  (void)b;
  for (int64_t i = 0; i < count; i++)
    a->whole[i] = random_number(work, index + i, 53) < work->number.real;
}

// bernoulli_.float(self, p=0.5, *, generator=None)
static int32_t bernoulli(const FlagosKernelCall* call, Work* work) {
  TRY(result(work, OUT, call, 0));
  const int32_t dtype = work->operands[OUT].dtype;
  if (!is_whole(dtype) && !is_real(dtype))
    return DECLINE("the chip does not compute with the dtype %d", dtype);
  if (!number(call, 1, &work->number) || !(work->number.real >= 0 && work->number.real <= 1))
    return DECLINE("p is no probability");
  work->is_whole = true;
  work->seed = mix(call->seed ^ mix(call->offset));
  return by_rows(work, bernoulli_row);
}

static void uniform_row(const Work* work, Row* a, const Row* b, int64_t count, int64_t index) {
  (void)b;
  const int bits = work->operands[OUT].dtype == FLAGOS_DTYPE_FLOAT64 ? 53 : 24;
  for (int64_t i = 0; i < count; i++)
    a->real[i] = work->low + (work->high - work->low) * random_number(work, index + i, bits);
}

// uniform_(self, from=0, to=1, *, generator=None)
static int32_t uniform(const FlagosKernelCall* call, Work* work) {
  Number low, high;
  TRY(result(work, OUT, call, 0));
  const int32_t dtype = work->operands[OUT].dtype;
  if (dtype != FLAGOS_DTYPE_FLOAT32 && dtype != FLAGOS_DTYPE_FLOAT64)
    return DECLINE("the chip has uniform numbers of float32 and float64, not of the dtype %d", dtype);
  if (!number(call, 1, &low) || !number(call, 2, &high) || !(low.real <= high.real && isfinite(high.real - low.real)))
    return DECLINE("the numbers have no range");
  work->low = low.real;
  work->high = high.real;
  work->seed = mix(call->seed ^ mix(call->offset));
  return by_rows(work, uniform_row);
}

// ------------------------------------------------------------------------------------------------ sums

// The dimensions that a list of the program names, of which none may mean all. Fails for a dimension that is not there.
static bool dimensions(const FlagosKernelValue* given, int32_t num_dims, bool named[MAX_DIMS]) {
  const bool all = given->tag == FLAGOS_VALUE_NONE || given->count == 0;
  if (given->tag != FLAGOS_VALUE_NONE && given->tag != FLAGOS_VALUE_INTS)
    return false;
  for (int32_t dim = 0; dim < num_dims; dim++)
    named[dim] = all;
  for (uint32_t i = 0; !all && i < given->count; i++) {
    const int64_t dim = given->as.integers[i] < 0 ? given->as.integers[i] + num_dims : given->as.integers[i];
    if (num_dims == 0 && (dim == 0 || dim == -1))
      continue;
    if (dim < 0 || dim >= num_dims)
      return false;
    named[dim] = true;
  }
  return true;
}

// Appends a dimension to a loop.
static void append(Loop* loop, int64_t size, int slot, int64_t stride, int other, int64_t other_stride) {
  loop->sizes[loop->num_dims] = size;
  loop->strides[slot][loop->num_dims] = stride;
  loop->strides[other][loop->num_dims] = other_stride;
  loop->num_dims++;
}

// Ends a loop that was begun without a dimension.
static void finish(Loop* loop) {
  if (loop->num_dims == 0)
    loop->sizes[loop->num_dims++] = 1;
  join(loop);
}

static void load_inner(const Work* work, int slot, const int64_t* at, int64_t count, Row* row) {
  const int64_t stride = work->inner.strides[slot][work->inner.num_dims - 1];
  load(work->operands[slot].dtype, element(work, slot, at[slot]), stride, count, row);
}

static void store_inner(const Work* work, const int64_t* at, int64_t count, const Row* row) {
  const int64_t stride = work->inner.strides[OUT][work->inner.num_dims - 1];
  store(work->operands[OUT].dtype, element(work, OUT, at[OUT]), stride, count, row, false);
}

// The offsets of the i-th element of a part of the outer loop.
static void step(const Work* work, const int64_t* at, int64_t i, int64_t to[OPERANDS]) {
  for (int slot = 0; slot < OPERANDS; slot++)
    to[slot] = at[slot] + i * work->loop.strides[slot][work->loop.num_dims - 1];
}

static void add_up(Work* work, const int64_t* at, int64_t count, int64_t index) {
  (void)index;
  Row row;
  load_inner(work, IN, at, count, &row);
  for (int64_t i = 0; i < count; i++) {
    if (work->is_whole)
      work->whole_sum += (uint64_t)row.whole[i];
    else
      work->sum += row.real[i];
  }
}

static void sum_each(Work* work, const int64_t* at, int64_t count, int64_t index) {
  (void)index;
  for (int64_t i = 0; i < count; i++) {
    int64_t from[OPERANDS];
    step(work, at, i, from);
    work->sum = 0;
    work->whole_sum = 0;
    each(work, &work->inner, from, add_up);
    Row row;
    if (work->is_whole)
      row.whole[0] = (int64_t)work->whole_sum;
    else
      row.real[0] = work->sum;
    store(work->operands[OUT].dtype, element(work, OUT, from[OUT]), 1, 1, &row, work->is_whole);
  }
}

static void compute_sum(ChipWork* chip) {
  Work* work = (Work*)chip;
  each(work, &work->loop, NULL, sum_each);
}

// sum.dim_IntList(self, dim, keepdim=False, *, dtype=None)
static int32_t sum(const FlagosKernelCall* call, Work* work) {
  Number keep;
  bool summed[MAX_DIMS];
  TRY(result(work, OUT, call, 0));
  TRY(take(work, IN, tensor(call, 0)));
  const Operand *in = &work->operands[IN], *out = &work->operands[OUT];
  work->is_whole = is_whole(in->dtype);
  if (work->is_whole ? out->dtype != FLAGOS_DTYPE_INT64 : !is_real(in->dtype) || out->dtype != in->dtype)
    return DECLINE("the chip does not sum the dtype %d as %d", in->dtype, out->dtype);
  if (!number(call, 2, &keep) || !dimensions(&call->arguments[1], in->num_dims, summed))
    return DECLINE("the dimensions are not those of the tensor");
  for (int32_t dim = 0, at = 0; dim < in->num_dims; dim++) {
    if (summed[dim]) {
      append(&work->inner, in->sizes[dim], IN, in->strides[dim], OUT, 0);
      at += keep.whole != 0;
    } else {
      append(&work->loop, in->sizes[dim], IN, in->strides[dim], OUT, out->strides[at++]);
    }
  }
  finish(&work->loop);
  finish(&work->inner);
  if (!is_empty(out))
    work->chip.compute = compute_sum;
  return FLAGOS_VENDOR_OK;
}

// ------------------------------------------------------------------------------------------------ softmax

static void find_largest(Work* work, const int64_t* at, int64_t count, int64_t index) {
  (void)index;
  Row row;
  load_inner(work, IN, at, count, &row);
  for (int64_t i = 0; i < count; i++)
    work->largest = fmax(work->largest, row.real[i]);
}

static void add_exponentials(Work* work, const int64_t* at, int64_t count, int64_t index) {
  double* kept = (double*)work->chip.memory[SPACE].data + index;
  Row row;
  load_inner(work, IN, at, count, &row);
  for (int64_t i = 0; i < count; i++) {
    kept[i] = exp(row.real[i] - work->largest);
    work->sum += kept[i];
  }
}

static void store_shares(Work* work, const int64_t* at, int64_t count, int64_t index) {
  const double* kept = (const double*)work->chip.memory[SPACE].data + index;
  Row row;
  for (int64_t i = 0; i < count; i++)
    row.real[i] = kept[i] / work->sum;
  store_inner(work, at, count, &row);
}

static void softmax_each(Work* work, const int64_t* at, int64_t count, int64_t index) {
  (void)index;
  for (int64_t i = 0; i < count; i++) {
    int64_t from[OPERANDS];
    step(work, at, i, from);
    work->largest = -INFINITY;
    work->sum = 0;
    each(work, &work->inner, from, find_largest);
    each(work, &work->inner, from, add_exponentials);
    each(work, &work->inner, from, store_shares);
  }
}

static void compute_softmax(ChipWork* chip) {
  Work* work = (Work*)chip;
  each(work, &work->loop, NULL, softmax_each);
}

// Asks for memory of the device, for this work alone.
static int32_t space(const FlagosKernelCall* call, Work* work, size_t nbytes) {
  void* address = NULL;
  TRY(call->workspace(call->context, nbytes, &address));
  work->chip.memory[SPACE] = (ChipMemory){address, nbytes};
  return FLAGOS_VENDOR_OK;
}

// _softmax(self, dim, half_to_float)
static int32_t softmax(const FlagosKernelCall* call, Work* work) {
  Number given;
  TRY(result(work, OUT, call, 0));
  TRY(take(work, IN, tensor(call, 0)));
  const Operand *in = &work->operands[IN], *out = &work->operands[OUT];
  if (!is_real(in->dtype) || !is_real(out->dtype))
    return DECLINE("the chip has no softmax of the dtype %d", in->dtype);
  if (!number(call, 1, &given) || out->num_dims != in->num_dims)
    return DECLINE("the arguments are not those of a softmax");
  const int64_t chosen = given.whole < 0 ? given.whole + in->num_dims : given.whole;
  if (in->num_dims > 0 && (chosen < 0 || chosen >= in->num_dims))
    return DECLINE("the tensor has no dimension %lld", (long long)given.whole);
  for (int32_t dim = 0; dim < in->num_dims; dim++) {
    Loop* loop = dim == chosen ? &work->inner : &work->loop;
    append(loop, in->sizes[dim], IN, in->strides[dim], OUT, out->strides[dim]);
  }
  finish(&work->loop);
  finish(&work->inner);
  if (is_empty(out))
    return FLAGOS_VENDOR_OK;
  work->chip.compute = compute_softmax;
  return space(call, work, (size_t)work->inner.sizes[0] * sizeof(double));
}

// ------------------------------------------------------------------------------------------------ layer norm

static void add_squares(Work* work, const int64_t* at, int64_t count, int64_t index) {
  (void)index;
  Row row;
  load_inner(work, IN, at, count, &row);
  for (int64_t i = 0; i < count; i++)
    work->sum += (row.real[i] - work->mean) * (row.real[i] - work->mean);
}

static void store_normal(Work* work, const int64_t* at, int64_t count, int64_t index) {
  (void)index;
  Row row, weight, bias;
  load_inner(work, IN, at, count, &row);
  for (int64_t i = 0; i < count; i++)
    row.real[i] = (row.real[i] - work->mean) * work->scale;
  if (work->chip.memory[WEIGHT].data != NULL) {
    load_inner(work, WEIGHT, at, count, &weight);
    for (int64_t i = 0; i < count; i++)
      row.real[i] *= weight.real[i];
  }
  if (work->chip.memory[BIAS].data != NULL) {
    load_inner(work, BIAS, at, count, &bias);
    for (int64_t i = 0; i < count; i++)
      row.real[i] += bias.real[i];
  }
  store_inner(work, at, count, &row);
}

static void normalize_each(Work* work, const int64_t* at, int64_t count, int64_t index) {
  (void)index;
  double length = 1;
  for (int32_t dim = 0; dim < work->inner.num_dims; dim++)
    length *= (double)work->inner.sizes[dim];
  for (int64_t i = 0; i < count; i++) {
    int64_t from[OPERANDS];
    step(work, at, i, from);
    work->sum = 0;
    each(work, &work->inner, from, add_up);
    work->mean = work->sum / length;
    work->sum = 0;
    each(work, &work->inner, from, add_squares);
    work->scale = 1 / sqrt(work->sum / length + work->epsilon);
    each(work, &work->inner, from, store_normal);
    Row row = {.real = {work->mean, work->scale}};
    store(work->operands[MEAN].dtype, element(work, MEAN, from[MEAN]), 1, 1, &row, false);
    row.real[0] = work->scale;
    store(work->operands[RSTD].dtype, element(work, RSTD, from[RSTD]), 1, 1, &row, false);
  }
}

static void compute_layer_norm(ChipWork* chip) {
  Work* work = (Work*)chip;
  each(work, &work->loop, NULL, normalize_each);
}

// native_layer_norm(input, normalized_shape, weight, bias, eps) -> (result, mean, rstd)
static int32_t layer_norm(const FlagosKernelCall* call, Work* work) {
  Number epsilon;
  TRY(result(work, OUT, call, 0));
  TRY(result(work, MEAN, call, 1));
  TRY(result(work, RSTD, call, 2));
  TRY(take(work, IN, tensor(call, 0)));
  if (!number(call, 4, &epsilon) || call->arguments[1].tag != FLAGOS_VALUE_INTS)
    return DECLINE("the arguments are not those of a layer norm");
  for (int slot = WEIGHT; slot <= BIAS; slot++) {
    if (tensor(call, (size_t)(slot - WEIGHT + 2)) != NULL)
      TRY(take(work, slot, tensor(call, (size_t)(slot - WEIGHT + 2))));
  }
  const Operand* in = &work->operands[IN];
  const int32_t normal = (int32_t)call->arguments[1].count, outer = in->num_dims - normal;
  if (outer < 0)
    return DECLINE("the tensor has fewer dimensions than are normalized");
  work->loop = loop_over(outer, in->sizes);
  work->inner = loop_over(normal, in->sizes + outer);
  for (int slot = OUT; slot <= BIAS; slot++) {
    const Operand* operand = &work->operands[slot];
    const bool parameter = slot == WEIGHT || slot == BIAS;
    if (parameter && work->chip.memory[slot].data == NULL)
      continue;
    if (!is_real(operand->dtype) || operand->num_dims != (parameter ? normal : in->num_dims))
      return DECLINE("the chip has no layer norm of these dtypes and dimensions");
    for (int32_t dim = 0; dim < operand->num_dims; dim++) {
      const int32_t place = parameter ? dim + outer : dim;
      if (place < outer)
        work->loop.strides[slot][place] = operand->strides[dim];
      else if (operand->sizes[dim] != 1)
        work->inner.strides[slot][place - outer] = operand->strides[dim];
    }
  }
  join(&work->loop);
  join(&work->inner);
  work->epsilon = epsilon.real;
  if (!is_empty(&work->operands[OUT]))
    work->chip.compute = compute_layer_norm;
  else if (!is_empty(&work->operands[MEAN]))
    return DECLINE("there is nothing to normalize");
  return FLAGOS_VENDOR_OK;
}

// ------------------------------------------------------------------------------------------------ embedding

static void copy_vectors(Work* work, const int64_t* at, int64_t count, int64_t index) {
  (void)index;
  const Operand *table = &work->operands[IN], *out = &work->operands[OUT];
  const int32_t last = work->loop.num_dims - 1;
  Row rows;
  load(
      work->operands[INDICES].dtype,
      element(work, INDICES, at[INDICES]),
      work->loop.strides[INDICES][last],
      count,
      &rows);
  for (int64_t i = 0; i < count; i++) {
    const int64_t row = rows.whole[i];
    if (row < 0 || row >= table->sizes[0]) {
      snprintf(
          work->chip.failure,
          CHIP_FAILURE,
          "CHIP_INDEX: row %lld of an embedding with %lld rows",
          (long long)row,
          (long long)table->sizes[0]);
      continue;
    }
    copy(
        element(work, OUT, at[OUT] + i * work->loop.strides[OUT][last]),
        out->strides[out->num_dims - 1],
        element(work, IN, row * table->strides[0]),
        table->strides[1],
        table->sizes[1],
        size_of(table->dtype));
  }
}

static void compute_embedding(ChipWork* chip) {
  Work* work = (Work*)chip;
  each(work, &work->loop, NULL, copy_vectors);
}

// embedding(weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False)
static int32_t embedding(const FlagosKernelCall* call, Work* work) {
  TRY(result(work, OUT, call, 0));
  TRY(take(work, IN, tensor(call, 0)));
  TRY(take(work, INDICES, tensor(call, 1)));
  const Operand *table = &work->operands[IN], *out = &work->operands[OUT], *indices = &work->operands[INDICES];
  if (indices->dtype != FLAGOS_DTYPE_INT64 && indices->dtype != FLAGOS_DTYPE_INT32)
    return DECLINE("the indices have the dtype %d", indices->dtype);
  if (table->num_dims != 2 || out->num_dims != indices->num_dims + 1 || out->dtype != table->dtype)
    return DECLINE("the chip has embeddings of a table with two dimensions");
  work->loop = loop_over(indices->num_dims, indices->sizes);
  for (int32_t dim = 0; dim < indices->num_dims; dim++) {
    work->loop.strides[INDICES][dim] = indices->strides[dim];
    work->loop.strides[OUT][dim] = out->strides[dim];
  }
  join(&work->loop);
  if (!is_empty(out))
    work->chip.compute = compute_embedding;
  return FLAGOS_VENDOR_OK;
}

// ------------------------------------------------------------------------------------------------ matrices

static void compute_mm(ChipWork* chip) {
  Work* work = (Work*)chip;
  const Operand *a = &work->operands[IN], *b = &work->operands[OTHER], *out = &work->operands[OUT];
  const int64_t depth = a->sizes[1], columns = out->sizes[1];
  const float* values = (const float*)chip->memory[OTHER].data;
  int64_t stride = b->strides[0];
  if (chip->memory[SPACE].data != NULL) { // rows of `b` whose elements lie side by side
    float* packed = (float*)chip->memory[SPACE].data;
    for (int64_t k = 0; k < depth; k++) {
      for (int64_t column = 0; column < columns; column++)
        packed[k * columns + column] = values[k * b->strides[0] + column * b->strides[1]];
    }
    values = packed;
    stride = columns;
  }
  for (int64_t row = 0; row < out->sizes[0]; row++) {
    const float* factors = (const float*)element(work, IN, row * a->strides[0]);
    for (int64_t column = 0; column < columns; column += ROW) {
      const int64_t rest = columns - column, count = rest < ROW ? rest : ROW;
      Row sums = {.real = {0}};
      for (int64_t k = 0; k < depth; k++) {
        const double factor = factors[k * a->strides[1]];
        const float* from = values + k * stride + column;
        for (int64_t i = 0; i < count; i++)
          sums.real[i] += factor * from[i];
      }
      char* to = element(work, OUT, row * out->strides[0] + column * out->strides[1]);
      store(FLAGOS_DTYPE_FLOAT32, to, out->strides[1], count, &sums, false);
    }
  }
}

// mm(self, mat2)
static int32_t mm(const FlagosKernelCall* call, Work* work) {
  TRY(result(work, OUT, call, 0));
  TRY(take(work, IN, tensor(call, 0)));
  TRY(take(work, OTHER, tensor(call, 1)));
  for (int slot = 0; slot < OPERANDS; slot++) {
    const bool used = slot == OUT || slot == IN || slot == OTHER;
    const Operand* operand = &work->operands[slot];
    if (used && (operand->dtype != FLAGOS_DTYPE_FLOAT32 || operand->num_dims != 2))
      return DECLINE("the chip multiplies matrices of float32, not of the dtype %d", operand->dtype);
  }
  const Operand* b = &work->operands[OTHER];
  if (is_empty(&work->operands[OUT]))
    return FLAGOS_VENDOR_OK;
  work->chip.compute = compute_mm;
  if (b->strides[1] == 1 || b->sizes[1] == 1 || is_empty(b))
    return FLAGOS_VENDOR_OK;
  return space(call, work, (size_t)(b->sizes[0] * b->sizes[1]) * sizeof(float));
}

// ------------------------------------------------------------------------------------------------ the kernels

#define KERNELS(X)                         \
  X("aten::add.Tensor", add)               \
  X("aten::mul.Tensor", mul)               \
  X("aten::neg", neg)                      \
  X("aten::relu", relu)                    \
  X("aten::copy_", copy_or_cast)           \
  X("aten::fill_.Scalar", fill)            \
  X("aten::bernoulli_.float", bernoulli)   \
  X("aten::uniform_", uniform)             \
  X("aten::sum.dim_IntList", sum)          \
  X("aten::_softmax", softmax)             \
  X("aten::native_layer_norm", layer_norm) \
  X("aten::embedding", embedding)          \
  X("aten::mm", mm)

#define ENTRY(name, prepare) {name, prepare},
static const FlagosKernel kernels[] = {KERNELS(ENTRY)};
#define NAME(name, prepare) name,
static const char* const names[] = {KERNELS(NAME) NULL};

static int32_t find(const char* name, const FlagosKernel** kernel) {
  for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
    if (strcmp(kernels[i].name, name) == 0) {
      *kernel = &kernels[i];
      return FLAGOS_VENDOR_OK;
    }
  }
  return DECLINE("the chip has no kernel for %.80s", name);
}

static int32_t run(const FlagosKernel* kernel, const FlagosKernelCall* call) {
  Work* work = calloc(1, sizeof *work);
  if (work == NULL)
    return chip_fail(FLAGOS_VENDOR_DEVICE, "the host has no memory left");
  work->chip.nbytes = sizeof *work;
  int32_t status = kernel->prepare(call, work);
  bool queued = false;
  if (status == FLAGOS_VENDOR_OK && work->chip.compute != NULL) {
    status = chip_queue(call->stream, &work->chip);
    queued = status == FLAGOS_VENDOR_OK;
  }
  if (!queued)
    free(work);
  return status;
}

static const FlagosKernels table = {
    .struct_size = sizeof(FlagosKernels),
    .major = FLAGOS_KERNELS_MAJOR,
    .minor = FLAGOS_KERNELS_MINOR,
    .last_error = chip_last_error,
    .find = find,
    .run = run,
    .names = names,
};

// The table of a chip without kernels, to see what the host computes then.
static int32_t find_none(const char* name, const FlagosKernel** kernel) {
  (void)name, (void)kernel;
  return DECLINE("EXAMPLE_CHIP_KERNELS=0 leaves the chip without kernels");
}

static const FlagosKernels empty_table = {
    .struct_size = sizeof(FlagosKernels),
    .major = FLAGOS_KERNELS_MAJOR,
    .minor = FLAGOS_KERNELS_MINOR,
    .last_error = chip_last_error,
    .find = find_none,
    .run = run,
};

const FlagosKernels* flagos_kernels(const FlagosVendorHost* host, const char** reason) {
  // `newest_major` lies behind `oldest_major`.
  const bool told = FLAGOS_VENDOR_HAS(FlagosVendorHost, host, newest_major);
  if (!told || host->oldest_major > FLAGOS_KERNELS_MAJOR || host->newest_major < FLAGOS_KERNELS_MAJOR) {
    *reason = "the chip was compiled for another version of flagos_kernels.h";
    return NULL;
  }
  const char* wanted = getenv("EXAMPLE_CHIP_KERNELS");
  return wanted != NULL && strcmp(wanted, "0") == 0 ? &empty_table : &table;
}
