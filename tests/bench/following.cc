// SPDX-License-Identifier: Apache-2.0
// What single calls cost the thread that makes them, with and without automatic graphs. tests/bench/following.py
// compiles it.
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/add.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <c10/core/GradMode.h>
#include <torch/library.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

namespace {

// A call of an operator that does nothing, by a boxed kernel, as those of flagos are.
void do_nothing(const c10::OperatorHandle& /*op*/, torch::jit::Stack* stack) {
  stack->pop_back();
}

TORCH_LIBRARY(flagos_bench, library) {
  library.def("nothing(Tensor first, Tensor second) -> Tensor");
}
TORCH_LIBRARY_IMPL(flagos_bench, PrivateUse1, library) {
  library.impl("nothing", torch::CppFunction::makeFromBoxedFunction<&do_nothing>());
}

template <class Call>
std::vector<double> nanoseconds(int64_t iterations, const Call& call) {
  std::vector<double> spent(static_cast<size_t>(iterations));
  for (size_t i = 0; i < spent.size(); ++i) {
    const auto start = std::chrono::steady_clock::now();
    call(i);
    const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - start;
    spent[i] = time.count();
  }
  spent.erase(spent.begin(), spent.begin() + static_cast<ptrdiff_t>(spent.size() / 2)); // until a run is found
  return spent;
}

std::vector<double> bench(const std::string& what, int64_t iterations) {
  const c10::AutoGradMode no_grad(false);
  const auto options = at::TensorOptions().device(c10::Device(c10::DeviceType::PrivateUse1, 0));
  const at::Tensor x = at::ones({8, 8}, options);
  const at::Tensor y = at::ones({8, 8}, options);
  if (what == "clock") {
    return nanoseconds(iterations, [](size_t) {});
  }
  if (what == "nothing") {
    static const auto nothing = c10::Dispatcher::singleton()
                                    .findSchemaOrThrow("flagos_bench::nothing", "")
                                    .typed<at::Tensor(const at::Tensor&, const at::Tensor&)>();
    return nanoseconds(iterations, [&](size_t) { nothing.call(x, y); });
  }
  TORCH_CHECK_VALUE(what == "calls", "no benchmark named ", what);
  return nanoseconds(iterations, [&](size_t i) { i % 2 == 0 ? at::add(x, y) : at::mul(x, y); });
}

} // namespace

// The median of single calls, or, if `mean`, their mean, which counts the launches. Null on success; otherwise the
// reason, which the caller frees.
extern "C" char* bench_following(const char* what, int mean, int64_t iterations, double* result) {
  try {
    std::vector<double> spent = bench(what, iterations);
    if (mean != 0) {
      *result = 0;
      for (const double each : spent) {
        *result += each / static_cast<double>(spent.size());
      }
    } else {
      const auto middle = spent.begin() + static_cast<ptrdiff_t>(spent.size() / 2);
      std::nth_element(spent.begin(), middle, spent.end());
      *result = *middle;
    }
    return nullptr;
  } catch (const c10::Error& error) {
    return strdup(error.what_without_backtrace());
  } catch (const std::exception& error) {
    return strdup(error.what());
  }
}
