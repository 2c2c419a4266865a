// SPDX-License-Identifier: Apache-2.0
#include "calls.h"

#include <cstring>

namespace simulated {

namespace {

using Exchanged = std::vector<std::vector<char>>;

std::atomic<size_t> alive{0};

// The calls of a group: those with all ranks run in order, those between two ranks at once after them.
thread_local int depth = 0;
thread_local std::vector<std::function<int()>> pending;
struct Transfer {
  Call call;
  bool sends;
};
thread_local std::vector<Transfer> transfers;

// A call's place among those of its communicator. Work that is dropped gives it up.
class Turn {
 public:
  Turn(std::shared_ptr<Group> group, bool waits) : group_(std::move(group)), ended_(!waits) {
    ticket_ = waits ? group_->take_ticket() : 0;
  }
  ~Turn() {
    end();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  void wait() {
    if (!ended_) {
      group_->wait_for_turn(ticket_);
    }
  }
  void end() {
    if (!ended_) {
      ended_ = true;
      group_->end_turn(ticket_);
    }
  }

 private:
  std::shared_ptr<Group> group_;
  uint64_t ticket_;
  bool ended_;
};

int queue_in_order(
    const Call& call,
    const Codes& codes,
    const std::vector<Use>& uses,
    std::function<bool(Group&)> work) {
  const auto& group = call.comm->group;
  // What a graph runs is ordered by its stream alone, as often as it runs.
  const auto turn = std::make_shared<Turn>(group, !is_captured(call.stream));
  const bool queued = queue(call.function, call.stream, uses, [group, turn, work = std::move(work)] {
    turn->wait();
    const bool done = work(*group) && !group->failed();
    turn->end();
    return done;
  });
  return queued ? codes.success : codes.not_queued;
}

// What every rank must say alike. Libraries do not notice: they wait for ever, or give wrong results.
bool agree(const Call& call, Group& group) {
  struct Said {
    char function[24] = {};
    uint64_t count = 0;
    int32_t type = 0;
    int32_t op = 0;
    int32_t root = 0;
    int32_t padding = 0;
  } mine;
  std::strncpy(mine.function, call.function, sizeof(mine.function) - 1);
  mine.count = call.count;
  mine.type = static_cast<int32_t>(*call.type);
  mine.op = static_cast<int32_t>(*call.op);
  mine.root = call.root;
  const Exchanged all = group.exchange(&mine, sizeof(mine));
  if (group.failed()) {
    return false;
  }
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (std::memcmp(all[rank].data(), &mine, sizeof(mine)) != 0) {
      Said other;
      std::memcpy(&other, all[rank].data(), sizeof(other));
      complain(
          call.function,
          "rank " + std::to_string(rank) + " calls " + other.function + " of " + std::to_string(other.count) +
              " elements of type " + std::to_string(other.type) + ", or with another operation or root");
      return false;
    }
  }
  return true;
}

// A call of all ranks: each contributes `bytes` of `send`, and `finish` makes of them what is received.
int collective(
    const Call& call,
    const Codes& codes,
    const void* contributes,
    size_t bytes,
    size_t received,
    std::function<void(const Exchanged&, char*)> finish) {
  if (!is_sound(call, codes)) {
    return codes.invalid_argument;
  }
  if (is_ascend() && bytes == 0) {
    return codes.success; // as HCCL does, before it looks at anything else
  }
  std::vector<Use> uses{{contributes, bytes, false}};
  if (received != 0) {
    uses.push_back({call.recv, received, true});
  }
  const auto run = [call, contributes, bytes, received, finish = std::move(finish)](Group& group) {
    const char* mine = reach(contributes, bytes);
    char* out = received != 0 ? reach(call.recv, received) : nullptr;
    if (mine == nullptr || (received != 0 && out == nullptr) || !agree(call, group)) {
      return false;
    }
    const Exchanged all = group.exchange(mine, bytes);
    if (received != 0 && !group.failed()) {
      finish(all, out);
    }
    return true;
  };
  auto submit = [call, codes, uses = std::move(uses), run] { return queue_in_order(call, codes, uses, run); };
  if (depth > 0) {
    pending.push_back(std::move(submit));
    return codes.success;
  }
  return submit();
}

int transfer(const Call& call, const Codes& codes, bool sends) {
  if (!is_sound(call, codes)) {
    return codes.invalid_argument;
  }
  if (is_ascend() && call.count == 0) {
    return codes.success;
  }
  transfers.push_back({call, sends});
  if (depth > 0) {
    return codes.success;
  }
  ++depth;
  return group_end(codes);
}

size_t bytes_of(const Call& call) {
  return call.count * (call.type.has_value() ? size_of(*call.type) : 0);
}

void* buffer_of(const Transfer& each) {
  return each.sends ? const_cast<void*>(each.call.send) : each.call.recv;
}

// Transfers of one communicator on one stream, at once.
int queue_transfers(const std::vector<Transfer>& together, const Codes& codes) {
  std::vector<Use> uses;
  for (const Transfer& each : together) {
    uses.push_back({buffer_of(each), bytes_of(each.call), !each.sends});
  }
  return queue_in_order(together[0].call, codes, uses, [together](Group& group) {
    std::vector<Group::Message> messages;
    for (const Transfer& each : together) {
      const size_t bytes = bytes_of(each.call);
      char* data = reach(buffer_of(each), bytes);
      if (data == nullptr) {
        return false;
      }
      messages.push_back({each.call.function, each.sends, each.call.root, data, bytes});
    }
    group.transfer(std::move(messages));
    return true;
  });
}

double factor_of(const Call& call) {
  return call.comm != nullptr ? call.comm->factor : 1;
}

size_t size_of_group(const Call& call) {
  return is_alive(call.comm) ? static_cast<size_t>(call.comm->group->size()) : 1;
}

bool is_root(const Call& call) {
  return is_alive(call.comm) && call.comm->group->rank() == call.root;
}

} // namespace

int connect(const char* function, const std::string& name, int size, int rank, const Codes& codes, Comm** out) {
  *out = nullptr;
  if (size < 1 || rank < 0 || rank >= size) {
    complain(
        function, "there is no rank " + std::to_string(rank) + " of " + std::to_string(size), codes.invalid_argument);
    return codes.invalid_argument;
  }
  auto group = std::make_shared<Group>(name, size, rank);
  const int mine = device();
  const Exchanged all = group->exchange(&mine, sizeof(mine));
  if (group->failed()) {
    return codes.nobody_came;
  }
  for (int other = 0; other < size && mine >= 0; ++other) {
    if (other != rank && std::memcmp(all[static_cast<size_t>(other)].data(), &mine, sizeof(mine)) == 0) {
      complain(
          function,
          "rank " + std::to_string(other) + " has the device of rank " + std::to_string(rank),
          codes.invalid_argument);
      return codes.invalid_argument;
    }
  }
  *out = new Comm;
  (*out)->group = std::move(group);
  (*out)->device = mine;
  ++alive;
  return codes.success;
}

bool is_alive(const Comm* comm) {
  return comm != nullptr && comm->magic == Comm::kAlive;
}

bool end(const char* function, Comm* comm, const Codes& codes) {
  if (!is_alive(comm)) {
    complain(function, "the communicator is not alive", codes.invalid_argument);
    return false;
  }
  if (comm->group->has_turns() && !comm->aborted) {
    complain(function, "the communicator has work that has not run");
  }
  comm->magic = 0;
  comm->group.reset();
  --alive;
  return true;
}

size_t live() {
  return alive;
}

bool is_sound(const Call& call, const Codes& codes) {
  if (!is_alive(call.comm)) {
    complain(call.function, "the communicator is not alive", codes.invalid_argument);
    return false;
  }
  std::string wrong;
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
    complain(call.function, wrong, codes.invalid_argument);
    return false;
  }
  if (device() != call.comm->device) {
    complain(call.function, "the thread's device is not that of the communicator");
  }
  return true;
}

