// SPDX-License-Identifier: Apache-2.0
#include "python_kernels/routed.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>

#include <atomic>
#include <map>
#include <memory>

#include "aten/alias.h"
#include "aten/boxed.h"
#include "following/turn.h"
#include "python_kernels/conditions.h"
#include "python_kernels/packed.h"
#include "python_kernels/replay.h"
#include "python_kernels/speeds.h"
#include "runtime/stream.h"

namespace flagos {

namespace {

// One of this many replays is compared with a call of the implementation; 0 compares none.
std::atomic<uint64_t> verify_every{0};

// Where Python registers its function for an operator: the key of a device that torch knows and has no backend for, so
// that nobody else calls the function there. Its key of autograd has then what torch puts above such a kernel.
constexpr c10::DispatchKey kCarrier = c10::DispatchKey::MAIA;
constexpr c10::DispatchKey kAboveCarrier = c10::DispatchKey::AutogradMAIA;

// Where only what is faster may serve, the native kernel serves the first calls of a signature. Those that an
// implementation makes of it until it is replayed take as long as some hundred calls may gain.
constexpr uint32_t kNativeFirst = 32;

// The call that an implementation in Python serves at the moment.
struct Pending {
  int64_t implementation;
  // For the recorder that runs inside the call. Nothing is recorded of a call without a signature.
  Recorded* recorded = nullptr;
  const Signature* signature = nullptr;
  uint64_t generation = 0; // when the call began
  bool wanted = false;     // whether the call is to be recorded
};
thread_local Pending* pending = nullptr;

// A tensor like this one over a copy of all bytes of its storage.
at::Tensor copy_of(const at::Tensor& tensor) {
  const auto nbytes = static_cast<int64_t>(tensor.storage().nbytes());
  const auto bytes = at::TensorOptions().device(tensor.device()).dtype(c10::kByte);
  at::Tensor copy = at::empty({nbytes}, bytes);
  at::Tensor all = at::empty({0}, bytes);
  all.set_(tensor.storage(), 0, {nbytes}, {1});
  copy.copy_(all);
  auto same = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(copy.storage()), tensor.key_set(), tensor.dtype());
  same.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  return same;
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.strides() == b.strides() && a.scalar_type() == b.scalar_type() &&
      (a.numel() == 0 ||
       at::equal(a.contiguous().view({-1}).view(c10::kByte), b.contiguous().view({-1}).view(c10::kByte)));
}

void each_tensor(const c10::IValue& value, const std::function<void(const at::Tensor&)>& visit) {
  if (value.isTensor() && value.toTensor().defined() && is_flagos(value.toTensor())) {
    visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorList()) {
      visit(tensor);
    }
  }
}

// An implementation in Python that serves an operator, and what serves calls in its place.
struct Served {
  Served(int64_t number, std::string name, bool takes_native, Conditions conditions)
      : implementation(number), backend(std::move(name)), native(takes_native), only(std::move(conditions)) {}

  int64_t implementation; // Python's number for it
  std::string backend;
  bool native; // it takes tensors of the native device; others get neither conditions nor recordings
  Conditions only;
  std::shared_ptr<Recordings> recordings; // null where nothing is recorded and nothing is packed
  bool recorded = false;                  // calls of the implementation are recorded
  std::unique_ptr<const PackedCalls> packed;
  bool outside = true;                     // the implementation serves calls that are not in the pack
  std::unique_ptr<const Speeds> speeds;    // null where the implementation serves calls whatever their speed
  mutable std::atomic<uint64_t> slower{0}; // calls left to the native kernel because their class is not faster
  mutable std::atomic<uint64_t> rare{0};   // and because their signature is new, or is not replayed
};

