#include "record/got.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <initializer_list>

namespace lowtide::record {
namespace {

constexpr size_t kManySlots = 20000;

// The relocation types that fill a slot with a function's address.
#if defined(__x86_64__)
constexpr uint32_t kSlotTypes[] = {R_X86_64_JUMP_SLOT, R_X86_64_GLOB_DAT, R_X86_64_64};
#elif defined(__aarch64__)
constexpr uint32_t kSlotTypes[] = {R_AARCH64_JUMP_SLOT, R_AARCH64_GLOB_DAT, R_AARCH64_ABS64};
#else
constexpr uint32_t kSlotTypes[] = {~0u};  // unknown machine: no slots, and the caller says so
#endif

bool IsSlot(const ElfW(Rela) & relocation) noexcept {
  const uint32_t type = ELF64_R_TYPE(relocation.r_info);
  for (uint32_t known : kSlotTypes) {
    if (type == known) return relocation.r_addend == 0;
  }
  return false;
}

// One loaded library's tables. See the ELF gABI, "Dynamic Section".
struct Image {
  explicit Image(const dl_phdr_info& info) noexcept : base(info.dlpi_addr), path(info.dlpi_name) {
    const ElfW(Dyn)* dynamic = nullptr;
    for (int i = 0; i < info.dlpi_phnum; ++i) {
      const ElfW(Phdr)& segment = info.dlpi_phdr[i];
      if (segment.p_type == PT_DYNAMIC) dynamic = reinterpret_cast<const ElfW(Dyn)*>(base + segment.p_vaddr);
      if (segment.p_type == PT_GNU_RELRO) {
        relro_begin = base + segment.p_vaddr;
        relro_end = relro_begin + segment.p_memsz;
      }
    }
    for (; dynamic != nullptr && dynamic->d_tag != DT_NULL; ++dynamic) Take(*dynamic);
  }

  void Take(const ElfW(Dyn) & entry) noexcept {
    switch (entry.d_tag) {
      case DT_SYMTAB: symbols = At<const ElfW(Sym)>(entry.d_un.d_ptr); break;
      case DT_STRTAB: strings = At<const char>(entry.d_un.d_ptr); break;
      case DT_JMPREL: plt = At<const ElfW(Rela)>(entry.d_un.d_ptr); break;
      case DT_PLTRELSZ: plt_count = entry.d_un.d_val / sizeof(ElfW(Rela)); break;
      case DT_PLTREL: rela = entry.d_un.d_val == DT_RELA; break;
      case DT_RELA: data = At<const ElfW(Rela)>(entry.d_un.d_ptr); break;
      case DT_RELASZ: data_count = entry.d_un.d_val / sizeof(ElfW(Rela)); break;
      case DT_RELACOUNT: relative_count = entry.d_un.d_val; break;
      case DT_NEEDED:
        if (needed_count < 64) needed[needed_count++] = entry.d_un.d_val;
        break;
      default: break;
    }
  }

  // The loader adds the base to these pointers in place; some C libraries do not.
  template <typename T>
  T* At(ElfW(Addr) address) const noexcept {
    return reinterpret_cast<T*>(address < base ? address + base : address);
  }

  const char* name() const noexcept {
    const char* slash = std::strrchr(path, '/');
    return slash == nullptr ? path : slash + 1;
  }
  bool usable() const noexcept { return symbols != nullptr && strings != nullptr && rela; }
  bool Needs(const char* library) const noexcept {
    for (uint32_t i = 0; i < needed_count; ++i) {
      if (std::strcmp(strings + needed[i], library) == 0) return true;
    }
    return false;
  }

  // Calls visit(name, slot, read_only) for every slot with a symbol. Relocations without one come first and are passed over.
  template <typename Visit>
  void EachSlot(Visit visit) const noexcept {
    for (size_t i = 0; i < plt_count; ++i) VisitOne(plt[i], visit);
    for (size_t i = relative_count; i < data_count; ++i) VisitOne(data[i], visit);
  }
  template <typename Visit>
  void VisitOne(const ElfW(Rela) & relocation, Visit& visit) const noexcept {
    const size_t symbol = ELF64_R_SYM(relocation.r_info);
    if (symbol == 0 || !IsSlot(relocation)) return;
    if (imports_only && symbols[symbol].st_shndx != SHN_UNDEF) return;  // most of a large library's are its own
    const ElfW(Addr) slot = base + relocation.r_offset;
    visit(strings + symbols[symbol].st_name, reinterpret_cast<void**>(slot), slot >= relro_begin && slot < relro_end);
  }

  ElfW(Addr) base;
  ElfW(Addr) relro_begin = 0, relro_end = 0;  // made read-only once the loader was done
  const char* path;
  const ElfW(Sym)* symbols = nullptr;
  const char* strings = nullptr;
  const ElfW(Rela)* plt = nullptr;
  const ElfW(Rela)* data = nullptr;
  size_t plt_count = 0, data_count = 0, relative_count = 0;
  size_t needed[64] = {};
  uint32_t needed_count = 0;
  bool rela = true;
  bool imports_only = false;  // pass over slots for what the library itself defines
};

// Calls visit(Image) for each library but the program itself and the kernel's.
template <typename Visit>
void EachImage(Visit visit) noexcept {
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* argument) -> int {
        if (info->dlpi_name == nullptr || info->dlpi_name[0] == 0) return 0;
        Image image(*info);
        image.imports_only = image.plt_count + image.data_count > kManySlots;
        if (image.usable()) (*static_cast<Visit*>(argument))(image);
        return 0;
      },
      &visit);
}

