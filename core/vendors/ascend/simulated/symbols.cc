// SPDX-License-Identifier: Apache-2.0
// Hides functions from dlsym, so that one library plays several versions of the vendor's.
//
// When the library is loaded, before its caller can look anything up, the entry of a hidden function in the library's
// own table of dynamic symbols loses its value, which for the dynamic linker means that it is not defined here.
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "settings.h"

namespace simulated_ascend {

namespace {

// What came after CANN 8.1.
const char* const kNewer[] = {
    "aclsysGetVersionNum",
    "aclrtGetDeviceInfo",
    "aclrtDeviceGetStreamPriorityRange",
    "aclrtDeviceGetUuid",
    "aclrtDeviceGetPCIBusId",
    "aclrtCtxGetCurrentDefaultStream",
    "aclrtFreeWithDevSync",
    "aclrtStreamGetPriority",
    "aclrtStreamGetFlags",
    "aclrtRecordEventWithFlag",
    "aclrtStreamWaitEventWithTimeout",
    "aclrtLaunchHostFunc",
    "aclrtIpcMemGetExportKey",
    "aclrtIpcMemImportByKey",
    "aclrtIpcMemClose",
    "aclrtIpcMemSetImportPid",
};

struct Symbols {
  uintptr_t inside; // an address of the library
  ElfW(Sym) * table;
  const char* names;
  size_t bytes; // of the names, which follow the table in a library made by GNU's and LLVM's linkers
};

// The table of the library that an address is in.
int find_symbols(dl_phdr_info* info, size_t, void* out) {
  const uintptr_t self = static_cast<Symbols*>(out)->inside;
  const ElfW(Dyn)* dynamic = nullptr;
  bool is_own = false;
  for (int index = 0; index < info->dlpi_phnum; ++index) {
    const auto& header = info->dlpi_phdr[index];
    const uintptr_t begin = info->dlpi_addr + header.p_vaddr;
    if (header.p_type == PT_LOAD && self >= begin && self < begin + header.p_memsz)
      is_own = true;
    if (header.p_type == PT_DYNAMIC)
      dynamic = reinterpret_cast<const ElfW(Dyn)*>(begin);
  }
  if (!is_own || !dynamic)
    return 0;
  auto& symbols = *static_cast<Symbols*>(out);
  for (; dynamic->d_tag != DT_NULL; ++dynamic) {
    // glibc has added the address at which the library was loaded.
    if (dynamic->d_tag == DT_SYMTAB)
      symbols.table = reinterpret_cast<ElfW(Sym)*>(dynamic->d_un.d_ptr);
    if (dynamic->d_tag == DT_STRTAB)
      symbols.names = reinterpret_cast<const char*>(dynamic->d_un.d_ptr);
    if (dynamic->d_tag == DT_STRSZ)
      symbols.bytes = dynamic->d_un.d_val;
  }
  return 1;
}

bool hide(const Symbols& symbols, const std::string& name) {
  const auto count =
      static_cast<size_t>(symbols.names - reinterpret_cast<const char*>(symbols.table)) / sizeof(ElfW(Sym));
  for (size_t index = 0; index < count; ++index) {
    ElfW(Sym) & symbol = symbols.table[index];
    if (symbol.st_name >= symbols.bytes || name != symbols.names + symbol.st_name)
      continue;
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const auto begin = reinterpret_cast<uintptr_t>(&symbol) / page * page;
    const size_t bytes = reinterpret_cast<uintptr_t>(&symbol + 1) - begin;
    if (mprotect(reinterpret_cast<void*>(begin), bytes, PROT_READ | PROT_WRITE) != 0)
      return false;
    symbol.st_value = 0;
    symbol.st_shndx = SHN_UNDEF;
    return mprotect(reinterpret_cast<void*>(begin), bytes, PROT_READ) == 0;
  }
  return false;
}

// Names of this library have these beginnings; those of others are left to them.
bool is_own(const std::string& name) {
  return name.rfind("aclrt", 0) == 0 || name.rfind("aclmdl", 0) == 0 || name.rfind("aclsys", 0) == 0;
}

__attribute__((constructor)) void hide_symbols() {
  std::vector<std::string> names;
  for (const std::string& name : settings().hidden) {
    if (is_own(name))
      names.push_back(name);
  }
  if (settings().old_version)
    names.insert(names.end(), std::begin(kNewer), std::end(kNewer));
  Symbols symbols{reinterpret_cast<uintptr_t>(&find_symbols), nullptr, nullptr, 0};
  if (!names.empty())
    dl_iterate_phdr(find_symbols, &symbols);
  for (const std::string& name : names) {
    if (!symbols.table || !symbols.names || !hide(symbols, name)) {
      std::fprintf(stderr, "simulated ACL cannot hide %s\n", name.c_str());
      std::abort();
    }
  }
}

} // namespace

} // namespace simulated_ascend

using namespace simulated_ascend;

extern "C" __attribute__((visibility("default"))) void
simulated_ascend_hide(const void* inside, const char* const* newer, const char* beginning) {
  std::vector<std::string> names = settings().hidden;
  for (; settings().old_version && *newer; ++newer)
    names.emplace_back(*newer);
  Symbols symbols{reinterpret_cast<uintptr_t>(inside), nullptr, nullptr, 0};
  if (!names.empty())
    dl_iterate_phdr(find_symbols, &symbols);
  for (const std::string& name : names) {
    if (!symbols.table || !symbols.names || is_own(name))
      continue;
    const bool hidden = hide(symbols, name);
    const bool both = hide(symbols, name + "GetWorkspaceSize");
    const bool expected = beginning && name.rfind(beginning, 0) == 0 && name != "aclnnInit" && name != "aclnnFinalize";
    if (expected && !hidden && !both) {
      std::fprintf(stderr, "simulated ACL cannot hide %s\n", name.c_str());
      std::abort();
    }
  }
}
