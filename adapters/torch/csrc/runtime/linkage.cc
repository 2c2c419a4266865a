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

#if defined(__x86_64__)
constexpr uint32_t kAddressOfSymbol = R_X86_64_GLOB_DAT;
#elif defined(__aarch64__)
constexpr uint32_t kAddressOfSymbol = R_AARCH64_GLOB_DAT;
#else
#error "the relocation of this processor that holds the address of a symbol belongs here"
#endif

struct Relocations {
  const ElfW(Rela) * first = nullptr;
  size_t nbytes = 0;
};

// Reads the dynamic section as the System V ABI, chapter 5, describes it.
void redirect_in(const dl_phdr_info& library, const ElfW(Dyn) * dynamic, Search& search) {
  Relocations of_calls; // the procedure linkage table
  Relocations others;   // with the global offset table, through which libraries without lazy binding may call
  size_t relative = 0;  // relocations without a symbol, at the beginning of `others`
  const ElfW(Sym)* symbols = nullptr;
  const char* names = nullptr;
  for (; dynamic->d_tag != DT_NULL; ++dynamic) {
    const auto pointer = reinterpret_cast<const void*>(dynamic->d_un.d_ptr);
    switch (dynamic->d_tag) {
      case DT_JMPREL:
        of_calls.first = static_cast<const ElfW(Rela)*>(pointer);
        break;
      case DT_PLTRELSZ:
        of_calls.nbytes = dynamic->d_un.d_val;
        break;
      case DT_RELA:
        others.first = static_cast<const ElfW(Rela)*>(pointer);
        break;
      case DT_RELASZ:
        others.nbytes = dynamic->d_un.d_val;
        break;
      case DT_RELACOUNT:
        relative = dynamic->d_un.d_val;
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
  if (symbols == nullptr || names == nullptr) {
    return;
  }
  const auto redirect_if_named = [&](const ElfW(Rela) & relocation) {
    if (std::strcmp(names + symbols[ELF64_R_SYM(relocation.r_info)].st_name, search.symbol) == 0) {
      write_slot(reinterpret_cast<void**>(library.dlpi_addr + relocation.r_offset), search.target);
      search.found = true;
    }
  };
  for (size_t i = 0; of_calls.first != nullptr && i < of_calls.nbytes / sizeof(ElfW(Rela)); ++i) {
    redirect_if_named(of_calls.first[i]);
  }
  // There are hundreds of thousands of the others.
  for (size_t i = relative; !search.found && others.first != nullptr && i < others.nbytes / sizeof(ElfW(Rela)); ++i) {
    if (ELF64_R_TYPE(others.first[i].r_info) == kAddressOfSymbol) {
      redirect_if_named(others.first[i]);
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
