// SPDX-License-Identifier: Apache-2.0
#include "runtime/generator.h"

#include <atomic>
#include <deque>
#include <mutex>

#include "runtime/stream.h"

namespace flagos {

namespace {

class FlagosGenerator final : public c10::GeneratorImpl {
 public:
  FlagosGenerator(c10::DeviceIndex device, at::Generator native)
      : GeneratorImpl(c10::Device(kFlagos, device), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        native_(std::move(native)) {}

  void set_current_seed(uint64_t seed) override {
    const auto lock = lock_native();
    native_.set_current_seed(seed);
    ++times_set_;
  }
  // The CPU's generator has no offset but 0. torch asks for it to pickle a generator of any other device.
  void set_offset(uint64_t offset) override {
    if (!native_.device().is_cpu() || offset != 0) {
      const auto lock = lock_native();
      native_.set_offset(offset);
      ++times_set_;
    }
  }
  uint64_t get_offset() const override {
    if (native_.device().is_cpu()) {
      return 0;
    }
    const auto lock = lock_native();
    return native_.get_offset();
  }
  uint64_t current_seed() const override {
    const auto lock = lock_native();
    return native_.current_seed();
  }
  uint64_t seed() override {
    const auto lock = lock_native();
    ++times_set_;
    return native_.seed();
  }
  void set_state(const c10::TensorImpl& state) override {
    const auto lock = lock_native();
    native_.unsafeGetGeneratorImpl()->set_state(state);
    ++times_set_;
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    const auto lock = lock_native();
    return native_.unsafeGetGeneratorImpl()->get_state();
  }
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& state) override {
    TORCH_CHECK(
        state->device().type() == kFlagos,
        "Expected the state of a 'flagos' generator but found one of '",
        state->device().type(),
        "'");
    const auto lock = lock_native();
    native_.unsafeGetGeneratorImpl()->graphsafe_set_state(
        static_cast<const FlagosGenerator&>(*state).native_.getIntrusivePtr());
  }
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override {
    const auto lock = lock_native();
    return c10::make_intrusive<FlagosGenerator>(
        device_.index(), at::Generator(native_.unsafeGetGeneratorImpl()->graphsafe_get_state()));
  }
  const at::Generator& native() const {
    return native_;
  }
  uint64_t times_set() const {
    return times_set_;
  }

 private:
  // torch locks the flagos generator, kernels the native one that they draw from. Nobody locks them the other way
  // round.
  std::unique_lock<std::mutex> lock_native() const {
    return std::unique_lock<std::mutex>(native_.unsafeGetGeneratorImpl()->mutex_);
  }

  GeneratorImpl* clone_impl() const override {
    const auto lock = lock_native();
    return new FlagosGenerator(device_.index(), native_.clone());
  }

  at::Generator native_;
  std::atomic<uint64_t> times_set_{0};
};

} // namespace

const at::Generator& default_generator(c10::DeviceIndex device) {
  static std::mutex mutex;
  static std::deque<at::Generator> generators;
  if (device < 0) {
    device = current_device();
  }
  check_device_index(device);
  const std::lock_guard<std::mutex> lock(mutex);
  while (generators.size() <= static_cast<size_t>(device)) {
    generators.push_back(
        at::make_generator<FlagosGenerator>(
            static_cast<c10::DeviceIndex>(generators.size()),
            native->default_generator(static_cast<c10::DeviceIndex>(generators.size()))));
  }
  return generators[static_cast<size_t>(device)];
}

uint64_t times_set(const at::Generator& generator) {
  return static_cast<const FlagosGenerator*>(generator.unsafeGetGeneratorImpl())->times_set();
}

at::Generator make_generator(c10::DeviceIndex device) {
  if (device < 0) {
    device = current_device();
  }
  check_device_index(device);
  return at::make_generator<FlagosGenerator>(device, native->new_generator(device));
}

at::Generator native_generator(const at::Generator& generator) {
  const c10::Device device = generator.device();
  if (native->owned_by_torch && device.type() == native->type) {
    return generator; // tensors of both may share memory, so the generators of both are accepted
  }
  TORCH_CHECK(
      device.type() == kFlagos,
      "Expected a 'flagos' device type for generator but found '",
      device.type(),
      "'. Make it with torch.Generator(device=\"flagos\").");
  return static_cast<const FlagosGenerator*>(generator.unsafeGetGeneratorImpl())->native();
}

} // namespace flagos
