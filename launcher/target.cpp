#include "launcher/target.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <regex>
#include <sstream>
#include <vector>

namespace torchprof::launcher {
namespace {

namespace fs = std::filesystem;

#if defined(__x86_64__)
constexpr uint16_t kOurMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr uint16_t kOurMachine = EM_AARCH64;
#else
constexpr uint16_t kOurMachine = EM_NONE;
#endif

class File {
 public:
  explicit File(const fs::path& path) : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  // Up to `size` bytes at `offset`; fewer at the end of the file or if it cannot be read.
  std::string read_at(uint64_t offset, size_t size) const {
    std::string out(size, '\0');
    const ssize_t n = pread(fd_, out.data(), size, static_cast<off_t>(offset));
    out.resize(n > 0 ? static_cast<size_t>(n) : 0);
    return out;
  }

 private:
  int fd_;
};

bool is_executable_file(const fs::path& path) {
  struct stat status;
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) && access(path.c_str(), X_OK) == 0;
}

fs::path found_on(const std::string& name, const std::string& path_list) {
  if (name.find('/') != std::string::npos) return is_executable_file(name) ? fs::path(name) : fs::path{};
  std::istringstream in(path_list);
  for (std::string directory; std::getline(in, directory, ':');) {
    fs::path candidate = fs::path(directory.empty() ? "." : directory) / name;
    if (is_executable_file(candidate)) return candidate;
  }
  return {};
}

// The interpreter that a script's first line names; empty if the file is no script.
fs::path interpreter_of(const File& file, const std::string& path_list) {
  std::string line = file.read_at(0, 256);  // as much as Linux reads
  if (!line.starts_with("#!")) return {};
  line = line.substr(2, line.find('\n') - 2);
  std::istringstream words(line);
  std::string interpreter;
  words >> interpreter;
  if (fs::path(interpreter).filename() == "env")
    for (std::string word; words >> word;)
      if (!word.starts_with('-') && word.find('=') == std::string::npos) return found_on(word, path_list);
  return interpreter;
}

struct Elf {
  bool is_elf = false;
  bool is_foreign = false;  // of another word size or machine than the library
  bool is_static = false;   // no dynamic linker is asked for
  std::string linker;       // PT_INTERP
};

Elf read_elf(const File& file) {
  Elf elf;
  const std::string head = file.read_at(0, sizeof(Elf64_Ehdr));
  if (!head.starts_with(ELFMAG) || head.size() < sizeof(Elf64_Ehdr)) return elf;
  elf.is_elf = true;
  Elf64_Ehdr header;
  std::memcpy(&header, head.data(), sizeof(header));
  elf.is_foreign = header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
                   (kOurMachine != EM_NONE && header.e_machine != kOurMachine);
  if (elf.is_foreign || header.e_phentsize != sizeof(Elf64_Phdr)) return elf;
  elf.is_static = true;
  const std::string table = file.read_at(header.e_phoff, size_t{header.e_phnum} * sizeof(Elf64_Phdr));
  for (size_t at = 0; at + sizeof(Elf64_Phdr) <= table.size(); at += sizeof(Elf64_Phdr)) {
    Elf64_Phdr segment;
    std::memcpy(&segment, table.data() + at, sizeof(segment));
    if (segment.p_type != PT_INTERP) continue;
    elf.is_static = false;
    elf.linker = file.read_at(segment.p_offset, std::min<uint64_t>(segment.p_filesz, 4096)).c_str();
  }
  return elf;
}

// The kernel will run it with other rights than ours: ld.so then ignores LD_PRELOAD (secure execution).
bool changes_rights(const fs::path& path) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0) return false;
  if ((status.st_mode & S_ISUID) && status.st_uid != getuid()) return true;
  if ((status.st_mode & S_ISGID) && (status.st_mode & S_IXGRP) && status.st_gid != getgid()) return true;
  return getuid() != 0 && getxattr(path.c_str(), "security.capability", nullptr, 0) > 0;
}

}  // namespace

Target look_at(const std::string& command, const std::string& path_list) {
  Target target;
  target.file = target.program = found_on(command, path_list);
  for (int depth = 0; depth < 4 && !target.program.empty(); ++depth) {
    const fs::path next = interpreter_of(File(target.program), path_list);
    if (next.empty()) break;
    target.program = next;
  }
  if (target.program.empty()) return target;
  const std::string name = target.program.string();
  const Elf elf = read_elf(File(target.program));
  // ld.so itself may be the command; it asks for no linker and yet preloads.
  const bool is_linker = target.program.filename().string().starts_with("ld-");
  if (elf.linker.find("ld-musl") != std::string::npos || (is_linker && name.find("musl") != std::string::npos))
    target.refusal =
        name +
        ": is built for musl (Alpine); libtorchprof.so needs glibc, and with it preloaded the program would not start";
  else if (elf.is_foreign)
    target.warning = name + ": is built for another processor or word size than torchprof: it will run untraced";
  else if (changes_rights(target.program))
    target.warning =
        name + ": is setuid, setgid or has capabilities, for which ld.so ignores LD_PRELOAD: it will run untraced";
  else if (elf.is_static && !is_linker)
    target.warning = name + ": is statically linked, so nothing can be preloaded into it: it will run untraced";
  return target;
}

bool is_python(const fs::path& program) {
  static const std::regex pattern("python([0-9]+(\\.[0-9]+)?t?)?");
  return std::regex_match(program.filename().string(), pattern);
}

}  // namespace torchprof::launcher
