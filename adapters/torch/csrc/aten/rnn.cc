// SPDX-License-Identifier: Apache-2.0
// Recurrent layers on the host vendor, and on those that a library serves. torch's composites ask whether a tensor is
// on the CPU: only there do they multiply the inputs of all time steps at once and give LSTMs to oneDNN;
// elsewhere they call fused cells, which the CPU does not have. The composites here run the CPU's operators in the
// CPU's order, so results are equal to the last bit. A library's kernels serve these operators; oneDNN is the host's
// alone.

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mkldnn_rnn_layer.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "aten/register.h"
#include "runtime/native.h"

namespace flagos {

namespace {

// Weights of one layer and direction, in torch's order.
struct Weights {
  at::Tensor ih;
  at::Tensor hh;
  at::Tensor bias_ih;
  at::Tensor bias_hh;
  at::Tensor hr; // LSTM with projections

  at::Tensor input_gates(const at::Tensor& input) const {
    return at::linear(input, ih, optional(bias_ih));
  }
  at::Tensor hidden_gates(const at::Tensor& hidden) const {
    return at::linear(hidden, hh, optional(bias_hh));
  }

 private:
  static std::optional<at::Tensor> optional(const at::Tensor& bias) {
    return bias.defined() ? std::optional<at::Tensor>(bias) : std::nullopt;
  }
};

std::vector<Weights> gather_weights(at::TensorList params, bool biased, bool projected) {
  const size_t each = 2 + (biased ? 2 : 0) + (projected ? 1 : 0);
  TORCH_CHECK(params.size() % each == 0, "got an incorrect number of RNN parameters");
  std::vector<Weights> weights;
  for (size_t i = 0; i < params.size(); i += each) {
    Weights one{params[i], params[i + 1], {}, {}, {}};
    if (biased) {
      one.bias_ih = params[i + 2];
      one.bias_hh = params[i + 3];
    }
    if (projected) {
      one.hr = params[i + each - 1];
    }
    weights.push_back(std::move(one));
  }
  return weights;
}

// The state of one layer and direction: h, and c for an LSTM.
struct State {
  at::Tensor h;
  at::Tensor c;

