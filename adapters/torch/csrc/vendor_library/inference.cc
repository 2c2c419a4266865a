// SPDX-License-Identifier: Apache-2.0
#include "vendor_library/inference.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/List.h>

#include <algorithm>

#include "aten/alias.h"
#include "runtime/below_functionality.h"

namespace flagos {

namespace {

// A program whose shapes change at every call must not fill the memory.
constexpr size_t kMostSignatures = 4096;

// A tensor like it on another device, without its elements.
at::Tensor stand_in(const at::Tensor& tensor, c10::Device device) {
  if (!tensor.defined() || !is_flagos(tensor)) {
    return tensor;
  }
  return device.is_meta() ? at::detail::empty_strided_meta(tensor.sizes(), tensor.strides(), tensor.scalar_type())
                          : at::detail::empty_strided_cpu(tensor.sizes(), tensor.strides(), tensor.scalar_type());
}

c10::IValue stand_in(const c10::IValue& value, c10::Device device) {
  if (value.isTensor()) {
    return stand_in(value.toTensor(), device);
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorList()) {
      list.push_back(stand_in(tensor, device));
    }
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor> tensor : value.toOptionalTensorList()) {
      list.push_back(tensor.has_value() ? std::optional<at::Tensor>(stand_in(*tensor, device)) : std::nullopt);
    }
    return list;
  }
  if (value.isDevice()) {
    return device;
  }
  if (value.isGenerator()) {
    return {};
  }
  return value;
}

// Asks torch's kernel for `device`, which must not read elements.
Refusal ask(const Form& form, const torch::jit::Stack& arguments, size_t first, c10::Device device, Results& results) {
  torch::jit::Stack stack;
  stack.reserve(form.arguments.size());
  for (size_t i = 0; i < form.arguments.size(); ++i) {
    stack.push_back(stand_in(arguments[first + i], device));
  }
  try {
    const BelowFunctionality below;
    form.functional->callBoxed(stack);
  } catch (const std::exception&) { // the CPU's kernel tells what is wrong with the call
    return Refusal("torch does not tell the shapes of the results");
  }
  results.clear();
  const auto add = [&](const at::Tensor& tensor) {
    if (!tensor.defined()) {
      results.push_back({{}, {}, c10::ScalarType::Undefined, false});
      return true;
    }
    if (tensor.layout() != c10::kStrided || tensor.is_conj() || tensor.is_neg()) {
      return false;
    }
    const auto sizes = tensor.sizes();
    const auto strides = tensor.strides();
    results.push_back({{sizes.begin(), sizes.end()}, {strides.begin(), strides.end()}, tensor.scalar_type()});
    return true;
  };
  bool plain = true;
  for (const c10::IValue& value : stack) {
    if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorList()) {
        plain &= add(tensor);
      }
    } else {
      plain &= add(value.isNone() ? at::Tensor() : value.toTensor());
    }
  }
  if (!plain) {
    return Refusal("a result is not a plain strided tensor");
  }
  if (!form.returns_list && results.size() != form.results.size()) {
    return Refusal("torch tells another number of results");
  }
  return {};
}

bool has_no_elements(const Result& result) {
  return result.is_defined && std::find(result.sizes.begin(), result.sizes.end(), 0) != result.sizes.end();
}

// Asks torch's meta kernel.
Refusal infer(const Form& form, const torch::jit::Stack& arguments, size_t first, Results& results) {
  if (Refusal refusal = ask(form, arguments, first, c10::kMeta, results)) {
    return refusal;
  }
  // The CPU's kernels give other strides to some results without elements, and then have nothing to compute.
  const bool nothing_to_compute = form.pointwise && std::all_of(results.begin(), results.end(), has_no_elements);
  return nothing_to_compute ? ask(form, arguments, first, c10::kCPU, results) : Refusal();
}

// The most elements that results have whose number depends on elements, in a row or in rows of `columns`.
Result at_most(int64_t rows, c10::ScalarType dtype, int64_t columns = -1) {
  if (columns < 0) {
    return {{rows}, {1}, dtype};
  }
  return {{rows, columns}, {std::max<int64_t>(columns, 1), 1}, dtype};
}

// The different elements, the place of each element among them, and how often they are there.
Results different_elements(const at::Tensor& self, bool inverse, bool counts) {
  const int64_t count = self.numel();
  Result places = at_most(0, at::kLong);
  if (inverse) {
    places.sizes.assign(self.sizes().begin(), self.sizes().end());
    places.strides.assign(self.dim(), 1);
    for (int64_t i = self.dim(); i-- > 1;) {
      places.strides[i - 1] = places.strides[i] * places.sizes[i];
    }
  }
  Results results{at_most(count, self.scalar_type())};
  results.push_back(std::move(places));
  results.push_back(at_most(counts ? count : 0, at::kLong));
  return results;
}

// In evaluation batch norm saves nothing, which torch's meta kernel does not know.
void settle_batch_norm(const Form& form, const torch::jit::Stack& arguments, size_t first, Results& results) {
  if (!form.particulars->has(kSavesInTraining) || results.size() != 3) {
    return;
  }
  if (!arguments[first + place_of("training", form.functional->schema())].toBool()) {
    for (size_t i = 1; i < 3; ++i) {
      results[i].sizes = {0};
      results[i].strides = {1};
    }
  }
}

