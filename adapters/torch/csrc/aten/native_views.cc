// SPDX-License-Identifier: Apache-2.0
#include "aten/native_views.h"

#include <algorithm>
#include <exception>
#include <vector>

#include "aten/alias.h"
#include "runtime/native.h"
#include "shim.h"

namespace flagos {

namespace {

// A native tensor for each of some arguments of a graph. Building a tensor and its Python object costs ten times what
// it costs to point an old one at other memory, and a graph has an argument for each weight. Between calls they have no
// memory, so that nothing lives longer for their sake.
class NativeViews {
 public:
  explicit NativeViews(at::TensorList tensors) {
    originals_.reserve(tensors.size());
    views_.reserve(tensors.size());
    lent_.resize(tensors.size());
    for (const at::Tensor& tensor : tensors) {
      originals_.push_back(tensor.unsafeGetTensorImpl());
      views_.push_back(shared_alias(tensor));
    }
  }

  // The base of the view of a number. Not to be read: it may have ended.
  const void* original(size_t number) const {
    return number < originals_.size() ? originals_[number] : nullptr;
  }

  const std::vector<at::Tensor>& views() const {
    return views_;
  }

  // Points each view at its tensor. False, and nothing is done, if one of them cannot be: the call needs new views.
  bool point(const void* const* tensors) {
    const auto tensor_at = [&](size_t i) { return static_cast<c10::TensorImpl*>(const_cast<void*>(tensors[i])); };
    for (size_t i = 0; i < views_.size(); ++i) {
      if (tensors[i] == nullptr || !can_share(tensor_at(i), views_[i].unsafeGetTensorImpl())) {
        return false;
      }
    }
    for (size_t i = 0; i < views_.size(); ++i) {
      share(tensor_at(i), views_[i].unsafeGetTensorImpl(), lent_[i]);
    }
    return true;
  }

  // Takes the memory from the views. False, and nothing is done, if one is held by others than Python's object of it.
  bool rest() const {
    if (std::any_of(views_.begin(), views_.end(), [](const at::Tensor& view) { return view.use_count() > 2; })) {
      return false;
    }
    for (const at::Tensor& view : views_) {
      let_go(view.unsafeGetTensorImpl());
    }
    return true;
  }

 private:
  std::vector<const c10::TensorImpl*> originals_;
  std::vector<at::Tensor> views_;
  std::vector<LastLent> lent_;
};

NativeViews* at_address(int64_t views) {
  return reinterpret_cast<NativeViews*>(static_cast<intptr_t>(views));
}

} // namespace

void register_native_views(torch::Library& library) {
  // 0 for tensors whose views cannot be kept.
  library.def("views_create(Tensor[] tensors) -> int", [](at::TensorList tensors) -> int64_t {
    if (!std::all_of(tensors.begin(), tensors.end(), [](const at::Tensor& tensor) {
          return can_be_shared(tensor.unsafeGetTensorImpl());
        })) {
      return 0;
    }
    return static_cast<int64_t>(reinterpret_cast<intptr_t>(new NativeViews(tensors)));
  });
  library.def("views_tensors(int views) -> Tensor[]", [](int64_t views) { return at_address(views)->views(); });
}

} // namespace flagos

const void* flagos_shim_views_original(int64_t views, size_t number) {
  return flagos::at_address(views)->original(number);
}

int32_t flagos_shim_views_point(int64_t views, const void* const* tensors) {
  try {
    return flagos::at_address(views)->point(tensors) ? 1 : 0;
  } catch (const std::exception&) {
    return 0; // making new ones tells the reason
  }
}

int32_t flagos_shim_views_rest(int64_t views) {
  try {
    return flagos::at_address(views)->rest() ? 1 : 0;
  } catch (const std::exception&) {
    return 0;
  }
}

void flagos_shim_views_destroy(int64_t views) {
  delete flagos::at_address(views);
}
