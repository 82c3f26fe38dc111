#include "launcher/terminal/screen.h"

#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "launcher/terminal/say.h"

namespace torchprof::launcher {

using namespace std::chrono;

bool understands_escapes(int fd) {
  const char* term = std::getenv("TERM");
  return isatty(fd) == 1 && term != nullptr && *term != 0 && std::strcmp(term, "dumb") != 0;
}

bool can_draw() { return understands_escapes(STDOUT_FILENO); }

bool has_colours() {
  const char* none = std::getenv("NO_COLOR");
  return can_draw() && (none == nullptr || *none == 0);
}

bool has_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == 0) continue;
    return strcasestr(value, "utf-8") != nullptr || strcasestr(value, "utf8") != nullptr;
  }
  return false;
}

namespace {

ScreenSize size_of_terminal(int fd) {
  winsize size{};
  if (ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {80, 24};
  return {size.ws_col, size.ws_row};
}

}  // namespace

size_t terminal_columns(int fd) { return isatty(fd) == 1 ? size_of_terminal(fd).columns : 0; }

ScreenSize screen_size() {
  return isatty(STDOUT_FILENO) == 1 ? size_of_terminal(STDOUT_FILENO) : ScreenSize{100, 1000};
}

Screen::Screen() {
  sigset_t ours;
  sigemptyset(&ours);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGWINCH}) sigaddset(&ours, number);
  pthread_sigmask(SIG_BLOCK, &ours, &before_);
  signals_ = signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK);
  has_keys_ = isatty(STDIN_FILENO) == 1 && tcgetattr(STDIN_FILENO, &modes_) == 0;
  if (has_keys_) {
    termios raw = modes_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    raw.c_cc[VSUSP] = _POSIX_VDISABLE;  // it would leave the terminal to the shell as it is now
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
  }
  print("\033[?1049h\033[?25l");
}

Screen::~Screen() {
  constexpr std::string_view kBack = "\033[0m\033[?25h\033[?1049l";
  [[maybe_unused]] const ssize_t written = write(STDOUT_FILENO, kBack.data(), kBack.size());
  if (has_keys_) tcsetattr(STDIN_FILENO, TCSANOW, &modes_);
  // What came meanwhile has been an event, or would end the program now that it ends anyway.
  signalfd_siginfo info;
  while (read(signals_, &info, sizeof(info)) > 0) {
  }
  close(signals_);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void Screen::draw(const std::vector<std::string>& lines) {
  std::string out = "\033[H";
  const size_t rows = std::min(lines.size(), screen_size().rows);
  for (size_t i = 0; i < rows; ++i) out.append(i > 0 ? "\r\n" : "").append(lines[i]).append("\033[0m\033[K");
  print(out + "\033[J");
}

Screen::Event Screen::wait(steady_clock::time_point until, std::vector<pollfd>& others, char& key) {
  std::vector<pollfd> all{{signals_, POLLIN, 0}, {has_keys_ ? STDIN_FILENO : -1, POLLIN, 0}};
  all.insert(all.end(), others.begin(), others.end());
  const auto left = ceil<milliseconds>(until - steady_clock::now()).count();
  const int ready = poll(all.data(), all.size(), static_cast<int>(std::clamp<int64_t>(left, 0, 60'000)));
  if (ready <= 0) return Event::kTime;
  if (all[0].revents != 0) {
    Event event = Event::kResize;
    signalfd_siginfo info;
    while (read(signals_, &info, sizeof(info)) > 0)
      if (info.ssi_signo != SIGWINCH) event = Event::kLeave;
    return event;
  }
  if (all[1].revents != 0) return read(STDIN_FILENO, &key, 1) == 1 ? Event::kKey : Event::kLeave;
  std::copy(all.begin() + 2, all.end(), others.begin());
  return Event::kOther;
}

}  // namespace torchprof::launcher
