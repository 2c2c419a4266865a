// SPDX-License-Identifier: Apache-2.0
// Everything flagos registers with torch, in order.
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>
#include <torch/version.h>

#include <cstring>
#include <unordered_set>

#include "aten/attention.h"
#include "aten/boxed.h"
#include "aten/register.h"
#include "cuda/register.h"
#include "library.h"
#include "runtime/device_names.h"
#include "runtime/native.h"
#include "runtime/register.h"
#include "shim.h"

namespace flagos {

namespace {

// Every operator with a kernel on flagos.
std::vector<std::string>& registered_ops() {
  static std::vector<std::string> names;
  return names;
}

// From this index on operators have typed and boxed kernels; those before have kernels of their own.
size_t first_native = 0;

// Whether the plan may route the operator to copies of its arguments on the CPU. On the host vendor it runs there
// anyway.
bool runs_on_cpu_too(size_t index) {
  if (!native.cuda || index < first_native) {
    return false;
  }
  const std::string& name = registered_ops()[index];
  if (name.rfind("aten::", 0) != 0) {
    return false;
  }
  const auto op = find_operator(name);
  return op.has_value() && has_kernel(*op, c10::DispatchKey::CPU);
}

// Composites that must get the flagos tensors themselves, because they ask for devices or only make views.
const std::unordered_set<std::string>& left_to_torch() {
  static const std::unordered_set<std::string> names = {
      "aten::_to_copy",
      "aten::_to_copy.out",
      "aten::empty_like",
      "aten::new_empty",
      "aten::new_empty_strided",
      "aten::is_pinned",
      "aten::_pin_memory",
      "aten::_pin_memory.out",
      "aten::_pack_padded_sequence",
      "aten::_nested_tensor_from_tensor_list",
  };
  return names;
}

bool is_view(const c10::FunctionSchema& schema) {
  for (const auto& result : schema.returns()) {
    if (result.alias_info() != nullptr && !result.alias_info()->isWrite()) {
      return true;
    }
  }
  return false;
}

bool writes_a_list(const c10::FunctionSchema& schema) {
  for (const auto& argument : schema.arguments()) {
    if (argument.alias_info() != nullptr && argument.alias_info()->isWrite() &&
        argument.type()->kind() == c10::TypeKind::ListType) {
      return true;
    }
  }
  return false;
}

// Whether the boxed kernel has a native kernel to redispatch to: one of the key's own, or, for dense tensors, a
// composite that is not CompositeImplicit. Composites that make views or fill lists of outputs must get the flagos
// tensors, to do their bookkeeping (aliasing, versions) on them.
bool has_native_kernel(const c10::OperatorHandle& op, const std::string& name, c10::DispatchKey native_key) {
  if (op.hasKernelForDispatchKey(native_key)) {
    return true;
  }
  if (native_key != native.dense || left_to_torch().count(name) != 0 || is_view(op.schema()) ||
      op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) {
    return false;
  }
  if (writes_a_list(op.schema()) && name.rfind("aten::_foreach_", 0) != 0 && name.rfind("aten::_fused_", 0) != 0 &&
      name.rfind("aten::_amp_", 0) != 0) {
    return false;
  }
  return has_kernel(op, native_key);
}

// Registers the boxed kernel for every operator of a namespace that `native_key` serves and that has no kernel yet.
void register_boxed(const std::string& name_space, c10::DispatchKey key, c10::DispatchKey native_key) {
  auto* library = new torch::Library(torch::Library::IMPL, name_space, key, __FILE__, __LINE__);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (name.name.rfind(name_space + "::", 0) != 0) {
      continue;
    }
    const auto op = dispatcher.findSchema(name);
    const std::string full = c10::toString(name);
    if (!op.has_value() || op->hasKernelForDispatchKey(key) || !has_native_kernel(*op, full, native_key)) {
      continue;
    }
    library->impl(
        full.c_str(),
        torch::CppFunction::makeFromBoxedFunctor(std::make_unique<BoxedKernel>(*op, c10::DispatchKeySet(native_key))));
    if (key == c10::DispatchKey::PrivateUse1) {
      registered_ops().push_back(full);
    }
  }
}

void register_operators() {
  auto* library = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  auto* autograd =
      new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::AutogradPrivateUse1, __FILE__, __LINE__);
  Registrar registrar(*library, *autograd, registered_ops());
  register_factories_and_views(registrar);
  register_copies(registrar);
  register_attention(registrar, native.cuda ? cuda_attention() : host_attention());
  if (native.cuda) {
    register_to(registrar);
    register_rnn_cudnn(registrar);
    register_cudnn_choices(registrar);
    register_fft_half(registrar);
  } else {
    register_rnn(registrar);
    register_dropout(registrar);
    register_histc(registrar);
    register_sync_batch_norm(registrar);
  }
  first_native = registered_ops().size();
  register_typed_pointwise(registrar);
  register_typed_reductions(registrar);
  register_typed_linear(registrar);
  register_typed_gradients(registrar);