// Whether the sizes of the results depend on elements: a kernel gets the most that there can be and tells what it
// wrote.
bool depends_on_elements(const Form& form) {
  return (form.particulars->traits & (kFindsPlaces | kSelectsElements | kFindsDifferent)) != 0;
}

// The most that there can be of such results.
Results bound_of(const Form& form, const torch::jit::Stack& arguments, size_t first) {
  const at::Tensor& self = arguments[first].toTensor();
  const auto argument = [&](std::string_view name) -> const c10::IValue& {
    return arguments[first + place_of(name, form.functional->schema())];
  };
  if (form.particulars->has(kFindsPlaces)) {
    return {at_most(self.numel(), at::kLong, self.dim())};
  }
  if (form.particulars->has(kSelectsElements)) {
    const auto sizes = at::infer_size(self.sizes(), argument("mask").toTensor().sizes());
    return {at_most(c10::multiply_integers(sizes), self.scalar_type())};
  }
  return different_elements(self, argument("return_inverse").toBool(), argument("return_counts").toBool());
}

template <class Map>
auto* find(Map& map, const CallSignature& signature) {
  const auto found = map.find(signature.hash);
  return found != map.end() && found->second.first.words == signature.words ? &found->second.second : nullptr;
}

template <class Map, class Value>
void keep(Map& map, const CallSignature& signature, Value&& value) {
  if (map.size() >= kMostSignatures) {
    map.clear();
  }
  map.insert_or_assign(signature.hash, std::make_pair(signature, std::forward<Value>(value)));
}

// The shape that the tensors of a call broadcast to, with the strides of a contiguous tensor; false if they do not, and
// for a result without elements, whose strides follow other rules.
bool broadcast(const LibraryCall& call, Result& result) {
  for (const c10::TensorImpl* input : call.inputs()) {
    const auto sizes = input->sizes();
    if (sizes.size() > result.sizes.size()) {
      result.sizes.insert(result.sizes.begin(), sizes.size() - result.sizes.size(), 1);
    }
    const size_t ahead = result.sizes.size() - sizes.size();
    for (size_t i = 0; i < sizes.size(); ++i) {
      int64_t& size = result.sizes[ahead + i];
      if (size != sizes[i] && size != 1 && sizes[i] != 1) {
        return false;
      }
      size = size == 1 ? sizes[i] : size;
    }
  }
  result.strides.assign(result.sizes.size(), 1);
  for (size_t i = result.sizes.size(); i-- > 1;) {
    result.strides[i - 1] = result.strides[i] * result.sizes[i];
  }
  return !has_no_elements(result);
}

// Whether the strides are exactly those that a new tensor would get, also where a dimension has one element: torch's
// own results depend on them.
bool is_plainly_contiguous(const c10::TensorImpl* tensor) {
  const auto sizes = tensor->sizes();
  const auto strides = tensor->strides();
  int64_t expected = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    if (strides[i] != expected) {
      return false;
    }
    expected *= std::max<int64_t>(sizes[i], 1);
  }
  return true;
}

bool all_contiguous(const LibraryCall& call) {
  const auto& inputs = call.inputs();
  return !inputs.empty() && std::all_of(inputs.begin(), inputs.end(), is_plainly_contiguous);
}

} // namespace

bool Inference::by_rule(const Form& form, const LibraryCall& call, Results& results) {
  const CallSignature dtypes = call.dtypes(form);
  Result result{};
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const c10::ScalarType* dtype = find(dtypes_, dtypes);
    if (dtype == nullptr) {
      return false;
    }
    result.dtype = *dtype;
  }
  if (!broadcast(call, result)) {
    return false;
  }
  results.push_back(std::move(result));
  return true;
}

Refusal Inference::results(
    const Form& form,
    const LibraryCall& call,
    const torch::jit::Stack& stack,
    size_t first,
    Results& results) {
  const bool ruled = form.pointwise && form.results.size() == 1 && !form.returns_list && all_contiguous(call);
  if (C10_LIKELY(ruled) && by_rule(form, call, results)) {
    return {};
  }
  const CallSignature signature = call.signature(form);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const Results* known = find(known_, signature)) {
      results = *known;
      return {};
    }
  }
  if (depends_on_elements(form)) {
    if (std::any_of(form.results.begin(), form.results.end(), [](int place) { return place >= 0; })) {
      return Refusal("the size of the tensor to write to depends on elements");
    }
    try {
      results = bound_of(form, stack, first);
    } catch (const std::exception&) { // the CPU's kernel tells what is wrong with the call
      return Refusal("the arguments do not fit each other");
    }
    return {};
  }
  if (Refusal refusal = infer(form, stack, first, results)) {
    return refusal;
  }
  settle_batch_norm(form, stack, first, results);
  Result expected{};
  const bool obeys = ruled && results[0].is_defined && broadcast(call, expected) &&
      expected.sizes == results[0].sizes && expected.strides == results[0].strides;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (obeys) {
    keep(dtypes_, call.dtypes(form), c10::ScalarType(results[0].dtype));
  } else {
    keep(known_, signature, Results(results));
  }
  return {};
}

} // namespace flagos
