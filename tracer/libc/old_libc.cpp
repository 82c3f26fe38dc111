#include "tracer/libc/old_libc.h"

#include <dlfcn.h>
#include <sys/auxv.h>
#include <sys/random.h>

#include <cerrno>
#include <cstdint>

#define TORCHPROF_OURS extern "C" __attribute__((visibility("hidden")))

namespace {

using FindObject = int (*)(void*, dl_find_object*);
// libc's own, since glibc 2.35. Looked up as soon as this is loaded: dlsym takes a lock for which a later caller might
// wait.
FindObject g_find_object = nullptr;
__attribute__((constructor(101))) void find_newer_functions() {
  g_find_object = reinterpret_cast<FindObject>(dlsym(RTLD_DEFAULT, "_dl_find_object"));
}

struct Search {
  uintptr_t address;
  uintptr_t page;  // the size of one
  dl_find_object* result;
};

// The loader's list changes under the lock that dl_iterate_phdr holds.
link_map* map_of(const dl_phdr_info& info) noexcept {
  link_map* map = _r_debug.r_map;
  while (map && (map->l_addr != info.dlpi_addr || map->l_name != info.dlpi_name)) map = map->l_next;
  return map;
}

int look_at(dl_phdr_info* info, size_t, void* data) noexcept {
  const auto& search = *static_cast<Search*>(data);
  uintptr_t begin = UINTPTR_MAX, end = 0, frames = 0;
  bool is_inside = false;
  for (const ElfW(Phdr)* part = info->dlpi_phdr; part != info->dlpi_phdr + info->dlpi_phnum; ++part) {
    const uintptr_t at = info->dlpi_addr + part->p_vaddr;
    if (part->p_type == PT_GNU_EH_FRAME) frames = at;
    if (part->p_type != PT_LOAD) continue;
    const uintptr_t first = at & ~(search.page - 1), last = at + part->p_memsz;
    if (first < begin) begin = first;
    if (last > end) end = last;
    is_inside = is_inside || (search.address >= first && search.address < last);
  }
  if (!is_inside) return 0;
  *search.result = {};
  search.result->dlfo_map_start = reinterpret_cast<void*>(begin);
  search.result->dlfo_map_end = reinterpret_cast<void*>(end);
  search.result->dlfo_link_map = map_of(*info);
  search.result->dlfo_eh_frame = reinterpret_cast<void*>(frames);
  return 1;
}

}  // namespace

int torchprof::libc::find_object(void* address, dl_find_object* result) noexcept {
  Search search{reinterpret_cast<uintptr_t>(address), getauxval(AT_PAGESZ), result};
  const bool is_found = dl_iterate_phdr(look_at, &search) == 1 && result->dlfo_eh_frame && result->dlfo_link_map;
  return is_found ? 0 : -1;
}

TORCHPROF_OURS char __libc_single_threaded;
char __libc_single_threaded = 0;

TORCHPROF_OURS int _dl_find_object(void* address, dl_find_object* result) noexcept {
  return g_find_object ? g_find_object(address, result) : torchprof::libc::find_object(address, result);
}

TORCHPROF_OURS uint32_t arc4random() noexcept {
  uint32_t number = 0;
  while (getrandom(&number, sizeof(number), 0) != sizeof(number) && errno == EINTR) continue;
  return number;
}
