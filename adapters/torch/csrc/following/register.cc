// SPDX-License-Identifier: Apache-2.0
#include "following/register.h"

#include <pthread.h>

#include <array>
#include <string_view>

#include "following/follower.h"
#include "runtime/pool_memory.h"
#include "runtime/storage.h"

namespace flagos::following {

namespace {

using Lock = std::lock_guard<std::recursive_mutex>;

// A method of the follower as a function, which holds its mutex.
template <auto kMethod, class... Arguments>
auto locked(Arguments... arguments) {
  Follower& follower = Follower::instance();
  const Lock lock(follower.mutex);
  return (follower.*kMethod)(arguments...);
}

c10::Dict<std::string, int64_t> to_dict(const Counts& counts) {
  c10::Dict<std::string, int64_t> dict;
  for (const auto& [what, count] : counts) {
    dict.insert(what, count);
  }
  return dict;
}

// Whether this thread is one of autograd's: it uses the device while the thread that asked for gradients waits.
bool is_autograds() {
  std::array<char, 16> name{};
  return pthread_getname_np(pthread_self(), name.data(), name.size()) == 0 &&
      std::string_view(name.data()).starts_with("pt_autograd_"); // as torch's engine names them
}

// A thread of the program that uses the device, until the thread ends.
struct User {
  User() {
    const Lock lock(Follower::instance().mutex);
    Follower::instance().count_users(1);
  }
  ~User() {
    const Lock lock(Follower::instance().mutex);
    Follower::instance().count_users(-1);
  }
  User(const User&) = delete;
  User& operator=(const User&) = delete;
};

// Has the runtime call this room, from the first time that a program wants graphs.
void attach() {
  static const bool once = [] {
    launch_pending_slowly = &locked<&Follower::cut>;
    know_thread = [] {
      is_thread_known = true;
      if (!is_autograds()) {
        static thread_local const User user;
        (void)user;
      }
    };
    forget_lent = &locked<&Follower::forget_lent>;
    keep_until_launched = &locked<&Follower::keep_twin>;
    keep_pool_memory = &locked<&Follower::keep_memory>;
    wait_for_moves = &locked<&Follower::wait_for_moves>;
    is_on_another_stream = &locked<&Follower::is_on_another_stream>;
    note_unseen_call = &locked<&Follower::note_unseen_call>;
    release_graphs = &locked<&Follower::release>;
    give_back_planned = &give_back_at;
    planned_block_of = [](const c10::DataPtr& memory) {
      const Block* block = block_of(memory);
      return block != nullptr ? &block->region->memory : nullptr;
    };
    pthread_atfork(
        [] {
          Follower::instance().mutex.lock();
          try {
            Follower::instance().cut("a fork");
          } catch (const std::exception& error) { // fork() has no exceptions
            TORCH_WARN("flagos: calls before a fork failed: ", error.what());
          }
        },
        [] { Follower::instance().mutex.unlock(); },
        [] {
          Follower::instance().forked();
          new (&Follower::instance().mutex) std::recursive_mutex(); // its owner is another thread's number
        });
    return true;
  }();
  (void)once;
}

} // namespace

void register_following(torch::Library& library) {
  library.def("graphs_want(bool graphs) -> ()", [](bool graphs) {
    if (graphs) {
      open_device();
      native->prepare_graphs();
      attach();
    }
    const Lock lock(Follower::instance().mutex);
    Follower::instance().want(graphs);
  });
  library.def("graphs_wanted() -> bool", [] { return are_graphs_wanted(); });
  library.def("graphs_supported() -> bool", [] { return native->has_graphs(); });
  library.def("graphs_counts() -> Dict(str, int)", [] {
    const Lock lock(Follower::instance().mutex);
    return to_dict(Follower::instance().counts());
  });
  library.def("graphs_followed_calls() -> Dict(str, int)", [] {
    const Lock lock(Follower::instance().mutex);
    return to_dict(Follower::followed_calls());
  });
  library.def("graphs_native_calls() -> Dict(str, Dict(str, int))", [] {
    const Lock lock(Follower::instance().mutex);
    c10::Dict<std::string, c10::Dict<std::string, int64_t>> dict;
    for (const auto& [op, reasons] : Follower::instance().native_calls()) {
      dict.insert(op, to_dict(reasons));
    }
    return dict;
  });
  library.def("graphs_lend(Storage storage) -> ()", [](const c10::Storage& storage) {
    if (storage.device_type() == kFlagos) {
      flagos::lend(storage.unsafeGetStorageImpl());
    }
  });
  library.def("graphs_release() -> ()", [] {
    if (release_graphs != nullptr) {
      release_graphs();
    }
  });
  library.def("graphs_inject(int fault) -> ()", [](int64_t fault) {
    const Lock lock(Follower::instance().mutex);
    Follower::instance().inject(fault);
  });
}

} // namespace flagos::following
