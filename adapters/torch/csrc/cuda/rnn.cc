// SPDX-License-Identifier: Apache-2.0
#include "cuda/register.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/RNN.h>
#include <ATen/ops/_cudnn_init_dropout_state.h>
#include <ATen/ops/_cudnn_rnn.h>
#include <ATen/ops/cudnn_is_acceptable_native.h>
#include <ATen/ops/empty.h>
#include <c10/core/Event.h>

#include <array>
#include <mutex>
#include <optional>

#include "cuda/to.h"
#include "runtime/generator.h"
#include "runtime/stream.h"

namespace flagos {

namespace {

bool cudnn_is_acceptable(const at::Tensor& self) {
  Slot<at::_ops::cudnn_is_acceptable>::enter();
  return at::native::cudnn_is_acceptable(shown_to_cuda(self));
}

// cudnnRNNMode_t.
enum Mode : int64_t { kRelu = 0, kTanh = 1, kLstm = 2, kGru = 3 };

struct Layers {
  Mode mode;
  bool biased;
  int64_t count;
  double dropout;
  bool train;
  bool bidirectional;
};

// All parameters as one buffer if they lie in cuDNN's order, as nn.RNN.flatten_parameters leaves them: the matrices of
// every layer and direction, then all biases. Without the buffer cuDNN copies them at each call.
std::optional<at::Tensor> flat_parameters(at::TensorList parameters, const Layers& layers, bool projected) {
  if (parameters.empty() || parameters[0].key_set().has(c10::DispatchKey::Python)) {
    return std::nullopt;
  }
  const c10::StorageImpl* storage = parameters[0].storage().unsafeGetStorageImpl();
  const size_t each = 2 + (layers.biased ? 2 : 0) + (projected ? 1 : 0);
  int64_t next = 0;
  for (const bool biases : {false, true}) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      const bool is_bias = layers.biased && (i % each == 2 || i % each == 3);
      if (is_bias != biases) {
        continue;
      }
      const at::Tensor& parameter = parameters[i];
      if (parameter.storage().unsafeGetStorageImpl() != storage || !parameter.is_contiguous() ||
          parameter.storage_offset() != next) {
        return std::nullopt;
      }
      next += parameter.numel();
    }
  }
  if (storage->nbytes() != static_cast<size_t>(next) * parameters[0].element_size()) {
    return std::nullopt;
  }
  at::Tensor buffer = parameters[0].detach().as_strided({next}, {1}, 0);
  return buffer;
}

