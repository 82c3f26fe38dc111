#include "launcher/subcommands/metrics.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "formats/io/error.h"
#include "formats/io/output.h"
#include "formats/io/process_files.h"
#include "launcher/run_dir/input.h"
#include "launcher/subcommands/subcommands.h"
#include "launcher/terminal/say.h"
#include "launcher/watch/live_job.h"
#include "launcher/watch/metrics_server.h"
#include "launcher/watch/metrics_text.h"

namespace torchprof::launcher {
namespace {

namespace fs = std::filesystem;
using std::chrono::steady_clock;

constexpr size_t kLastSeconds = 10;  // where there are no windows

int64_t clock_ns(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return time.tv_sec * int64_t{1'000'000'000} + time.tv_nsec;
}

// What the thread of ours in each process has used (tracer/process: its name is "torchprof").
class RecorderThreads {
 public:
  std::optional<int64_t> used_by(uint32_t pid) {
    const auto [tid, is_new] = tids_.try_emplace(pid, 0);
    if (tid->second == 0) tid->second = find(pid);
    if (tid->second == 0) return {};
    std::istringstream in(formats::read_thread_file(pid, tid->second, "schedstat"));
    int64_t ns = 0;
    if (in >> ns) return ns;
    tids_.erase(tid);
    return {};
  }

 private:
  static uint32_t find(uint32_t pid) {
    for (const uint32_t tid : formats::threads_of_process(pid))
      // A program may be called so: its first thread is none of ours.
      if (tid != pid && formats::read_thread_file(pid, tid, "comm") == "torchprof\n") return tid;
    return 0;
  }
  std::map<uint32_t, uint32_t> tids_;  // by process; 0: not found so far
};

class Measurer {
 public:
  explicit Measurer(const std::string& target)
      : target_(without_launcher(target)), job_(target_, kLastSeconds, formats::LiveSteps::kAll) {
    std::error_code error;
    const fs::path path = fs::absolute(target_, error).lexically_normal();
    measured_.run = (path.has_filename() ? path : path.parent_path()).string();
    // Of a process the directory that it writes to.
    if (const std::optional<uint32_t> pid = process_named(target_))
      measured_.run = spool_of(*pid).parent_path().parent_path().string();
  }

  std::string look() {
    job_.look();
    measured_.processes.clear();
    for (TopProcess& process : job_.state().processes) {
      if (!process.is_live) continue;
      MeasuredProcess& one = measured_.processes.emplace_back();
      one.process = std::move(process);
      if (one.process.is_seen) one.recorder_ns = threads_.used_by(one.process.pid);
    }
    measured_.unix_ns = clock_ns(CLOCK_REALTIME);
    measured_.looked_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    return metrics_text(measured_);
  }
  bool has_ended() const { return job_.has_ended(); }
  const std::string& target() const { return target_; }

 private:
  const std::string target_;
  LiveJob job_;
  RecorderThreads threads_;
  Measured measured_;
};

void write_whole(const fs::path& file, std::string_view text) {
  formats::Output out(file);
  out.write(text);
  out.commit();
}

// The file that is there while the job runs.
class MeasuredFile {
 public:
  MeasuredFile(fs::path file, bool is_there) : file_(std::move(file)) {
    if (is_there) know();
  }
  ~MeasuredFile() {
    struct stat status {};
    if (has_written_ && lstat(file_.c_str(), &status) == 0 && status.st_dev == device_ && status.st_ino == inode_)
      unlink(file_.c_str());
  }
  MeasuredFile(const MeasuredFile&) = delete;
  MeasuredFile& operator=(const MeasuredFile&) = delete;

  void write(std::string_view text) {
    if (file_.empty()) return;
    try {
      write_whole(file_, text);
      know();
      said_.clear();
    } catch (const Error& error) {
      if (said_ != error.what()) complain(error.what());
      said_ = error.what();
    }
  }

 private:
  void know() {
    struct stat status {};
    has_written_ = lstat(file_.c_str(), &status) == 0 && S_ISREG(status.st_mode);
    device_ = status.st_dev;
    inode_ = status.st_ino;
  }
  const fs::path file_;
  bool has_written_ = false;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  std::string said_;
};

// In a forked process: whoever reads from our stdout is not to wait for it.
void close_all_but(int kept) {
  const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO}) dup2(nothing, fd);
  std::vector<int> open_now;
  std::error_code error;
  for (fs::directory_iterator at("/proc/self/fd", error), end; !error && at != end; at.increment(error))
    open_now.push_back(std::atoi(at->path().filename().c_str()));
  for (const int fd : open_now)
    if (fd > STDERR_FILENO && fd != kept) close(fd);
}

int milliseconds_until(steady_clock::time_point time) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(time - steady_clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 3'600'000));
}

}  // namespace

void keep_measuring(const MetricsOptions& options, int stop, bool is_there) {
  std::optional<MetricsServer> server;
  if (!options.listen.empty()) server.emplace(options.listen);
  Measurer measurer(options.target);
  if (server) say(server->url() + ": numbers of " + measurer.target());
  MeasuredFile file(options.output, is_there);
  std::string text;
  auto next = steady_clock::now();
  while (true) {
    if (steady_clock::now() >= next) {
      text = measurer.look();
      if (measurer.has_ended()) return;
      file.write(text);
      next = steady_clock::now() + std::chrono::nanoseconds(options.every_ns);
    }
    std::vector<pollfd> fds = server ? server->fds() : std::vector<pollfd>();
    fds.push_back({stop, POLLIN, 0});
    poll(fds.data(), fds.size(), milliseconds_until(server ? std::min(next, server->deadline()) : next));
    if (fds.back().revents != 0) return;
    if (server) server->serve(text);
  }
}

MetricsBeside::MetricsBeside(const fs::path& run, const fs::path& file) {
  if (file.empty()) return;
  MetricsOptions options;
  options.target = run.string();
  options.output = file;
  write_whole(file, metrics_text({.run = run.string(), .unix_ns = clock_ns(CLOCK_REALTIME)}));
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw Error(std::string("pipe: ") + std::strerror(errno));
  pid_ = fork();
  if (pid_ < 0) throw Error(std::string("fork: ") + std::strerror(errno));
  if (pid_ != 0) {
    close(ends[0]);
    stop_ = ends[1];
    return;
  }
  // The lock of the run directory and whatever else is open ends with the launcher, not with us.
  close_all_but(ends[0]);
  try {
    keep_measuring(options, ends[0], true);
  } catch (const std::exception& error) {
    complain("--metrics: " + reason_of(error));
    unlink(file.c_str());
  }
  _exit(0);
}

void MetricsBeside::end() {
  if (stop_ < 0) return;
  close(std::exchange(stop_, -1));
  waitpid(pid_, nullptr, 0);  // the launcher may have its status already
}

int metrics(const Arguments& arguments) {
  const MetricsOptions options = parse_metrics(arguments);
  if (options.is_once) {
    Measurer measurer(options.target);
    const std::string text = measurer.look();
    if (measurer.has_ended()) throw Error(measurer.target() + ": the run has ended: `torchprof report`");
    if (options.output.empty())
      print(text);
    else
      write_whole(options.output, text);
    return 0;
  }
  sigset_t ends;
  sigemptyset(&ends);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&ends, signal);
  sigprocmask(SIG_BLOCK, &ends, nullptr);
  keep_measuring(options, signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK), false);
  return 0;
}

}  // namespace torchprof::launcher
