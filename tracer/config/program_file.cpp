#include "tracer/config/program_file.h"

#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iterator>

#include "tracer/processor/processor.h"

namespace torchprof {
namespace {

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

bool read_header(int file, ProgramWork& work) noexcept {
  return file >= 0 && read_at(file, 0, &work.header, sizeof(work.header)) &&
         memcmp(work.header.e_ident, ELFMAG, SELFMAG) == 0;
}

void read_segments(int file, ProgramWork& work) noexcept {
  work.count = work.header.e_phnum < std::size(work.segments) ? work.header.e_phnum : std::size(work.segments);
  if (!read_at(file, work.header.e_phoff, work.segments, work.count * sizeof(Elf64_Phdr))) work.count = 0;
}

const Elf64_Phdr* first(const ProgramWork& work, uint32_t type) noexcept {
  for (size_t i = 0; i < work.count; ++i)
    if (work.segments[i].p_type == type) return &work.segments[i];
  return nullptr;
}

// Where in the file the byte at `address` of the loaded program is; 0: nowhere.
uint64_t offset_of(const ProgramWork& work, uint64_t address) noexcept {
  for (size_t i = 0; i < work.count; ++i) {
    const Elf64_Phdr& s = work.segments[i];
    if (s.p_type == PT_LOAD && address >= s.p_vaddr && address - s.p_vaddr < s.p_filesz)
      return s.p_offset + (address - s.p_vaddr);
  }
  return 0;
}

// The dynamic linker that the file asks for, in work.linker; false: none.
bool read_linker(int file, ProgramWork& work) noexcept {
  read_segments(file, work);
  work.linker[0] = 0;
  const Elf64_Phdr* linker = first(work, PT_INTERP);
  if (!linker) return false;
  const size_t size = linker->p_filesz < sizeof(work.linker) ? linker->p_filesz : sizeof(work.linker) - 1;
  work.linker[size] = 0;
  return read_at(file, linker->p_offset, work.linker, size);
}

// The beginning of the name of the first library that the file needs, in work.needed; empty: none.
void read_first_needed(int file, ProgramWork& work) noexcept {
  read_segments(file, work);
  work.needed[0] = 0;
  const Elf64_Phdr* dynamic = first(work, PT_DYNAMIC);
  if (!dynamic) return;
  const size_t bytes = dynamic->p_filesz < sizeof(work.dynamic) ? dynamic->p_filesz : sizeof(work.dynamic);
  if (!read_at(file, dynamic->p_offset, work.dynamic, bytes)) return;
  bool has_name = false;
  uint64_t name = 0, strings = 0;
  for (size_t i = 0; i < bytes / sizeof(Elf64_Dyn) && work.dynamic[i].d_tag != DT_NULL; ++i) {
    const Elf64_Dyn& entry = work.dynamic[i];
    if (entry.d_tag == DT_NEEDED && !has_name) {
      has_name = true;
      name = entry.d_un.d_val;
    }
    if (entry.d_tag == DT_STRTAB) strings = offset_of(work, entry.d_un.d_ptr);
  }
  if (has_name && strings && read_at(file, strings + name, work.needed, sizeof(work.needed) - 1))
    work.needed[sizeof(work.needed) - 1] = 0;
  else
    work.needed[0] = 0;
}

Barrier barrier_of_elf(int file, const char* path, ProgramWork& work) noexcept {
  if (!read_header(file, work)) return Barrier::kNone;
  const Elf64_Ehdr& header = work.header;
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
      header.e_machine != processor::kElfMachine)
    return Barrier::kForeign;
  if (header.e_phentsize != sizeof(Elf64_Phdr)) return Barrier::kNone;
  const bool has_linker = read_linker(file, work);
  // ld.so itself may be the command; it asks for no linker and yet preloads.
  const char* slash = strrchr(path, '/');
  const bool is_linker = strncmp(slash ? slash + 1 : path, "ld-", 3) == 0;
  if (strstr(work.linker, "ld-musl") || (is_linker && strstr(path, "musl"))) return Barrier::kMusl;
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

Barrier barrier_of(int file, const char* path, ProgramWork& work) noexcept {
  const int saved = errno;
  const Barrier barrier = barrier_of_elf(file, path, work);
  errno = saved;
  return barrier;
}

bool needs_asan(int file, ProgramWork& work) noexcept {
  const int saved = errno;
  work.needed[0] = 0;
  if (read_header(file, work) && work.header.e_ident[EI_CLASS] == ELFCLASS64 &&
      work.header.e_phentsize == sizeof(Elf64_Phdr))
    read_first_needed(file, work);
  errno = saved;
  return strncmp(work.needed, "libasan.so", 10) == 0 || strncmp(work.needed, "libclang_rt.asan", 16) == 0;
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
