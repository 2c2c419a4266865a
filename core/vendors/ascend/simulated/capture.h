// SPDX-License-Identifier: Apache-2.0
// Capture of work into models (graphs), and its runs.
#pragma once

#include <pthread.h>

#include <memory>
#include <vector>

#include "event.h"
#include "stream.h"

namespace simulated_ascend {

// A piece of captured work; it runs after the one before it on its stream, and after the record that it waits for.
struct Node {
  Stream* stream;
  Work work;
  bool waits = false;
  size_t after = 0;
  uint64_t group = 0;
};

struct Model {
  void* handle = nullptr;
  int device = 0;
  std::vector<Node> nodes;
  size_t hardware_streams = 0;
  bool captured = false;
  size_t running = 0;
};

struct Capture {
  std::shared_ptr<Stream> origin;
  int mode;
  pthread_t thread;
  bool invalid = false;
  std::shared_ptr<Model> model;
  std::vector<std::shared_ptr<Stream>> streams;
  std::map<Stream*, Clock> clocks;
  uint64_t group = 0; // that is open
};

// All under the lock; the call's code.
int capture_work(Call& call, const std::shared_ptr<Stream>& stream, Work work);
int capture_record(Call& call, const std::shared_ptr<Stream>& stream, Event& event);
// Brings the stream into the event's capture.
int capture_wait(Call& call, const std::shared_ptr<Stream>& stream, Event& event);
void invalidate(Capture& capture);
// Refuses a call that a capture going on does not allow in this thread.
bool capture_forbids(Call& call);

} // namespace simulated_ascend
