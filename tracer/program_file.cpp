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

// The dynamic linker that the file asks for; false: none.
bool linker_of(int file, const Elf64_Ehdr& header, char (&out)[256]) noexcept {
  Elf64_Phdr segments[kMostSegments];
  const size_t count = header.e_phnum < kMostSegments ? header.e_phnum : kMostSegments;
  if (!read_at(file, header.e_phoff, segments, count * sizeof(Elf64_Phdr))) return false;
  for (size_t i = 0; i < count; ++i) {
    if (segments[i].p_type != PT_INTERP) continue;
    const size_t size = segments[i].p_filesz < sizeof(out) ? segments[i].p_filesz : sizeof(out) - 1;
    out[size] = 0;
    return read_at(file, segments[i].p_offset, out, size);
  }
  return false;
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
