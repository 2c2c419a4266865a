// SPDX-License-Identifier: Apache-2.0
#include "attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/List.h>

#include <cmath>
#include <limits>
#include <map>

#include "helpers.h"

namespace simulated_ascend {

namespace {

using at::Tensor;
using c10::IValue;
using Values = std::vector<IValue>;

Tensor tensor(const IValue& value) {
  return value.isTensor() ? value.toTensor() : Tensor();
}

Tensor one(const char* name, Values arguments) {
  return call(name, std::move(arguments)).toTensor();
}

IValue pack(Values values) {
  return c10::ivalue::Tuple::create(std::move(values));
}

int64_t integer(const IValue& value) {
  return value.toScalar().toLong();
}

double real(const IValue& value) {
  return value.toScalar().toDouble();
}

// Bits of bytes, the lowest first, as a mask of so many elements.
Tensor unpack(const Tensor& bytes, int64_t count) {
  const Tensor flat = bytes.contiguous().view(-1);
  TORCH_CHECK(flat.numel() * 8 >= count, "a mask of ", flat.numel(), " bytes for ", count, " elements");
  const auto* from = static_cast<const uint8_t*>(flat.data_ptr());
  Tensor mask = one("ones", {std::vector<int64_t>{count}, static_cast<int64_t>(at::kBool)});
  auto* to = mask.data_ptr<bool>();
  for (int64_t index = 0; index < count; ++index)
    to[index] = from[index / 8] >> (index % 8) & 1;
  return mask;
}

Tensor pack_bits(const Tensor& mask, int64_t bytes) {
  const Tensor flat = mask.contiguous().view(-1);
  Tensor packed = one("zeros", {std::vector<int64_t>{bytes}, static_cast<int64_t>(at::kByte)});
  const auto* from = flat.data_ptr<bool>();
  auto* to = packed.data_ptr<uint8_t>();
  for (int64_t index = 0; index < flat.numel(); ++index)
    to[index / 8] = static_cast<uint8_t>(to[index / 8] | (from[index] ? 1 << (index % 8) : 0));
  return packed;
}

// ------------------------------------------------------------------------------------------- attention

// Heads of a layout, and the layout as [batch, heads, sequence, size].
Tensor heads_first(const Tensor& x, const std::string& layout, int64_t heads) {
  if (layout == "BNSD")
    return x;
  TORCH_CHECK(layout == "BSH" || layout == "SBH" || layout == "BSND", "the layout ", layout, " is not simulated");
  if (layout == "BSND")
    return x.permute({0, 2, 1, 3});
  TORCH_CHECK(x.size(2) % heads == 0, "heads that do not divide the last dimension");
  const Tensor split = x.reshape({x.size(0), x.size(1), heads, x.size(2) / heads});
  return layout == "BSH" ? split.permute({0, 2, 1, 3}) : split.permute({1, 2, 0, 3});
}

Tensor heads_back(const Tensor& x, const std::string& layout) {
  if (layout == "BNSD")
    return x;
  if (layout == "BSND")
    return x.permute({0, 2, 1, 3});
  const Tensor first = layout == "BSH" ? x.permute({0, 2, 1, 3}) : x.permute({2, 0, 1, 3});
  return first.reshape({first.size(0), first.size(1), first.size(2) * first.size(3)});
}

struct Attention {
  Tensor query; // [batch, heads, sequence, size], float
  Tensor key;
  Tensor value;
  Tensor scores;
  Tensor hidden; // what takes no part, or undefined
  int64_t groups = 1;
};

Tensor positions(int64_t rows, int64_t columns, int64_t shift) {
  const Tensor i = one("arange", {rows}).view({rows, 1});
  const Tensor j = one("arange", {columns}).view({1, columns});
  return j - i - shift; // how far ahead of its row a column is
}

// Which pairs take no part, by the mode; `mask` is true for these.
Tensor hidden_pairs(const Tensor& mask, int64_t rows, int64_t columns, int64_t mode, int64_t before, int64_t after) {
  if (mode == 2 || mode == 3) {
    TORCH_CHECK(
        mask.defined() && mask.size(-1) == 2048 && mask.size(-2) == 2048,
        "sparse mode ",
        mode,
        " needs the mask of 2048 by 2048");
    const Tensor ahead = positions(rows, columns, mode == 2 ? 0 : columns - rows);
    return one("gt.Scalar", {ahead, 0});
  }
  TORCH_CHECK(mode == 0 || mode == 1 || mode == 4, "sparse mode ", mode, " is not simulated");
  if (!mask.defined()) {
    TORCH_CHECK(mode == 0, "sparse mode ", mode, " needs a mask");
    return Tensor();
  }
  const Tensor hidden = mask.to(at::kBool);
  if (mode == 1)
    return hidden;
  if (mode == 4) {
    TORCH_CHECK(mask.size(-1) == 2048 && mask.size(-2) == 2048, "sparse mode 4 needs the mask of 2048 by 2048");
    const Tensor ahead = positions(rows, columns, columns - rows);
    return one("logical_or", {one("gt.Scalar", {ahead, after}), one("lt.Scalar", {ahead, -before})});
  }
  // Blocks outside the band are left out, whatever the mask says of them.
  const Tensor ahead = positions(rows, columns, 0);
  const Tensor outside = one("logical_or", {one("gt.Scalar", {ahead, after}), one("lt.Scalar", {ahead, -before})});
  return one("logical_or", {hidden, outside});
}

Attention prepare(
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    int64_t heads,
    int64_t key_heads,
    const std::string& layout,
    const Tensor& shift,
    double scale,
    bool scales_shift) {
  TORCH_CHECK(
      query.scalar_type() == key.scalar_type() && query.scalar_type() == value.scalar_type(),
      "query, key and value are of different dtypes");
  Attention made;
  made.query = heads_first(query, layout, heads).to(at::kFloat);
  TORCH_CHECK(made.query.size(1) == heads, "the query has ", made.query.size(1), " heads, not ", heads);
  const bool flat = layout == "BSH" || layout == "SBH";
  const int64_t in_key = key_heads ? key_heads
      : flat                       ? key.size(2) / made.query.size(3)
      : layout == "BNSD"           ? key.size(1)
                                   : key.size(2);
  TORCH_CHECK(in_key > 0 && heads % in_key == 0, heads, " heads of the query for ", in_key, " of the key");
  made.groups = heads / in_key;
  const auto repeat = [&](const Tensor& x) {
    const Tensor first = heads_first(x, layout, in_key).to(at::kFloat);
    TORCH_CHECK(first.size(1) == in_key, "the key has ", first.size(1), " heads, not ", in_key);
    return made.groups == 1 ? first : one("repeat_interleave.self_int", {first, made.groups, 1});
  };
  made.key = repeat(key);
  made.value = repeat(value);
  made.scores = one("matmul", {made.query, made.key.transpose(-2, -1)});
  const auto shifted = [&] { return shift.defined() ? made.scores + shift.to(at::kFloat) : made.scores; };
  if (scales_shift)
    made.scores = shifted();
  made.scores = made.scores * scale;
  if (!scales_shift)
    made.scores = shifted();
  return made;
}

Tensor as_bits(const IValue& mask, const Tensor& like) {
  return unpack(mask.toTensor(), like.numel()).view(like.sizes()).to(at::kFloat);
}

// A float that is less than any score and can be subtracted from itself.
constexpr double kLeast = -3e38;

Tensor widened(const Tensor& column) {
  return column.expand({column.size(0), column.size(1), column.size(2), 8});
}

// query, key, value, shift, drop mask, mask, scale, keep probability, before, after, heads, layout, precise, mode
IValue attention(Values& of) {
  const std::string layout = of[11].toStringRef();
  const Tensor query = tensor(of[0]);
  Attention made =
      prepare(query, tensor(of[1]), tensor(of[2]), integer(of[10]), 0, layout, tensor(of[3]), real(of[6]), true);
  const int64_t rows = made.scores.size(2);
  const int64_t columns = made.scores.size(3);
  const int64_t mode = integer(of[13]);
  Tensor hidden = hidden_pairs(tensor(of[5]), rows, columns, mode, integer(of[8]), integer(of[9]));
  if (hidden.defined())
    made.scores = one("masked_fill.Scalar", {made.scores, hidden, kLeast});
  const Tensor most = one("amax", {made.scores, std::vector<int64_t>{-1}, true});
  const Tensor raised = one("exp", {made.scores - most});
  const Tensor sum = one("sum.dim_IntList", {raised, std::vector<int64_t>{-1}, true});
  Tensor weights = raised / sum;
  // Rows of which everything is hidden are even, or zero where they are looked for.
  if (hidden.defined() && (integer(of[12]) == 2 || (mode == 3 && rows > columns)))
    weights = one("masked_fill.Scalar", {weights, one("le.Scalar", {most, kLeast / 2}), 0.0});
  if (!of[4].isNone())
    weights = weights * as_bits(of[4], weights) / real(of[7]);
  const Tensor out = one("matmul", {weights, made.value});
  return pack({widened(most), widened(sum), heads_back(out, layout).to(query.scalar_type())});
}

// query, key, value, dy, shift, drop mask, mask, max, sum, out, scale, keep probability, before, after, heads, layout,
// mode
IValue attention_grad(Values& of) {
  const std::string layout = of[15].toStringRef();
  const Tensor query = tensor(of[0]);
  const int64_t heads = integer(of[14]);
  const double scale = real(of[10]);
  Attention made = prepare(query, tensor(of[1]), tensor(of[2]), heads, 0, layout, tensor(of[4]), scale, true);
  const Tensor hidden = hidden_pairs(
      tensor(of[6]), made.scores.size(2), made.scores.size(3), integer(of[16]), integer(of[12]), integer(of[13]));
  if (hidden.defined())
    made.scores = one("masked_fill.Scalar", {made.scores, hidden, kLeast});
  const auto first = [](const Tensor& x) { return x.slice(3, 0, 1); };
  const Tensor weights = one("exp", {made.scores - first(tensor(of[7]))}) / first(tensor(of[8]));
  const Tensor dy = heads_first(tensor(of[3]), layout, heads).to(at::kFloat);
  const Tensor out = heads_first(tensor(of[9]), layout, heads).to(at::kFloat);
  Tensor dropped = weights;
  Tensor dweights = one("matmul", {dy, made.value.transpose(-2, -1)});
  if (!of[5].isNone()) {
    const Tensor keep = as_bits(of[5], weights) / real(of[11]);
    dropped = weights * keep;
    dweights = dweights * keep;
  }
  const Tensor row = one("sum.dim_IntList", {dy * out, std::vector<int64_t>{-1}, true});
  const Tensor dscores = weights * (dweights - row);
  const auto gather = [&](const Tensor& x) {
    const auto& sizes = x.sizes();
    const Tensor grouped = x.reshape({sizes[0], sizes[1] / made.groups, made.groups, sizes[2], sizes[3]});
    return heads_back(one("sum.dim_IntList", {grouped, std::vector<int64_t>{2}, false}), layout)
        .to(query.scalar_type());
  };
  const Tensor dq = one("matmul", {dscores, made.key}) * scale;
  const Tensor dk = one("matmul", {dscores.transpose(-2, -1), made.query}) * scale;
  const Tensor dv = one("matmul", {dropped.transpose(-2, -1), dy});
  IValue dshift;
  if (const Tensor shift = tensor(of[4]); shift.defined()) {
    std::vector<int64_t> over;
    for (int64_t dim = 0; dim < 4; ++dim) {
      if (shift.size(dim) == 1 && dscores.size(dim) != 1)
        over.push_back(dim);
    }
    const Tensor scaled = dscores * scale;
    dshift = (over.empty() ? scaled : one("sum.dim_IntList", {scaled, over, true})).to(query.scalar_type());
  }
  return pack({heads_back(dq, layout).to(query.scalar_type()), gather(dk), gather(dv), dshift});
}

Tensor single(const IValue& of) {
  if (of.isTensor())
    return of.toTensor();
  const auto& all = of.toListRef();
  TORCH_CHECK(all.size() == 1, "several tensors of keys are not simulated");
  return all[0].toTensor();
}

// query, key, value, shift, mask, lengths, key lengths, heads, key heads, scale, before, after, layout, mode, one row
IValue infer_attention(Values& of) {
  const std::string layout = of[12].toStringRef();
  const Tensor query = tensor(of[0]);
  Attention made = prepare(
      query, single(of[1]), single(of[2]), integer(of[7]), integer(of[8]), layout, tensor(of[3]), real(of[9]), false);
  const int64_t rows = made.scores.size(2);
  const int64_t columns = made.scores.size(3);
  Tensor mask = tensor(of[4]);
  if (mask.defined() && mask.dim() == 3)
    mask = mask.unsqueeze(1);
  if (mask.defined() && mask.dim() == 2 && of[14].toBool())
    mask = mask.view({mask.size(0), 1, 1, mask.size(1)});
  Tensor hidden = hidden_pairs(mask, rows, columns, integer(of[13]), integer(of[10]), integer(of[11]));
  if (hidden.defined())
    made.scores = one("masked_fill.Scalar", {made.scores, hidden, kLeast});
  const auto shorten = [&](const IValue& lengths, int64_t whole, bool of_rows) {
    if (lengths.isNone() || lengths.toListRef().empty())
      return;
    const auto all = lengths.toIntVector();
    Tensor at_batch = one("zeros", {made.scores.sizes().vec(), static_cast<int64_t>(at::kBool)});
    for (int64_t batch = 0; batch < at_batch.size(0); ++batch) {
      const int64_t length = all[all.size() == 1 ? 0 : static_cast<size_t>(batch)];
      TORCH_CHECK(length >= 0 && length <= whole, "a length of ", length, " of ", whole);
      at_batch.select(0, batch).slice(of_rows ? 1 : 2, length, whole).fill_(true);
    }
    made.scores = one("masked_fill.Scalar", {made.scores, at_batch, kLeast});
  };
  shorten(of[6], columns, false);
  const Tensor most = one("amax", {made.scores, std::vector<int64_t>{-1}, true});
  const Tensor raised = one("exp", {made.scores - most});
  const Tensor sum = one("sum.dim_IntList", {raised, std::vector<int64_t>{-1}, true});
  const Tensor none = one("le.Scalar", {most, kLeast / 2});
  const Tensor weights = one("masked_fill.Scalar", {raised / sum, none, 0.0});
  const Tensor total = one("masked_fill.Scalar", {one("log", {sum}) + most, none, HUGE_VAL});
  return pack({heads_back(one("matmul", {weights, made.value}), layout).to(query.scalar_type()), total});
}

// -------------------------------------------------------------------------------------------- dropout

// shape, probability to be left out, generator
IValue dropout_bits(Values& of) {
  int64_t count = 1;
  for (const int64_t size : of[0].toIntVector())
    count *= size;
  const double probability = real(of[1]);
  TORCH_CHECK(probability >= 0 && probability <= 1, "a probability of ", probability);
  Tensor mask = one("zeros", {std::vector<int64_t>{count}, static_cast<int64_t>(at::kBool)});
  mask = one("bernoulli.p", {mask.to(at::kFloat), 1 - probability, of[2]}).to(at::kBool);
  return pack_bits(mask, (count + 127) / 128 * 16);
}

// input, bits
IValue kept(Values& of) {
  const Tensor like = tensor(of[0]);
  const Tensor bits = tensor(of[1]);
  const int64_t bytes = (like.numel() + 127) / 128 * 16;
  TORCH_CHECK(bits.numel() == bytes, "a mask of ", bits.numel(), " bytes, not ", bytes);
  return unpack(bits, like.numel()).view(like.sizes());
}

// --------------------------------------------------------------------------------------------- pooling

// Where in its window each result lies, one bit for each place in the window: out, indices of ATen, and the window.
std::pair<int64_t, int64_t> pair(const IValue& of) {
  const auto all = of.toIntVector();
  return {all[0], all.size() > 1 ? all[1] : all[0]};
}

struct Window {
  int64_t height, width, down, right, top, left, rows, columns;
};

Window
window_of(const IValue& kernel, const IValue& stride, const IValue& padding, const Tensor& input, const Tensor& out) {
  Window made{};
  std::tie(made.height, made.width) = pair(kernel);
  std::tie(made.down, made.right) = stride.toListRef().empty() ? pair(kernel) : pair(stride);
  std::tie(made.top, made.left) = pair(padding);
  made.rows = input.size(-2);
  made.columns = input.size(-1);
  (void)out;
  return made;
}

std::vector<int64_t> bits_shape(const Tensor& out, const Window& window) {
  std::vector<int64_t> shape = out.sizes().vec();
  shape[shape.size() - 2] = window.height * window.width;
  shape[shape.size() - 1] = ((out.size(-1) * out.size(-2) + 15) / 16 + 1) * 32;
  return shape;
}

// input, kernel, stride, padding, out, indices
IValue pool_bits(Values& of) {
  const Tensor input = tensor(of[0]);
  const Tensor out = tensor(of[4]);
  const Window window = window_of(of[1], of[2], of[3], input, out);
  Tensor bits = one("zeros", {bits_shape(out, window), static_cast<int64_t>(at::kChar)});
  const Tensor indices = tensor(of[5]).contiguous();
  const int64_t each = out.size(-1) * out.size(-2);
  const int64_t planes = each ? out.numel() / each : 0;
  const int64_t line = bits.size(-1);
  auto* bytes = bits.data_ptr<int8_t>();
  const auto* index = indices.data_ptr<int64_t>();
  for (int64_t plane = 0; plane < planes; ++plane) {
    for (int64_t at = 0; at < each; ++at) {
      const int64_t found = index[plane * each + at];
      const int64_t row = found / window.columns - (at / out.size(-1) * window.down - window.top);
      const int64_t column = found % window.columns - (at % out.size(-1) * window.right - window.left);
      auto& byte = bytes[(plane * window.height * window.width + row * window.width + column) * line + at / 8];
      byte = static_cast<int8_t>(byte | 1 << (at % 8));
    }
  }
  return bits;
}

// gradient, input, bits, kernel, stride, padding
IValue pool_indices(Values& of) {
  const Tensor out = tensor(of[0]);
  const Tensor input = tensor(of[1]);
  const Window window = window_of(of[3], of[4], of[5], input, out);
  const Tensor bits = tensor(of[2]).contiguous();
  TORCH_CHECK(bits.sizes() == at::IntArrayRef(bits_shape(out, window)), "a mask of another shape");
  Tensor indices = one("zeros", {out.sizes().vec(), static_cast<int64_t>(at::kLong)});
  const int64_t each = out.size(-1) * out.size(-2);
  const int64_t planes = each ? out.numel() / each : 0;
  const int64_t line = bits.size(-1);
  const auto* bytes = bits.data_ptr<int8_t>();
  auto* index = indices.data_ptr<int64_t>();
  for (int64_t plane = 0; plane < planes; ++plane) {
    for (int64_t at = 0; at < each; ++at) {
      for (int64_t place = 0; place < window.height * window.width; ++place) {
        if (!(bytes[(plane * window.height * window.width + place) * line + at / 8] >> (at % 8) & 1))
          continue;
        const int64_t row = at / out.size(-1) * window.down - window.top + place / window.width;
        const int64_t column = at % out.size(-1) * window.right - window.left + place % window.width;
        index[plane * each + at] = row * window.columns + column;
      }
    }
  }
  return indices;
}

// ------------------------------------------------------------------------------------------ normalising

// input, weight, bias, running mean, running variance, training, momentum, eps; the variance is what this chip saves
IValue batch_norm(Values& of) {
  const Tensor input = tensor(of[0]);
  const bool training = of[5].toBool();
  const auto copy = [](const IValue& value) { return value.isNone() ? value : IValue(value.toTensor().clone()); };
  const auto as_float = [&](const IValue& value) {
    return value.isNone() ? value : IValue(value.toTensor().to(at::kFloat));
  };
  TORCH_CHECK(training || (!of[3].isNone() && !of[4].isNone()), "no running statistics, and not in training");
  const IValue mean = as_float(copy(of[3]));
  const IValue variance = as_float(copy(of[4]));
  const IValue all = call(
      "native_batch_norm",
      {input.to(at::kFloat), as_float(of[1]), as_float(of[2]), mean, variance, training, real(of[6]), real(of[7])});
  const auto& parts = all.toTupleRef().elements();
  IValue saved_mean;
  IValue saved_variance;
  if (training) {
    saved_mean = parts[1];
    const Tensor invstd = parts[2].toTensor();
    saved_variance = one("reciprocal", {invstd * invstd}) - real(of[7]);
  }
  const auto back = [](const IValue& value, const IValue& like) {
    return like.isNone() || value.isNone() ? IValue() : IValue(value.toTensor().to(like.toTensor().scalar_type()));
  };
  return pack(
      {parts[0].toTensor().to(input.scalar_type()),
       saved_mean,
       saved_variance,
       training ? back(mean, of[3]) : IValue(),
       training ? back(variance, of[4]) : IValue()});
}

// gradient, input, weight, running mean, running variance, saved mean, saved variance, training, eps, mask
IValue batch_norm_grad(Values& of) {
  const Tensor input = tensor(of[1]);
  const auto as_float = [&](const IValue& value) {
    return value.isNone() ? value : IValue(value.toTensor().to(at::kFloat));
  };
  IValue invstd;
  if (!of[6].isNone())
    invstd = one("rsqrt", {of[6].toTensor().to(at::kFloat) + real(of[8])});
  const IValue all = call(
      "native_batch_norm_backward",
      {tensor(of[0]).to(at::kFloat),
       input.to(at::kFloat),
       as_float(of[2]),
       as_float(of[3]),
       as_float(of[4]),
       as_float(of[5]),
       invstd,
       of[7],
       of[8],
       of[9]});
  const auto& parts = all.toTupleRef().elements();
  IValue first = parts[0];
  if (!first.isNone() && first.toTensor().defined())
    first = first.toTensor().to(input.scalar_type());
  return pack({first, parts[1], parts[2]});
}

std::vector<int64_t> all_but_channels(const Tensor& x) {
  std::vector<int64_t> over;
  for (int64_t dim = 0; dim < x.dim(); ++dim) {
    if (dim != 1)
      over.push_back(dim);
  }
  return over;
}

// input, eps
IValue batch_stats(Values& of) {
  const Tensor x = tensor(of[0]).to(at::kFloat);
  const auto over = all_but_channels(x);
  const IValue both = call("var_mean.correction", {x, over, 0, false});
  const auto& parts = both.toTupleRef().elements();
  return pack({parts[1], one("rsqrt", {parts[0].toTensor() + real(of[1])})});
}

// means and inverse deviations of several devices, running mean and variance, momentum, eps, how many each has counted
IValue gathered_stats(Values& of) {
  const Tensor counts = tensor(of[6]).to(at::kFloat).reshape({-1, 1});
  const Tensor means = tensor(of[0]).to(at::kFloat);
  const Tensor roots = tensor(of[1]).to(at::kFloat);
  const double eps = real(of[5]);
  const std::vector<int64_t> first{0};
  const Tensor n = one("sum", {counts});
  const Tensor mean = one("sum.dim_IntList", {means * counts, first}) / n;
  const Tensor each = one("reciprocal", {roots * roots}) - eps + (means - mean) * (means - mean);
  const Tensor variance = one("sum.dim_IntList", {each * counts, first}) / n;
  IValue running_mean;
  IValue running_variance;
  const double momentum = real(of[4]);
  if (!of[2].isNone())
    running_mean = tensor(of[2]).to(at::kFloat) * (1 - momentum) + mean * momentum;
  if (!of[3].isNone())
    running_variance = tensor(of[3]).to(at::kFloat) * (1 - momentum) + variance * n / (n - 1) * momentum;
  return pack({mean, one("rsqrt", {variance + eps}), running_mean, running_variance});
}

// gradient, input, mean, inverse deviation
IValue batch_sums(Values& of) {
  const Tensor grad = tensor(of[0]).to(at::kFloat);
  const Tensor x = tensor(of[1]).to(at::kFloat);
  std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
  shape[1] = x.size(1);
  const Tensor centred = x - tensor(of[2]).to(at::kFloat).reshape(shape);
  const Tensor sum = one("sum.dim_IntList", {grad, all_but_channels(x)});
  const Tensor moment = one("sum.dim_IntList", {grad * centred, all_but_channels(x)});
  return pack({sum, moment, moment * tensor(of[3]).to(at::kFloat), sum});
}

// ------------------------------------------------------------------------------------------ optimizers

struct Adam {
  double lr, beta1, beta2, decay, eps;
  bool amsgrad, maximize;
};

void adam(
    const Tensor& var,
    const Tensor& m,
    const Tensor& v,
    const Tensor& most,
    const Tensor& grad,
    double step,
    const Adam& by) {
  const Tensor slope = by.maximize ? grad.neg() : grad;
  var.mul_(1 - by.lr * by.decay);
  m.mul_(by.beta1).add_(slope * (1 - by.beta1));
  v.mul_(by.beta2).add_(slope * slope * (1 - by.beta2));
  const double first = 1 - std::pow(by.beta1, step);
  const double second = 1 - std::pow(by.beta2, step);
  if (by.amsgrad)
    most.copy_(one("maximum", {most, v}));
  const Tensor root = one("sqrt", {by.amsgrad ? most : v}) / std::sqrt(second);
  var.sub_(m / (root + by.eps) * (by.lr / first));
}

// The step counts the updates before this one.
// var, m, v, most, grad, step, lr, beta1, beta2, decay, eps, amsgrad, maximize
IValue adamw(Values& of) {
  const Adam by{real(of[6]), real(of[7]), real(of[8]), real(of[9]), real(of[10]), of[11].toBool(), of[12].toBool()};
  TORCH_CHECK(!by.amsgrad || !of[3].isNone(), "amsgrad has nowhere to keep its greatest");
  const auto wide = [](const IValue& value) {
    return value.isNone() ? Tensor() : value.toTensor().to(at::kFloat).clone();
  };
  const Tensor var = wide(of[0]);
  const Tensor m = wide(of[1]);
  const Tensor v = wide(of[2]);
  const Tensor most = wide(of[3]);
  TORCH_CHECK(tensor(of[5]).numel() == 1, "a step of several elements");
  TORCH_CHECK(tensor(of[4]).sizes() == var.sizes(), "a gradient of another shape");
  adam(var, m, v, most, wide(of[4]), tensor(of[5]).item().toDouble() + 1, by);
  const at::ScalarType type = tensor(of[0]).scalar_type();
  return pack({var.to(type), m.to(type), v.to(type), by.amsgrad ? IValue(most.to(type)) : IValue()});
}

// The same for lists; scale and found_inf before the numbers.
IValue adamw_lists(Values& of) {
  const Tensor found = tensor(of[7]);
  const Tensor scale = tensor(of[6]);
  const bool skips = found.defined() && found.item().toDouble() == 1;
  c10::List<Tensor> results[4];
  const size_t count = of[0].toListRef().size();
  for (size_t index = 0; index < count; ++index) {
    Values one_of;
    for (const size_t position : {0, 2, 3, 4, 1, 5}) {
      const bool given = !of[position].isNone() && index < of[position].toListRef().size();
      one_of.push_back(given ? of[position].toListRef()[index] : IValue());
    }
    if (scale.defined())
      one_of[4] = one_of[4].toTensor() / scale.item();
    one_of.insert(one_of.end(), of.begin() + 8, of.end());
    if (skips) {
      for (size_t part = 0; part < 3; ++part)
        results[part].push_back(one_of[part].toTensor().clone());
      continue;
    }
    const IValue all = adamw(one_of);
    for (size_t part = 0; part < 4; ++part) {
      const IValue& value = all.toTupleRef().elements()[part];
      if (!value.isNone())
        results[part].push_back(value.toTensor());
    }
  }
  return pack({results[0], results[1], results[2], results[3].empty() ? IValue() : IValue(results[3])});
}

const std::map<std::string, Helper>& helpers() {
  static const auto& all = *new std::map<std::string, Helper>{
      {"attention", {attention}},
      {"attention_grad", {attention_grad}},
      {"infer_attention", {infer_attention}},
      {"dropout_bits", {dropout_bits}},
      {"kept", {kept}},
      {"pool_bits", {pool_bits}},
      {"pool_indices", {pool_indices}},
      {"batch_norm", {batch_norm}},
      {"batch_norm_grad", {batch_norm_grad}},
      {"batch_stats", {batch_stats}},
      {"gathered_stats", {gathered_stats}},
      {"batch_sums", {batch_sums}},
      {"adamw", {adamw}},
      {"adamw_lists", {adamw_lists}},
  };
  return all;
}

} // namespace

const Helper* special_helper_of(const std::string& name) {
  const auto found = helpers().find(name);
  return found == helpers().end() ? nullptr : &found->second;
}

} // namespace simulated_ascend
