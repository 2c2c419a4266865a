// SPDX-License-Identifier: Apache-2.0
#include "distributed/flight_recorder.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <sstream>

namespace flagos {

namespace {

const char* kind_name(uint32_t kind) {
  static const char* const names[] = {
      "all_reduce",
      "broadcast",
      "reduce",
      "all_gather",
      "gather",
      "scatter",
      "reduce_scatter",
      "all_to_all",
      "barrier",
      "send",
      "recv"};
  return kind < std::size(names) ? names[kind] : "?";
}

std::string file_name(const std::string& group) {
  std::string name = group;
  std::replace_if(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

} // namespace

uint64_t Record::add(const Operation& operation, bool async) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Entry& entry = entries_[next_ % kKept];
  entry.kind = operation.kind;
  entry.dtype = operation.dtype;
  entry.root = operation.root;
  entry.count = operation.count;
  entry.sequence = operation.sequence;
  entry.async = async;
  entry.progress = "queued";
  entry.queued = std::chrono::system_clock::now();
  return next_++;
}

void Record::done(uint64_t number, bool well) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (number + kKept >= next_) {
    entries_[number % kKept].progress = well ? "done" : "failed";
  }
}

std::string Record::json() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::ostringstream text;
  text << '[';
  for (uint64_t i = next_ > kKept ? next_ - kKept : 0; i < next_; ++i) {
    const Entry& entry = entries_[i % kKept];
    const auto seconds = std::chrono::duration<double>(entry.queued.time_since_epoch()).count();
    text << (i == (next_ > kKept ? next_ - kKept : 0) ? "" : ", ") << R"({"collective": ")" << kind_name(entry.kind)
         << R"(", "sequence": )" << entry.sequence << R"(, "count": )" << entry.count << R"(, "dtype": )" << entry.dtype
         << R"(, "root": )" << entry.root << R"(, "async": )" << (entry.async ? "true" : "false")
         << R"(, "progress": ")" << entry.progress << R"(", "queued": )" << std::fixed << seconds << '}';
  }
  text << ']';
  return text.str();
}

void Record::dump(
    const std::string& folder,
    const std::string& group,
    int rank,
    const std::string& state,
    const std::string& why) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (dumped_) {
      return;
    }
    dumped_ = true;
  }
  if (folder.empty()) {
    std::fprintf(stderr, "[flagos] rank %d, group %s: %s\n", rank, group.c_str(), why.c_str());
    return;
  }
  const std::string path = folder + "/" + file_name(group) + "-rank" + std::to_string(rank) + ".json";
  std::ofstream file(path);
  file << "{\"state\": " << state << ", \"calls\": " << json() << "}\n";
  std::fprintf(
      stderr,
      "[flagos] rank %d, group %s: %s; the last calls are %s %s\n",
      rank,
      group.c_str(),
      why.c_str(),
      file.good() ? "in" : "lost: cannot write",
      path.c_str());
}

} // namespace flagos
