// SPDX-License-Identifier: Apache-2.0
#include "cuda/register.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/GridSamplerUtils.h>
#include <ATen/native/Normalization.h>
#include <ATen/ops/cudnn_batch_norm.h>
#include <ATen/ops/cudnn_grid_sampler.h>

#include "aten/alias.h"
#include "aten/boxed.h"
#include "cuda/to.h"

namespace flagos {

namespace {

at::Tensor contiguous(const std::optional<at::Tensor>& tensor) {
  return tensor.has_value() && tensor->defined() ? tensor->contiguous() : at::Tensor();
}

bool is_cudnn_batch_norm(
    const at::Tensor& input,
    const std::optional<at::Tensor>& weight,
    const std::optional<at::Tensor>& bias,
    const std::optional<at::Tensor>& running_mean,
    const std::optional<at::Tensor>& running_var,
    bool training,
    double eps) {
  Aliases aliases;
  const auto shown = [&](const std::optional<at::Tensor>& tensor) {
    const bool dense = tensor.has_value() && tensor->key_set().has(c10::DispatchKey::PrivateUse1) &&
        !tensor->key_set().has(c10::DispatchKey::Python);
    return C10_LIKELY(dense) ? aliases.read(*tensor) : shown_to_cuda(tensor.value_or(at::Tensor()));
  };
  return at::native::_select_batch_norm_backend(
             shown(input), shown(weight), shown(bias), shown(running_mean), shown(running_var), training, eps) ==
      at::native::BatchNormBackend::Cudnn;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, int64_t> batch_norm_impl_index(
    const at::Tensor& input,
    const std::optional<at::Tensor>& weight,
    const std::optional<at::Tensor>& bias,
    const std::optional<at::Tensor>& running_mean,
    const std::optional<at::Tensor>& running_var,
    bool training,
    double momentum,
    double eps,
    bool cudnn_enabled) {
  Slot<at::_ops::_batch_norm_impl_index>::enter();
  const bool plain = cudnn_enabled && input.layout() == c10::kStrided && !input.is_nested() && input.sym_numel() != 0;
  if (plain && is_cudnn_batch_norm(input, weight, bias, running_mean, running_var, training, eps)) {
    auto [output, mean, variance, reserve] = at::cudnn_batch_norm(
        input.contiguous(input.suggest_memory_format()),
        contiguous(weight),
        contiguous(bias),
        contiguous(running_mean),
        contiguous(running_var),
        training,
        momentum,
        eps);
    constexpr int64_t kCudnn = 1; // the index by which torch's backward knows cuDNN
    return {output, mean, variance, reserve, kCudnn};
  }
  return at::_ops::_batch_norm_impl_index::redispatch(
      kComposite, input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled);
}

at::Tensor grid_sampler(
    const at::Tensor& input,
    const at::Tensor& grid,
    int64_t interpolation_mode,
    int64_t padding_mode,
    bool align_corners) {
  Slot<at::_ops::grid_sampler>::enter();
  const bool bilinear = static_cast<at::native::GridSamplerInterpolation>(interpolation_mode) ==
      at::native::GridSamplerInterpolation::Bilinear;
  const bool zeros = static_cast<at::native::GridSamplerPadding>(padding_mode) == at::native::GridSamplerPadding::Zeros;
  if (bilinear && zeros && align_corners && input.layout() == c10::kStrided && grid.layout() == c10::kStrided &&
      at::native::cond_cudnn_grid_sampler(shown_to_cuda(input), shown_to_cuda(grid))) {
    return at::cudnn_grid_sampler(input, grid);
  }
  return at::_ops::grid_sampler::redispatch(kComposite, input, grid, interpolation_mode, padding_mode, align_corners);
}

} // namespace

void register_cudnn_choices(Registrar& registrar) {
  registrar.composite<at::_ops::_batch_norm_impl_index>(TORCH_FN(batch_norm_impl_index));
  registrar.composite<at::_ops::grid_sampler>(TORCH_FN(grid_sampler));
}

} // namespace flagos
