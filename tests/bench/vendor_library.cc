// SPDX-License-Identifier: Apache-2.0
// What the parts of a call of a library's kernel cost, each in a loop by itself. tests/bench/vendor_library.py compiles
// it together with the shim's own sources of those parts, and opens it beside the shim.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/ones.h>
#include <c10/core/GradMode.h>
#include <torch/library.h>

#include <chrono>
#include <cstring>
#include <exception>
#include <functional>

#include "runtime/allocator.h"
#include "runtime/generator.h"
#include "runtime/stream.h"
#include "vendor_library/call.h"
#include "vendor_library/inference.h"

namespace flagos {

// The shim's own are not visible from outside; these serve the sources that are compiled here.
const FlagosApi* core = nullptr;
bool calls_queued = false;
bool queue_wanted = false;
const Native* native = nullptr;
thread_local ThreadState thread_state;

// What the parts that are measured do not reach.
bool free_from_pool(void* /*data*/) {
  std::terminate();
}
void raise(int32_t /*status*/) {
  std::terminate();
}
void raise(int32_t /*status*/, const std::string& /*message*/) {
  std::terminate();
}
uint64_t& stream_of_far_device(c10::DeviceIndex /*device*/) {
  std::terminate();
}
const at::Generator& default_generator(c10::DeviceIndex /*device*/) {
  std::terminate();
}
at::Generator native_generator(const at::Generator& /*generator*/) {
  std::terminate();
}

} // namespace flagos

namespace {

using flagos::core;

double nanoseconds_per_call(int64_t iterations, const std::function<void()>& call) {
  const auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < iterations; ++i) {
    call();
  }
  const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - start;
  return spent.count() / static_cast<double>(iterations);
}

// An operator of the schema of `add` that does nothing: what torch's dispatcher and its boxing cost.
TORCH_LIBRARY(flagos_bench, library) {
  library.def("add(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor");
}

void nothing(const c10::OperatorHandle& /*op*/, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
  at::Tensor first = (*stack)[stack->size() - 3].toTensor();
  torch::jit::drop(*stack, 3);
  stack->emplace_back(std::move(first));
}

TORCH_LIBRARY_IMPL(flagos_bench, PrivateUse1, library) {
  library.impl("add", torch::CppFunction::makeFromBoxedFunction<&nothing>());
}

// `x + y` as the library's own caller would write it, over the C interface alone.
struct CallInC {
  CallInC(const at::Tensor& x, const at::Tensor& y, const at::Tensor& out) : kernels(core->kernels()) {
    TORCH_CHECK(kernels != nullptr, "the vendor's library has no kernels");
    TORCH_CHECK(
        kernels->find("aten::add.Tensor", &kernel) == FLAGOS_VENDOR_OK && kernel != nullptr,
        "the vendor's library has no kernel of aten::add.Tensor");
    const at::Tensor* given[] = {&x, &y, &out};
    for (size_t i = 0; i < 3; ++i) {
      const at::Tensor& tensor = *given[i];
      tensors[i].struct_size = sizeof(FlagosKernelTensor);
      tensors[i].data = tensors[i].storage = tensor.data_ptr();
      tensors[i].storage_nbytes = tensor.storage().nbytes();
      tensors[i].sizes = tensor.sizes().data();
      tensors[i].strides = tensor.strides().data();
      tensors[i].num_elements = tensor.numel();
      tensors[i].num_dims = static_cast<int32_t>(tensor.dim());
      tensors[i].dtype = static_cast<int32_t>(tensor.scalar_type());
    }
    for (size_t i = 0; i < 2; ++i) {
      values[i].tag = FLAGOS_VALUE_TENSOR;
      values[i].as.tensor = &tensors[i];
    }
    values[2].tag = FLAGOS_VALUE_INT;
    values[2].as.integer = 1;
    output = &tensors[2];
    call.struct_size = sizeof(call);
    TORCH_CHECK(core->stream_library(0, 0, &call.instance, &call.stream) == FLAGOS_OK, "no stream");
    call.arguments = values;
    call.num_arguments = 3;
    call.outputs = &output;
    call.num_outputs = 1;
  }

  void operator()() {
    TORCH_CHECK(kernels->run(kernel, &call) == FLAGOS_VENDOR_OK, "the kernel failed");
  }

  const FlagosKernels* kernels;
  const FlagosKernel* kernel = nullptr;
  FlagosKernelTensor tensors[3] = {};
  FlagosKernelValue values[3] = {};
  const FlagosKernelTensor* output = nullptr;
  FlagosKernelCall call = {};
};

// Throws if the library refuses.
void serve(const flagos::Refusal& refusal) {
  TORCH_CHECK(!refusal, refusal.reason());
}

double bench(const std::string& part, int64_t iterations) {
  const c10::AutoGradMode no_grad(false);
  const auto options = at::TensorOptions().device(at::kPrivateUse1, 0);
  const at::Tensor x = at::ones({8, 8}, options);
  const at::Tensor y = at::ones({8, 8}, options);
  at::Tensor out = at::empty_strided({8, 8}, {8, 1}, options);

  auto add = c10::Dispatcher::singleton().findSchemaOrThrow("aten::add", "Tensor");
  const flagos::FoundKernel found = flagos::find_kernel(add, core->kernels());
  serve(found.refusal);
  const flagos::Form& form = found.form;
  const torch::jit::Stack stack{x, y, c10::Scalar(1)};
  flagos::Inference inference;
  flagos::LibraryCall described;
  serve(described.describe(stack, 0, form));
  const auto nothing = c10::Dispatcher::singleton()
                           .findSchemaOrThrow("flagos_bench::add", "")
                           .typed<at::Tensor(const at::Tensor&, const at::Tensor&, const c10::Scalar&)>();
  CallInC in_c(x, y, out);

  const std::pair<const char*, std::function<void()>> table[] = {
      {"kernel", [&] { in_c(); }},
      {"dispatch", [&] { nothing.call(x, y, 1); }},
      {"unpack",
       [&] {
         flagos::LibraryCall call;
         serve(call.describe(stack, 0, form));
       }},
      {"infer",
       [&] {
         flagos::Results results;
         serve(inference.results(form, described, stack, 0, results));
       }},
      {"allocate", [&] { at::empty_strided({8, 8}, {8, 1}, options); }},
      {"add.out", [&] { at::add_out(out, x, y); }},
      {"add", [&] { at::add(x, y); }},
  };
  for (const auto& [name, call] : table) {
    if (part == name) {
      nanoseconds_per_call(iterations / 10 + 1, call); // warm up
      return nanoseconds_per_call(iterations, call);
    }
  }
  TORCH_CHECK_VALUE(false, "no part named ", part);
}

} // namespace

// Null on success; otherwise the reason, which the caller frees. `api` is the core's table.
extern "C" char* bench_library(const void* api, const char* part, int64_t iterations, double* nanoseconds) {
  try {
    core = static_cast<const FlagosApi*>(api);
    *nanoseconds = bench(part, iterations);
    return nullptr;
  } catch (const c10::Error& error) {
    return strdup(error.what_without_backtrace());
  } catch (const std::exception& error) {
    return strdup(error.what());
  }
}