// One operator's kernel from the first time that an implementation in Python serves it until the process ends: which
// one does may change while calls run, and torch's table, which nothing guards, stays as it is. Each call keeps what it
// began with.
class Routed {
 public:
  explicit Routed(const c10::OperatorHandle& op)
      : name_(c10::toString(op.operator_name())),
        slot_(op_slot(name_)),
        traits_(traits_of(op)),
        python_(op.getComputedKernelForDispatchKey(kCarrier)) {
    if (op.hasComputedKernelForDispatchKey(c10::DispatchKey::PrivateUse1)) {
      below_.emplace(op.getComputedKernelForDispatchKey(c10::DispatchKey::PrivateUse1));
    }
    if (op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
        !op.hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1)) {
      composite_.emplace(
          op.getComputedKernelForDispatchKey(c10::DispatchKey::AutogradPrivateUse1),
          op.getComputedKernelForDispatchKey(kAboveCarrier));
    }
  }

  bool is_composite() const {
    return composite_.has_value();
  }

  std::shared_ptr<const Served> served() const {
    return served_.load(std::memory_order_acquire);
  }
  // Null for the kernel that was there before.
  void set_served(std::shared_ptr<const Served> served) {
    served_.store(std::move(served), std::memory_order_release);
  }

  void call(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    const bool is_decided = decided.by == this;
    const std::shared_ptr<const Served> now = is_decided ? *decided.served : served();
    if (is_decided) {
      decided = {};
    }
    if (now == nullptr) {
      call_below(op, keys, stack);
    } else if (now->speeds != nullptr && !now->speeds->faster(*stack)) {
      now->slower.fetch_add(1, std::memory_order_relaxed);
      call_below(op, keys, stack); // the plan's choice, and no fallback
    } else if (now->native) {
      serve_by(*now, op, stack);
    } else {
      Pending call{now->implementation};
      const Scoped scope(pending, &call);
      python_.callBoxed(op, keys, stack);
    }
  }

  // Above autograd, for what torch's composite serves otherwise: autograd sees what the composite calls.
  void call_above(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    const std::shared_ptr<const Served> now = served();
    if (now == nullptr) {
      composite_->first.callBoxed(op, keys, stack);
      return;
    }
    const Scoped scope(decided, Decided{this, &now});
    composite_->second.callBoxed(op, keys, stack);
  }

 private:
  // The decision of a call above autograd for the same call below.
  struct Decided {
    const Routed* by = nullptr;
    const std::shared_ptr<const Served>* served = nullptr;
  };
  static thread_local Decided decided;

  // Calls the kernel that was there before, which counts and logs the call.
  void call_below(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    below_.has_value() ? below_->callBoxed(op, keys, stack) : boxed_fallback(op, keys, stack);
  }

  // Replays a recording of the call if there is one, or the one that a pack has of it, else calls the implementation.
  // Calls that break the implementation's conditions run natively, and so do calls that are not in the pack, unless the
  // implementation serves them.
  void serve_by(const Served& served, const c10::OperatorHandle& op, torch::jit::Stack* stack) {
    count_call(slot_);
    try {
      // Conditions come before recordings, because they may be newer.
      if (C10_UNLIKELY(served.only.any())) {
        if (const uint32_t broken = served.only.broken_by(*stack)) {
          decline(op, stack, served.only.reason(broken));
          return;
        }
      }
      if (served.recordings == nullptr) {
        if (served.speeds != nullptr) {
          leave_as_rare(served, op, stack);
          return;
        }
        Pending call{served.implementation};
        call_python(op, stack, call);
        return;
      }
      served.recordings->refresh();
      const size_t num_arguments = op.schema().arguments().size();
      Signature signature;
      if (C10_UNLIKELY(!signature.describe(*stack, num_arguments))) {
        if (served.speeds != nullptr) {
          leave_as_rare(served, op, stack);
        } else if (served.outside) {
          Pending call{served.implementation};
          call_python(op, stack, call);
        } else {
          decline(op, stack, "the call is of a kind that no pack has");
        }
        return;
      }
      Recorded* recorded = served.recordings->find(signature);
      const Program* program = recorded == nullptr ? nullptr : recorded->program.load(std::memory_order_acquire);
      if (C10_LIKELY(program != nullptr)) {
        replay(served, op, stack, signature, *recorded, *program);
        return;
      }
      if (served.packed != nullptr) {
        size_t row = 0;
        const PackedCalls::Found found = served.packed->find(signature, &row);
        if (found == PackedCalls::Found::kSlower) {
          leave_to_native(op, stack); // the plan's choice, and no fallback
          return;
        }
        const std::string reason = found == PackedCalls::Found::kServed ? adopt(served, signature, row, recorded)
                                                                        : "the call is not in the pack";
        if (recorded != nullptr && (program = recorded->program.load(std::memory_order_acquire)) != nullptr) {
          replay(served, op, stack, signature, *recorded, *program);
          return;
        }
        if (!served.outside) {
          decline(op, stack, reason);
          return;
        }
      }
      if (served.speeds != nullptr && !comes_often(served, signature, recorded)) {
        leave_as_rare(served, op, stack);
        return;
      }
      record(served, op, stack, signature, recorded);
    } catch (c10::Error& error) {
      name_while_capturing(error, name_.c_str());
      throw;
    }
  }

  // A recorder inside the call sees `call`, and nothing of the calls around this one.
  void call_python(const c10::OperatorHandle& op, torch::jit::Stack* stack, Pending& call) {
    launch_before_unseen_call(name_.c_str());
    const Scoped scope(pending, &call);
    serve(op, stack, traits_, [&](torch::jit::Stack* converted) { python_.callBoxed(op, native->keys, converted); });
  }

  // Has the call in a row of the pack replayed, from now on. Returns why that cannot be, and sets `recorded` if it can.
  static std::string adopt(const Served& served, const Signature& signature, size_t row, Recorded*& recorded) {
    if (native->is_capturing(signature.device)) {
      return "its kernels were not loaded before the capture began";
    }
    Recorded* const found = recorded == nullptr ? served.recordings->find_or_add(signature) : recorded;
    if (found == nullptr) {
      return "there are too many signatures";
    }
    const DeviceScope scope(signature.device); // the kernels are loaded in the context of this device
    const auto words = [&] { return served.packed->recording(row, signature); };
    if (!Recordings::adopt(*found, words, signature.inputs.size())) {
      const std::lock_guard<std::mutex> lock(found->mutex);
      return "the pack's kernels cannot be used: " + found->reason;
    }
    recorded = found;
    return "";
  }

  // Does what an implementation that declines a call does, without entering Python.
  void decline(const c10::OperatorHandle& op, torch::jit::Stack* stack, const std::string& reason) {
    check(core->op_record_decline(name_.c_str(), reason.c_str()));
    leave_to_native(op, stack);
  }

  void leave_to_native(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
    launch_before_unseen_call(name_.c_str());
    log_dispatch(slot_, name_.c_str(), native->name_in_logs());
    native->serve(op, stack, traits_);
  }

  // Whether a signature has come so often that recording it is worth its time. Adds it to those that are known.
  static bool comes_often(const Served& served, const Signature& signature, Recorded*& recorded) {
    if (!served.recorded || native->is_capturing(signature.device)) {
      return false;
    }
    if (recorded == nullptr) {
      recorded = served.recordings->find_or_add(signature);
    }
    return recorded != nullptr && !recorded->refused.load(std::memory_order_relaxed) &&
        recorded->before.fetch_add(1, std::memory_order_relaxed) >= kNativeFirst;
  }

  void leave_as_rare(const Served& served, const c10::OperatorHandle& op, torch::jit::Stack* stack) {
    served.rare.fetch_add(1, std::memory_order_relaxed);
    leave_to_native(op, stack);
  }

  // Records every call of a signature but the first, which compiles and tunes kernels.
  void record(
      const Served& served,
      const c10::OperatorHandle& op,
      torch::jit::Stack* stack,
      const Signature& signature,
      Recorded* recorded) {
    if (recorded == nullptr) {
      recorded = served.recordings->find_or_add(signature);
    }
    Pending call{served.implementation, recorded, &signature, generation().load(std::memory_order_acquire)};
    if (served.recorded && recorded != nullptr && !recorded->refused.load(std::memory_order_relaxed)) {
      const std::lock_guard<std::mutex> lock(recorded->mutex);
      call.wanted = ++recorded->calls > 1;
    }
    call_python(op, stack, call);
  }

  void replay(
      const Served& served,
      const c10::OperatorHandle& op,
      torch::jit::Stack* stack,
      const Signature& signature,
      Recorded& recorded,
      const Program& program) {
    const uint64_t replays = recorded.replays.fetch_add(1, std::memory_order_relaxed) + 1;
    log_dispatch(slot_, name_.c_str(), served.backend.c_str());
    const uint64_t every = verify_every.load(std::memory_order_relaxed);
    if (C10_UNLIKELY(
            every != 0 && replays % every == 0 && !signature.aliased && !native->is_capturing(signature.device))) {
      verify(served, op, stack, signature, program);
    } else if (every != 0 || !are_graphs_wanted() || !follow(op, stack, signature, program)) {
      program.run(signature, stack, op.schema().arguments().size());
    }
  }

  // Has automatic graphs serve a replay, or record it; false if it is to run by itself.
  bool follow(
      const c10::OperatorHandle& op,
      torch::jit::Stack* stack,
      const Signature& signature,
      const Program& program) const {
    following::Turn turn(program.followed(op, traits_.writes), *stack);
    if (turn.records()) {
      turn.serve(*stack, [&](torch::jit::Stack& arguments) {
        program.run(signature, &arguments, op.schema().arguments().size());
      });
    }
    return turn.followed() || turn.records();
  }

  // Replays the recording, and calls the implementation on copies of the arguments. The two must agree in every bit.
  void verify(
      const Served& served,
      const c10::OperatorHandle& op,
      torch::jit::Stack* stack,
      const Signature& signature,
      const Program& program) {
    const size_t num_arguments = op.schema().arguments().size();
    torch::jit::Stack copies(stack->end() - static_cast<ptrdiff_t>(num_arguments), stack->end());
    const torch::jit::Stack arguments = copies;
    for (c10::IValue& value : copies) {
      if (value.isTensor() && value.toTensor().defined() && is_flagos(value.toTensor())) {
        value = copy_of(value.toTensor());
      } else if (value.isTensorList()) {
        c10::List<at::Tensor> list;
        for (const at::Tensor& tensor : value.toTensorList()) {
          list.push_back(copy_of(tensor));
        }
        value = std::move(list);
      }
    }
    torch::jit::Stack expected = copies;
    program.run(signature, stack, num_arguments);
    Pending call{served.implementation};
    call_python(op, &expected, call);
    std::vector<at::Tensor> ours;
    std::vector<at::Tensor> theirs;
    const auto collect = [](std::vector<at::Tensor>& into) {
      return [&into](const at::Tensor& tensor) { into.push_back(tensor); };
    };
    for (size_t i = 0; i < num_arguments; ++i) { // some arguments may have been written
      each_tensor(arguments[i], collect(ours));
      each_tensor(copies[i], collect(theirs));
    }
    for (auto result = stack->end() - static_cast<ptrdiff_t>(expected.size()); result != stack->end(); ++result) {
      each_tensor(*result, collect(ours));
    }
    for (const c10::IValue& result : expected) {
      each_tensor(result, collect(theirs));
    }
    bool same = ours.size() == theirs.size();
    for (size_t i = 0; same && i < ours.size(); ++i) {
      same = same_bits(ours[i], theirs[i]);
    }
    TORCH_CHECK(
        same,
        "flagos: a replay of ",
        name_,
        " differs from its implementation (",
        served.backend,
        "), which must depend on something a recording does not know; keep it from being recorded with "
        "torch_fl.replay.refuse(\"",
        name_,
        "\"), and report it");
  }

  std::string name_;
  FlagosOpSlot* slot_;
  Traits traits_;
  c10::SafeKernelFunction python_;
  // The route without an implementation. Implementations may come before the fallback for all operators.
  std::optional<c10::SafeKernelFunction> below_;
  // Above autograd: the composite, and what torch puts above an implementation.
  std::optional<std::pair<c10::SafeKernelFunction, c10::SafeKernelFunction>> composite_;
  std::atomic<std::shared_ptr<const Served>> served_;
};

