// SPDX-License-Identifier: Apache-2.0
// The operators of tensors without all of ATen.
#define AT_PER_OPERATOR_HEADERS

#include "rnn.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/mkldnn_rnn_layer.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "route.h"

namespace flagos {

namespace {

using Tensors3 = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

FlagosOpSlot* lstm_slot = nullptr;
FlagosOpSlot* lstm_cell_slot = nullptr;
FlagosOpSlot* lstm_cell_backward_slot = nullptr;
FlagosOpSlot* gru_cell_slot = nullptr;
FlagosOpSlot* gru_cell_backward_slot = nullptr;

bool all_on_flagos(at::TensorList tensors) {
  return std::all_of(
      tensors.begin(), tensors.end(), [](const at::Tensor& tensor) { return tensor.is_privateuseone(); });
}

// When torch would take oneDNN's LSTM for the same tensors on the CPU.
bool uses_onednn(const at::Tensor& input, at::TensorList hx, at::TensorList params, bool has_biases) {
  const bool projected = hx[0].size(2) != hx[1].size(2);
  return at::globalContext().userEnabledMkldnn() && at::globalContext().hasMKLDNN() && !projected &&
      input.scalar_type() == at::kFloat && input.numel() != 0 && input.dim() == 3 && all_on_flagos(params) &&
      all_on_flagos(hx) && params.size() % (has_biases ? 4 : 2) == 0;
}

// The layers of oneDNN's LSTM, one operator call for each layer and direction.
Tensors3 onednn_lstm(
    const at::Tensor& input,
    at::TensorList hx,
    at::TensorList params,
    bool has_biases,
    int64_t num_layers,
    double dropout,
    bool train,
    bool bidirectional,
    bool batch_first) {
  constexpr int64_t kLstm = 2; // ideep's rnn_kind
  const int64_t directions = bidirectional ? 2 : 1;
  const int64_t per_layer = has_biases ? 4 : 2;
  TORCH_CHECK(
      static_cast<int64_t>(params.size()) == num_layers * directions * per_layer,
      "lstm: expected ",
      num_layers * directions * per_layer,
      " parameters, got ",
      params.size());
  const at::Tensor h0 = hx[0].contiguous();
  const at::Tensor c0 = hx[1].contiguous();
  const int64_t hidden_size = h0.size(-1);
  at::Tensor layer_input = (batch_first ? input.transpose(0, 1) : input).contiguous();
  std::vector<at::Tensor> hy;
  std::vector<at::Tensor> cy;
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    std::vector<at::Tensor> outputs;
    for (int64_t direction = 0; direction < directions; ++direction) {
      const int64_t index = layer * directions + direction;
      const auto weights = params.slice(static_cast<size_t>(index * per_layer), static_cast<size_t>(per_layer));
      const at::Tensor bias_ih = has_biases ? weights[2] : at::zeros(weights[0].sizes(), weights[0].options());
      const at::Tensor bias_hh = has_biases ? weights[3] : at::zeros(weights[1].sizes(), weights[1].options());
      auto result = at::mkldnn_rnn_layer(
          layer_input,
          weights[0],
          weights[1],
          bias_ih,
          bias_hh,
          h0[index],
          c0[index],
          /*reverse=*/direction > 0,
          /*batch_sizes=*/{},
          kLstm,
          hidden_size,
          num_layers,
          has_biases,
          bidirectional,
          batch_first,
          train);
      outputs.push_back(std::get<0>(result));
      hy.push_back(std::get<1>(result));
      cy.push_back(std::get<2>(result));
    }
    layer_input = directions == 1 ? outputs[0] : at::cat(outputs, -1);
    if (dropout != 0 && train && layer < num_layers - 1) {
      layer_input = at::dropout(layer_input, dropout, /*train=*/true);
    }
  }
  at::Tensor output = batch_first ? layer_input.transpose(0, 1) : layer_input;
  return {output, at::stack(hy, 0), at::stack(cy, 0)};
}

Tensors3 lstm(
    const at::Tensor& input,
    at::TensorList hx,
    at::TensorList params,
    bool has_biases,
    int64_t num_layers,
    double dropout,
    bool train,
    bool bidirectional,
    bool batch_first) {
  enter_op(lstm_slot, "aten::lstm.input");
  TORCH_CHECK(hx.size() == 2, "lstm expects two hidden states");
  if (uses_onednn(input, hx, params, has_biases)) {
    return onednn_lstm(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first);
  }
  return at::native::lstm(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first);
}

// torch fuses the pointwise part of an LSTM cell on accelerators; the CPU has no such kernel, so it is composed.
// gates = input + hidden (+ biases), in the order i, f, g, o; the workspace keeps the activated gates.
Tensors3 lstm_cell(
    const at::Tensor& input_gates,
    const at::Tensor& hidden_gates,
    const at::Tensor& cx,
    const std::optional<at::Tensor>& input_bias,
    const std::optional<at::Tensor>& hidden_bias) {
  enter_op(lstm_cell_slot, "aten::_thnn_fused_lstm_cell");
  at::Tensor gates = input_gates + hidden_gates;
  if (input_bias.has_value() && input_bias->defined()) {
    gates = gates + *input_bias + *hidden_bias;
  }
  const auto chunks = gates.chunk(4, 1);
  const at::Tensor in = at::sigmoid(chunks[0]);
  const at::Tensor forget = at::sigmoid(chunks[1]);
  const at::Tensor cell = at::tanh(chunks[2]);
  const at::Tensor out = at::sigmoid(chunks[3]);
  at::Tensor cy = forget * cx + in * cell;
  at::Tensor hy = out * at::tanh(cy);
  return {hy, cy, at::cat({in, forget, cell, out}, 1)};
}

Tensors3 lstm_cell_backward(
    const std::optional<at::Tensor>& grad_hy,
    const std::optional<at::Tensor>& grad_cy,
    const at::Tensor& cx,
    const at::Tensor& cy,
    const at::Tensor& workspace,
    bool has_bias) {
  enter_op(lstm_cell_backward_slot, "aten::_thnn_fused_lstm_cell_backward_impl");
  const auto gates = workspace.chunk(4, 1);
  const at::Tensor& in = gates[0];
  const at::Tensor& forget = gates[1];
  const at::Tensor& cell = gates[2];
  const at::Tensor& out = gates[3];
  const at::Tensor tanh_cy = at::tanh(cy);
  const bool has_hy = grad_hy.has_value() && grad_hy->defined();
  const bool has_cy = grad_cy.has_value() && grad_cy->defined();
  at::Tensor to_cy = has_cy ? *grad_cy : at::zeros_like(cx);
  at::Tensor to_out = at::zeros_like(out);
  if (has_hy) {
    to_cy = to_cy + *grad_hy * out * (1 - tanh_cy * tanh_cy);
    to_out = *grad_hy * tanh_cy * out * (1 - out);
  }
  at::Tensor grad_gates = at::cat(
      {to_cy * cell * in * (1 - in), to_cy * cx * forget * (1 - forget), to_cy * in * (1 - cell * cell), to_out}, 1);
  at::Tensor grad_bias = has_bias ? grad_gates.sum(0) : at::Tensor();
  return {grad_gates, to_cy * forget, grad_bias};
}

// gates in the order reset, update, new; the workspace keeps reset, update, new, hx and the hidden part of new.
std::tuple<at::Tensor, at::Tensor> gru_cell(
    const at::Tensor& input_gates,
    const at::Tensor& hidden_gates,
    const at::Tensor& hx,
    const std::optional<at::Tensor>& input_bias,
    const std::optional<at::Tensor>& hidden_bias) {
  enter_op(gru_cell_slot, "aten::_thnn_fused_gru_cell");
  const bool biased = input_bias.has_value() && input_bias->defined();
  const auto input = (biased ? input_gates + *input_bias : input_gates).chunk(3, 1);
  const auto hidden = (biased ? hidden_gates + *hidden_bias : hidden_gates).chunk(3, 1);
  const at::Tensor reset = at::sigmoid(input[0] + hidden[0]);
  const at::Tensor update = at::sigmoid(input[1] + hidden[1]);
  const at::Tensor fresh = at::tanh(input[2] + reset * hidden[2]);
  at::Tensor hy = fresh + update * (hx - fresh);
  return {hy, at::cat({reset, update, fresh, hx, hidden[2]}, 1)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>
gru_cell_backward(const at::Tensor& grad_hy, const at::Tensor& workspace, bool has_bias) {
  enter_op(gru_cell_backward_slot, "aten::_thnn_fused_gru_cell_backward");
  const auto saved = workspace.chunk(5, 1);
  const at::Tensor& reset = saved[0];
  const at::Tensor& update = saved[1];
  const at::Tensor& fresh = saved[2];
  const at::Tensor& hx = saved[3];
  const at::Tensor& hidden_new = saved[4];
  const at::Tensor grad_update = grad_hy * (hx - fresh) * update * (1 - update);
  const at::Tensor grad_new = grad_hy * (1 - update) * (1 - fresh * fresh);
  const at::Tensor grad_reset = grad_new * hidden_new * reset * (1 - reset);
  at::Tensor grad_input = at::cat({grad_reset, grad_update, grad_new}, 1);
  at::Tensor grad_hidden = at::cat({grad_reset, grad_update, grad_new * reset}, 1);
  at::Tensor grad_hx = grad_hy * update;
  at::Tensor grad_input_bias = has_bias ? grad_input.sum(0) : at::Tensor();
  at::Tensor grad_hidden_bias = has_bias ? grad_hidden.sum(0) : at::Tensor();
  return {grad_input, grad_hidden, grad_hx, grad_input_bias, grad_hidden_bias};
}

} // namespace

void register_rnn(torch::Library& library, torch::Library& autograd, std::vector<std::string>& registered) {
  const auto add = [&](FlagosOpSlot*& slot, const char* name) {
    slot = op_slot(name);
    registered.emplace_back(name);
  };
  add(lstm_slot, "aten::lstm.input");
  // A composite: below autograd in inference mode, above it otherwise.
  library.impl("lstm.input", TORCH_FN(lstm));
  autograd.impl("lstm.input", TORCH_FN(lstm));
  add(lstm_cell_slot, "aten::_thnn_fused_lstm_cell");
  library.impl("_thnn_fused_lstm_cell", TORCH_FN(lstm_cell));
  add(lstm_cell_backward_slot, "aten::_thnn_fused_lstm_cell_backward_impl");
  library.impl("_thnn_fused_lstm_cell_backward_impl", TORCH_FN(lstm_cell_backward));
  add(gru_cell_slot, "aten::_thnn_fused_gru_cell");
  library.impl("_thnn_fused_gru_cell", TORCH_FN(gru_cell));
  add(gru_cell_backward_slot, "aten::_thnn_fused_gru_cell_backward");
  library.impl("_thnn_fused_gru_cell_backward", TORCH_FN(gru_cell_backward));
}

} // namespace flagos
