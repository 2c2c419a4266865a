// SPDX-License-Identifier: Apache-2.0
// Recurrent layers are composites in which torch asks for the CPU by name: there it multiplies the inputs of all time
// steps at once, and hands float LSTMs to oneDNN; elsewhere it expects fused cells that the CPU does not have.
// These composites are the CPU's arithmetic, operator for operator, so that results are the CPU's to the last bit.
#define AT_PER_OPERATOR_HEADERS // the operators of tensors without all of ATen

#include "aten/register.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mkldnn_rnn_layer.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "aten/route.h"

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

// One step: the input's gates, already multiplied, and the state before give the state after.
using Cell = State (*)(const at::Tensor& input_gates, const State& state, const Weights& weights);

State tanh_cell(const at::Tensor& input_gates, const State& state, const Weights& weights) {
  return {at::tanh(weights.hidden_gates(state.h).add_(input_gates)), {}};
}

State relu_cell(const at::Tensor& input_gates, const State& state, const Weights& weights) {
  return {at::relu(weights.hidden_gates(state.h).add_(input_gates)), {}};
}

// The gates of a cell, or an error where the weights have another number of rows.
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

State gru_cell(const at::Tensor& input_gates, const State& state, const Weights& weights) {
  const auto input = chunk_gates(input_gates, 3);
  auto hidden = chunk_gates(weights.hidden_gates(state.h), 3);
  const at::Tensor reset = hidden[0].add_(input[0]).sigmoid_();
  const at::Tensor update = hidden[1].add_(input[1]).sigmoid_();
  const at::Tensor fresh = input[2].add(hidden[2].mul_(reset)).tanh_();
  return {(state.h - fresh).mul_(update).add_(fresh), {}};
}