int all_reduce(const Call& call, const Codes& codes) {
  const size_t bytes = bytes_of(call);
  return collective(
      call, codes, call.send, bytes, bytes, [call, factor = factor_of(call)](const Exchanged& all, char* out) {
        const auto sum = reduced(all, call.count, *call.type, *call.op, factor);
        std::memcpy(out, sum.data(), sum.size());
      });
}

int reduce(const Call& call, const Codes& codes) {
  const size_t bytes = bytes_of(call);
  return collective(
      call,
      codes,
      call.send,
      bytes,
      is_root(call) ? bytes : 0,
      [call, factor = factor_of(call)](const Exchanged& all, char* out) {
        const auto sum = reduced(all, call.count, *call.type, *call.op, factor);
        std::memcpy(out, sum.data(), sum.size());
      });
}

int broadcast(const Call& call, const Codes& codes) {
  const size_t bytes = bytes_of(call);
  const bool receives = !is_root(call) || call.recv != call.send;
  return collective(
      call,
      codes,
      is_root(call) ? call.send : call.recv,
      bytes,
      receives ? bytes : 0,
      [call](const Exchanged& all, char* out) {
        const auto& from = all[static_cast<size_t>(call.root)];
        std::memcpy(out, from.data(), from.size());
      });
}

int all_gather(const Call& call, const Codes& codes) {
  const size_t bytes = bytes_of(call);
  return collective(
      call, codes, call.send, bytes, bytes * size_of_group(call), [bytes](const Exchanged& all, char* out) {
        for (size_t rank = 0; rank < all.size(); ++rank) {
          std::memcpy(out + rank * bytes, all[rank].data(), bytes);
        }
      });
}

int reduce_scatter(const Call& call, const Codes& codes) {
  const size_t bytes = bytes_of(call);
  const size_t size = size_of_group(call);
  const auto rank = is_alive(call.comm) ? static_cast<size_t>(call.comm->group->rank()) : 0;
  return collective(
      call,
      codes,
      call.send,
      bytes * size,
      bytes,
      [call, bytes, size, rank, factor = factor_of(call)](const Exchanged& all, char* out) {
        const auto sum = reduced(all, call.count * size, *call.type, *call.op, factor);
        std::memcpy(out, sum.data() + rank * bytes, bytes);
      });
}

int send(const Call& call, const Codes& codes) {
  return transfer(call, codes, true);
}

int recv(const Call& call, const Codes& codes) {
  return transfer(call, codes, false);
}

bool in_group() {
  return depth > 0;
}

int group_start(const Codes& codes) {
  ++depth;
  return codes.success;
}

int group_end(const Codes& codes) {
  if (depth == 0) {
    complain("GroupEnd", "no group was started", codes.invalid_usage);
    return codes.invalid_usage;
  }
  if (--depth > 0) {
    return codes.success;
  }
  const auto calls = std::move(pending);
  auto left = std::move(transfers);
  pending.clear();
  transfers.clear();
  int code = codes.success;
  for (const auto& submit : calls) {
    const int outcome = submit();
    code = code != codes.success ? code : outcome;
  }
  while (!left.empty()) {
    std::vector<Transfer> together;
    std::vector<Transfer> others;
    for (const Transfer& each : left) {
      const bool same = each.call.comm == left[0].call.comm && each.call.stream == left[0].call.stream;
      (same ? together : others).push_back(each);
    }
    const int outcome = queue_transfers(together, codes);
    code = code != codes.success ? code : outcome;
    left = std::move(others);
  }
  return code;
}

} // namespace simulated
