#include "launcher/run_dir/our_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "formats/report/page.h"
#include "formats/write/format.h"

namespace torchprof::launcher {

Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}
Descriptor::Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Descriptor open_directory(int at, const std::string& name) {
  constexpr int kFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  const int fd = openat(at, name.c_str(), kFlags | O_NOATIME);
  // O_NOATIME works only for the owner.
  return Descriptor(fd < 0 && errno == EPERM ? openat(at, name.c_str(), kFlags) : fd);
}

std::vector<std::string> names_in(int directory) {
  std::vector<std::string> names;
  const int fd = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOATIME);
  const int again = fd < 0 ? openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : fd;
  const std::unique_ptr<DIR, int (*)(DIR*)> list(again < 0 ? nullptr : fdopendir(again), closedir);
  if (!list) return names;
  while (const dirent* entry = readdir(list.get()))
    if (std::strcmp(entry->d_name, ".") != 0 && std::strcmp(entry->d_name, "..") != 0)
      names.emplace_back(entry->d_name);
  std::ranges::sort(names);
  return names;
}

bool is_regular(int directory, const std::string& name) {
  struct stat status {};
  return fstatat(directory, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(status.st_mode);
}

bool is_directory(int directory, const std::string& name) {
  struct stat status {};
  return fstatat(directory, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(status.st_mode);
}

std::string text_in(int directory, const std::string& name, size_t most) {
  const Descriptor file(openat(directory, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat status {};
  if (file.get() < 0 || fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return {};
  std::string text(std::min(static_cast<size_t>(status.st_size), most), '\0');
  size_t size = 0;
  for (ssize_t n; size < text.size() && (n = read(file.get(), text.data() + size, text.size() - size)) > 0;)
    size += static_cast<size_t>(n);
  text.resize(size);
  return text;
}

namespace {

// HOST.NUMBER.NUMBER...: HOST may hold anything, dots too.
bool ends_with_numbers(std::string_view name, int count) {
  for (; count > 0; --count) {
    const size_t dot = name.rfind('.');
    if (dot == name.npos || dot + 1 == name.size()) return false;
    if (name.find_first_not_of("0123456789", dot + 1) != name.npos) return false;
    name = name.substr(0, dot);
  }
  return true;
}

// Until 0.2.0 a list of an earlier run had this name while a new one began.
bool is_old_list(const std::string& name) {
  return std::ranges::any_of(kLists, [&name](const std::string& list) { return name == list + ".earlier"; });
}

}  // namespace

bool is_door(int directory, const std::string& name) {
  struct stat status {};
  return name.ends_with(kDoorEnd) &&
         ends_with_numbers(std::string_view(name).substr(0, name.size() - kDoorEnd.size()), kNumbersOfSpool) &&
         fstatat(directory, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISSOCK(status.st_mode);
}

bool is_ours_in_spool(int directory, const std::string& name) {
  if (is_door(directory, name)) return true;
  if (!is_regular(directory, name)) return false;
  if (std::ranges::find(kLists, name) != kLists.end() || is_old_list(name)) return true;
  if (name.starts_with(kWindowsBegin) && ends_with_numbers(name, kNumbersOfWindows)) return true;
  if (!name.ends_with(kSpoolEnd)) return false;
  const std::string_view stem = std::string_view(name).substr(0, name.size() - std::string_view(kSpoolEnd).size());
  if (!ends_with_numbers(stem, kNumbersOfSpool)) return false;
  // All zeros: its process died before it wrote the magic number.
  const std::string begin = text_in(directory, name, sizeof(kSpoolMagic));
  return std::ranges::all_of(begin, [](char c) { return c == 0; }) ||
         (begin.size() == sizeof(kSpoolMagic) && std::memcmp(begin.data(), &kSpoolMagic, sizeof(kSpoolMagic)) == 0);
}

bool is_output_name(const std::string& name) {
  return name.find('/') == std::string::npos && (formats::Output::is_temporary(name) || formats::may_be_output(name));
}

std::vector<std::string> own_files(const nlohmann::ordered_json& info) {
  std::vector<std::string> names;
  if (const auto files = info.find("files"); files != info.end() && files->is_array())
    for (const auto& file : *files)
      if (file.is_string() && is_output_name(file.get<std::string>())) names.push_back(file.get<std::string>());
  return names;
}

bool is_page(int directory, const std::string& name) {
  return text_in(directory, name, formats::kPageHead).find(formats::kPageMark) != std::string::npos;
}

bool move_to(int from, const std::string& name, int to) noexcept {
  if (renameat2(from, name.c_str(), to, name.c_str(), RENAME_NOREPLACE) == 0) return true;
  if (errno != EINVAL && errno != ENOSYS) return false;
  // Not every file system can do that.
  struct stat status {};
  if (fstatat(to, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0) errno = EEXIST;
  return errno == ENOENT && renameat(from, name.c_str(), to, name.c_str()) == 0;
}

void remove_file(int directory, const std::string& name) noexcept {
  if (is_regular(directory, name) || is_door(directory, name)) unlinkat(directory, name.c_str(), 0);
}

}  // namespace torchprof::launcher
