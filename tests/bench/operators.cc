// SPDX-License-Identifier: Apache-2.0
// Operator cost as C++ sees it: the same loop over the CPU and over flagos. tests/bench/cpp_loop.py compiles it.
#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>
#include <c10/core/GradMode.h>

#include <chrono>
#include <cstring>
#include <functional>

namespace {

double nanoseconds_per_call(int64_t iterations, const std::function<void()>& call) {
  const auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < iterations; ++i) {
    call();
  }
  const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - start;
  return spent.count() / static_cast<double>(iterations);
}

double bench(const std::string& op, c10::Device device, int64_t iterations) {
  const c10::AutoGradMode no_grad(false);
  const auto options = at::TensorOptions().device(device);
  at::Tensor x = at::ones({8, 8}, options);
  const at::Tensor y = at::ones({8, 8}, options);
  const at::Tensor q = at::ones({1, 1, 8, 8}, options);
  const std::pair<const char*, std::function<void()>> table[] = {
      {"add", [&] { at::add(x, y); }},
      {"add_", [&] { x.add_(y, 0); }},
      {"mul", [&] { at::mul(x, y); }},
      {"mm", [&] { at::mm(x, y); }},
      {"view", [&] { x.view({64}); }},
      {"t", [&] { x.t(); }},
      {"empty", [&] { at::empty({8, 8}, options); }},
      {"softmax", [&] { at::softmax(x, -1); }},
      {"layer_norm", [&] { at::layer_norm(x, {8}); }},
      {"sdpa", [&] { at::scaled_dot_product_attention(q, q, q); }},
      {"cat", [&] { at::cat({x, y}); }},
      {"copy_", [&] { x.copy_(y); }},
  };
  for (const auto& [name, call] : table) {
    if (op == name) {
      nanoseconds_per_call(iterations / 10 + 1, call); // warm up
      return nanoseconds_per_call(iterations, call);
    }
  }
  TORCH_CHECK_VALUE(false, "no benchmark named ", op);
}

} // namespace

// Null on success; otherwise the reason, which the caller frees.
extern "C" char* bench_operator(const char* op, int on_flagos, int64_t iterations, double* nanoseconds) {
  try {
    const auto type = on_flagos != 0 ? c10::DeviceType::PrivateUse1 : c10::DeviceType::CPU;
    *nanoseconds = bench(op, c10::Device(type, on_flagos != 0 ? 0 : -1), iterations);
    return nullptr;
  } catch (const c10::Error& error) {
    return strdup(error.what_without_backtrace());
  } catch (const std::exception& error) {
    return strdup(error.what());
  }
}
