#include "launcher/child.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>

#include "formats/error.h"
#include "launcher/say.h"

namespace torchprof::launcher {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (const std::string& string : strings) out.push_back(const_cast<char*>(string.c_str()));
  out.push_back(nullptr);
  return out;
}

Error cannot_start(const std::string& name, int error) {
  // As env(1) does.
  return Error("cannot start '" + name + "': " + std::strerror(error), error == ENOENT ? 127 : 126);
}

struct ProcStat {
  char state;
  pid_t parent;
};

std::optional<ProcStat> stat_of(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(in, line, '\0');
  // The name in parentheses may hold anything, parentheses too.
  const size_t name_end = line.rfind(')');
  ProcStat out{};
  if (name_end == std::string::npos || sscanf(line.c_str() + name_end + 1, " %c %d", &out.state, &out.parent) != 2)
    return {};
  return out;
}

bool descends_from_us(pid_t pid) {
  const pid_t self = getpid();
  for (int depth = 0; pid > 1 && depth < 1000; ++depth) {
    const std::optional<ProcStat> stat = stat_of(pid);
    if (!stat) return false;
    if (stat->parent == self) return true;
    pid = stat->parent;
  }
  return false;
}

bool is_stopped(pid_t pid) {
  const std::optional<ProcStat> stat = stat_of(pid);
  return stat && stat->state == 'T';
}

}  // namespace

Child::Child(const std::vector<std::string>& command, const std::vector<std::string>& environment,
             const Signals& signals)
    : signals_(signals) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const std::vector<char*> argv = pointers(command), envp = pointers(environment);
  int failure[2];  // holds errno if exec fails; exec itself closes it
  if (pipe2(failure, O_CLOEXEC) != 0) throw Error(std::string("pipe: ") + std::strerror(errno));
  pid_ = fork();
  if (pid_ < 0) throw Error(std::string("fork: ") + std::strerror(errno));
  if (pid_ == 0) {
    signals_.restore();
    execvpe(argv[0], argv.data(), envp.data());
    const int error = errno;
    [[maybe_unused]] const ssize_t n = write(failure[1], &error, sizeof(error));
    _exit(127);
  }
  close(failure[1]);
  int error = 0;
  ssize_t n;
  do n = read(failure[0], &error, sizeof(error));
  while (n < 0 && errno == EINTR);
  close(failure[0]);
  if (n != sizeof(error)) return;
  waitpid(pid_, nullptr, 0);
  throw cannot_start(command[0], error);
}

int Child::wait() {
  for (;;) {
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0;) {
      if (pid != pid_) continue;  // an orphan that fell to us
      if (!WIFSTOPPED(status)) return status;
      stop_with_it(WSTOPSIG(status));
    }
    if (const std::optional<Signal> signal = signals_.next()) forward(*signal);
  }
}

void Child::forward(const Signal& signal) {
  if (signal.number == SIGCHLD) return;
  if (signal.from_terminal) {
    if (signal.number != SIGTSTP) return;
    terminal_asked_to_stop_ = true;
    // SIGCHLD has the lower number: its stop may have been seen before the reason for it.
    if (stopped_unasked_ && is_stopped(pid_)) stop_with_it(SIGSTOP);
    return;
  }
  // `kill 0` in the command: its whole process group has the signal, and we are in it.
  if (descends_from_us(signal.sender)) return;
  if (signal.number == SIGCONT)
    continue_it();
  else
    kill(pid_, signal.number);
}

// The shell watches us, not the command: it learns only from our own stop that the job has stopped.
void Child::stop_with_it(int signal) {
  // A bare SIGSTOP is somebody's business with that one process, unless a program that has its own way with Ctrl-Z sent
  // it to itself.
  stopped_unasked_ = signal == SIGSTOP && !terminal_asked_to_stop_;
  if (stopped_unasked_) return;
  terminal_asked_to_stop_ = false;
  if (!is_stopped(pid_)) return;
  act_out(signal);
  continue_it();
}

// `fg` continues the whole group, `kill -CONT` us alone: then the command waits for ours.
void Child::continue_it() const {
  for (int i = 0; i < 10 && is_stopped(pid_); ++i) usleep(2000);
  if (is_stopped(pid_)) kill(pid_, SIGCONT);
}

std::vector<pid_t> Child::wait_for_descendants(std::chrono::milliseconds limit) {
  const Clock::time_point deadline = Clock::now() + limit;
  for (;;) {
    pid_t pid;
    while ((pid = waitpid(-1, nullptr, WNOHANG)) > 0) {
    }
    if (pid < 0 && errno == ECHILD) return {};
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    if (left <= 0ms) break;
    const std::optional<Signal> signal = signals_.next(left);
    if (signal && (signal->number == SIGINT || signal->number == SIGTERM)) break;
  }
  return descendants();
}

void become(const std::vector<std::string>& command, const std::vector<std::string>& environment) {
  execvpe(command[0].c_str(), pointers(command).data(), pointers(environment).data());
  throw cannot_start(command[0], errno);
}

void end_like(int wait_status) {
  if (!WIFSIGNALED(wait_status)) std::exit(WEXITSTATUS(wait_status));
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  prctl(PR_SET_DUMPABLE, 0);  // core_pattern may be a pipe, which does not look at the limit
  act_out(WTERMSIG(wait_status));
  std::_Exit(128 + WTERMSIG(wait_status));  // we are init of a container: signals to oneself do nothing
}

std::vector<pid_t> descendants() {
  std::multimap<pid_t, pid_t> children;
  std::set<pid_t> dead;
  std::error_code error;
  for (fs::directory_iterator at("/proc", error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename();
    pid_t pid = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), pid).ptr != name.data() + name.size() || pid == 0)
      continue;
    if (const std::optional<ProcStat> stat = stat_of(pid)) {
      children.emplace(stat->parent, pid);
      if (stat->state == 'Z' || stat->state == 'X') dead.insert(pid);
    }
  }
  std::vector<pid_t> out, open{getpid()};
  while (!open.empty()) {
    const auto [first, last] = children.equal_range(open.back());
    open.pop_back();
    for (auto at = first; at != last; ++at) {
      open.push_back(at->second);
      if (!dead.contains(at->second)) out.push_back(at->second);
    }
  }
  return out;
}

}  // namespace torchprof::launcher
