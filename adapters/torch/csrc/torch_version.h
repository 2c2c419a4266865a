// SPDX-License-Identifier: Apache-2.0
// The differences between the versions of torch that this compiles against.
#pragma once

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/version.h>

#if TORCH_VERSION_MINOR < 13
#include <ATen/NamedTensorUtils.h>
#endif

#if TORCH_VERSION_MAJOR != 2 || TORCH_VERSION_MINOR < 11 || TORCH_VERSION_MINOR > 15
#error "torch_fl is written for torch 2.11 to 2.15"
#endif

// `override` of a function that torch has since that version.
#if TORCH_VERSION_MINOR >= 12
#define FLAGOS_OVERRIDE_SINCE_2_12 override
#else
#define FLAGOS_OVERRIDE_SINCE_2_12
#endif

namespace flagos {

// Named tensors ended with 2.12.
#if TORCH_VERSION_MINOR < 13

constexpr c10::DispatchKeySet kNamed(c10::DispatchKey::Named);

inline bool has_names(const c10::TensorImpl* tensor) {
  return tensor->has_named_tensor_meta();
}

inline void copy_names(const c10::TensorImpl* from, c10::TensorImpl* to) {
  if (C10_UNLIKELY(has_names(from))) {
    to->set_named_tensor_meta(from->named_tensor_meta()->clone());
  }
}

// `resize_` of a tensor with names. Returns false for any other.
inline bool resize_named(const at::Tensor& self, at::IntArrayRef size, std::optional<c10::MemoryFormat> memory_format) {
  if (C10_LIKELY(!has_names(self.unsafeGetTensorImpl()))) {
    return false;
  }
  at::native::resize_named_tensor_(self, size, memory_format);
  return true;
}

// Runs `copy`, which copies `from` to `to` and does not know names, and gives `to` the names that torch's `copy_`
// gives. Throws if the names of the two contradict each other.
template <typename Copy>
void copy_with_names(const at::Tensor& to, const at::Tensor& from, const Copy& copy) {
  if (C10_LIKELY(!has_names(to.unsafeGetTensorImpl()) && !has_names(from.unsafeGetTensorImpl()))) {
    copy();
    return;
  }
  const auto names = at::namedinference::compute_broadcast_outnames(to, from);
  {
    const at::NoNamesGuard without_names;
    copy();
  }
  at::namedinference::propagate_names_if_nonempty(to, names);
}

#else

constexpr c10::DispatchKeySet kNamed;

constexpr bool has_names(const c10::TensorImpl* /*tensor*/) {
  return false;
}

template <typename Copy>
void copy_with_names(const at::Tensor& /*to*/, const at::Tensor& /*from*/, const Copy& copy) {
  copy();
}

inline void copy_names(const c10::TensorImpl* /*from*/, c10::TensorImpl* /*to*/) {}

inline bool
resize_named(const at::Tensor& /*self*/, at::IntArrayRef /*size*/, std::optional<c10::MemoryFormat> /*memory_format*/) {
  return false;
}

#endif

// 2.13 made a class of this enumeration, whose objects are not constants.
inline c10::DebugInfoKind debug_info_of_tests() {
  return c10::DebugInfoKind::TEST_INFO_2;
}

// An allocator of pinned memory with the history of another one, which torch can record since 2.14.
class WithHistoryOfAnother : public at::HostAllocator {
 protected:
  virtual at::HostAllocator& another() const = 0;

#if TORCH_VERSION_MINOR >= 14
 public:
  void record_history(
      bool enabled,
      c10::CachingDeviceAllocator::CreateContextFn context,
      size_t max_entries,
      c10::CachingDeviceAllocator::RecordContext when,
      bool clear) override {
    another().record_history(enabled, context, max_entries, when, clear);
  }
  bool is_history_enabled() const override {
    return another().is_history_enabled();
  }
  std::vector<at::HostSegmentInfo> get_segments() override {
    return another().get_segments();
  }
  std::vector<c10::CachingDeviceAllocator::TraceEntry> get_traces() override {
    return another().get_traces();
  }
  void record_external_register(void* data, size_t size) override {
    another().record_external_register(data, size);
  }
  void record_external_unregister(void* data) override {
    another().record_external_unregister(data);
  }
#endif
};

// Whether a stream is captured into a graph, which torch asks guards since 2.12.
inline bool is_captured(const c10::impl::DeviceGuardImplInterface& guard, [[maybe_unused]] const c10::Stream& stream) {
#if TORCH_VERSION_MINOR >= 12
  return guard.isStreamCapturing(stream);
#else
  TORCH_CHECK_NOT_IMPLEMENTED(false, "torch ", TORCH_VERSION, " does not ask guards of ", guard.type());
#endif
}

} // namespace flagos