// One device's random state for cuDNN's dropout between layers, seeded by the device's generator at its first use and
// at the first one after that generator was seeded, as torch does for CUDA. Calls on several streams wait for each
// other.
class DropoutState {
 public:
  template <class Call>
  auto use(const at::Tensor& input, const Layers& layers, Call call) {
    if (layers.dropout == 0 || !layers.train) {
      return call(std::optional<at::Tensor>(at::empty({0}, input.options().dtype(at::kByte))));
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    if (native->is_capturing(input.device().index())) {
      // The graph keeps its own order, and waiting for an event from outside would end the capture.
      TORCH_CHECK(
          buffer_.defined(),
          "flagos: a recurrent layer with dropout has to run once before it is captured into a graph");
      return call(std::optional<at::Tensor>(buffer_));
    }
    const c10::Stream stream = to_stream(input.device().index(), current_stream(input.device().index()));
    if (used_.has_value()) {
      used_->block(stream);
    } else {
      used_.emplace(kFlagos);
    }
    const at::Generator& generator = default_generator(input.device().index());
    if (const uint64_t times = times_set(generator); !buffer_.defined() || times != times_set_) {
      const int64_t seed = at::empty({}, input.options().dtype(at::kLong)).random_(generator).item<int64_t>();
      buffer_ = at::_cudnn_init_dropout_state(layers.dropout, layers.train, seed, input.options().dtype(at::kByte));
      times_set_ = times;
    }
    auto result = call(std::optional<at::Tensor>(buffer_));
    used_->record(stream);
    return result;
  }

 private:
  std::mutex mutex_;
  at::Tensor buffer_;
  uint64_t times_set_ = 0; // of the generator, when the buffer was made
  std::optional<c10::Event> used_;
};

DropoutState& dropout_state(c10::DeviceIndex device) {
  constexpr size_t kDevices = std::numeric_limits<c10::DeviceIndex>::max();
  static auto* states = new std::array<DropoutState, kDevices>(); // never destroyed: torch may be gone by then
  return states->at(static_cast<size_t>(device));
}

struct Outputs {
  at::Tensor output;
  at::Tensor hy;
  at::Tensor cy;
};

Outputs run(
    const at::Tensor& input,
    const at::Tensor& batch_sizes,
    const at::Tensor& hx,
    const at::Tensor& cx,
    at::TensorList parameters,
    const Layers& layers,
    bool batch_first) {
  int64_t hidden_size = hx.size(2);
  int64_t projection = 0;
  if (cx.defined() && cx.size(2) != hx.size(2)) {
    hidden_size = cx.size(2);
    projection = hx.size(2);
  }
  std::vector<int64_t> sizes;
  if (batch_sizes.defined()) {
    TORCH_CHECK(batch_sizes.is_cpu(), "batch_sizes tensor should be on CPU, but got ", batch_sizes.device());
    const at::Tensor contiguous = batch_sizes.contiguous();
    const auto* data = contiguous.const_data_ptr<int64_t>();
    sizes.assign(data, data + contiguous.numel());
  }
  const auto call = [&](const std::optional<at::Tensor>& dropout) {
    return at::_cudnn_rnn(
        input,
        parameters,
        2 + (layers.biased ? 2 : 0) + (projection != 0 ? 1 : 0),
        flat_parameters(parameters, layers, projection != 0),
        hx,
        cx.defined() ? std::optional<at::Tensor>(cx) : std::nullopt,
        layers.mode,
        hidden_size,
        projection,
        layers.count,
        batch_first,
        layers.dropout,
        layers.train,
        layers.bidirectional,
        sizes,
        dropout);
  };
  const auto result = dropout_state(input.device().index()).use(input, layers, call);
  return {std::get<0>(result), std::get<1>(result), std::get<2>(result)};
}

template <Mode kMode>
void full(
    at::Tensor& output,
    at::Tensor& hy,
    const at::Tensor& input,
    const at::Tensor& hx,
    at::TensorList parameters,
    bool biased,
    int64_t count,
    double dropout,
    bool train,
    bool bidirectional,
    bool batch_first) {
  auto result = run(input, {}, hx, {}, parameters, {kMode, biased, count, dropout, train, bidirectional}, batch_first);
  output = result.output;
  hy = result.hy;
}

template <Mode kMode>
void packed(
    at::Tensor& output,
    at::Tensor& hy,
    const at::Tensor& data,
    const at::Tensor& batch_sizes,
    const at::Tensor& hx,
    at::TensorList parameters,
    bool biased,
    int64_t count,
    double dropout,
    bool train,
    bool bidirectional) {
  auto result =
      run(data, batch_sizes, hx, {}, parameters, {kMode, biased, count, dropout, train, bidirectional}, false);
  output = result.output;
  hy = result.hy;
}

void full_lstm(
    at::Tensor& output,
    at::Tensor& hy,
    at::Tensor& cy,
    const at::Tensor& input,
    at::TensorList hx,
    at::TensorList parameters,
    bool biased,
    int64_t count,
    double dropout,
    bool train,
    bool bidirectional,
    bool batch_first) {
  auto result =
      run(input, {}, hx[0], hx[1], parameters, {kLstm, biased, count, dropout, train, bidirectional}, batch_first);
  output = result.output;
  hy = result.hy;
  cy = result.cy;
}

void packed_lstm(
    at::Tensor& output,
    at::Tensor& hy,
    at::Tensor& cy,
    const at::Tensor& data,
    const at::Tensor& batch_sizes,
    at::TensorList hx,
    at::TensorList parameters,
    bool biased,
    int64_t count,
    double dropout,
    bool train,
    bool bidirectional) {
  auto result =
      run(data, batch_sizes, hx[0], hx[1], parameters, {kLstm, biased, count, dropout, train, bidirectional}, false);
  output = result.output;
  hy = result.hy;
  cy = result.cy;
}

using CudnnRnnOutputs = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

// Under autocast the layer computes in float16 whatever dtype autocast was given, as on CUDA. The flat buffer is left
// out when the weights are cast, and cuDNN copies them instead.
CudnnRnnOutputs autocast_cudnn_rnn(
    const at::Tensor& input,
    at::TensorList weight,
    int64_t weight_stride0,
    const std::optional<at::Tensor>& weight_buf,
    const at::Tensor& hx,
    const std::optional<at::Tensor>& cx,
    int64_t mode,
    c10::SymInt hidden_size,
    c10::SymInt proj_size,
    int64_t num_layers,
    bool batch_first,
    double dropout,
    bool train,
    bool bidirectional,
    c10::SymIntArrayRef batch_sizes,
    const std::optional<at::Tensor>& dropout_state) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastPrivateUse1);
  constexpr at::ScalarType lower = at::kHalf;
  const auto cast = [&](const at::Tensor& tensor) { return at::autocast::cached_cast(lower, tensor, kFlagos); };
  const bool cast_weights = !weight.empty() && weight[0].scalar_type() != lower;
  std::vector<at::Tensor> weights;
  for (const at::Tensor& tensor : weight) {
    weights.push_back(cast(tensor));
  }
  return at::_cudnn_rnn_symint(
      cast(input),
      weights,
      weight_stride0,
      cast_weights ? std::nullopt : weight_buf,
      cast(hx),
      cx.has_value() ? std::optional<at::Tensor>(cast(*cx)) : std::nullopt,
      mode,
      std::move(hidden_size),
      std::move(proj_size),
      num_layers,
      batch_first,
      dropout,
      train,
      bidirectional,
      batch_sizes,
      dropout_state);
}

} // namespace

void register_rnn_cudnn(Registrar& registrar) {
  at::native::lstm_cudnn_stub.set_privateuse1_dispatch_ptr(&full_lstm);
  at::native::lstm_packed_cudnn_stub.set_privateuse1_dispatch_ptr(&packed_lstm);
  at::native::gru_cudnn_stub.set_privateuse1_dispatch_ptr(&full<kGru>);
  at::native::gru_packed_cudnn_stub.set_privateuse1_dispatch_ptr(&packed<kGru>);
  at::native::rnn_tanh_cudnn_stub.set_privateuse1_dispatch_ptr(&full<kTanh>);
  at::native::rnn_tanh_packed_cudnn_stub.set_privateuse1_dispatch_ptr(&packed<kTanh>);
  at::native::rnn_relu_cudnn_stub.set_privateuse1_dispatch_ptr(&full<kRelu>);
  at::native::rnn_relu_packed_cudnn_stub.set_privateuse1_dispatch_ptr(&packed<kRelu>);

  static torch::Library autocast(
      torch::Library::IMPL, "aten", c10::DispatchKey::AutocastPrivateUse1, __FILE__, __LINE__);
  autocast.impl("_cudnn_rnn", TORCH_FN(autocast_cudnn_rnn));

  registrar.composite<at::_ops::cudnn_is_acceptable>(TORCH_FN(cudnn_is_acceptable));
}

} // namespace flagos
