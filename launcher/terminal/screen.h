// The terminal as a picture that is drawn again and again, with plain escape sequences (ECMA-48, and xterm's alternate
// screen). It is as it was once the object is gone, on every way out of the program but a kill.
//
// While it lives SIGINT, SIGTERM, SIGHUP and SIGWINCH are events of wait(), and keys come without a newline and are not
// shown. One object at a time, one thread.
#pragma once

#include <poll.h>
#include <signal.h>
#include <termios.h>

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace torchprof::launcher {

struct ScreenSize {
  size_t columns, rows;
};

// Whether the descriptor is a terminal that understands escape sequences: TERM is set and not "dumb".
bool understands_escapes(int fd);
// Whether stdout is a terminal that understands them.
bool can_draw();
// Whether a picture for stdout may have colours: it can draw, and NO_COLOR (https://no-color.org) is not set.
bool has_colours();
// Whether the locale's text is UTF-8, by LC_ALL, LC_CTYPE and LANG.
bool has_utf8();
// How many columns a line of the terminal at this descriptor has; 0: there is no terminal.
size_t terminal_columns(int fd);
ScreenSize screen_size();  // of the terminal at stdout; 100 by 1000 if there is none

class Screen {
 public:
  Screen();
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  // Each line is cut by the caller. Lines that do not fit below each other are left out.
  void draw(const std::vector<std::string>& lines);

  enum class Event { kTime, kLeave, kResize, kKey, kOther };
  // Waits for a key, a signal, one of `others` (their revents are set) or the time.
  Event wait(std::chrono::steady_clock::time_point until, std::vector<pollfd>& others, char& key);

 private:
  int signals_ = -1;
  sigset_t before_{};
  termios modes_{};
  bool has_keys_ = false;
};

}  // namespace torchprof::launcher
