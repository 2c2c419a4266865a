// SPDX-License-Identifier: Apache-2.0
#include "runtime/linkage.h"

#include <c10/util/Exception.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace flagos {

namespace {

struct Search {
  const char* library;
  const char* symbol;
  void* target;
  bool found = false;
  std::string failure;
};

void write_slot(void** slot, void* value) {
  const auto page_size = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t page = reinterpret_cast<uintptr_t>(slot) & ~(page_size - 1);
  // The table is read-only in libraries that were linked with -z now.
  TORCH_CHECK(
      mprotect(reinterpret_cast<void*>(page), page_size, PROT_READ | PROT_WRITE) == 0,
      "cannot write to the procedure linkage table: ",
      std::strerror(errno));
  __atomic_store_n(slot, value, __ATOMIC_RELEASE);
}

// Reads the dynamic section as the System V ABI, chapter 5, describes it.
void redirect_in(const dl_phdr_info& library, const ElfW(Dyn) * dynamic, Search& search) {
  const ElfW(Rela)* relocations = nullptr;
  size_t size = 0;
  const ElfW(Sym)* symbols = nullptr;
  const char* names = nullptr;
  for (; dynamic->d_tag != DT_NULL; ++dynamic) {
    const auto pointer = reinterpret_cast<const void*>(dynamic->d_un.d_ptr);
    switch (dynamic->d_tag) {
      case DT_JMPREL:
        relocations = static_cast<const ElfW(Rela)*>(pointer);
        break;
      case DT_PLTRELSZ:
        size = dynamic->d_un.d_val;
        break;
      case DT_SYMTAB:
        symbols = static_cast<const ElfW(Sym)*>(pointer);
        break;
      case DT_STRTAB:
        names = static_cast<const char*>(pointer);
        break;
      default:
        break;
    }
  }
  if (relocations == nullptr || symbols == nullptr || names == nullptr) {
    return;
  }
  for (size_t i = 0; i < size / sizeof(ElfW(Rela)); ++i) {
    if (std::strcmp(names + symbols[ELF64_R_SYM(relocations[i].r_info)].st_name, search.symbol) == 0) {
      write_slot(reinterpret_cast<void**>(library.dlpi_addr + relocations[i].r_offset), search.target);
      search.found = true;
    }
  }
}

int visit_library(dl_phdr_info* library, size_t /*size*/, void* context) {
  auto* search = static_cast<Search*>(context);
  const std::string path = library->dlpi_name;
  if (path.substr(path.rfind('/') + 1) != search->library) {
    return 0;
  }
  try {
    for (int i = 0; i < library->dlpi_phnum; ++i) {
      if (library->dlpi_phdr[i].p_type == PT_DYNAMIC) {
        const auto* dynamic = reinterpret_cast<const ElfW(Dyn)*>(library->dlpi_addr + library->dlpi_phdr[i].p_vaddr);
        redirect_in(*library, dynamic, *search);
      }
    }
  } catch (const std::exception& error) { // must not cross dl_iterate_phdr, a C function
    search->failure = error.what();
  }
  return 1;
}

} // namespace

bool redirect(const char* library, const char* symbol, void* target) {
  Search search{library, symbol, target, false, {}};
  dl_iterate_phdr(&visit_library, &search);
  TORCH_CHECK(search.failure.empty(), "flagos: ", search.failure);
  return search.found;
}

} // namespace flagos
