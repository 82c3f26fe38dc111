// torchprof top: what a running job does now. It reads the spools and /proc; of the program itself it asks only what
// `ctl` asks, and only when w is pressed.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <utility>

#include "formats/io/error.h"
#include "launcher/run_dir/input.h"
#include "launcher/run_dir/run_info.h"
#include "launcher/run_dir/writers.h"
#include "launcher/subcommands/alive_runs.h"
#include "launcher/subcommands/control.h"
#include "launcher/subcommands/subcommands.h"
#include "launcher/subcommands/top_picture.h"
#include "launcher/terminal/say.h"

namespace torchprof::launcher {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using std::chrono::steady_clock;

// A record takes up to ten nanoseconds to read and has eight bytes or more: so a look takes at most 20 ms.
constexpr uint64_t kMostBytes = uint64_t{16} << 20;  // of events, of all processes, in a look
constexpr size_t kMostRows = 24;                     // of a table, of each process
constexpr size_t kMostEnded = 64;                    // processes that have ended and are still shown

bool are_files_used_up(int error) { return error == EMFILE || error == ENFILE; }

// Nothing: no file could be opened to ask.
std::optional<bool> is_written(const fs::path& spool) {
  errno = 0;
  const bool is_live = Writers().is_written(spool);
  if (!is_live && are_files_used_up(errno)) return {};
  return is_live;
}

uint64_t resident_bytes(uint32_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/statm");
  uint64_t size = 0, resident = 0;
  return in >> size >> resident ? resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) : 0;
}

class Job {
 public:
  explicit Job(const TopOptions& options) : options_(options) {
    if (fs::path spool = spool_of_process(options.target); !spool.empty()) {
      file_ = std::move(spool);
      return;
    }
    const fs::path path = options.target;
    std::error_code ignored;
    if (fs::exists(path / "run.json", ignored) || fs::is_directory(path / "spool", ignored)) {
      run_.emplace(RunDir::open(path));
    } else {
      const Input input = find_input(path);
      demand_trace(input, path);
      if (input.spools.empty())
        throw Error(options.target + ": is a trace of a run that has ended: `torchprof report`");
      if (!fs::is_directory(path)) file_ = path;
    }
    if (run_ && has_ended_run() && run_->spools().empty())
      throw Error(options.target +
                  ": the run has ended and its raw records are gone (run --discard removes them): see "
                  "`torchprof report`");
  }

  // Reads what is new.
  void look() {
    size_t live = 0;
    for (const Watched& one : watched_) live += one.process != nullptr;
    unwatched_ = 0;
    std::vector<fs::path> ended;
    for (const fs::path& spool : spools()) {
      if (known_.contains(spool)) continue;
      const std::optional<bool> is_live = is_written(spool);
      if (is_live && !*is_live)
        ended.push_back(spool);
      else if (!is_live || live >= most_open_)
        ++unwatched_;
      else
        live += open(spool, true);
    }
    // The first look has the seconds before it to read. Those that have ended do not take it from those that live.
    const uint64_t most = std::exchange(has_looked_, true) ? kMostBytes : 4 * kMostBytes;
    const auto share = [&](size_t count) {
      const uint64_t all = live != 0 && !ended.empty() ? most / 2 : most;
      return std::max<uint64_t>(all / std::max<size_t>(1, count), 1 << 16);
    };
    for (Watched& one : watched_) look_at(one, share(live));
    // One by one, so that there may be thousands: each is closed before the next, and forgotten if it is not shown.
    for (const fs::path& spool : ended) {
      if (open(spool, false)) look_at(watched_.back(), share(ended.size()));
      if (watched_.size() > live + 2 * kMostEnded) forget_ended();
    }
    forget_ended();
  }

  bool has_ended() const {
    if (unwatched_ != 0) return false;
    if (std::ranges::any_of(watched_, [](const Watched& one) { return one.shown.is_live; })) return false;
    return !run_ || has_ended_run();
  }
  struct Live {
    uint32_t pid;
    fs::path spool;
  };
  // Those of this machine that we see.
  std::vector<Live> live_here() const {
    std::vector<Live> out;
    for (const Watched& one : watched_)
      if (one.shown.is_live && one.is_seen) out.push_back({one.shown.pid, one.spool});
    return out;
  }

