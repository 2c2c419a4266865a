// SPDX-License-Identifier: Apache-2.0
#include "calls.h"

#include <cstring>

namespace simulated {

namespace {

// Calls of a group run one after the other, all that sends before all that receives.
struct Pending {
  std::shared_ptr<Group> group;
  void* stream;
  bool sends;
  std::function<void()> work;
};
thread_local int depth = 0;
thread_local std::vector<Pending> pending;

bool queue_in_order(const std::shared_ptr<Group>& group, void* stream, std::function<void()> work) {
  const uint64_t ticket = group->take_ticket();
  return queue(stream, [group, ticket, work = std::move(work)] {
    group->wait_for_turn(ticket);
    work();
    group->end_turn();
  });
}

int submit(const Call& call, const Codes& codes, bool sends, std::function<void()> work) {
  if (!is_sound(call)) {
    return codes.invalid_argument;
  }
  if (depth > 0) {
    pending.push_back({call.comm->group, call.stream, sends, std::move(work)});
    return codes.success;
  }
  return queue_in_order(call.comm->group, call.stream, std::move(work)) ? codes.success : codes.invalid_argument;
}

} // namespace

bool is_sound(const Call& call) {
  std::string wrong;
  if (call.comm == nullptr || call.comm->magic != Comm::kAlive) {
    complain(call.function, "the communicator is not alive");
    return false;
  }
  if (call.comm->aborted) {
    wrong = "the communicator was aborted";
  } else if (!call.type.has_value()) {
    wrong = "an unknown data type";
  } else if (!call.op.has_value()) {
    wrong = "an unknown operation";
  } else if (call.root < 0 || call.root >= call.comm->group->size()) {
    wrong = "there is no rank " + std::to_string(call.root);
  } else if (!is_stream(call.stream)) {
    wrong = "there is no such stream";
  } else if (call.count != 0 && call.send == nullptr && call.recv == nullptr) {
    wrong = "a buffer is NULL";
  }
  if (!wrong.empty()) {
    complain(call.function, wrong);
  }
  return wrong.empty();
}

int all_reduce(const Call& call, const Codes& codes) {
  return submit(
      call,
      codes,
      true,
      [call, group = call.comm ? call.comm->group : nullptr, factor = call.comm ? call.comm->factor : 1] {
        const auto all = group->exchange(call.send, call.count * size_of(*call.type));
        const auto out = reduced(all, call.count, *call.type, *call.op, factor);
        std::memcpy(call.recv, out.data(), out.size());
      });
}

int reduce(const Call& call, const Codes& codes) {
  return submit(
      call,
      codes,
      true,
      [call, group = call.comm ? call.comm->group : nullptr, factor = call.comm ? call.comm->factor : 1] {
        const auto all = group->exchange(call.send, call.count * size_of(*call.type));
        if (group->rank() == call.root) {
          const auto out = reduced(all, call.count, *call.type, *call.op, factor);
          std::memcpy(call.recv, out.data(), out.size());
        }
      });
}

int broadcast(const Call& call, const Codes& codes) {
  return submit(call, codes, true, [call, group = call.comm ? call.comm->group : nullptr] {
    const size_t bytes = call.count * size_of(*call.type);
    const auto all = group->exchange(group->rank() == call.root ? call.send : call.recv, bytes);
    std::memcpy(call.recv, all[call.root].data(), bytes);
  });
}

int all_gather(const Call& call, const Codes& codes) {
  return submit(call, codes, true, [call, group = call.comm ? call.comm->group : nullptr] {
    const size_t bytes = call.count * size_of(*call.type);
    const auto all = group->exchange(call.send, bytes);
    for (size_t rank = 0; rank < all.size(); ++rank) {
      std::memcpy(static_cast<char*>(call.recv) + rank * bytes, all[rank].data(), bytes);
    }
  });
}

int reduce_scatter(const Call& call, const Codes& codes) {
  return submit(
      call,
      codes,
      true,
      [call, group = call.comm ? call.comm->group : nullptr, factor = call.comm ? call.comm->factor : 1] {
        const size_t total = call.count * static_cast<size_t>(group->size());
        const auto all = group->exchange(call.send, total * size_of(*call.type));
        const auto out = reduced(all, total, *call.type, *call.op, factor);
        const size_t bytes = call.count * size_of(*call.type);
        std::memcpy(call.recv, out.data() + static_cast<size_t>(group->rank()) * bytes, bytes);
      });
}

int send(const Call& call, const Codes& codes) {
  return submit(call, codes, true, [call, group = call.comm ? call.comm->group : nullptr] {
    group->put(call.root, call.send, call.count * size_of(*call.type));
  });
}

int recv(const Call& call, const Codes& codes) {
  return submit(call, codes, false, [call, group = call.comm ? call.comm->group : nullptr] {
    group->get(call.root, call.recv, call.count * size_of(*call.type));
  });
}

int group_start(const Codes& codes) {
  ++depth;
  return codes.success;
}

int group_end(const Codes& codes) {
  if (depth == 0) {
    complain("GroupEnd", "no group was started");
    return codes.invalid_usage;
  }
  if (--depth > 0) {
    return codes.success;
  }
  std::vector<Pending> calls = std::move(pending);
  pending.clear();
  for (const bool sends : {true, false}) {
    for (Pending& call : calls) {
      if (call.sends == sends && !queue_in_order(call.group, call.stream, std::move(call.work))) {
        return codes.invalid_argument;
      }
    }
  }
  return codes.success;
}

} // namespace simulated