  register_boxed("aten", c10::DispatchKey::PrivateUse1, native.dense);
  register_boxed("aten", c10::DispatchKey::SparsePrivateUse1, native.sparse);
  register_boxed("aten", c10::DispatchKey::SparseCsrPrivateUse1, native.compressed);
  register_boxed("aten", c10::DispatchKey::QuantizedPrivateUse1, native.quantized);
  register_boxed("aten", c10::DispatchKey::NestedTensorPrivateUse1, native.nested);
  // Quantized operators that take dense tensors, and parameters packed in an object, are dispatched as dense.
  register_boxed("quantized", c10::DispatchKey::PrivateUse1, native.dense);
  register_boxed("quantized", c10::DispatchKey::QuantizedPrivateUse1, native.quantized);

  auto* fallback = new torch::Library(torch::Library::IMPL, "_", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  fallback->fallback(torch::CppFunction::makeFromBoxedFunction<&boxed_fallback>());
}

void register_all(const FlagosApi* api, bool on_cuda) {
  TORCH_CHECK(
      api->abi_version == FLAGOS_ABI_VERSION && api->struct_size >= sizeof(FlagosApi),
      "torch_fl was built for version ",
      FLAGOS_ABI_VERSION,
      " of the flagos core's interface, the installed core has version ",
      api->abi_version,
      "; install flagos and torch-fl of the same version");
  static bool registered = false;
  static std::string failure;
  if (registered) {
    return;
  }
  // A registration with torch cannot be taken back, so there is no second try.
  TORCH_CHECK(failure.empty(), failure);
  failure = "flagos could not be registered earlier in this process; the first error says why";
  core = api;
  if (on_cuda) {
    choose_cuda();
    teach_autograd_engine();
    register_autograd_engine();
  }
  register_hooks(); // first: it refuses when another plugin owns the key
  if (on_cuda) {
    register_cuda_device();
  } else {
    register_host_guard();
    register_host_allocators();
  }
  register_profiler();
  register_library();
  register_autocast();
  register_operators();
  registered = true;
}

// The message of the exception that `work` throws, to be freed with flagos_shim_free; NULL if it throws none.
template <class Work>
char* message_of(Work work) {
  try {
    work();
    return nullptr;
  } catch (const c10::Error& error) {
    return strdup(error.what_without_backtrace());
  } catch (const std::exception& error) {
    return strdup(error.what());
  } catch (...) {
    return strdup("unknown C++ exception in torch_fl");
  }
}

} // namespace

} // namespace flagos

extern "C" {

char* flagos_shim_register(const FlagosApi* api, int on_cuda) {
  return flagos::message_of([&] { flagos::register_all(api, on_cuda != 0); });
}

char* flagos_shim_watch_device_names(FlagosAsked asked) {
  return flagos::message_of([&] {
    if (asked != nullptr) {
      flagos::watch_device_names(asked);
    } else {
      flagos::stop_watching_device_names();
    }
  });
}

void flagos_shim_each_op(void (*visit)(const char* name, int on_cpu_too, void* context), void* context) {
  const auto& names = flagos::registered_ops();
  for (size_t i = 0; i < names.size(); ++i) {
    visit(names[i].c_str(), flagos::runs_on_cpu_too(i) ? 1 : 0, context);
  }
}

const char* flagos_shim_torch_version(void) {
  return TORCH_VERSION;
}

void flagos_shim_free(char* message) {
  std::free(message);
}

} // extern "C"
