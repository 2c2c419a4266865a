// SPDX-License-Identifier: Apache-2.0
#include "python_kernels/packed.h"

#include <algorithm>
#include <cstring>

#include "runtime/core.h"

namespace flagos {

namespace {

constexpr uint64_t kWord = sizeof(int64_t);
constexpr uint64_t kRow = 7; // words

std::mutex in_use_mutex;
std::shared_ptr<Pack>& in_use() {
  static auto* pack = new std::shared_ptr<Pack>; // programs outlive the end of the process
  return *pack;
}

// Whether the words of a row come before those of a signature, whose last word counts as 0; 0 for equal ones.
int compare(c10::ArrayRef<int64_t> row, const Signature& signature) {
  if (row.size() != signature.words.size()) {
    return row.size() < signature.words.size() ? -1 : 1;
  }
  for (size_t i = 0; i + 1 < row.size(); ++i) {
    const auto word = static_cast<uint64_t>(row[i]);
    if (word != signature.words[i]) {
      return word < signature.words[i] ? -1 : 1;
    }
  }
  return 0;
}

} // namespace

Pack::Pack(const uint8_t* base, uint64_t nbytes, std::vector<Kernel> kernels)
    : base_(base), nbytes_(nbytes), kernels_(std::move(kernels)) {
  TORCH_CHECK(reinterpret_cast<uintptr_t>(base) % kWord == 0, "flagos: a pack begins at a multiple of eight bytes");
  for (const Kernel& kernel : kernels_) {
    const bool inside = kernel.image <= nbytes && kernel.nbytes <= nbytes - kernel.image && kernel.name < nbytes &&
        std::memchr(base + kernel.name, 0, nbytes - kernel.name) != nullptr;
    TORCH_CHECK(inside, "flagos: a kernel of the pack lies outside of its ", nbytes, " bytes");
  }
}

c10::ArrayRef<int64_t> Pack::words(uint64_t first, uint64_t count) const {
  const uint64_t all = nbytes_ / kWord;
  TORCH_CHECK(first <= all && count <= all - first, "flagos: words of the pack lie outside of its ", nbytes_, " bytes");
  return {reinterpret_cast<const int64_t*>(base_) + first, count};
}

int64_t Pack::function(int64_t kernel, c10::DeviceIndex device) {
  const auto number = static_cast<size_t>(kernel);
  TORCH_CHECK(kernel >= 0 && number < kernels_.size(), "flagos: the pack has no kernel ", kernel);
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto place = static_cast<size_t>(device);
  if (functions_.size() <= place) {
    functions_.resize(place + 1, std::vector<uint64_t>(kernels_.size()));
  }
  uint64_t& found = functions_[place][number];
  if (found == 0) {
    const Kernel& one = kernels_[number];
    const auto* name = reinterpret_cast<const char*>(base_ + one.name);
    check(core->function_load(device, base_ + one.image, one.nbytes, name, one.shared_bytes, &found));
  }
  return static_cast<int64_t>(found);
}

PackedCalls::PackedCalls(std::shared_ptr<Pack> pack, uint64_t first, uint64_t count, uint64_t flags)
    : pack_(std::move(pack)) {
  TORCH_CHECK(pack_ != nullptr, "flagos: no pack is in use");
  const c10::ArrayRef<int64_t> table = pack_->words(first, count * kRow);
  for (uint64_t i = 0; i < count; ++i) {
    const auto part = [&](size_t at) {
      const int64_t* row = table.data() + i * kRow;
      return pack_->words(static_cast<uint64_t>(row[at]), static_cast<uint64_t>(row[at + 1]));
    };
    const auto has = static_cast<uint64_t>(table[i * kRow + 6]);
    rows_.push_back({part(0), part(2), part(4), (has & flags) == flags});
    TORCH_CHECK(!rows_.back().signature.empty(), "flagos: a call of the pack has no signature");
    for (const int64_t at : rows_.back().kernels) {
      const auto words = static_cast<int64_t>(rows_.back().recording.size());
      TORCH_CHECK(0 <= at && at < words, "flagos: a call of the pack has a kernel outside of its recording");
    }
  }
}

PackedCalls::Found PackedCalls::find(const Signature& signature, size_t* row) const {
  const auto found =
      std::lower_bound(rows_.begin(), rows_.end(), signature, [](const Row& one, const Signature& wanted) {
        return compare(one.signature, wanted) < 0;
      });
  if (found == rows_.end() || compare(found->signature, signature) != 0) {
    return Found::kOutside;
  }
  *row = static_cast<size_t>(found - rows_.begin());
  return found->serves ? Found::kServed : Found::kSlower;
}

std::vector<int64_t> PackedCalls::recording(size_t row, const Signature& signature) const {
  const Row& one = rows_[row];
  std::vector<int64_t> words = one.recording.vec();
  for (const int64_t at : one.kernels) {
    int64_t& word = words[static_cast<size_t>(at)];
    word = pack_->function(word, signature.device);
  }
  return words;
}

std::shared_ptr<Pack> pack_in_use() {
  const std::lock_guard<std::mutex> lock(in_use_mutex);
  return in_use();
}

void use_pack(std::shared_ptr<Pack> pack) {
  const std::lock_guard<std::mutex> lock(in_use_mutex);
  in_use() = std::move(pack);
}

} // namespace flagos
