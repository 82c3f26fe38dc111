#include "inject/imports.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <initializer_list>

#include "tracer/processor/processor.h"

namespace torchprof::inject {
namespace {

struct LoadedObject {
  ElfW(Addr) base = 0;
  const ElfW(Sym) * symbols = nullptr;
  const char* strings = nullptr;
  struct Table {
    const ElfW(Rela) * entries = nullptr;
    size_t bytes = 0;
  };
  Table plt, data;
  ElfW(Addr) relro_begin = 0;
  ElfW(Addr) relro_end = 0;
};

// glibc relocates the addresses in a writable dynamic section; in a read-only one (the vDSO) they are offsets.
template <class T>
const T* at(ElfW(Addr) base, ElfW(Addr) value) noexcept {
  return reinterpret_cast<const T*>(value < base ? base + value : value);
}

bool read_object(const dl_phdr_info& info, LoadedObject& object) noexcept {
  object.base = info.dlpi_addr;
  const ElfW(Dyn)* dynamic = nullptr;
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info.dlpi_phdr[i];
    if (segment.p_type == PT_DYNAMIC) dynamic = reinterpret_cast<const ElfW(Dyn)*>(object.base + segment.p_vaddr);
    if (segment.p_type == PT_GNU_RELRO) {
      object.relro_begin = object.base + segment.p_vaddr;
      object.relro_end = object.relro_begin + segment.p_memsz;
    }
  }
  if (!dynamic) return false;
  bool is_rela = true;
  size_t relative = 0;  // entries at the front without a symbol: hundreds of thousands in libtorch
  for (; dynamic->d_tag != DT_NULL; ++dynamic) {
    const ElfW(Addr) value = dynamic->d_un.d_ptr;
    switch (dynamic->d_tag) {
      case DT_SYMTAB:
        object.symbols = at<ElfW(Sym)>(object.base, value);
        break;
      case DT_STRTAB:
        object.strings = at<char>(object.base, value);
        break;
      case DT_JMPREL:
        object.plt.entries = at<ElfW(Rela)>(object.base, value);
        break;
      case DT_PLTRELSZ:
        object.plt.bytes = value;
        break;
      case DT_RELA:
        object.data.entries = at<ElfW(Rela)>(object.base, value);
        break;
      case DT_RELASZ:
        object.data.bytes = value;
        break;
      case DT_RELACOUNT:
        relative = value;
        break;
      case DT_PLTREL:
        is_rela = value == DT_RELA;
        break;
      default:
        break;
    }
  }
  if (relative * sizeof(ElfW(Rela)) > object.data.bytes) return false;
  object.data.entries += relative;
  object.data.bytes -= relative * sizeof(ElfW(Rela));
  return is_rela && object.symbols && object.strings;
}

bool store(const LoadedObject& object, void** slot, void* value) noexcept {
  const auto address = reinterpret_cast<ElfW(Addr)>(slot);
  const auto page = static_cast<ElfW(Addr)>(sysconf(_SC_PAGESIZE));
  auto* begin = reinterpret_cast<void*>(address & ~(page - 1));
  // RELRO only covers whole pages below its end.
  const bool is_read_only = address >= object.relro_begin && address < (object.relro_end & ~(page - 1));
  if (is_read_only && mprotect(begin, page, PROT_READ | PROT_WRITE) != 0) return false;
  // Pairs with the load of the slot by the program's call through it, in any thread: what the replacement uses is
  // written.
  __atomic_store_n(slot, value, __ATOMIC_RELEASE);
  if (is_read_only) mprotect(begin, page, PROT_READ);
  return true;
}

Visited g_visited;  // by redirect_imports()

struct Request {
  const Redirect* redirects;
  size_t count;
};

size_t redirect(const LoadedObject& object, const LoadedObject::Table& table, const Request& request) noexcept {
  size_t stored = 0;
  for (size_t i = 0; i < table.bytes / sizeof(ElfW(Rela)); ++i) {
    const ElfW(Rela)& entry = table.entries[i];
    const auto type = static_cast<uint32_t>(ELF64_R_TYPE(entry.r_info));
    if (type != processor::kJumpSlot && type != processor::kGlobData) continue;
    const char* name = object.strings + object.symbols[ELF64_R_SYM(entry.r_info)].st_name;
    for (size_t k = 0; k < request.count; ++k)
      if (strcmp(name, request.redirects[k].symbol) == 0)
        stored +=
            store(object, reinterpret_cast<void**>(object.base + entry.r_offset), request.redirects[k].replacement);
  }
  return stored;
}

ElfW(Addr) own_base() noexcept {
  Dl_info self;
  const bool is_found = dladdr(reinterpret_cast<const void*>(&own_base), &self) != 0;
  return is_found ? reinterpret_cast<ElfW(Addr)>(self.dli_fbase) : 0;
}

struct Walk {
  Request request;
  const char* needed;  // only objects that are linked with this library; nullptr: all
  bool takes_executable;
  size_t index;
  size_t skip;
};

bool needs(const dl_phdr_info& info, const LoadedObject& object, const char* library) noexcept {
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    if (info.dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
    const auto* dynamic = reinterpret_cast<const ElfW(Dyn)*>(object.base + info.dlpi_phdr[i].p_vaddr);
    for (; dynamic->d_tag != DT_NULL; ++dynamic)
      if (dynamic->d_tag == DT_NEEDED && strncmp(object.strings + dynamic->d_un.d_val, library, strlen(library)) == 0)
        return true;
  }
  return false;
}

// Not the executable (it has no name), not the vDSO (it has no file), and not us: we must reach the real functions.
bool is_redirected(const dl_phdr_info& info) noexcept {
  return info.dlpi_name && info.dlpi_name[0] == '/' && info.dlpi_addr != own_base();
}
bool is_executable(const dl_phdr_info& info) noexcept { return info.dlpi_name && info.dlpi_name[0] == 0; }

int visit(dl_phdr_info* info, size_t, void* data) noexcept {
  auto& walk = *static_cast<Walk*>(data);
  if (walk.index++ < walk.skip) return 0;
  if (!is_redirected(*info) && !(walk.takes_executable && is_executable(*info))) return 0;
  LoadedObject object;
  if (!read_object(*info, object) || (walk.needed && !needs(*info, object, walk.needed))) return 0;
  redirect(object, object.plt, walk.request);
  redirect(object, object.data, walk.request);
  return 0;
}

struct SwapWalk {
  const Swap* swaps;
  size_t count;
};

int visit_swaps(dl_phdr_info* info, size_t, void* data) noexcept {
  const auto& walk = *static_cast<const SwapWalk*>(data);
  if (!is_redirected(*info) && !is_executable(*info)) return 0;
  LoadedObject object;
  if (!read_object(*info, object)) return 0;
  for (const LoadedObject::Table& table : {object.plt, object.data}) {
    for (size_t i = 0; i < table.bytes / sizeof(ElfW(Rela)); ++i) {
      const auto type = static_cast<uint32_t>(ELF64_R_TYPE(table.entries[i].r_info));
      if (type != processor::kJumpSlot && type != processor::kGlobData) continue;
      auto** slot = reinterpret_cast<void**>(object.base + table.entries[i].r_offset);
      for (size_t k = 0; k < walk.count; ++k)
        if (*slot == walk.swaps[k].from) {
          store(object, slot, walk.swaps[k].to);
          break;
        }
    }
  }
  return 0;
}

struct NamedWalk {
  const char* library;
  Request request;  // without redirects: only looks whether the library is there
  size_t stored;
  const char* path;
};

int visit_named(dl_phdr_info* info, size_t, void* data) noexcept {
  auto& walk = *static_cast<NamedWalk*>(data);
  const char* slash = info->dlpi_name ? strrchr(info->dlpi_name, '/') : nullptr;
  if (!slash || strncmp(slash + 1, walk.library, strlen(walk.library)) != 0) return 0;
  walk.path = info->dlpi_name;
  LoadedObject object;
  if (walk.request.count == 0 || !read_object(*info, object)) return 1;
  walk.stored = redirect(object, object.plt, walk.request) + redirect(object, object.data, walk.request);
  return 1;
}

struct SlotWalk {
  const char* library;
  const char* symbol;
  ImportSlots found;
};

int visit_slots(dl_phdr_info* info, size_t, void* data) noexcept {
  auto& walk = *static_cast<SlotWalk*>(data);
  const char* slash = info->dlpi_name ? strrchr(info->dlpi_name, '/') : nullptr;
  if (!slash || strncmp(slash + 1, walk.library, strlen(walk.library)) != 0) return 0;
  ImportSlots& found = walk.found;
  LoadedObject object;
  if (!read_object(*info, object)) return 1;
  for (const LoadedObject::Table& table : {object.plt, object.data}) {
    for (size_t i = 0; i < table.bytes / sizeof(ElfW(Rela)) && found.count < ImportSlots::kMost; ++i) {
      const ElfW(Rela)& entry = table.entries[i];
      const char* name = object.strings + object.symbols[ELF64_R_SYM(entry.r_info)].st_name;
      if (strcmp(name, walk.symbol) == 0)
        found.slots[found.count++] = reinterpret_cast<const void*>(object.base + entry.r_offset);
    }
  }
  for (int i = 0; i < info->dlpi_phnum && found.code_count < ImportSlots::kMost; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || (segment.p_flags & (PF_X | PF_R)) != (PF_X | PF_R)) continue;
    const auto* begin = reinterpret_cast<const unsigned char*>(object.base + segment.p_vaddr);
    found.code[found.code_count++] = {begin, begin + segment.p_filesz};
  }
  return 1;
}

