// SPDX-License-Identifier: Apache-2.0
// How a native device captures work for automatic graphs. Where there is nobody to capture, as on the host, graphs
// repeat their calls one by one.
#pragma once

#include <c10/core/Device.h>

#include <memory>

namespace flagos {

// Captured work.
class Launchable {
 public:
  virtual ~Launchable() = default;
  // Queues the work on the current stream.
  virtual void launch() = 0;
};

class Capturer {
 public:
  virtual ~Capturer() = default;
  // Whether calls run as they come, and are captured by repeating them when their chunk is whole: within one call, on
  // one thread.
  virtual bool captures_afterwards() const {
    return false;
  }
  // Opens a capture on a stream of its own.
  virtual void begin(c10::DeviceIndex device) = 0;
  // Makes that stream, or again the one before, the current stream of this thread.
  virtual void enter() = 0;
  virtual void leave() = 0;
  // Ends the capture. Null if a call inside could not be captured.
  virtual std::unique_ptr<Launchable> end() = 0;
  // Whether since `begin` memory was allocated that no plan knows.
  virtual bool took_other_memory() = 0;
};

} // namespace flagos