  TopState state() const {
    TopState state;
    state.target = options_.target;
    const auto live =
        static_cast<size_t>(std::ranges::count_if(watched_, [](const Watched& one) { return one.shown.is_live; }));
    for (const Watched& one : watched_)
      if (one.shown.is_live || live == 0 || is_missing(one.shown)) state.processes.push_back(one.shown);
    state.state = std::to_string(live) + (live == 1 ? " process" : " processes");
    if (has_ended()) state.state = "the job has ended, this is its last picture";
    if (watched_.empty() && !has_ended()) state.state = "nothing is recorded so far";
    const auto add = [&state](size_t count, const char* what) {
      if (count != 0) state.state += ", " + std::to_string(count) + what;
    };
    add(forgotten_ranks_, " ended ranks not listed");
    add(unreadable_, " cannot be read");
    add(unwatched_, " more not read (ulimit -n)");
    return state;
  }

 private:
  struct Watched {
    fs::path spool;
    std::unique_ptr<formats::LiveProcess> process;  // null: it has ended, `shown` stays as it is
    bool is_seen = false;                           // its process id is one of this machine, in our namespace
    TopProcess shown;
  };

  std::vector<fs::path> spools() const {
    if (!file_.empty()) return {file_};
    if (run_) return run_->spools();
    return formats::find_spools(options_.target);
  }

  // A rank that has ended, and that no other process goes on with.
  bool is_missing(const TopProcess& process) const {
    return process.view.rank && process.view.worker.empty() && std::ranges::none_of(watched_, [&](const Watched& one) {
             return one.shown.is_live && one.shown.view.rank == process.view.rank && one.shown.view.worker.empty();
           });
  }

  // The launcher is gone, or has seen the end of the command.
  bool has_ended_run() const { return !is_locked(run_->path()) || run_->read_info().contains("end"); }

