// SPDX-License-Identifier: Apache-2.0
#include "vendor_library/queue.h"

#include "runtime/native.h"

namespace flagos {

bool queue_wanted = false;

namespace {

bool is_queue_supported() {
  open_device();
  const FlagosKernels* kernels = native->by_copies ? core->kernels() : nullptr;
  return kernels != nullptr && (kernels->flags & FLAGOS_KERNELS_POST) != 0;
}

void want_queue(bool wanted) {
  if (wanted) {
    if (!is_queue_supported()) {
      raise(
          FLAGOS_UNSUPPORTED,
          "flagos: on the vendor " + native->vendor +
              " no second thread can queue calls: that needs a library whose kernels post their work; unset "
              "FLAGOS_QUEUE, and remove `queue` from flagos.toml");
    }
    __atomic_store_n(&calls_queued, true, __ATOMIC_RELEASE);
  }
  __atomic_store_n(&queue_wanted, wanted, __ATOMIC_RELAXED);
  if (!wanted && may_calls_be_queued()) {
    check(core->queues_flush());
  }
}

} // namespace

void register_queue(torch::Library& library) {
  library.def("queue_want(bool queue) -> ()", &want_queue);
  library.def("queue_wanted() -> bool", &is_queue_wanted);
  library.def("queue_supported() -> bool", &is_queue_supported);
  // Waits until everything is handed to the library, and throws what failed.
  library.def("queue_flush() -> ()", [] {
    if (may_calls_be_queued()) {
      check(core->queues_flush());
    }
  });
  library.def("queue_counts() -> (int, int)", []() -> std::tuple<int64_t, int64_t> {
    uint64_t posted = 0;
    uint64_t waits = 0;
    check(core->queues_counts(&posted, &waits));
    return {static_cast<int64_t>(posted), static_cast<int64_t>(waits)};
  });
  // For tests: `FlagosApi::queues_inject`.
  library.def("queue_inject(int delay_us, int unmindful) -> ()", [](int64_t delay_us, int64_t unmindful) {
    core->queues_inject(static_cast<uint64_t>(delay_us), static_cast<uint32_t>(unmindful));
  });
}

} // namespace flagos