State lstm_cell(const at::Tensor& input_gates, const State& state, const Weights& weights) {
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

// What one layer and direction gives: its outputs as one tensor, and its last state.
struct LayerResult {
  at::Tensor output;
  State last;
};

// input: [steps, batch, features].
LayerResult run_full(const at::Tensor& input, State state, const Weights& weights, Cell cell, bool reverse) {
  auto steps = weights.input_gates(input).unbind(0);
  TORCH_CHECK(!steps.empty(), "Expected sequence length to be larger than 0 in RNN");
  if (reverse) {
    std::reverse(steps.begin(), steps.end());
  }
  std::vector<at::Tensor> outputs;
  outputs.reserve(steps.size());
  for (const at::Tensor& step : steps) {
    state = cell(step, state, weights);
    outputs.push_back(state.h);
  }
  if (reverse) {
    std::reverse(outputs.begin(), outputs.end());
  }
  return {at::stack(outputs, 0), state};
}

// data: the steps of a packed sequence after one another, [sum of batch sizes, features]; sizes never grow.
LayerResult run_packed(
    const at::Tensor& data,
    at::ArrayRef<int64_t> sizes,
    const State& initial,
    const Weights& weights,
    Cell cell) {
  const at::Tensor gates = weights.input_gates(data);
  std::vector<at::Tensor> outputs;
  std::vector<State> finished; // states of sequences that ended, the last ones first
  State state = initial;
  int64_t offset = 0;
  int64_t running = sizes.front();
  for (const int64_t size : sizes) {
    if (size < running) {
      finished.push_back(state.slice(size, running));
      state = state.slice(0, size);
      running = size;
    }
    state = cell(gates.narrow(0, offset, size), state, weights);
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
    Cell cell) {
  const at::Tensor gates = weights.input_gates(data);
  std::vector<at::Tensor> outputs;
  int64_t offset = data.size(0);
  int64_t running = sizes.back();
  State state = initial.slice(0, running);
  for (auto size = sizes.rbegin(); size != sizes.rend(); ++size) {
    if (*size > running) { // sequences that end here join
      state = State::concatenate({state, initial.slice(running, *size)});
      running = *size;
    }
    offset -= *size;
    state = cell(gates.narrow(0, offset, *size), state, weights);
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
};

struct StackResult {
  at::Tensor output;
  at::Tensor h;
  at::Tensor c;
};

// All layers. `sizes` is empty for full sequences, else the batch sizes of a packed one. `cx` is undefined but for
// LSTMs.
StackResult run_stack(
    at::Tensor input,
    at::ArrayRef<int64_t> sizes,
    const at::Tensor& hx,
    const at::Tensor& cx,
    at::TensorList params,
    const Options& options,
    Cell cell) {
  const bool projected = cx.defined() && hx.size(2) != cx.size(2);
  const auto weights = gather_weights(params, options.biased, projected);
  const int64_t directions = options.bidirectional ? 2 : 1;
  TORCH_CHECK(
      static_cast<int64_t>(weights.size()) == options.num_layers * directions,
      "expected weights for ",
      options.num_layers * directions,
      " RNN layers and directions, got ",
      weights.size());
  const auto h0 = hx.unbind(0);
  const auto c0 = cx.defined() ? cx.unbind(0) : std::vector<at::Tensor>(h0.size());
  std::vector<at::Tensor> h;
  std::vector<at::Tensor> c;
  for (int64_t layer = 0; layer < options.num_layers; ++layer) {
    std::vector<at::Tensor> outputs;
    for (int64_t direction = 0; direction < directions; ++direction) {
      const auto index = static_cast<size_t>(layer * directions + direction);
      const State state{h0[index], c0[index]};
      LayerResult result = sizes.empty() ? run_full(input, state, weights[index], cell, direction == 1)
          : direction == 1               ? run_packed_reversed(input, sizes, state, weights[index], cell)
                                         : run_packed(input, sizes, state, weights[index], cell);
      outputs.push_back(result.output);
      h.push_back(result.last.h);
      c.push_back(result.last.c);
    }
    input = directions == 1 ? outputs[0] : at::cat(outputs, outputs[0].dim() - 1);
    if (options.dropout != 0 && options.train && layer < options.num_layers - 1) {
      input = at::dropout(input, options.dropout, /*train=*/true);
    }
  }
  return {input, at::stack(h, 0), cx.defined() ? at::stack(c, 0) : at::Tensor()};
}

StackResult run_full_stack(
    const at::Tensor& input,
    const at::Tensor& hx,
    const at::Tensor& cx,
    at::TensorList params,
    const Options& options,
    bool batch_first,
    Cell cell) {
  StackResult result = run_stack(batch_first ? input.transpose(0, 1) : input, {}, hx, cx, params, options, cell);
  if (batch_first) {
    result.output = result.output.transpose(0, 1);
  }
  return result;
}

at::ArrayRef<int64_t> read_sizes(const at::Tensor& batch_sizes) {
  TORCH_CHECK(
      batch_sizes.is_cpu() && batch_sizes.scalar_type() == at::kLong && batch_sizes.dim() == 1 &&
          batch_sizes.is_contiguous() && batch_sizes.size(0) > 0,
      "the batch sizes of a packed sequence must be a contiguous 1-D int64 tensor on the CPU, not empty");
  return {batch_sizes.const_data_ptr<int64_t>(), static_cast<size_t>(batch_sizes.size(0))};
}

// When torch takes oneDNN's LSTM for the same tensors on the CPU.
bool uses_onednn(const at::Tensor& input, at::TensorList hx) {
  return at::globalContext().userEnabledMkldnn() && at::globalContext().hasMKLDNN() && hx[0].size(2) == hx[1].size(2) &&
      input.scalar_type() == at::kFloat && input.numel() != 0 && input.dim() == 3;
}

StackResult onednn_lstm(
    const at::Tensor& input,
    at::TensorList hx,
    at::TensorList params,
    const Options& options,
    bool batch_first) {
  constexpr int64_t kLstm = 2; // ideep's rnn_kind
  const auto weights = gather_weights(params, options.biased, /*projected=*/false);
  const int64_t directions = options.bidirectional ? 2 : 1;
  const at::Tensor h0 = hx[0].contiguous();
  const at::Tensor c0 = hx[1].contiguous();
  const auto bias = [](const at::Tensor& given, const at::Tensor& weight) {
    return given.defined() ? given : at::zeros(weight.sizes(), weight.options());
  };
  at::Tensor layer_input = (batch_first ? input.transpose(0, 1) : input).contiguous();
  std::vector<at::Tensor> h;
  std::vector<at::Tensor> c;
  for (int64_t layer = 0; layer < options.num_layers; ++layer) {
    std::vector<at::Tensor> outputs;
    for (int64_t direction = 0; direction < directions; ++direction) {
      const int64_t index = layer * directions + direction;
      const Weights& one = weights.at(static_cast<size_t>(index));
      auto result = at::mkldnn_rnn_layer(
          layer_input,
          one.ih,
          one.hh,
          bias(one.bias_ih, one.ih),
          bias(one.bias_hh, one.hh),
          h0[index],
          c0[index],
          /*reverse=*/direction == 1,
          /*batch_sizes=*/{},
          kLstm,
          h0.size(-1),
          options.num_layers,
          options.biased,
          options.bidirectional,
          batch_first,
          options.train);
      outputs.push_back(std::get<0>(result));
      h.push_back(std::get<1>(result));
      c.push_back(std::get<2>(result));
    }
    layer_input = directions == 1 ? outputs[0] : at::cat(outputs, -1);
    if (options.dropout != 0 && options.train && layer < options.num_layers - 1) {
      layer_input = at::dropout(layer_input, options.dropout, /*train=*/true);
    }
  }
  return {batch_first ? layer_input.transpose(0, 1) : layer_input, at::stack(h, 0), at::stack(c, 0)};
}

// The operators, each with its slot. `kCell` and `kName` make one function for each.
template <Cell kCell>
struct Named {
  static inline FlagosOpSlot* full = nullptr;
  static inline FlagosOpSlot* packed = nullptr;
  static inline FlagosOpSlot* step = nullptr;
  static inline std::string full_name;
  static inline std::string packed_name;
  static inline std::string step_name;
};

template <Cell kCell>
std::tuple<at::Tensor, at::Tensor> rnn_input(
    const at::Tensor& input,
    const at::Tensor& hx,
    at::TensorList params,
    bool has_biases,
    int64_t num_layers,
    double dropout,
    bool train,
    bool bidirectional,
    bool batch_first) {
  enter_op(Named<kCell>::full, Named<kCell>::full_name.c_str());
  const Options options{has_biases, num_layers, dropout, train, bidirectional};
  auto result = run_full_stack(input, hx, {}, params, options, batch_first, kCell);
  return {result.output, result.h};
}

template <Cell kCell>
std::tuple<at::Tensor, at::Tensor> rnn_data(
    const at::Tensor& data,
    const at::Tensor& batch_sizes,
    const at::Tensor& hx,
    at::TensorList params,
    bool has_biases,
    int64_t num_layers,
    double dropout,
    bool train,
    bool bidirectional) {
  enter_op(Named<kCell>::packed, Named<kCell>::packed_name.c_str());
  const Options options{has_biases, num_layers, dropout, train, bidirectional};
  auto result = run_stack(data, read_sizes(batch_sizes), hx, {}, params, options, kCell);
  return {result.output, result.h};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_input(
    const at::Tensor& input,
    at::TensorList hx,
    at::TensorList params,
    bool has_biases,
    int64_t num_layers,
    double dropout,
    bool train,
    bool bidirectional,
    bool batch_first) {
  enter_op(Named<lstm_cell>::full, Named<lstm_cell>::full_name.c_str());
  TORCH_CHECK(hx.size() == 2, "lstm expects two hidden states");
  const Options options{has_biases, num_layers, dropout, train, bidirectional};
  auto result = uses_onednn(input, hx) ? onednn_lstm(input, hx, params, options, batch_first)
                                       : run_full_stack(input, hx[0], hx[1], params, options, batch_first, lstm_cell);
  return {result.output, result.h, result.c};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_data(
    const at::Tensor& data,
    const at::Tensor& batch_sizes,
    at::TensorList hx,
    at::TensorList params,
    bool has_biases,
    int64_t num_layers,
    double dropout,
    bool train,
    bool bidirectional) {
  enter_op(Named<lstm_cell>::packed, Named<lstm_cell>::packed_name.c_str());
  TORCH_CHECK(hx.size() == 2, "lstm expects two hidden states");
  const Options options{has_biases, num_layers, dropout, train, bidirectional};
  auto result = run_stack(data, read_sizes(batch_sizes), hx[0], hx[1], params, options, lstm_cell);
  return {result.output, result.h, result.c};
}

// What torch asks of a single step (aten/src/ATen/native/RNN.cpp), in its words.
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

std::tuple<at::Tensor, at::Tensor> lstm_step(
    const at::Tensor& input,
    at::TensorList hx,
    const at::Tensor& w_ih,
    const at::Tensor& w_hh,
    const std::optional<at::Tensor>& b_ih,
    const std::optional<at::Tensor>& b_hh) {
  enter_op(Named<lstm_cell>::step, Named<lstm_cell>::step_name.c_str());
  TORCH_CHECK(hx.size() == 2, "lstm_cell expects two hidden states");
  check_step(input, hx, w_ih, w_hh, 4);
  const Weights weights{w_ih, w_hh, b_ih.value_or(at::Tensor()), b_hh.value_or(at::Tensor()), {}};
  // The gates in this order: autograd adds up gradients of shared inputs in the order of use.
  State state = lstm_cell(weights.input_gates(input), {hx[0], hx[1]}, weights);
  return {state.h, state.c};
}

at::Tensor gru_step(
    const at::Tensor& input,
    const at::Tensor& hx,
    const at::Tensor& w_ih,
    const at::Tensor& w_hh,
    const std::optional<at::Tensor>& b_ih,
    const std::optional<at::Tensor>& b_hh) {
  enter_op(Named<gru_cell>::step, Named<gru_cell>::step_name.c_str());
  check_step(input, hx, w_ih, w_hh, 3);
  const Weights weights{w_ih, w_hh, b_ih.value_or(at::Tensor()), b_hh.value_or(at::Tensor()), {}};
  return gru_cell(weights.input_gates(input), {hx, {}}, weights).h;
}

} // namespace

void register_rnn(torch::Library& library, torch::Library& autograd, std::vector<std::string>& registered) {
  // Composites: below autograd in inference mode, above it otherwise.
  const auto add = [&](const char* overload, FlagosOpSlot*& slot, std::string& name, auto function) {
    name = std::string("aten::") + overload;
    slot = op_slot(name);
    library.impl(overload, function);
    autograd.impl(overload, function);
    registered.push_back(name);
  };
  using Tanh = Named<tanh_cell>;
  using Relu = Named<relu_cell>;
  using Gru = Named<gru_cell>;
  using Lstm = Named<lstm_cell>;
  add("rnn_tanh.input", Tanh::full, Tanh::full_name, TORCH_FN(rnn_input<tanh_cell>));
  add("rnn_tanh.data", Tanh::packed, Tanh::packed_name, TORCH_FN(rnn_data<tanh_cell>));
  add("rnn_relu.input", Relu::full, Relu::full_name, TORCH_FN(rnn_input<relu_cell>));
  add("rnn_relu.data", Relu::packed, Relu::packed_name, TORCH_FN(rnn_data<relu_cell>));
  add("gru.input", Gru::full, Gru::full_name, TORCH_FN(rnn_input<gru_cell>));
  add("gru.data", Gru::packed, Gru::packed_name, TORCH_FN(rnn_data<gru_cell>));
  add("gru_cell", Gru::step, Gru::step_name, TORCH_FN(gru_step));
  add("lstm.input", Lstm::full, Lstm::full_name, TORCH_FN(lstm_input));
  add("lstm.data", Lstm::packed, Lstm::packed_name, TORCH_FN(lstm_data));
  add("lstm_cell", Lstm::step, Lstm::step_name, TORCH_FN(lstm_step));
}

} // namespace flagos
