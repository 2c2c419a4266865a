// SPDX-License-Identifier: Apache-2.0
#include "following/turn.h"

#include "following/follower.h"

namespace flagos::following {

thread_local bool is_part = false;

Turn::Turn(Operator& op, torch::jit::Stack& stack) : lock_(Follower::instance().mutex, std::defer_lock) {
  if (is_part) {
    return;
  }
  lock_.lock();
  know_this_thread();
  Follower& follower = Follower::instance();
  followed_ = follower.begin(op, stack, arguments_, record_);
  if (record_ == nullptr) {
    if (followed_) {
      follower.end();
    }
    lock_.unlock();
  }
}

Turn::~Turn() {
  if (record_ != nullptr) {
    Follower::instance().end();
  }
}

Turn::Serving::Serving() {
  Follower::instance().serving(true);
}

Turn::Serving::~Serving() {
  Follower::instance().serving(false);
}

size_t Turn::num_arguments() const {
  return Follower::instance().num_arguments();
}

bool Turn::is_deferred() const {
  return Follower::instance().is_deferred();
}

void Turn::note(const torch::jit::Stack& stack) {
  Follower::instance().note(arguments_, stack);
}

void Turn::give_up() {
  Follower::instance().give_up();
}

} // namespace flagos::following