  // Whether it is watched now, as the last one.
  bool open(const fs::path& spool, bool is_live) {
    std::string error;
    errno = 0;
    std::unique_ptr<formats::SpoolTail> tail = formats::SpoolTail::open(spool, error);
    if (!tail && are_files_used_up(errno)) {
      ++unwatched_;
      return false;
    }
    // Its header may not be written yet, nor its lock held a moment ago.
    if (!tail && (is_live || is_written(spool).value_or(true))) return false;
    known_.insert(spool);
    if (!tail) {
      ++unreadable_;
      return false;
    }
    Watched& one = watched_.emplace_back();
    one.spool = spool;
    one.shown.is_live = is_live;
    one.shown.pid = is_live ? Writers().writer_of(spool) : 0;
    one.is_seen = one.shown.pid != 0;
    if (one.shown.pid == 0) one.shown.pid = tail->header().pid;
    const FileHeader& header = tail->header();
    one.shown.host.assign(header.host, strnlen(header.host, sizeof(header.host)));
    one.process =
        std::make_unique<formats::LiveProcess>(std::move(tail), static_cast<int64_t>(options_.seconds) * 1'000'000'000);
    return true;
  }

  static void look_at(Watched& one, uint64_t bytes) {
    if (!one.process) return;
    const bool is_live = is_written(one.spool).value_or(one.shown.is_live);
    one.process->look(is_live, bytes);
    one.shown.view = one.process->view(kMostRows);
    one.shown.is_live = is_live;
    if (is_live && one.is_seen) one.shown.resident = resident_bytes(one.shown.pid);
    if (!is_live) one.process.reset();  // and its file is closed
  }

  // Those go first that are not shown beside live ones: workers, and ranks that live on. Then the highest ranks.
  void forget_ended() {
    std::ranges::stable_sort(watched_, {}, [](const Watched& one) {
      const formats::LiveView& view = one.shown.view;
      return std::tuple(!view.rank.has_value(), view.rank.value_or(0), !view.worker.empty(), one.shown.pid);
    });
    size_t ended = 0;
    for (const Watched& one : watched_) ended += !one.process;
    for (const bool are_missing : {false, true})
      for (size_t i = watched_.size(); i-- > 0 && ended > kMostEnded;) {
        if (watched_[i].process || is_missing(watched_[i].shown) != are_missing) continue;
        watched_.erase(watched_.begin() + static_cast<std::ptrdiff_t>(i));
        --ended;
        forgotten_ranks_ += are_missing;
      }
  }

  const TopOptions& options_;
  fs::path file_;  // empty: a directory
  std::optional<RunDir> run_;
  std::set<fs::path> known_;
  std::vector<Watched> watched_;
  const size_t most_open_ = most_open_spools();
  size_t unreadable_ = 0, unwatched_ = 0, forgotten_ranks_ = 0;
  bool has_looked_ = false;
};

// What w has asked for, and what the processes have answered so far.
class Windows {
 public:
  void ask(const std::vector<Job::Live>& processes) {
    requests_.clear();
    for (const auto& [pid, spool] : processes) requests_.emplace_back(pid, "start", spool);
    if (requests_.empty()) said_ = "w: no process runs here";
  }
  std::vector<pollfd> fds() const {
    std::vector<pollfd> out;
    for (const ControlRequest& request : requests_)
      if (!request.is_over()) out.push_back({request.fd(), POLLIN, 0});
    return out;
  }
  std::string said() {
    if (requests_.empty()) return said_;
    std::map<std::string, std::vector<uint32_t>> answers;
    for (ControlRequest& request : requests_) {
      if (!request.take()) {
        answers["w: waiting for an answer"].push_back(request.pid());
        continue;
      }
      const std::string answer = request.answer();
      answers[answer.substr(answer.starts_with("ok: ")      ? 4
                            : answer.starts_with("error: ") ? 7
                                                            : 0)]
          .push_back(request.pid());
    }
    std::string out;
    for (const auto& [answer, pids] : answers) {
      out += (out.empty() ? "" : "; ") + std::string(pids.size() == 1 ? "process " : "processes ");
      for (size_t i = 0; i < pids.size(); ++i) out += (i > 0 ? ", " : "") + std::to_string(pids[i]);
      out += ": " + answer;
    }
    return out;
  }

 private:
  std::vector<ControlRequest> requests_;
  std::string said_;
};

void print_picture(const Job& job) {
  std::string out;
  constexpr size_t kRows = 40;  // of a picture of many processes; one of few has all that there is
  const TopState state = job.state();
  const size_t rows = state.processes.size() <= kRows / 2 ? 1000 : kRows;
  const TopStyle style{{screen_size().columns, rows}, has_colours(), has_utf8()};
  for (const std::string& line : top_picture(state, style)) out += line + "\n";
  print(out);
}

// False: the user has left before the job ended.
bool watch(Job& job) {
  Screen screen;
  Windows windows;
  auto next = steady_clock::now();
  for (;;) {
    if (steady_clock::now() >= next) {
      job.look();
      if (job.has_ended()) return true;
      next = steady_clock::now() + 1s;
    }
    TopState state = job.state();
    state.has_keys = isatty(STDIN_FILENO) == 1;
    state.said = windows.said();
    screen.draw(top_picture(state, {screen_size(), has_colours(), has_utf8()}));
    std::vector<pollfd> answers = windows.fds();
    char key = 0;
    const Screen::Event event = screen.wait(next, answers, key);
    if (event == Screen::Event::kLeave || (event == Screen::Event::kKey && (key == 'q' || key == 'Q'))) return false;
    if (event == Screen::Event::kKey && key == 'w') windows.ask(job.live_here());
  }
}

}  // namespace

int top(const Arguments& arguments) {
  if (arguments.empty()) return list_alive_runs("torchprof top RUN");
  TopOptions options = parse_top(arguments);
  options.target = without_launcher(options.target);
  Job job(options);
  if (options.is_once || !can_draw()) {
    job.look();
    if (job.state().processes.empty()) throw Error(options.target + ": nothing is recorded so far");
    print_picture(job);
  } else if (watch(job)) {
    print_picture(job);
  }
  return 0;
}

}  // namespace torchprof::launcher