thread_local Routed::Decided Routed::decided;

// Torch destroys kernels when it ends; a call may still run then.
class RoutedKernel final : public c10::OperatorKernel {
 public:
  RoutedKernel(Routed& routed, bool above) : routed_(routed), above_(above) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    above_ ? routed_.call_above(op, keys, stack) : routed_.call(op, keys, stack);
  }

 private:
  Routed& routed_;
  bool above_;
};

std::mutex routed_mutex;

// Every operator that an implementation in Python has served, for the life of the process.
std::map<std::string, Routed*>& all_routed() {
  static auto* kernels = new std::map<std::string, Routed*>;
  return *kernels;
}

class Silent final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& /*that a kernel is replaced*/) override {}
};

c10::OperatorHandle operator_named(const std::string& name) {
  const auto op = find_operator(name);
  TORCH_CHECK(op.has_value(), "flagos: torch has no operator ", name);
  return *op;
}

// The kernel of an operator, over the one that is registered for PrivateUse1 if the operator has had none yet. Python's
// function has to be registered for `kCarrier`.
Routed& routed(const c10::OperatorHandle& op) {
  const std::string name = c10::toString(op.operator_name());
  const std::lock_guard<std::mutex> lock(routed_mutex);
  Routed*& found = all_routed()[name];
  if (found != nullptr) {
    return *found;
  }
  TORCH_CHECK(op.hasKernelForDispatchKey(kCarrier), "flagos: Python has no function for ", name);
  auto* const made = new Routed(op);
  Silent silent;
  const c10::WarningUtils::WarningHandlerGuard quiet(&silent);
  const auto put = [&](c10::DispatchKey key, bool above) {
    const std::string space = name.substr(0, name.find("::"));
    // Never destroyed: torch does not expect that of a kernel that a call may run.
    auto* const library = new torch::Library(torch::Library::IMPL, space, key, __FILE__, __LINE__);
    auto kernel = std::make_unique<RoutedKernel>(*made, above);
    library->impl(name.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::move(kernel)));
  };
  if (made->is_composite()) { // first above, so that no call runs the composite below autograd
    put(c10::DispatchKey::AutogradPrivateUse1, /*above=*/true);
  }
  put(c10::DispatchKey::PrivateUse1, /*above=*/false);
  found = made;
  return *found;
}

