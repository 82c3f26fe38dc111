#include "launcher/run/child.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <utility>

#include "formats/io/error.h"
#include "formats/io/process_files.h"
#include "launcher/run/environment.h"
#include "launcher/run/target.h"
#include "launcher/terminal/say.h"

namespace torchprof::launcher {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (const std::string& string : strings) out.push_back(const_cast<char*>(string.c_str()));
  out.push_back(nullptr);
  return out;
}

Error cannot_start(const std::string& name, int error) {
  const std::string why = why_not_started(name, error, value_in(current_environment(), "PATH"));
  // The status that env(1) gives.
  return Error("cannot start '" + name + "': " + std::strerror(error) + (why.empty() ? "" : ": " + why),
               error == ENOENT ? 127 : 126);
}

struct ProcStat {
  char state;
  pid_t parent;
};

std::optional<ProcStat> stat_of(pid_t pid) {
  ProcStat out{};
  if (sscanf(formats::stat_behind_name(std::to_string(pid)).c_str(), " %c %d", &out.state, &out.parent) != 2) return {};
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

bool is_pending(int signal) {
  sigset_t pending;
  return sigpending(&pending) == 0 && sigismember(&pending, signal) == 1;
}

// While this process is stopped, somebody may continue or end the command alone. Then this helper process continues us.
class StopWatch {
 public:
  explicit StopWatch(pid_t command) {
    const pid_t launcher = getpid();
    pid_ = fork();
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (getppid() == launcher && (is_stopped(command) || !is_stopped(launcher))) usleep(kEvery);
    if (getppid() == launcher) kill(launcher, SIGCONT);
    _exit(0);
  }
  ~StopWatch() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  StopWatch(const StopWatch&) = delete;
  StopWatch& operator=(const StopWatch&) = delete;

 private:
  static constexpr useconds_t kEvery = 20'000;
  pid_t pid_;
};

// Tells when one of several processes has ended.
class Ends {
 public:
  Ends(const std::vector<Running>& processes, const Signals& signals) {
    watched_.push_back({signals.open_descriptor(), POLLIN, 0});
    for (const Running& process : processes) {
      const int fd = process.is_seen ? static_cast<int>(syscall(SYS_pidfd_open, process.pid, 0)) : -1;
      if (fd >= 0) watched_.push_back({fd, POLLIN, 0});
    }
    // Not if one is ending just now: poll() reports it at once, though it was still found.
    sees_all_ = watched_.size() == processes.size() + 1 && watched_.front().fd >= 0 && !wait(0ms);
  }
  ~Ends() {
    for (const pollfd& one : watched_)
      if (one.fd >= 0) close(one.fd);
  }
  Ends(const Ends&) = delete;
  Ends& operator=(const Ends&) = delete;

  // Waits until one of them has ended, a signal comes, or `limit` has passed. True: it is time to look at the processes
  // again.
  bool wait(std::chrono::milliseconds limit) {
    const auto most = sees_all_ ? limit : std::min<std::chrono::milliseconds>(limit, kEvery);
    if (poll(watched_.data(), sees_all_ ? watched_.size() : 1, static_cast<int>(most.count())) < 0) return false;
    return !sees_all_ ||
           std::any_of(watched_.begin() + 1, watched_.end(), [](const pollfd& one) { return one.revents != 0; });
  }

 private:
  static constexpr auto kEvery = 50ms;  // if the kernel cannot report the ends
  std::vector<pollfd> watched_;         // first the signals, then the processes
  bool sees_all_ = true;
};

}  // namespace

Child::Child(const std::vector<std::string>& command, const std::vector<std::string>& environment,
             const Signals& signals, Marks marks)
    : signals_(signals), marks_(std::move(marks)) {
  const std::vector<char*> argv = pointers(command), envp = pointers(environment);
  int failure[2];  // the child sends errno if exec fails; exec itself closes it
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
  if (n != sizeof(error)) {
    witness_.start();
    return;
  }
  waitpid(pid_, nullptr, 0);
  throw cannot_start(command[0], error);
}