int read_counters(dl_phdr_info* info, size_t, void* out) noexcept {
  auto& visited = *static_cast<Visited*>(out);
  visited.adds = info->dlpi_adds;
  visited.subs = info->dlpi_subs;
  return 1;
}

// Objects come in the order in which they were loaded. Unless one has been unloaded since, the first `last.objects`
// have been visited before.
void redirect_new(const Request& request, const char* needed, Visited& last, bool takes_executable = false) noexcept {
  Visited now;
  dl_iterate_phdr(read_counters, &now);
  if (now.adds == last.adds && now.subs == last.subs) return;
  Walk walk{request, needed, takes_executable, 0, now.subs == last.subs ? last.objects : 0};
  dl_iterate_phdr(visit, &walk);
  now.objects = walk.index;
  last = now;
}

}  // namespace

void redirect_imports(const Redirect* redirects, size_t count) noexcept {
  redirect_new({redirects, count}, nullptr, g_visited);
}

void redirect_imports_of_all(const Redirect* redirects, size_t count, Visited& visited) noexcept {
  redirect_new({redirects, count}, nullptr, visited, true);
}

void swap_imports(const Swap* swaps, size_t count) noexcept {
  SwapWalk walk{swaps, count};
  if (count > 0) dl_iterate_phdr(visit_swaps, &walk);
  g_visited = {};
}

void redirect_imports_of_users(const char* library, const Redirect* redirects, size_t count,
                               Visited& visited) noexcept {
  redirect_new({redirects, count}, library, visited);
}

size_t redirect_imports_of(const char* library, const Redirect* redirects, size_t count) noexcept {
  NamedWalk walk{library, {redirects, count}, 0, nullptr};
  dl_iterate_phdr(visit_named, &walk);
  return walk.stored;
}

ImportSlots find_imports_of(const char* library, const char* symbol) noexcept {
  SlotWalk walk{library, symbol, {}};
  dl_iterate_phdr(visit_slots, &walk);
  return walk.found;
}

bool is_loaded(const char* library) noexcept {
  NamedWalk walk{library, {nullptr, 0}, 0, nullptr};
  return dl_iterate_phdr(visit_named, &walk) != 0;
}

void* find_symbol(const char* library, const char* symbol) noexcept {
  NamedWalk walk{library, {nullptr, 0}, 0, nullptr};
  dl_iterate_phdr(visit_named, &walk);
  void* handle = walk.path ? dlopen(walk.path, RTLD_LAZY | RTLD_NOLOAD) : nullptr;
  return handle ? dlsym(handle, symbol) : nullptr;
}

}  // namespace torchprof::inject
