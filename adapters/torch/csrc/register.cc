// SPDX-License-Identifier: Apache-2.0
// Everything flagos registers with torch, in order.
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>
#include <torch/version.h>

#include <algorithm>
#include <cstring>

#include "accelerator_graphs.h"
#include "aten/boxed.h"
#include "aten/register.h"
#include "aten/traced.h"
#include "aten/traits.h"
#include "cuda/register.h"
#include "flagos_vendor.h"
#include "host/register.h"
#include "library.h"
#include "runtime/device_names.h"
#include "runtime/native.h"
#include "runtime/register.h"
#include "shim.h"
#include "vendor_library/register.h"

namespace flagos {

namespace {

// Every operator with a kernel on flagos.
std::vector<std::string>& registered_ops() {
  static std::vector<std::string> names;
  return names;
}

// From this index on operators have typed and boxed kernels; those before have kernels of their own.
size_t first_native = 0;

// Whether the plan may route the operator to copies of its arguments on the CPU. Where the host computes it runs there
// anyway.
bool runs_on_cpu_too(size_t index) {
  if (native->host_computes() || index < first_native) {
    return false;
  }
  if (native->by_copies) {
    return true; // each of them has a kernel of the CPU's, if not one for dense tensors
  }
  const std::string& name = registered_ops()[index];
  if (name.rfind("aten::", 0) != 0) {
    return false;
  }
  const auto op = find_operator(name);
  return op.has_value() && has_kernel(*op, c10::DispatchKey::CPU);
}

// Why the native device has no kernel for the operator; null if it has one.
const char* why_not_natively(size_t index) {
  if (!native->by_copies || index < first_native) {
    return nullptr;
  }
  const auto op = find_operator(registered_ops()[index]);
  if (!op.has_value() || !refusal_by_library(*op)) {
    return nullptr;
  }
  return refusal_by_library(*op).reason().c_str();
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
bool has_native_kernel(const c10::OperatorHandle& op, const Particulars& particulars, c10::DispatchKey native_key) {
  if (native->by_copies && native_key == native->dense && particulars.has(kMadeOfViews)) {
    return false;
  }
  if (op.hasKernelForDispatchKey(native_key)) {
    return true;
  }
  // On copies composites are left to torch, so that what they consist of reaches the library's kernels, but for those
  // that the library serves as a whole and those that ask which device a tensor is on.
  if (native->by_copies && !particulars.has(kAsksForDevice) && refusal_by_library(op)) {
    return false;
  }
  if (native_key != native->dense || particulars.has(kLeftToTorch) || is_view(op.schema()) ||
      op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) {
    return false;
  }
  if (writes_a_list(op.schema()) && !particulars.has(kWritesLists)) {
    return false;
  }
  return has_kernel(op, native_key);
}

// Whether an operator is of a namespace that is served whole.
bool is_torchs(const c10::OperatorName& name) {
  return name.name.rfind("aten::", 0) == 0 || name.name.rfind("quantized::", 0) == 0;
}

struct Operator {
  c10::OperatorHandle handle;
  std::string name; // with its namespace and overload
  const Particulars& particulars;
};

// The operators of the namespaces that are served, by torch's own order.
const std::vector<Operator>& torch_operators() {
  static const std::vector<Operator>& operators = *[] {
    auto* found = new std::vector<Operator>;
    auto& dispatcher = c10::Dispatcher::singleton();
    for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
      if (!is_torchs(name)) {
        continue;
      }
      if (const auto handle = dispatcher.findSchema(name)) {
        std::string full = c10::toString(name);
        const Particulars& particulars = particulars_of(full);
        found->push_back({*handle, std::move(full), particulars});
      }
    }
    return found;
  }();
  return operators;
}

// As torch::Library::impl for one name after the other, which would parse each of two thousand names: a fifth of the
// time that registering took.
void implement(const c10::OperatorHandle& op, c10::DispatchKey key, c10::KernelFunction kernel) {
  static auto* handles = new std::vector<c10::RegistrationHandleRAII>; // for the life of the process
  handles->push_back(
      c10::Dispatcher::singleton().registerImpl(
          op.operator_name(), key, std::move(kernel), std::nullopt, nullptr, "registered by torch_fl"));
}

// Registers the boxed kernel for every operator of a namespace that `native_key` serves and that has no kernel yet.
void register_boxed(const std::string& name_space, c10::DispatchKey key, c10::DispatchKey native_key) {
  std::vector<std::string>& registered = registered_ops();
  for (const Operator& op : torch_operators()) {
    if (op.name.compare(0, name_space.size() + 2, name_space + "::") != 0 || op.handle.hasKernelForDispatchKey(key) ||
        !has_native_kernel(op.handle, op.particulars, native_key)) {
      continue;
    }
    implement(
        op.handle,
        key,
        native->by_copies ? library_kernel(op.handle, native_key)
                          : c10::KernelFunction::makeFromBoxedFunctor(
                                std::make_unique<BoxedKernel>(op.handle, c10::DispatchKeySet(native_key))));
    // The plan knows the operators for other tensors than dense ones by their slots, but not that no library serves
    // them.
    if (key == c10::DispatchKey::PrivateUse1 ||
        (native->by_copies && std::find(registered.begin(), registered.end(), op.name) == registered.end())) {
      registered.push_back(op.name);
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
  register_sparse();
  register_traced(registrar);
  native->register_operators(registrar);
  first_native = registered_ops().size();
  if (!native->by_copies) {
    register_typed_pointwise(registrar);
    register_typed_reductions(registrar);
    register_typed_linear(registrar);
    register_typed_gradients(registrar);
    register_typed_lists(registrar);
  }

  register_boxed("aten", c10::DispatchKey::PrivateUse1, native->dense);
  register_boxed("aten", c10::DispatchKey::SparsePrivateUse1, native->sparse);
  register_boxed("aten", c10::DispatchKey::SparseCsrPrivateUse1, native->compressed);
  register_boxed("aten", c10::DispatchKey::QuantizedPrivateUse1, native->quantized);
  register_boxed("aten", c10::DispatchKey::NestedTensorPrivateUse1, native->nested);
  // Quantized operators that take dense tensors, and parameters packed in an object, are dispatched as dense.
  register_boxed("quantized", c10::DispatchKey::PrivateUse1, native->dense);
  register_boxed("quantized", c10::DispatchKey::QuantizedPrivateUse1, native->quantized);
}

// For operators that others register, before or after. torch looks through all of its operators for this, a tenth of
// the time of importing torch_fl; without a tensor on the device there is no call.
void register_fallback() {
  auto* fallback = new torch::Library(torch::Library::IMPL, "_", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  fallback->fallback(torch::CppFunction::makeFromBoxedFunction<&boxed_fallback>());
  if (native->by_copies) {
    return; // there composites are left to torch
  }
  // Operators of others that have a kernel for the native device and a composite for all devices besides, which torch
  // prefers to a fallback.
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNamesForDispatchKey(native->dense)) {
    if (is_torchs(name)) {
      continue;
    }
    const auto op = dispatcher.findSchema(name);
    if (op.has_value() && op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) &&
        !op->hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1)) {
      implement(*op, c10::DispatchKey::PrivateUse1, c10::KernelFunction::makeFromBoxedFunction<&boxed_fallback>());
    }
  }
}

// The native device as the vendor's description has it.
std::unique_ptr<Native> choose_native() {
  FlagosVendorInfo vendor{};
  vendor.struct_size = sizeof(vendor);
  check(core->vendor(&vendor));
  switch (vendor.serving) {
    case FLAGOS_VENDOR_SERVED_BY_HOST:
      return host_native(vendor.name);
    case FLAGOS_VENDOR_SERVED_BY_LIBRARY:
      return library_native(vendor.name);
    default:
      return torch_native(vendor.name, vendor.torch_device_type);
  }
}

void register_all(const FlagosApi* api) {
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
  native = choose_native().release(); // for the life of the process
  register_hooks();                   // first: it refuses when another plugin owns the key
  native->register_device();
  register_profiler();
  register_library();
  register_accelerator_graphs();
  register_autocast();
  register_operators();
  at_first_use = &register_fallback;
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

char* flagos_shim_register(const FlagosApi* api) {
  return flagos::message_of([&] { flagos::register_all(api); });
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

char* flagos_shim_alias_cuda(void) {
  return flagos::message_of([] { flagos::alias_cuda(); });
}

void flagos_shim_each_op(FlagosVisitOp visit, void* context) {
  const auto& names = flagos::registered_ops();
  for (size_t i = 0; i < names.size(); ++i) {
    visit(names[i].c_str(), flagos::why_not_natively(i), flagos::runs_on_cpu_too(i) ? 1 : 0, context);
  }
}

void flagos_shim_each_composite(FlagosVisitComposite visit, void* context) {
  for (const auto& [op, name, particulars] : flagos::torch_operators()) {
    if (!op.hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1) &&
        flagos::has_kernel(op, c10::DispatchKey::CompositeImplicitAutograd)) {
      visit(name.c_str(), context);
    }
  }
}

const char* flagos_shim_torch_version(void) {
  return TORCH_VERSION;
}

void flagos_shim_free(char* message) {
  std::free(message);
}

} // extern "C"
