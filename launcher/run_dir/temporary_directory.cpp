#include "launcher/run_dir/temporary_directory.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>

#include "formats/io/error.h"

namespace torchprof::launcher {

namespace {

constexpr std::array kEnds{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

// While it lives what ends the process waits: between making a directory and having the child that removes it.
class NoEnd {
 public:
  NoEnd() {
    sigset_t ends;
    sigemptyset(&ends);
    for (const int signal : kEnds) sigaddset(&ends, signal);
    sigprocmask(SIG_BLOCK, &ends, &before_);
  }
  ~NoEnd() { sigprocmask(SIG_SETMASK, &before_, nullptr); }
  NoEnd(const NoEnd&) = delete;
  NoEnd& operator=(const NoEnd&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

TemporaryDirectory::TemporaryDirectory(const char* begin) {
  std::error_code error;
  const std::filesystem::path place = std::filesystem::temp_directory_path(error);
  if (error) {
    const char* named = std::getenv("TMPDIR");
    throw Error("there is no directory for temporary files: TMPDIR is " +
                std::string(named == nullptr ? "not set" : named) + ": " + error.message());
  }
  std::string pattern = place / (std::string(begin) + "XXXXXX");
  const NoEnd no_end;
  if (!mkdtemp(pattern.data())) throw Error(pattern + ": " + std::strerror(errno));
  path_ = pattern;
  start_child();
}

void TemporaryDirectory::start_child() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return;
  child_ = fork();
  if (child_ == 0) {
    close(ends[1]);
    setsid();  // a terminal's Ctrl-C is not for the child, which keeps kEnds blocked
    std::signal(SIGPIPE, SIG_IGN);
    char nothing;
    while (read(ends[0], &nothing, 1) < 0 && errno == EINTR) {
    }
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
    _exit(0);
  }
  close(ends[0]);
  lifeline_ = ends[1];
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code error;
  std::filesystem::remove_all(path_, error);
  if (lifeline_ >= 0) close(lifeline_);
  if (child_ <= 0) return;
  kill(child_, SIGKILL);  // a child that was started later holds its end of the pipe, too
  while (waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace torchprof::launcher
