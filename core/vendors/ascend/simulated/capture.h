// SPDX-License-Identifier: Apache-2.0
// Capture of work into models (graphs), and its runs.
#pragma once

#include <pthread.h>

#include <memory>

#include "event.h"
#include "stream.h"

namespace simulated_ascend {

struct Model {
  void* handle = nullptr;
  int device = 0;
  std::shared_ptr<const machine::Graph> graph;
  size_t hardware_streams = 0;
  bool captured = false;
  size_t running = 0;
};

struct Capture : machine::Capture {
  int mode;
  pthread_t thread;
  std::shared_ptr<Model> model;
};

// All under the lock; the call's code.
int capture_work(Call& call, const std::shared_ptr<Stream>& stream, Work work);
int capture_record(Call& call, const std::shared_ptr<Stream>& stream, Event& event);
// Brings the stream into the event's capture.
int capture_wait(Call& call, const std::shared_ptr<Stream>& stream, Event& event);
void invalidate(machine::Capture& capture);
// Refuses a call that a capture going on does not allow in this thread.
bool capture_forbids(Call& call);

} // namespace simulated_ascend