  State slice(int64_t start, int64_t end) const {
    return {h.narrow(0, start, end - start), c.defined() ? c.narrow(0, start, end - start) : c};
  }
  static State concatenate(const std::vector<State>& states) {
    std::vector<at::Tensor> h;
    std::vector<at::Tensor> c;
    for (const State& state : states) {
      h.push_back(state.h);
      c.push_back(state.c);
    }
    return {at::cat(h, 0), c.front().defined() ? at::cat(c, 0) : at::Tensor()};
  }
};

// Computes the state after one time step. `input_gates` are the step's inputs, already multiplied by their weights.
using Step = State (*)(const at::Tensor& input_gates, const State& state, const Weights& weights);

State tanh_step(const at::Tensor& input_gates, const State& state, const Weights& weights) {
  return {at::tanh(weights.hidden_gates(state.h).add_(input_gates)), {}};
}

State relu_step(const at::Tensor& input_gates, const State& state, const Weights& weights) {
  return {at::relu(weights.hidden_gates(state.h).add_(input_gates)), {}};
}

// Splits the gates of a cell. Throws if the weights have another number of rows.
std::vector<at::Tensor> chunk_gates(const at::Tensor& gates, int64_t count) {
  auto chunks = gates.unsafe_chunk(count, 1);
  TORCH_CHECK(
      static_cast<int64_t>(chunks.size()) == count && gates.size(1) % count == 0,
      "weights of a recurrent layer must have ",
      count,
      " * hidden_size rows, got ",
      gates.size(1));
  return chunks;
}

State gru_step(const at::Tensor& input_gates, const State& state, const Weights& weights) {
  const auto input = chunk_gates(input_gates, 3);
  auto hidden = chunk_gates(weights.hidden_gates(state.h), 3);
  const at::Tensor reset = hidden[0].add_(input[0]).sigmoid_();
  const at::Tensor update = hidden[1].add_(input[1]).sigmoid_();
  const at::Tensor fresh = input[2].add(hidden[2].mul_(reset)).tanh_();
  return {(state.h - fresh).mul_(update).add_(fresh), {}};
}

State lstm_step(const at::Tensor& input_gates, const State& state, const Weights& weights) {
  auto gates = chunk_gates(weights.hidden_gates(state.h).add_(input_gates), 4);
  const at::Tensor in = gates[0].sigmoid_();
  const at::Tensor forget = gates[1].sigmoid_();
  const at::Tensor fresh = gates[2].tanh_();
  const at::Tensor out = gates[3].sigmoid_();
  at::Tensor c = (forget * state.c).add_(in * fresh);
  at::Tensor h = out * c.tanh();
  if (weights.hr.defined()) {
    h = at::linear(h, weights.hr);
  }
  return {h, c};
}

// The outputs of one direction of one layer, as one tensor, and its last state.
struct LayerResult {
  at::Tensor output;
  State last;
};

// input: [steps, batch, features].
LayerResult run_full(const at::Tensor& input, State state, const Weights& weights, Step step, bool reverse) {
  auto gates = weights.input_gates(input).unbind(0);
  TORCH_CHECK(!gates.empty(), "Expected sequence length to be larger than 0 in RNN");
  if (reverse) {
    std::reverse(gates.begin(), gates.end());
  }
  std::vector<at::Tensor> outputs;
  outputs.reserve(gates.size());
  for (const at::Tensor& input_gates : gates) {
    state = step(input_gates, state, weights);
    outputs.push_back(state.h);
  }
  if (reverse) {
    std::reverse(outputs.begin(), outputs.end());
  }
  return {at::stack(outputs, 0), state};
}

// data: the steps of a packed sequence one after the other, [sum of batch sizes, features]. Batch sizes never grow.
LayerResult run_packed(
    const at::Tensor& data,
    at::ArrayRef<int64_t> sizes,
    const State& initial,
    const Weights& weights,
    Step step) {
  const at::Tensor gates = weights.input_gates(data);
  std::vector<at::Tensor> outputs;
  std::vector<State> finished; // states of sequences that ended, shortest sequence first
  State state = initial;
  int64_t offset = 0;
  int64_t running = sizes.front();
  for (const int64_t size : sizes) {
    if (size < running) {
      finished.push_back(state.slice(size, running));
      state = state.slice(0, size);
      running = size;
    }
    state = step(gates.narrow(0, offset, size), state, weights);
    offset += size;
    outputs.push_back(state.h);
  }
  finished.push_back(state);
  std::reverse(finished.begin(), finished.end());
  return {at::cat(outputs, 0), State::concatenate(finished)};
}

LayerResult run_packed_reversed(
    const at::Tensor& data,
    at::ArrayRef<int64_t> sizes,
    const State& initial,
    const Weights& weights,
    Step step) {
  const at::Tensor gates = weights.input_gates(data);
  std::vector<at::Tensor> outputs;
  int64_t offset = data.size(0);
  int64_t running = sizes.back();
  State state = initial.slice(0, running);
  for (auto size = sizes.rbegin(); size != sizes.rend(); ++size) {
    if (*size > running) { // sequences that end at this step join
      state = State::concatenate({state, initial.slice(running, *size)});
      running = *size;
    }
    offset -= *size;
    state = step(gates.narrow(0, offset, *size), state, weights);
    outputs.push_back(state.h);
  }
  std::reverse(outputs.begin(), outputs.end());
  return {at::cat(outputs, 0), state};
}

struct Options {
  bool biased;
  int64_t num_layers;
  double dropout;
  bool train;
  bool bidirectional;

