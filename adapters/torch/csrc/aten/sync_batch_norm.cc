// SPDX-License-Identifier: Apache-2.0
#include "aten/register.h"

#include <ATen/AccumulateType.h>
#include <ATen/ops/full.h>
#include <ATen/ops/var_mean.h>

namespace flagos {

namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// Statistics are those of channels, the second dimension, and float32 for narrower dtypes
// (aten/src/ATen/native/cuda/Normalization.cuh).
Tensor wide(const Tensor& x) {
  return x.to(at::toAccumulateType(x.scalar_type(), /*is_cuda=*/true));
}

std::vector<int64_t> all_but_channels(const Tensor& x) {
  std::vector<int64_t> dimensions{0};
  for (int64_t i = 2; i < x.dim(); ++i) {
    dimensions.push_back(i);
  }
  return dimensions;
}

// One value per channel in a shape that broadcasts over `x`.
Tensor along_channels(const Tensor& value, const Tensor& x) {
  std::vector<int64_t> shape(x.dim(), 1);
  shape[1] = value.numel();
  return wide(value).reshape(shape);
}

std::tuple<Tensor, Tensor> stats(const Tensor& input, double eps) {
  Slot<at::_ops::batch_norm_stats>::enter();
  const auto [variance, mean] = at::var_mean(wide(input), all_but_channels(input), /*unbiased=*/false);
  return {mean, variance.add(eps).rsqrt()};
}

void update(const OptionalTensor& running, const Tensor& now, double momentum) {
  if (running.has_value() && running->defined()) {
    running->mul_(1 - momentum).add_(now.to(running->scalar_type()), momentum);
  }
}

// Merges the statistics of several parts with `counts` values per channel each, as Chan, Golub and LeVeque do.
std::tuple<Tensor, Tensor> merge(
    const Tensor& mean,
    const Tensor& invstd,
    const OptionalTensor& running_mean,
    const OptionalTensor& running_var,
    double momentum,
    double eps,
    const Tensor& counts) {
  const Tensor weights = wide(counts).to(mean.scalar_type()).reshape({-1, 1});
  const Tensor total = weights.sum();
  const Tensor merged = mean.mul(weights).sum(0).div(total);
  const Tensor variances = invstd.square().reciprocal().sub(eps);
  const Tensor squares = mean.sub(merged).square().add(variances).mul(weights).sum(0);
  update(running_mean, merged, momentum);
  update(running_var, squares.div(total.sub(1)), momentum);
  return {merged, squares.div(total).add(eps).rsqrt()};
}

std::tuple<Tensor, Tensor> gather_stats_with_counts(
    const Tensor& /*input*/,
    const Tensor& mean,
    const Tensor& invstd,
    const OptionalTensor& running_mean,
    const OptionalTensor& running_var,
    double momentum,
    double eps,
    const Tensor& counts) {
  Slot<at::_ops::batch_norm_gather_stats_with_counts>::enter();
  return merge(mean, invstd, running_mean, running_var, momentum, eps, counts);
}

std::tuple<Tensor, Tensor> gather_stats(
    const Tensor& /*input*/,
    const Tensor& mean,
    const Tensor& invstd,
    const OptionalTensor& running_mean,
    const OptionalTensor& running_var,
    double momentum,
    double eps,
    int64_t count) {
  Slot<at::_ops::batch_norm_gather_stats>::enter();
  const Tensor counts = at::full({mean.size(0)}, count, mean.options());
  return merge(mean, invstd, running_mean, running_var, momentum, eps, counts);
}

Tensor normalized(
    const Tensor& input,
    const OptionalTensor& weight,
    const OptionalTensor& bias,
    const Tensor& mean,
    const Tensor& invstd) {
  Tensor result = wide(input).sub(along_channels(mean, input)).mul(along_channels(invstd, input));
  if (weight.has_value() && weight->defined()) {
    result = result.mul(along_channels(*weight, input));
  }
  if (bias.has_value() && bias->defined()) {
    result = result.add(along_channels(*bias, input));
  }
  return result.to(input.scalar_type());
}

Tensor elemt(
    const Tensor& input,
    const OptionalTensor& weight,
    const OptionalTensor& bias,
    const Tensor& mean,
    const Tensor& invstd,
    double /*eps*/) {
  Slot<at::_ops::batch_norm_elemt>::enter();
  return normalized(input, weight, bias, mean, invstd);
}

Tensor& elemt_out(
    const Tensor& input,
    const OptionalTensor& weight,
    const OptionalTensor& bias,
    const Tensor& mean,
    const Tensor& invstd,
    double /*eps*/,
    Tensor& out) {
  Slot<at::_ops::batch_norm_elemt_out>::enter();
  const Tensor result = normalized(input, weight, bias, mean, invstd);
  out.resize_(result.sizes());
  return out.copy_(result);
}

std::tuple<Tensor, Tensor, Tensor, Tensor> backward_reduce(
    const Tensor& grad_out,
    const Tensor& input,
    const Tensor& mean,
    const Tensor& invstd,
    const OptionalTensor& weight,
    bool input_g,
    bool weight_g,
    bool bias_g) {
  Slot<at::_ops::batch_norm_backward_reduce>::enter();
  const auto dimensions = all_but_channels(input);
  const Tensor grad = wide(grad_out);
  const Tensor sum = grad.sum(dimensions);
  const Tensor products = grad.mul(wide(input).sub(along_channels(mean, input))).sum(dimensions);
  const auto type = weight.has_value() && weight->defined() ? weight->scalar_type() : input.scalar_type();
  return {
      input_g ? sum : Tensor(),
      input_g ? products : Tensor(),
      weight_g ? products.mul(invstd).to(type) : Tensor(),
      bias_g ? sum.to(type) : Tensor()};
}

Tensor backward_elemt(
    const Tensor& grad_out,
    const Tensor& input,
    const Tensor& mean,
    const Tensor& invstd,
    const OptionalTensor& weight,
    const Tensor& sum_dy,
    const Tensor& sum_dy_xmu,
    const Tensor& count) {
  Slot<at::_ops::batch_norm_backward_elemt>::enter();
  const Tensor total = count.sum().to(mean.scalar_type());
  const Tensor slope = sum_dy_xmu.div(total).mul(invstd.square());
  Tensor scale = invstd;
  if (weight.has_value() && weight->defined()) {
    scale = scale.mul(wide(*weight));
  }
  const Tensor centred = wide(input).sub(along_channels(mean, input));
  return wide(grad_out)
      .sub(along_channels(sum_dy.div(total), input))
      .sub(centred.mul(along_channels(slope, input)))
      .mul(along_channels(scale, input))
      .to(input.scalar_type());
}

} // namespace

void register_sync_batch_norm(Registrar& registrar) {
  registrar.kernel<at::_ops::batch_norm_stats>(TORCH_FN(stats));
  registrar.kernel<at::_ops::batch_norm_gather_stats>(TORCH_FN(gather_stats));
  registrar.kernel<at::_ops::batch_norm_gather_stats_with_counts>(TORCH_FN(gather_stats_with_counts));
  registrar.kernel<at::_ops::batch_norm_elemt>(TORCH_FN(elemt));
  registrar.kernel<at::_ops::batch_norm_elemt_out>(TORCH_FN(elemt_out));
  registrar.kernel<at::_ops::batch_norm_backward_reduce>(TORCH_FN(backward_reduce));
  registrar.kernel<at::_ops::batch_norm_backward_elemt>(TORCH_FN(backward_elemt));
}

} // namespace flagos