// Has the implementation with this number serve an operator from the next call on. A `native` one gets native tensors,
// and only calls for which the conditions `only` hold.
// Of `packed`, if there is any, the first number is the word at which the operator's rows of the pack in use begin,
// then come their number and the flags that they need to serve; `outside` is whether the implementation serves other
// calls. With `faster` it serves calls of these classes alone (`CallClasses`), and of these the ones that are replayed.
void attach(
    const std::string& name,
    int64_t implementation,
    const std::string& backend,
    bool takes_native,
    const std::vector<std::string>& only,
    bool recorded,
    at::IntArrayRef packed,
    bool outside,
    at::OptionalIntArrayRef faster) {
  const c10::OperatorHandle op = operator_named(name);
  auto served = std::make_shared<Served>(implementation, backend, takes_native, Conditions(op.schema(), only));
  served->recorded = recorded;
  if (!packed.empty()) {
    TORCH_CHECK(packed.size() == 3, "flagos: the rows of a pack are three numbers, got ", packed.size());
    const auto word = [&](size_t i) { return static_cast<uint64_t>(packed[i]); };
    served->packed = std::make_unique<const PackedCalls>(pack_in_use(), word(0), word(1), word(2));
    served->outside = outside;
  }
  if (faster.has_value()) {
    served->speeds = std::make_unique<const Speeds>(op, std::vector<uint64_t>(faster->begin(), faster->end()));
  }
  if (recorded || served->packed != nullptr) {
    served->recordings = std::make_shared<Recordings>();
  }
  routed(op).set_served(std::move(served));
}

