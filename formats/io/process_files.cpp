#include "formats/io/process_files.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <system_error>

#include "formats/io/open_file.h"

namespace torchprof::formats {
namespace {

namespace fs = std::filesystem;

std::string thread_file(uint32_t tid, std::string_view file) {
  return std::string("task/").append(std::to_string(tid)).append("/").append(file);
}

// What in a directory has a number for a name. The iterator is moved on by hand: a loop over a range throws if the
// process ends meanwhile.
std::vector<uint32_t> numbers_in(const fs::path& directory) {
  std::vector<uint32_t> numbers;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename();
    uint32_t number = 0;
    const auto [rest, failure] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (failure == std::errc{} && rest == name.data() + name.size()) numbers.push_back(number);
  }
  return numbers;
}

}  // namespace

std::string process_path(uint32_t pid) { return "/proc/" + std::to_string(pid); }

std::string process_path(uint32_t pid, std::string_view file) { return process_path(pid).append("/").append(file); }

std::string read_process_file(uint32_t pid, std::string_view file) { return read_file(process_path(pid, file)); }

std::string read_thread_file(uint32_t pid, uint32_t tid, std::string_view file) {
  return read_process_file(pid, thread_file(tid, file));
}

std::string_view status_value(std::string_view status, std::string_view name) {
  for (size_t begin = 0; begin < status.size();) {
    const size_t end = std::min(status.find('\n', begin), status.size());
    const std::string_view line = status.substr(begin, end - begin);
    begin = end + 1;
    if (!line.starts_with(name) || line.substr(name.size(), 1) != ":") continue;
    const size_t value = line.find_first_not_of(" \t", name.size() + 1);
    return value == std::string_view::npos ? std::string_view() : line.substr(value);
  }
  return {};
}

uint32_t status_number(std::string_view status, std::string_view name) {
  const std::string_view value = status_value(status, name);
  uint32_t number = 0;
  std::from_chars(value.data(), value.data() + value.size(), number);
  return number;
}

std::vector<uint32_t> all_processes() { return numbers_in("/proc"); }

std::vector<uint32_t> threads_of_process(uint32_t pid) { return numbers_in(process_path(pid, "task")); }

}  // namespace torchprof::formats
