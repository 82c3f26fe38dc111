#include "launcher/terminal/say.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "formats/io/error.h"
#include "formats/io/text.h"
#include "launcher/terminal/screen.h"

namespace torchprof::launcher {
namespace {

bool is_quiet = false;
std::vector<std::pair<std::string, std::string>> shown_names;  // of show_as()
std::atomic<bool> is_overwritten = false;                      // the terminal's last line is one of overwrite()

// Relaxed, here and in overwrite(): no other data goes with it.
bool take_overwritten() { return is_overwritten.exchange(false, std::memory_order_relaxed); }

constexpr const char* kToItsBegin = "\r\033[K";
constexpr const char* kBegin = "torchprof: ";

void put(std::string_view text) {
  // If nobody reads stderr, nothing can be done about it.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
}

enum class Beginning { kOfBlock, kOfEachLine };

std::string as_lines(std::string_view said, Beginning beginning) {
  std::string renamed(said), out;
  for (const auto& [begin, name] : shown_names)
    for (size_t at = 0; (at = renamed.find(begin, at)) != renamed.npos; at += name.size())
      renamed.replace(at, begin.size(), name);
  std::string_view text = renamed;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    if (out.empty() || beginning == Beginning::kOfEachLine) out += kBegin;
    out += formats::shorten(formats::printable(text.substr(0, end)), kLongestLine);
    out += '\n';
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
  }
  return out;
}

void put_lines(const std::string& lines) { put(take_overwritten() ? kToItsBegin + lines : lines); }

}  // namespace

void show_as(std::string begin, std::string name) { shown_names.emplace_back(std::move(begin), std::move(name)); }

std::string reason_of(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) == nullptr) return error.what();
  return "memory ran out (the machine's, a container's limit or ulimit -v): give it more, or less to do: one file of "
         "the run's spool directory instead of the run, fewer --tables";
}

void print(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw Error(errno == EPIPE ? "" : std::string("stdout: ") + std::strerror(errno));
    text.remove_prefix(static_cast<size_t>(written));
  }
}

void print_text(std::string_view text) { print(formats::for_terminal(text)); }

size_t said_columns() { return terminal_columns(STDERR_FILENO); }

void complain(std::string_view text) { put_lines(as_lines(text, Beginning::kOfEachLine)); }

void say(std::string_view text) {
  if (!is_quiet) put_lines(as_lines(text, Beginning::kOfBlock));
}

void say_each(std::string_view lines) {
  if (!is_quiet) complain(lines);
}

void set_quiet(bool quiet) { is_quiet = quiet; }

bool can_overwrite() {
  const char* none = std::getenv("NO_COLOR");
  return understands_escapes(STDERR_FILENO) && (none == nullptr || *none == 0);
}

void overwrite(std::string_view text) {
  std::string line = as_lines(text, Beginning::kOfEachLine);
  line.pop_back();  // its newline
  is_overwritten.store(true, std::memory_order_relaxed);
  put(kToItsBegin + line);
}

void wipe() {
  if (take_overwritten()) put(kToItsBegin);
}

}  // namespace torchprof::launcher