Routed* find_routed(const std::string& name) {
  const std::lock_guard<std::mutex> lock(routed_mutex);
  const auto found = all_routed().find(name);
  return found == all_routed().end() ? nullptr : found->second;
}

void detach(const std::string& name) {
  if (Routed* const found = find_routed(name)) {
    found->set_served(nullptr);
  }
}

// The calls that were left to the native kernel for their class, and for their signature, as the plan has it.
std::tuple<int64_t, int64_t> left_to_native(const std::string& name) {
  const Routed* const routed = find_routed(name);
  const std::shared_ptr<const Served> served = routed == nullptr ? nullptr : routed->served();
  if (served == nullptr) {
    return {0, 0};
  }
  return {static_cast<int64_t>(served->slower.load()), static_cast<int64_t>(served->rare.load())};
}

// The class of a call of the operator `name`, as a number and in words. On the stack: the name, and a list of all
// arguments.
void call_class(const c10::OperatorHandle& /*op*/, torch::jit::Stack* stack) {
  const c10::List<c10::IValue> given = torch::jit::pop(*stack).toList();
  const std::string name = torch::jit::pop(*stack).toStringRef();
  const c10::OperatorHandle op = operator_named(name);
  const size_t expected = op.schema().arguments().size();
  TORCH_CHECK(
      given.size() == expected, "flagos: ", name, " takes ", expected, " arguments, and call_class got ", given.size());
  const torch::jit::Stack arguments(given.begin(), given.end());
  const CallClasses classes(op);
  stack->emplace_back(static_cast<int64_t>(classes.number(arguments)));
  stack->emplace_back(classes.words(arguments));
}

