#include "launcher/terminal/browser.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

namespace torchprof::launcher {
namespace {

std::string value_of(const char* variable) {
  const char* value = std::getenv(variable);
  return value == nullptr ? std::string() : value;
}

// Runs it in a session of its own, so that neither Ctrl-C nor the end of the terminal ends a browser. The child between
// is waited for, so that nobody has to wait for the browser. False: it could not be started.
bool start_apart(std::vector<std::string> command) {
  std::vector<char*> arguments;
  for (std::string& argument : command) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return false;
  const pid_t between = fork();
  if (between == 0) {
    setsid();
    const pid_t inner = fork();
    const char failed = 1;
    if (inner < 0) (void)!write(ends[1], &failed, 1);
    if (inner != 0) _exit(0);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(nothing, fd);
    execvp(arguments[0], arguments.data());
    (void)!write(ends[1], &failed, 1);
    _exit(127);
  }
  close(ends[1]);
  char failed = 0;
  ssize_t n = 0;
  do n = between < 0 ? 1 : read(ends[0], &failed, 1);
  while (n < 0 && errno == EINTR);
  close(ends[0]);
  if (between > 0) waitpid(between, nullptr, 0);
  return n == 0;  // the end was closed by exec
}

// A command in words, as Python's webbrowser takes $BROWSER: without a shell, but with its quotes. "%s" is the address,
// and an & at the end says what is so anyway.
std::vector<std::string> words_of(std::string_view text, const std::string& address) {
  while (text.ends_with(' ')) text.remove_suffix(1);
  if (text.ends_with('&')) text.remove_suffix(1);
  std::vector<std::string> words;
  bool is_in_word = false, has_address = false;
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote == 0 && c == ' ') {
      is_in_word = false;
      continue;
    }
    if (!is_in_word) words.emplace_back();
    is_in_word = true;
    if (c == quote)
      quote = 0;
    else if (quote == 0 && (c == '"' || c == '\''))
      quote = c;
    else if (c == '\\' && quote != '\'' && i + 1 < text.size())
      words.back() += text[++i];
    else if (text.substr(i).starts_with("%s"))
      words.back() += address, has_address = true, ++i;
    else
      words.back() += c;
  }
  if (!words.empty() && !has_address) words.push_back(address);
  return words;
}

}  // namespace

std::string file_address(const std::string& path) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/";
  std::string out = "file://";
  for (const char c : path) {
    if (kPlain.find(c) != std::string_view::npos) {
      out += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    out.append(1, '%').append(1, "0123456789ABCDEF"[byte >> 4]).append(1, "0123456789ABCDEF"[byte & 15]);
  }
  return out;
}

bool open_in_browser(const std::string& address) {
  const std::string wanted = value_of("BROWSER");
  for (std::string_view left = wanted; !left.empty();) {
    const size_t end = std::min(left.find(':'), left.size());
    const std::vector<std::string> command = words_of(left.substr(0, end), address);
    left.remove_prefix(std::min(left.size(), end + 1));
    if (!command.empty() && start_apart(command)) return true;
  }
  // Without a display xdg-open takes a browser that fills the terminal.
  const bool has_display = !value_of("DISPLAY").empty() || !value_of("WAYLAND_DISPLAY").empty();
  return wanted.empty() && has_display && start_apart({"xdg-open", address});
}

}  // namespace torchprof::launcher
