// SPDX-License-Identifier: Apache-2.0
#include "cuda/runtime.h"

#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <link.h>

#include <cstring>
#include <utility>
#include <vector>

namespace flagos {

namespace {

struct RuntimeFunction {
  std::string library;
  std::string symbol;
};

// The runtimes behind torch's CUDA: NVIDIA's, and for MetaX's torch MACA's, where also the layer that carries CUDA's
// names over to it has the function.
std::vector<RuntimeFunction> functions_of(const std::string& vendor, const std::string& name) {
  if (vendor != "metax") {
    return {{"libcudart.so", "cuda" + name}};
  }
  return {{"libmcruntime.so", "mc" + name}, {"libruntime_cu.so", "wcuda" + name}};
}

// The address of a function in the first loaded library whose file has that name; null where there is none.
void* find_loaded(const RuntimeFunction& wanted) {
  std::pair<const char*, std::string> search{wanted.library.c_str(), {}};
  dl_iterate_phdr(
      [](dl_phdr_info* library, size_t /*size*/, void* context) {
        auto* search = static_cast<std::pair<const char*, std::string>*>(context);
        const bool found = std::strstr(library->dlpi_name, search->first) != nullptr;
        if (found) {
          search->second = library->dlpi_name;
        }
        return found ? 1 : 0;
      },
      &search);
  void* library = search.second.empty() ? nullptr : dlopen(search.second.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  return library != nullptr ? dlsym(library, wanted.symbol.c_str()) : nullptr;
}

} // namespace

void* find_runtime_function(const std::string& vendor, const std::string& name) {
  for (const RuntimeFunction& candidate : functions_of(vendor, name)) {
    if (void* found = find_loaded(candidate)) {
      return found;
    }
  }
  return nullptr;
}

void* need_runtime_function(const std::string& vendor, const std::string& name) {
  void* found = find_runtime_function(vendor, name);
  if (found == nullptr) {
    std::string names;
    for (const RuntimeFunction& candidate : functions_of(vendor, name)) {
      names += (names.empty() ? "" : " or ") + candidate.symbol + " of " + candidate.library;
    }
    TORCH_CHECK_NOT_IMPLEMENTED(false, "flagos: torch has loaded no runtime of the vendor ", vendor, " with ", names);
  }
  return found;
}

int exchange_capture_mode(const std::string& vendor, int mode) {
  using Exchange = int (*)(int*);
  static const auto exchange =
      reinterpret_cast<Exchange>(find_runtime_function(vendor, "ThreadExchangeStreamCaptureMode"));
  if (exchange != nullptr) {
    exchange(&mode);
  }
  return mode;
}

} // namespace flagos