  int64_t directions() const {
    return bidirectional ? 2 : 1;
  }
};

// The output of the last layer and the last states of all layers and directions; `c` is defined for LSTMs only.
struct StackResult {
  at::Tensor output;
  at::Tensor h;
  at::Tensor c;
};

// Runs the layers one after the other. `run_layer(input, index, reverse)` runs one direction of one layer, whose
// weights and state are those at `index`.
template <class RunLayer>
StackResult run_layers(at::Tensor input, const Options& options, const RunLayer& run_layer) {
  std::vector<at::Tensor> h;
  std::vector<at::Tensor> c;
  for (int64_t layer = 0; layer < options.num_layers; ++layer) {
    std::vector<at::Tensor> outputs;
    for (int64_t direction = 0; direction < options.directions(); ++direction) {
      const auto index = static_cast<size_t>(layer * options.directions() + direction);
      LayerResult result = run_layer(input, index, direction == 1);
      outputs.push_back(result.output);
      h.push_back(result.last.h);
      c.push_back(result.last.c);
    }
    input = outputs.size() == 1 ? outputs[0] : at::cat(outputs, outputs[0].dim() - 1);
    if (options.dropout != 0 && options.train && layer < options.num_layers - 1) {
      input = at::dropout(input, options.dropout, /*train=*/true);
    }
  }
  return {input, at::stack(h, 0), c.front().defined() ? at::stack(c, 0) : at::Tensor()};
}

// `sizes` is empty for full sequences, [steps, batch, features], else the batch sizes of a packed one. `cx` is defined
// for LSTMs only.
StackResult run_steps(
    const at::Tensor& input,
    at::ArrayRef<int64_t> sizes,
    const at::Tensor& hx,
    const at::Tensor& cx,
    at::TensorList params,
    const Options& options,
    Step step) {
  const bool projected = cx.defined() && hx.size(2) != cx.size(2);
  const auto weights = gather_weights(params, options.biased, projected);
  TORCH_CHECK(
      static_cast<int64_t>(weights.size()) == options.num_layers * options.directions(),
      "expected weights for ",
      options.num_layers * options.directions(),
      " RNN layers and directions, got ",
      weights.size());
  const auto h0 = hx.unbind(0);
  const auto c0 = cx.defined() ? cx.unbind(0) : std::vector<at::Tensor>(h0.size());
  return run_layers(input, options, [&](const at::Tensor& layer_input, size_t index, bool reverse) {
    const State state{h0[index], c0[index]};
    return sizes.empty() ? run_full(layer_input, state, weights[index], step, reverse)
        : reverse        ? run_packed_reversed(layer_input, sizes, state, weights[index], step)
                         : run_packed(layer_input, sizes, state, weights[index], step);
  });
}

// Whether this processor has what oneDNN needs for a dtype, as torch's operator `name` answers.
bool processor_has(const char* name) {
  const auto op = c10::Dispatcher::singleton().findSchema({name, ""});
  return op.has_value() && op->typed<bool()>().call();
}

// Whether torch runs LSTMs of a dtype with oneDNN on the CPU (aten/src/ATen/native/RNN.cpp, use_mkldnn).
bool onednn_takes(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return true;
    case at::kBFloat16: {
      static const bool has_bfloat16 = processor_has("mkldnn::_is_mkldnn_bf16_supported");
      return has_bfloat16;
    }
    case at::kHalf: {
      static const bool has_half = processor_has("mkldnn::_is_mkldnn_fp16_supported");
      return has_half && !c10::GradMode::is_enabled();
    }
    default:
      return false;
  }
}

// Whether torch runs this LSTM with oneDNN on the CPU.
bool uses_onednn(const at::Tensor& input, const at::Tensor& hx, const at::Tensor& cx) {
  return native->host_computes() && at::globalContext().userEnabledMkldnn() && at::globalContext().hasMKLDNN() &&
      hx.size(2) == cx.size(2) && onednn_takes(input.scalar_type()) && input.numel() != 0 && input.dim() == 3;
}

// input: [steps, batch, features].
StackResult run_onednn_lstm(
    const at::Tensor& input,
    const at::Tensor& hx,
    const at::Tensor& cx,
    at::TensorList params,
    const Options& options,
    bool batch_first) {
  constexpr int64_t kLstm = 2; // ideep's rnn_kind
  const auto weights = gather_weights(params, options.biased, /*projected=*/false);
  const at::Tensor h0 = hx.contiguous();
  const at::Tensor c0 = cx.contiguous();
  const auto bias = [](const at::Tensor& given, const at::Tensor& weight) {
    return given.defined() ? given : at::zeros(weight.sizes(), weight.options());
  };
  return run_layers(input.contiguous(), options, [&](const at::Tensor& layer_input, size_t index, bool reverse) {
    const Weights& one = weights.at(index);
    auto [output, h, c, workspace] = at::mkldnn_rnn_layer(
        layer_input,
        one.ih,
        one.hh,
        bias(one.bias_ih, one.ih),
        bias(one.bias_hh, one.hh),
        h0[static_cast<int64_t>(index)],
        c0[static_cast<int64_t>(index)],
        reverse,
        /*batch_sizes=*/{},
        kLstm,
        h0.size(-1),
        options.num_layers,
        options.biased,
        options.bidirectional,
        batch_first,
        options.train);
    return LayerResult{output, {h, c}};
  });
}

StackResult run_sequences(
    const at::Tensor& input,
    const at::Tensor& hx,
    const at::Tensor& cx,
    at::TensorList params,
    const Options& options,
    bool batch_first,
    Step step) {
  const at::Tensor steps = batch_first ? input.transpose(0, 1) : input;
  StackResult result = cx.defined() && uses_onednn(input, hx, cx)
      ? run_onednn_lstm(steps, hx, cx, params, options, batch_first)
      : run_steps(steps, {}, hx, cx, params, options, step);
  if (batch_first) {
    result.output = result.output.transpose(0, 1);
  }
  return result;
}

StackResult run_packed_sequences(
    const at::Tensor& data,
    const at::Tensor& batch_sizes,
    const at::Tensor& hx,
    const at::Tensor& cx,
    at::TensorList params,
    const Options& options,
    Step step) {
  TORCH_CHECK(
      batch_sizes.is_cpu() && batch_sizes.scalar_type() == at::kLong && batch_sizes.dim() == 1 &&
          batch_sizes.is_contiguous() && batch_sizes.size(0) > 0,
      "the batch sizes of a packed sequence must be a contiguous 1-D int64 tensor on the CPU, not empty");
  const at::ArrayRef<int64_t> sizes(batch_sizes.const_data_ptr<int64_t>(), static_cast<size_t>(batch_sizes.size(0)));
  return run_steps(data, sizes, hx, cx, params, options, step);
}

// The operators, in torch's order of arguments.

template <class Op, Step kStep>
std::tuple<at::Tensor, at::Tensor> full(
    const at::Tensor& input,
    const at::Tensor& hx,
    at::TensorList params,
    bool biased,
    int64_t num_layers,
    double dropout,
    bool train,
    bool bidirectional,
    bool batch_first) {
  Slot<Op>::enter();
  const Options options{biased, num_layers, dropout, train, bidirectional};
  auto result = run_sequences(input, hx, {}, params, options, batch_first, kStep);
  return {result.output, result.h};
}

template <class Op, Step kStep>
std::tuple<at::Tensor, at::Tensor> packed(
    const at::Tensor& data,
    const at::Tensor& batch_sizes,
    const at::Tensor& hx,
    at::TensorList params,
    bool biased,
    int64_t num_layers,
    double dropout,
    bool train,
    bool bidirectional) {
  Slot<Op>::enter();
  const Options options{biased, num_layers, dropout, train, bidirectional};
  auto result = run_packed_sequences(data, batch_sizes, hx, {}, params, options, kStep);
  return {result.output, result.h};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> full_lstm(
    const at::Tensor& input,
    at::TensorList hx,
    at::TensorList params,
    bool biased,
    int64_t num_layers,
    double dropout,
    bool train,
    bool bidirectional,
    bool batch_first) {
  Slot<at::_ops::lstm_input>::enter();
  TORCH_CHECK(hx.size() == 2, "lstm expects two hidden states");
  const Options options{biased, num_layers, dropout, train, bidirectional};
  auto result = run_sequences(input, hx[0], hx[1], params, options, batch_first, lstm_step);
  return {result.output, result.h, result.c};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> packed_lstm(
    const at::Tensor& data,
    const at::Tensor& batch_sizes,
    at::TensorList hx,
    at::TensorList params,
    bool biased,
    int64_t num_layers,
    double dropout,
    bool train,
    bool bidirectional) {
  Slot<at::_ops::lstm_data>::enter();
  TORCH_CHECK(hx.size() == 2, "lstm expects two hidden states");
  const Options options{biased, num_layers, dropout, train, bidirectional};
  auto result = run_packed_sequences(data, batch_sizes, hx[0], hx[1], params, options, lstm_step);
  return {result.output, result.h, result.c};
}

// torch's checks of a single step with its messages (aten/src/ATen/native/RNN.cpp).
void check_step(
    const at::Tensor& input,
    at::TensorList hidden,
    const at::Tensor& w_ih,
    const at::Tensor& w_hh,
    int64_t gates) {
  TORCH_CHECK(
      input.size(1) == w_ih.size(1),
      "input has inconsistent input_size: got ",
      input.size(1),
      " expected ",
      w_ih.size(1));
  const int64_t size = w_hh.size(1);
  for (size_t i = 0; i < hidden.size(); ++i) {
    TORCH_CHECK(
        input.size(0) == hidden[i].size(0),
        "Input batch size ",
        input.size(0),
        " doesn't match hidden",
        i,
        " batch size ",
        hidden[i].size(0));
    TORCH_CHECK(
        hidden[i].size(1) == size,
        "hidden",
        i,
        " has inconsistent hidden_size: got ",
        hidden[i].size(1),
        ", expected ",
        size);
  }
  const auto rows = [&](const at::Tensor& weight, const char* name) {
    TORCH_CHECK(
        weight.size(0) == gates * size,
        name,
        " first dim must be ",
        gates,
        " * hidden_size = ",
        gates * size,
        ", but got ",
        weight.size(0));
  };
  rows(w_ih, "weight_ih");
  rows(w_hh, "weight_hh");
}

std::tuple<at::Tensor, at::Tensor> single_lstm_step(
    const at::Tensor& input,
    at::TensorList hx,
    const at::Tensor& w_ih,
    const at::Tensor& w_hh,
    const std::optional<at::Tensor>& b_ih,
    const std::optional<at::Tensor>& b_hh) {
  Slot<at::_ops::lstm_cell>::enter();
  TORCH_CHECK(hx.size() == 2, "lstm_cell expects two hidden states");
  check_step(input, hx, w_ih, w_hh, 4);
  const Weights weights{w_ih, w_hh, b_ih.value_or(at::Tensor()), b_hh.value_or(at::Tensor()), {}};
  // The input's gates before the hidden ones: autograd adds gradients of shared inputs in the order of use.
  State state = lstm_step(weights.input_gates(input), {hx[0], hx[1]}, weights);
  return {state.h, state.c};
}

at::Tensor single_gru_step(
    const at::Tensor& input,
    const at::Tensor& hx,
    const at::Tensor& w_ih,
    const at::Tensor& w_hh,
    const std::optional<at::Tensor>& b_ih,
    const std::optional<at::Tensor>& b_hh) {
  Slot<at::_ops::gru_cell>::enter();
  check_step(input, hx, w_ih, w_hh, 3);
  const Weights weights{w_ih, w_hh, b_ih.value_or(at::Tensor()), b_hh.value_or(at::Tensor()), {}};
  return gru_step(weights.input_gates(input), {hx, {}}, weights).h;
}

} // namespace

void register_rnn(Registrar& registrar) {
  using namespace at::_ops;
  registrar.composite<rnn_tanh_input>(TORCH_FN((full<rnn_tanh_input, tanh_step>)));
  registrar.composite<rnn_tanh_data>(TORCH_FN((packed<rnn_tanh_data, tanh_step>)));
  registrar.composite<rnn_relu_input>(TORCH_FN((full<rnn_relu_input, relu_step>)));
  registrar.composite<rnn_relu_data>(TORCH_FN((packed<rnn_relu_data, relu_step>)));
  registrar.composite<gru_input>(TORCH_FN((full<gru_input, gru_step>)));
  registrar.composite<gru_data>(TORCH_FN((packed<gru_data, gru_step>)));
  registrar.composite<at::_ops::gru_cell>(TORCH_FN(single_gru_step));
  registrar.composite<lstm_input>(TORCH_FN(full_lstm));
  registrar.composite<lstm_data>(TORCH_FN(packed_lstm));
  registrar.composite<at::_ops::lstm_cell>(TORCH_FN(single_lstm_step));
}

} // namespace flagos
