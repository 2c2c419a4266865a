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
    for (const at::Tensor& tensor : tensors) {
      originals_.emplace_back(tensor.getIntrusivePtr());
      views_.push_back(is_flagos(tensor) ? shared_alias(tensor) : tensor);
    }
  }

  const std::vector<at::Tensor>& views() const {
    return views_;
  }

  // Points each view at its tensor again, which the caller holds if it lives. False if one cannot be: the call needs
  // new views.
  bool point() const {
    for (size_t i = 0; i < views_.size(); ++i) {
      c10::TensorImpl* original = originals_[i].expired() ? nullptr : originals_[i]._unsafe_get_target();
      if (original == nullptr || !can_share(original, views_[i].unsafeGetTensorImpl())) {
        return false;
      }
      share(original, views_[i].unsafeGetTensorImpl());
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
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl>> originals_;
  std::vector<at::Tensor> views_;
};

NativeViews* at_address(int64_t views) {
  return reinterpret_cast<NativeViews*>(static_cast<intptr_t>(views));
}

} // namespace

void register_native_views(torch::Library& library) {
  library.def("views_create(Tensor[] tensors) -> int", [](at::TensorList tensors) {
    return static_cast<int64_t>(reinterpret_cast<intptr_t>(new NativeViews(tensors)));
  });
  library.def("views_tensors(int views) -> Tensor[]", [](int64_t views) { return at_address(views)->views(); });
}

} // namespace flagos

int32_t flagos_shim_views_point(int64_t views) {
  try {
    return flagos::at_address(views)->point() ? 1 : 0;
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
