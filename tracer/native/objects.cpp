#include "tracer/native/objects.h"

#include <dlfcn.h>
#include <elf.h>
#include <limits.h>
#include <link.h>
#include <unistd.h>

#include <cstring>
#include <string_view>

namespace torchprof::native {
namespace {

struct Mapped {
  uintptr_t start;
  uintptr_t end;
  const char* path;  // of the table of names
  NativeObjectId id;
};
constexpr size_t kMostObjects = 2048;  // code of any further one counts as code without a file
constinit Mapped g_mapped[kMostObjects] = {};
size_t g_count = 0;
uint32_t g_last_id = 0;

// The bytes of the GNU build id; empty: there is none. Linkers lay an object out so that it is mapped from its first
// byte on; one that does not begin with an ELF header is left alone.
std::string_view build_id_of(const dl_find_object& object) noexcept {
  const auto* start = static_cast<const char*>(object.dlfo_map_start);
  const auto size = static_cast<size_t>(static_cast<const char*>(object.dlfo_map_end) - start);
  ElfW(Ehdr) header;
  if (size < sizeof(header)) return {};
  memcpy(&header, start, sizeof(header));
  if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_phentsize != sizeof(ElfW(Phdr)) ||
      header.e_phoff > size || size - header.e_phoff < header.e_phnum * sizeof(ElfW(Phdr)))
    return {};
  for (size_t i = 0; i < header.e_phnum; ++i) {
    ElfW(Phdr) part;
    memcpy(&part, start + header.e_phoff + i * sizeof(part), sizeof(part));
    if (part.p_type != PT_NOTE) continue;
    const auto from = object.dlfo_link_map->l_addr + part.p_vaddr - reinterpret_cast<uintptr_t>(start);
    if (from > size || size - from < part.p_memsz) continue;
    const char* at = start + from;
    for (size_t left = part.p_memsz; left >= sizeof(ElfW(Nhdr));) {
      ElfW(Nhdr) note;
      memcpy(&note, at, sizeof(note));
      const size_t name = (size_t{note.n_namesz} + 3) & ~size_t{3}, data = (size_t{note.n_descsz} + 3) & ~size_t{3};
      if (left < sizeof(note) + name + data) break;
      if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && memcmp(at + sizeof(note), "GNU", 4) == 0)
        return {at + sizeof(note) + name, note.n_descsz};
      at += sizeof(note) + name + data;
      left -= sizeof(note) + name + data;
    }
  }
  return {};
}

const StringTable::Entry* path_of(session::DefinitionLock& lock, const link_map& map) noexcept {
  if (map.l_name && *map.l_name) return lock.intern(map.l_name);
  char path[PATH_MAX];
  const ssize_t n = readlink("/proc/self/exe", path, sizeof(path));
  return n > 0 ? lock.intern({path, static_cast<size_t>(n)}) : lock.intern("");
}

bool is_still_there(const Mapped& mapped) noexcept {
  dl_find_object found;
  if (_dl_find_object(reinterpret_cast<void*>(mapped.start), &found) != 0) return false;
  const char* path = found.dlfo_link_map->l_name;
  return reinterpret_cast<uintptr_t>(found.dlfo_map_end) == mapped.end &&
         (!path || !*path || strcmp(path, mapped.path) == 0);
}

}  // namespace

NativeObjectId object_at(session::DefinitionLock& lock, uintptr_t address) noexcept {
  for (size_t i = 0; i < g_count; ++i)
    if (address >= g_mapped[i].start && address < g_mapped[i].end) return g_mapped[i].id;
  dl_find_object found;
  if (g_count == kMostObjects || _dl_find_object(reinterpret_cast<void*>(address), &found) != 0 || !found.dlfo_link_map)
    return {};
  const StringTable::Entry* path = path_of(lock, *found.dlfo_link_map);
  const std::string_view bytes = build_id_of(found);
  const StringTable::Entry* build_id = bytes.empty() ? nullptr : lock.intern(bytes);
  if (!path) return {};
  NativeObjectDef object{};
  object.id = {g_last_id + 1};
  object.path = path->id;
  if (build_id) object.build_id = build_id->id;
  object.start = reinterpret_cast<uintptr_t>(found.dlfo_map_start);
  object.end = reinterpret_cast<uintptr_t>(found.dlfo_map_end);
  object.bias = found.dlfo_link_map->l_addr;
  if (!lock.define(object)) return {};
  g_last_id = object.id.value;
  g_mapped[g_count++] = {object.start, object.end, path->text, object.id};
  return object.id;
}

bool forget_unmapped(session::DefinitionLock&) noexcept {
  const size_t before = g_count;
  size_t kept = 0;
  for (size_t i = 0; i < g_count; ++i)
    if (is_still_there(g_mapped[i])) g_mapped[kept++] = g_mapped[i];
  g_count = kept;
  return kept != before;
}

}  // namespace torchprof::native
