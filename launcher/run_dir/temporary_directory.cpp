#include "launcher/run_dir/temporary_directory.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>

#include "formats/io/error.h"

namespace torchprof::launcher {

TemporaryDirectory::TemporaryDirectory(const char* begin) {
  std::error_code error;
  std::string pattern = std::filesystem::temp_directory_path(error) / (std::string(begin) + "XXXXXX");
  if (error || !mkdtemp(pattern.data())) throw Error(pattern + ": " + (error ? error.message() : std::strerror(errno)));
  path_ = pattern;
  start_child();
}

void TemporaryDirectory::start_child() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return;
  child_ = fork();
  if (child_ == 0) {
    close(ends[1]);
    setsid();  // a terminal's Ctrl-C is not for the child
    for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE}) std::signal(signal, SIG_IGN);
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
