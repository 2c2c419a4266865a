// SPDX-License-Identifier: Apache-2.0
// The gradient of group normalization over channels_last memory, of which torch asks whether it is on the CPU: only
// there does the kernel get the memory as it is (tools/autograd/derivatives.yaml, native_group_norm); elsewhere it gets
// contiguous copies, and sums have another order.
#include <ATen/FuncTorchTLS.h>
#include <ATen/ops/native_group_norm.h>
#include <ATen/ops/native_group_norm_backward.h>
#include <ATen/ops/native_group_norm_ops.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/library.h>

#include <array>
#include <tuple>
#include <vector>

#include "host/register.h"

namespace flagos {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using OptionalTensor = std::optional<at::Tensor>;

struct Shape {
  c10::SymInt n;
  c10::SymInt c;
  c10::SymInt hxw;
  int64_t groups;
};

// torch's own kernel above autograd.
std::tuple<at::Tensor, at::Tensor, at::Tensor> torchs(
    c10::DispatchKeySet keys,
    const at::Tensor& input,
    const OptionalTensor& weight,
    const OptionalTensor& bias,
    const Shape& shape,
    double eps) {
  const c10::DispatchKeySet below = keys & c10::after_ADInplaceOrView_keyset;
  return at::_ops::native_group_norm::redispatch(
      below | c10::DispatchKeySet(c10::DispatchKey::AutogradOther),
      input,
      weight,
      bias,
      shape.n,
      shape.c,
      shape.hxw,
      shape.groups,
      eps);
}

class GroupNorm : public torch::autograd::Function<GroupNorm> {
 public:
  static variable_list forward(
      AutogradContext* context,
      const at::Tensor& input,
      const OptionalTensor& weight,
      const OptionalTensor& bias,
      const Shape& shape,
      double eps) {
    const at::AutoDispatchBelowADInplaceOrView below;
    auto [output, mean, rstd] =
        at::native_group_norm_symint(input, weight, bias, shape.n, shape.c, shape.hxw, shape.groups, eps);
    context->save_for_backward({input, weight.value_or(at::Tensor()), bias.value_or(at::Tensor()), mean, rstd});
    context->set_materialize_grads(false);
    context->saved_data["n"] = shape.n;
    context->saved_data["c"] = shape.c;
    context->saved_data["hxw"] = shape.hxw;
    context->saved_data["groups"] = shape.groups;
    context->saved_data["eps"] = eps;
    return {output, mean, rstd};
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const variable_list saved = context->get_saved_variables();
    auto& data = context->saved_data;
    const Shape shape{data["n"].toSymInt(), data["c"].toSymInt(), data["hxw"].toSymInt(), data["groups"].toInt()};
    variable_list found;
    if (c10::GradMode::is_enabled() || grads[1].defined() || grads[2].defined()) {
      found = through_torch(saved, grads, shape, data["eps"].toDouble());
    } else if (grads[0].defined()) {
      const auto format = saved[0].suggest_memory_format();
      // The CPU's kernel for channels_last writes the gradient of the input even if it is not wanted, and crashes.
      const std::array<bool, 3> wanted{true, saved[1].defined(), saved[2].defined()};
      const auto [input, weight, bias] = at::native_group_norm_backward_symint(
          grads[0].contiguous(format),
          saved[0].contiguous(format),
          saved[3],
          saved[4],
          saved[1],
          shape.n,
          shape.c,
          shape.hxw,
          shape.groups,
          wanted);
      found = {saved[0].requires_grad() ? input : at::Tensor(), weight, bias};
    }
    found.resize(5); // none for the shape and eps
    return found;
  }

 private:
  // By torch's formula, which has gradients itself.
  static variable_list
  through_torch(const variable_list& saved, const variable_list& grads, const Shape& shape, double eps) {
    const bool create_graph = c10::GradMode::is_enabled();
    const c10::AutoGradMode enabled(true);
    const auto optional = [](const at::Tensor& tensor) {
      return tensor.defined() ? OptionalTensor(tensor) : std::nullopt;
    };
    const auto [output, mean, rstd] =
        torchs(saved[0].key_set(), saved[0], optional(saved[1]), optional(saved[2]), shape, eps);
    const std::array<at::Tensor, 3> all{output, mean, rstd};
    variable_list outputs;
    variable_list defined;
    for (size_t i = 0; i < all.size(); ++i) {
      if (grads[i].defined()) {
        outputs.push_back(all[i]);
        defined.push_back(grads[i]);
      }
    }
    variable_list inputs;
    std::vector<size_t> places;
    for (size_t i = 0; i < 3; ++i) {
      if (saved[i].defined() && saved[i].requires_grad()) {
        inputs.push_back(saved[i]);
        places.push_back(i);
      }
    }
    const variable_list computed = torch::autograd::grad(
        outputs, inputs, defined, /*retain_graph=*/create_graph, create_graph, /*allow_unused=*/true);
    variable_list found(3);
    for (size_t i = 0; i < places.size(); ++i) {
      found[places[i]] = computed[i];
    }
    return found;
  }
};

// Whether the call is within a transformation of functorch, which takes no function of C++.
bool is_transformed() {
  const auto& functorch = at::functorch::functorchTLSAccessor();
  if (functorch == nullptr) {
    return false;
  }
  try {
    functorch->checkSupportsCppAutogradFunction();
    return false;
  } catch (const c10::Error&) {
    return true;
  }
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> native_group_norm(
    c10::DispatchKeySet keys,
    const at::Tensor& input,
    const OptionalTensor& weight,
    const OptionalTensor& bias,
    c10::SymInt n,
    c10::SymInt c,
    c10::SymInt hxw,
    int64_t groups,
    double eps) {
  const Shape shape{std::move(n), std::move(c), std::move(hxw), groups};
  const auto has_tangent = [](const OptionalTensor& tensor) {
    return tensor.has_value() && tensor->defined() && tensor->_fw_grad(/*level=*/0).defined();
  };
  // Forward derivatives do not go through a function of C++ either.
  if (input.suggest_memory_format() == c10::MemoryFormat::Contiguous ||
      !torch::autograd::compute_requires_grad(input, weight, bias) || has_tangent(input) || has_tangent(weight) ||
      has_tangent(bias) || is_transformed()) {
    return torchs(keys, input, weight, bias, shape, eps);
  }
  const variable_list results = GroupNorm::apply(input, weight, bias, shape, eps);
  return {results[0], results[1], results[2]};
}

} // namespace

void register_group_norm(Registrar& registrar) {
  registrar.autograd().impl("native_group_norm", TORCH_FN(native_group_norm));
}

} // namespace flagos