bool Starts(const char* text, const char* prefix) noexcept {
  return std::strncmp(text, prefix, std::strlen(prefix)) == 0;
}

// Libraries whose slots were patched: they are not gone through again when others are loaded later.
bool SeenBefore(ElfW(Addr) base) noexcept {
  static ElfW(Addr) seen[256];
  static uint32_t count = 0;
  for (uint32_t i = 0; i < count; ++i) {
    if (seen[i] == base) return true;
  }
  if (count < 256) seen[count++] = base;
  return false;
}

const char* PathOf(const char* library) noexcept {
  const char* path = nullptr;
  EachImage([&](const Image& image) {
    if (std::strcmp(image.name(), library) == 0) path = image.path;
  });
  return path;
}

// The full names of the functions, as the definer's own slots spell them, else its users'.
void FindNames(const char* definer, SlotHook* hooks, size_t count, const char** names) noexcept {
  size_t missing = count;
  for (const bool own : {true, false}) {
    if (missing == 0) return;
    EachImage([&](const Image& image) {
      const bool is_definer = std::strcmp(image.name(), definer) == 0;
      if (is_definer != own || (!is_definer && !image.Needs(definer))) return;
      image.EachSlot([&](const char* name, void**, bool) {
        for (size_t i = 0; i < count; ++i) {
          if (names[i] == nullptr && Starts(name, hooks[i].prefix)) names[i] = name, --missing;
        }
      });
    });
  }
}

// The addresses of the functions as their own library exports them: a slot may hold a stub of the lazy binder.
// Outside dl_iterate_phdr, whose lock must not be held while the loader's other one is taken.
void FindOriginals(const char* definer_path, SlotHook* hooks, size_t count, const char* const* names) noexcept {
  void* handle = ::dlopen(definer_path, RTLD_NOLOAD | RTLD_LAZY);
  if (handle == nullptr) return;
  for (size_t i = 0; i < count; ++i) {
    if (hooks[i].original == nullptr && names[i] != nullptr) hooks[i].original = ::dlsym(handle, names[i]);
  }
  ::dlclose(handle);  // NOLOAD took one more reference; the library stays
}

}  // namespace

bool WriteGotSlot(void** slot, void* value, bool read_only) noexcept {
  const auto page_bytes = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  auto* page = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(slot) & ~(page_bytes - 1));
  if (read_only && ::mprotect(page, page_bytes, PROT_READ | PROT_WRITE) != 0) return false;
  __atomic_store_n(slot, value, __ATOMIC_RELEASE);
  if (read_only) ::mprotect(page, page_bytes, PROT_READ);
  return true;
}

bool FindOriginalFunctions(const char* definer, SlotHook* hooks, size_t count) noexcept {
  constexpr size_t kMost = 16;
  const char* definer_path = PathOf(definer);
  if (definer_path == nullptr || count > kMost) return false;
  const char* names[kMost] = {};
  FindNames(definer, hooks, count, names);
  FindOriginals(definer_path, hooks, count, names);
  return true;
}

bool PatchSlots(const char* definer, SlotHook* hooks, size_t count, PatchReport* report) noexcept {
  if (PathOf(definer) == nullptr) return false;
  EachImage([&](const Image& image) {
    const bool is_definer = std::strcmp(image.name(), definer) == 0;
    if ((!is_definer && !image.Needs(definer)) || SeenBefore(image.base)) return;
    uint32_t found = 0;
    image.EachSlot([&](const char* name, void** slot, bool read_only) {
      for (size_t i = 0; i < count; ++i) {
        if (hooks[i].original == nullptr || !Starts(name, hooks[i].prefix)) continue;
        if (is_definer && hooks[i].skip_definer) continue;
        found |= 1u << i;
        if (__atomic_load_n(slot, __ATOMIC_RELAXED) == hooks[i].replacement) continue;
        WriteGotSlot(slot, hooks[i].replacement, read_only) ? ++hooks[i].slots : ++report->failed;
      }
    });
    if (found != 0 && report->count < 32) report->libraries[report->count++] = {image.name(), found};
  });
  return true;
}

void** FindSlot(const char* library, const char* symbol, bool* read_only) noexcept {
  void** result = nullptr;
  EachImage([&](const Image& image) {
    if (std::strcmp(image.name(), library) != 0) return;
    image.EachSlot([&](const char* name, void** slot, bool guarded) {
      if (result != nullptr || std::strcmp(name, symbol) != 0) return;
      result = slot;
      *read_only = guarded;
    });
  });
  return result;
}

uint64_t LoadedLibraries() noexcept {
  uint64_t loaded = 0;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* argument) -> int {
        *static_cast<uint64_t*>(argument) = info->dlpi_adds;
        return 1;
      },
      &loaded);
  return loaded;
}

}  // namespace lowtide::record
