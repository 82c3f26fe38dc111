#include "formats/io/process_files.h"

#include <algorithm>
#include <charconv>
#include <csignal>
#include <filesystem>
#include <iterator>
#include <sstream>
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
    if (const uint32_t number = number_in_text(name); number != 0) numbers.push_back(number);
  }
  return numbers;
}

// What proc_pid_stat(5) says of a thread whose end is certain: the kernel's PF_EXITING in its flags, or SIGKILL among
// the signals that it has not taken yet, which the end of a process gives to all its threads.
struct ThreadEnd {
  bool is_certain = false;
  bool is_over = false;
};
ThreadEnd thread_end(uint32_t pid, uint32_t tid) {
  constexpr size_t kState = 0, kFlags = 6, kSignals = 28;  // fields 3, 9 and 31
  constexpr uint32_t kExiting = 0x4, kKilled = uint32_t{1} << (SIGKILL - 1);
  std::istringstream in(stat_behind_name(std::to_string(pid) + "/task/" + std::to_string(tid)));
  const std::vector<std::string> fields{std::istream_iterator<std::string>(in), {}};
  if (fields.size() <= kSignals) return {.is_certain = true, .is_over = true};  // it is not there any more
  return {.is_certain =
              (number_in_text(fields[kFlags]) & kExiting) != 0 || (number_in_text(fields[kSignals]) & kKilled) != 0,
          .is_over = fields[kState] == "Z" || fields[kState] == "X"};
}

}  // namespace

uint32_t number_in_text(std::string_view text) {
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size() ? number : 0;
}

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

std::string stat_behind_name(const std::string& process) {
  const std::string text = read_file("/proc/" + process + "/stat");
  const size_t end_of_name = text.rfind(')');
  return end_of_name == std::string::npos ? std::string() : text.substr(end_of_name + 1);
}

bool is_ending(uint32_t pid) {
  bool some_are_left = false;
  for (const uint32_t tid : threads_of_process(pid)) {
    const ThreadEnd thread = thread_end(pid, tid);
    if (!thread.is_certain) return false;
    some_are_left = some_are_left || !thread.is_over;
  }
  return some_are_left;
}

bool has_ended(uint32_t pid) {
  return std::ranges::all_of(threads_of_process(pid), [pid](uint32_t tid) { return thread_end(pid, tid).is_certain; });
}

}  // namespace torchprof::formats