// CPython calls it before a watched dictionary changes (PyDict_WatchCallback), with the interpreter's lock held and
// possibly an exception pending. It must not run Python.
int dictionary_changed(int /*event*/, void* /*dictionary*/, void* /*key*/, void* /*value*/) {
  generation().fetch_add(1, std::memory_order_acq_rel);
  return 0;
}

// Numbers of signatures that are replayed, undecided and refused; the number of replays; the reasons for refusals; and
// the numbers of replayed signatures and of replays that are of a pack.
std::tuple<int64_t, int64_t, int64_t, int64_t, std::vector<std::string>, int64_t, int64_t> recordings_of(
    const std::string& name) {
  const Routed* const routed = find_routed(name);
  const std::shared_ptr<const Served> served = routed == nullptr ? nullptr : routed->served();
  const std::shared_ptr<Recordings> recordings = served == nullptr ? nullptr : served->recordings;
  int64_t replayed = 0;
  int64_t undecided = 0;
  int64_t refused = 0;
  int64_t replays = 0;
  std::vector<std::string> reasons;
  int64_t packed = 0;
  int64_t packed_replays = 0;
  if (recordings != nullptr) {
    recordings->refresh();
    recordings->each([&](Recorded& entry) {
      const std::lock_guard<std::mutex> lock(entry.mutex);
      replays += static_cast<int64_t>(entry.replays.load());
      packed += static_cast<int64_t>(entry.packed);
      packed_replays += entry.packed ? static_cast<int64_t>(entry.replays.load()) : 0;
      if (entry.program.load() != nullptr) {
        ++replayed;
      } else if (entry.refused.load()) {
        ++refused;
        reasons.push_back(entry.reason);
      } else {
        ++undecided;
      }
    });
  }
  return {replayed, undecided, refused, replays, reasons, packed, packed_replays};
}

} // namespace