int Child::wait() {
  for (;;) {
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0;) {
      witness_.reaped(pid);
      if (pid != pid_) continue;  // an orphan whose new parent we are
      if (!WIFSTOPPED(status)) return status;
      stop_with_it(WSTOPSIG(status));
    }
    if (const std::optional<Signal> signal = signals_.next({})) forward(*signal);
  }
}

// Who signals us and the group at once, as timeout(1) does, means one signal, and the command has it from the group.
bool Child::went_to_group(const Signal& signal) {
  constexpr auto kAtOnce = 50ms;
  constexpr int kLooks = 5;  // with 1 ms between them
  if (signal.code != SI_USER && signal.code != SI_KERNEL) return false;
  const bool is_known = signal.number == seen_number_ && signal.sender == seen_sender_;
  for (int i = 0; i < kLooks; ++i) {
    if (i != 0) usleep(1000);
    if (witness_.saw(signal.number)) {
      seen_ = Clock::now(), seen_number_ = signal.number, seen_sender_ = signal.sender;
      return true;
    }
    if (is_known && Clock::now() - seen_ < kAtOnce) return true;
  }
  return false;
}

void Child::forward(const Signal& signal) {
  // A continued group is continued again below if it has to be.
  if (signal.is_our_own() || (signal.number != SIGCONT && went_to_group(signal)) || signal.is_of_terminal()) return;
  // `kill 0` in the command signals its whole process group, and we are in that, too.
  if (signal.sender > 0 && (descends_from_us(signal.sender) || marks_.has(static_cast<uint32_t>(signal.sender))))
    return;
  if (signal.number == SIGCONT)
    continue_it();
  else if (signal.code == SI_QUEUE)
    sigqueue(pid_, signal.number, signal.value);
  else
    kill(pid_, signal.number);
}

// Our parent watches us, not the command: it learns only from our own stop that the command has stopped. A SIGCONT
// continues us, and forward() passes it on.
void Child::stop_with_it(int signal) const {
  if (!is_stopped(pid_)) return;  // it has been continued since
  const StopWatch watch(pid_);
  // A stop throws a SIGCONT away that has come and is not fetched yet, and then nobody would continue the command.
  if (is_pending(SIGCONT)) return;
  act_out(signal);
}

// `fg` continues the whole group, but `kill -CONT` only us: then the command needs a SIGCONT of ours.
void Child::continue_it() const {
  for (int i = 0; i < 10 && is_stopped(pid_); ++i) usleep(2000);
  if (is_stopped(pid_)) kill(pid_, SIGCONT);
}

std::vector<Running> Child::wait_for_others(const std::function<std::vector<Running>()>& look,
                                            std::chrono::milliseconds limit) {
  const Clock::time_point deadline = Clock::now() + limit;
  for (;;) {
    for (pid_t pid; (pid = waitpid(-1, nullptr, WNOHANG)) > 0;) witness_.reaped(pid);
    std::vector<Running> running = look();
    if (running.empty()) return running;
    Ends ends(running, signals_);
    for (bool is_one_over = false; !is_one_over;) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
      if (left <= 0ms) return running;
      is_one_over = ends.wait(left);
      while (const std::optional<Signal> signal = signals_.next(0ms))
        if (signal->number == SIGINT || signal->number == SIGTERM) return running;
    }
  }
}

void become(const std::vector<std::string>& command, const std::vector<std::string>& environment) {
  execvpe(command[0].c_str(), pointers(command).data(), pointers(environment).data());
  throw cannot_start(command[0], errno);
}

void end_like(int wait_status) {
  if (!WIFSIGNALED(wait_status)) std::exit(WEXITSTATUS(wait_status));
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  prctl(PR_SET_DUMPABLE, 0);  // if core_pattern is a pipe, the limit does not count
  act_out(WTERMSIG(wait_status));
  std::_Exit(128 + WTERMSIG(wait_status));  // we are process 1 of a container, and signals to ourselves do nothing
}

}  // namespace torchprof::launcher
