// SPDX-License-Identifier: Apache-2.0
// Preloaded, it writes a line for every dlopen of the process into the file that OPENS_LOG names: what is opened, and
// the library that opens it. LD_DEBUG tells of the first opening of a library alone.
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace {

void note(const char* file, const void* caller) {
  static const int log = [] {
    const char* path = std::getenv("OPENS_LOG");
    return path != nullptr ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
  }();
  Dl_info info{};
  if (log < 0 || dladdr(caller, &info) == 0) {
    return;
  }
  char line[4096];
  const int size = std::snprintf(line, sizeof line, "%s\t%s\n", file != nullptr ? file : "", info.dli_fname);
  // A line that is not written is missed by the reader, who expects some.
  [[maybe_unused]] const ssize_t written = write(log, line, static_cast<size_t>(size));
}

} // namespace

// The call below is a jump, at -O2, so that the dynamic linker sees the caller: it searches the caller's own path.
extern "C" __attribute__((visibility("default"))) void* dlopen(const char* file, int mode) {
  using Function = void* (*)(const char*, int);
  static const auto real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "dlopen"));
  note(file, __builtin_return_address(0));
  return real(file, mode);
}