void register_routed(torch::Library& library) {
  library.def(
      "attach_kernel(str op, int implementation, str backend, bool native, str[] only, bool recorded=False, "
      "int[] packed=[], bool outside=True, int[]? faster=None) -> ()",
      &attach);
  // Takes the pack that lies in memory: its address and size, and four numbers for each kernel (`Pack::Kernel`).
  library.def(
      "use_pack(int address, int nbytes, int[] kernels) -> ()",
      [](int64_t address, int64_t nbytes, at::IntArrayRef kernels) {
        TORCH_CHECK(kernels.size() % 4 == 0 && nbytes >= 0, "flagos: a kernel of a pack is four numbers");
        std::vector<Pack::Kernel> all;
        for (size_t i = 0; i < kernels.size(); i += 4) {
          const auto word = [&](size_t at) { return static_cast<uint64_t>(kernels[i + at]); };
          all.push_back({word(0), word(1), word(2), static_cast<uint32_t>(kernels[i + 3])});
        }
        const auto* base = reinterpret_cast<const uint8_t*>(address); // NOLINT(performance-no-int-to-ptr)
        use_pack(std::make_shared<Pack>(base, static_cast<uint64_t>(nbytes), std::move(all)));
      });
  library.def("detach_kernel(str op) -> ()", &detach);
  library.def("left_to_native(str op) -> (int, int)", &left_to_native);
  library.def(
      "call_class(str op, Any[] arguments) -> (int, str)", torch::CppFunction::makeFromBoxedFunction<&call_class>());
  library.def(
      "conditions_held(str op, Tensor[] tensors, int[] tensors_at, int[] complex_at, ScalarType? dtype, str[] more) "
      "-> str[]",
      &conditions_held);
  // The signature of the call that an implementation serves, as a pack has it, for what makes packs inside a call;
  // empty for a call that has none.
  library.def("call_signature() -> int[]", [] {
    std::vector<int64_t> words;
    if (pending != nullptr && pending->signature != nullptr) {
      words.assign(pending->signature->words.begin(), pending->signature->words.end());
      words.back() = 0;
    }
    return words;
  });
  // The number of the implementation that is to serve the call, as the call begins.
  library.def("called_implementation() -> int", [] {
    TORCH_CHECK(pending != nullptr, "flagos: no implementation is being called");
    return pending->implementation;
  });
  // For the recorder, inside a call.
  library.def("recording_wanted() -> bool", [] { return pending != nullptr && pending->wanted; });
  library.def("offer_recording(int[] words) -> ()", [](at::IntArrayRef words) {
    TORCH_CHECK(pending != nullptr && pending->wanted, "flagos: no call is being recorded");
    pending->wanted = false; // one recording per call
    if (generation().load(std::memory_order_acquire) != pending->generation) {
      Recordings::disturb(*pending->recorded);
      return;
    }
    const Signature& signature = *pending->signature;
    const DeviceScope scope(signature.device); // the kernels are loaded in the context of this device
    Recordings::offer(*pending->recorded, words.vec(), signature.inputs.size());
  });
  library.def("refuse_recording(str reason) -> ()", [](const std::string& reason) {
    TORCH_CHECK(pending != nullptr && pending->wanted, "flagos: no call is being recorded");
    pending->wanted = false;
    Recordings::refuse(*pending->recorded, reason);
  });
  library.def("forget_recordings() -> ()", [] { generation().fetch_add(1, std::memory_order_acq_rel); });
  // The address of a callback for PyDict_AddWatcher: see torch_fl/python_kernels/globals_watch.py.
  library.def("dictionary_watcher() -> int", [] { return reinterpret_cast<int64_t>(&dictionary_changed); });
  library.def("recordings(str op) -> (int, int, int, int, str[], int, int)", &recordings_of);
  library.def("verify_replays(int every) -> ()", [](int64_t every) {
    TORCH_CHECK(every >= 0, "flagos: verify_replays takes how many replays lie between checks, or 0; got ", every);
    verify_every.store(static_cast<uint64_t>(every));
  });
}

} // namespace flagos
