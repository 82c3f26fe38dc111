#include "tracer/program_file.h"

#include <elf.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace torchprof {
namespace {

#if defined(__x86_64__)
constexpr uint16_t kOurMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr uint16_t kOurMachine = EM_AARCH64;
#else
constexpr uint16_t kOurMachine = EM_NONE;
#endif

constexpr size_t kMostSegments = 64;

bool read_at(int file, uint64_t offset, void* out, size_t size) noexcept {
  return pread(file, out, size, static_cast<off_t>(offset)) == static_cast<ssize_t>(size);
}

bool changes_rights(int file) noexcept {
  struct stat status;
  if (fstat(file, &status) != 0) return false;
  if ((status.st_mode & S_ISUID) && status.st_uid != getuid()) return true;
  if ((status.st_mode & S_ISGID) && (status.st_mode & S_IXGRP) && status.st_gid != getgid()) return true;
  return getuid() != 0 && fgetxattr(file, "security.capability", nullptr, 0) > 0;
}

struct Segments {
  size_t count = 0;
  Elf64_Phdr all[kMostSegments];

  bool read(int file, const Elf64_Ehdr& header) noexcept {
    count = header.e_phnum < kMostSegments ? header.e_phnum : kMostSegments;
    if (!read_at(file, header.e_phoff, all, count * sizeof(Elf64_Phdr))) count = 0;
    return count > 0;
  }
  const Elf64_Phdr* first(uint32_t type) const noexcept {
    for (size_t i = 0; i < count; ++i)
      if (all[i].p_type == type) return &all[i];
    return nullptr;
  }
  // Where in the file the byte at `address` of the loaded program is; 0: nowhere.
  uint64_t offset_of(uint64_t address) const noexcept {
    for (size_t i = 0; i < count; ++i) {
      const Elf64_Phdr& s = all[i];
      if (s.p_type == PT_LOAD && address >= s.p_vaddr && address - s.p_vaddr < s.p_filesz)
        return s.p_offset + (address - s.p_vaddr);
    }
    return 0;
  }
};

// The dynamic linker that the file asks for; false: none.
bool linker_of(int file, const Elf64_Ehdr& header, char (&out)[256]) noexcept {
  Segments segments;
  const Elf64_Phdr* linker = segments.read(file, header) ? segments.first(PT_INTERP) : nullptr;
  if (!linker) return false;
  const size_t size = linker->p_filesz < sizeof(out) ? linker->p_filesz : sizeof(out) - 1;
  out[size] = 0;
  return read_at(file, linker->p_offset, out, size);
}

// The beginning of the name of the first library that the file needs; empty: none.
void first_needed(int file, const Elf64_Ehdr& header, char (&out)[32]) noexcept {
  Segments segments;
  const Elf64_Phdr* dynamic = segments.read(file, header) ? segments.first(PT_DYNAMIC) : nullptr;
  if (!dynamic) return;
  Elf64_Dyn entries[64];
  const size_t bytes = dynamic->p_filesz < sizeof(entries) ? dynamic->p_filesz : sizeof(entries);
  if (!read_at(file, dynamic->p_offset, entries, bytes)) return;
  bool has_name = false;
  uint64_t name = 0, strings = 0;
  for (size_t i = 0; i < bytes / sizeof(Elf64_Dyn) && entries[i].d_tag != DT_NULL; ++i) {
    if (entries[i].d_tag == DT_NEEDED && !has_name) {
      has_name = true;
      name = entries[i].d_un.d_val;
    }
    if (entries[i].d_tag == DT_STRTAB) strings = segments.offset_of(entries[i].d_un.d_ptr);
  }
  if (has_name && strings && read_at(file, strings + name, out, sizeof(out) - 1))
    out[sizeof(out) - 1] = 0;
  else
    out[0] = 0;
}

Barrier barrier_of_elf(int file, const char* path) noexcept {
  Elf64_Ehdr header;
  if (file < 0 || !read_at(file, 0, &header, sizeof(header)) || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
    return Barrier::kNone;
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
      (kOurMachine != EM_NONE && header.e_machine != kOurMachine))
    return Barrier::kForeign;
  if (header.e_phentsize != sizeof(Elf64_Phdr)) return Barrier::kNone;
  char linker[256] = "";
  const bool has_linker = linker_of(file, header, linker);
  // ld.so itself may be the command; it asks for no linker and yet preloads.
  const char* slash = strrchr(path, '/');
  const bool is_linker = strncmp(slash ? slash + 1 : path, "ld-", 3) == 0;
  if (strstr(linker, "ld-musl") || (is_linker && strstr(path, "musl"))) return Barrier::kMusl;
  if (changes_rights(file)) return Barrier::kChangesRights;
  return has_linker || is_linker ? Barrier::kNone : Barrier::kStatic;
}

}  // namespace

const char* text_of(Barrier barrier) noexcept {
  switch (barrier) {
    case Barrier::kNone:
      break;
    case Barrier::kMusl:
      return "is built for musl (Alpine); libtorchprof.so needs glibc, and with it preloaded the program would not "
             "start";
    case Barrier::kForeign:
      return "is built for another processor or word size than torchprof";
    case Barrier::kChangesRights:
      return "is setuid, setgid or has capabilities, for which ld.so ignores LD_PRELOAD";
    case Barrier::kStatic:
      return "is statically linked, so nothing can be preloaded into it";
  }
  return "";
}

Barrier barrier_of(int file, const char* path) noexcept {
  const int saved = errno;
  const Barrier barrier = barrier_of_elf(file, path);
  errno = saved;
  return barrier;
}

bool needs_asan(int file) noexcept {
  const int saved = errno;
  Elf64_Ehdr header;
  char name[32] = "";
  if (file >= 0 && read_at(file, 0, &header, sizeof(header)) && memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 &&
      header.e_ident[EI_CLASS] == ELFCLASS64 && header.e_phentsize == sizeof(Elf64_Phdr))
    first_needed(file, header, name);
  errno = saved;
  return strncmp(name, "libasan.so", 10) == 0 || strncmp(name, "libclang_rt.asan", 16) == 0;
}

bool script_line_of(int file, char (&out)[kScriptLine]) noexcept {
  const int saved = errno;
  const ssize_t n = file < 0 ? -1 : pread(file, out, sizeof(out), 0);
  errno = saved;
  if (n < 3 || out[0] != '#' || out[1] != '!') return false;
  const auto length = static_cast<size_t>(n - 2);
  memmove(out, out + 2, length);
  out[length] = 0;
  out[strcspn(out, "\n")] = 0;
  return true;
}

}  // namespace torchprof
