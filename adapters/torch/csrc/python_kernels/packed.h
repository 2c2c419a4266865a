// SPDX-License-Identifier: Apache-2.0
// Calls of a kernel pack: recordings that another process made, with the programs of their kernels.
//
// A pack is a file that `flagos pack` writes and torch_fl maps into memory; its reader has checked the hash of all
// bytes. All numbers are words of eight bytes, little-endian. A row of the pack describes one call:
//
//   signature: place and number of its words, in words from the beginning of the file; its last word, the device, is 0
//   recording: likewise; in place of a kernel's handle it has the number of the kernel
//   kernels:   likewise, of the numbers of those words in the recording
//   flags:     kFaster
//
// The rows of an operator are sorted by their signatures, shorter ones first.
#pragma once

#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "python_kernels/signature.h"

namespace flagos {

// The call was measured to be no slower than the native kernel's.
constexpr uint64_t kFaster = 1;

// A pack in memory, which stays mapped as long as the process lives. Threads may use it at once.
class Pack {
 public:
  // A program: the places of its image and of its function's name, which ends with NUL, in bytes from the beginning,
  // the size of the image, and the dynamic shared memory of its launches in bytes.
  struct Kernel {
    uint64_t image;
    uint64_t nbytes;
    uint64_t name;
    uint32_t shared_bytes;
  };

  // Throws for kernels that do not lie in the `nbytes` at `base`.
  Pack(const uint8_t* base, uint64_t nbytes, std::vector<Kernel> kernels);

  // Some words of the pack. Throws for what does not lie in it.
  c10::ArrayRef<int64_t> words(uint64_t first, uint64_t count) const;

  // The handle of a kernel's function on the current device, which is `device`. Loads it at the first call.
  int64_t function(int64_t kernel, c10::DeviceIndex device);

 private:
  const uint8_t* base_;
  uint64_t nbytes_;
  std::vector<Kernel> kernels_;
  std::mutex mutex_;
  std::vector<std::vector<uint64_t>> functions_; // by device and kernel; 0 for those that were not loaded
};

// The calls of one operator in a pack.
class PackedCalls {
 public:
  // The `count` rows from the word `first`. Throws for rows that do not lie in the pack. Only rows that have all of
  // `flags` serve.
  PackedCalls(std::shared_ptr<Pack> pack, uint64_t first, uint64_t count, uint64_t flags);

  enum class Found { kServed, kOutside, kSlower };

  // The number of the row of a call, if it is one of the pack.
  Found find(const Signature& signature, size_t* row) const;

  // The recording of a row, with the handles of its kernels, which are loaded on the current device, the signature's.
  std::vector<int64_t> recording(size_t row, const Signature& signature) const;

 private:
  struct Row {
    c10::ArrayRef<int64_t> signature;
    c10::ArrayRef<int64_t> recording;
    c10::ArrayRef<int64_t> kernels;
    bool serves;
  };
  std::shared_ptr<Pack> pack_;
  std::vector<Row> rows_;
};

// The pack of this process: null where there is none.
std::shared_ptr<Pack> pack_in_use();
void use_pack(std::shared_ptr<Pack> pack);

} // namespace flagos
