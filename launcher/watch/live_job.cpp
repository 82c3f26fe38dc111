#include "launcher/watch/live_job.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>
#include <tuple>
#include <utility>

#include "formats/io/error.h"
#include "formats/io/process_files.h"
#include "launcher/run_dir/input.h"
#include "launcher/run_dir/run_info.h"

namespace torchprof::launcher {
namespace {

namespace fs = std::filesystem;

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
  std::istringstream in(formats::read_process_file(pid, "statm"));
  uint64_t size = 0, resident = 0;
  return in >> size >> resident ? resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) : 0;
}

}  // namespace

LiveJob::LiveJob(const std::string& target, size_t seconds, formats::LiveSteps steps)
    : target_(target), last_ns_(static_cast<int64_t>(seconds) * 1'000'000'000), steps_(steps) {
  if (fs::path spool = spool_of_process(target_); !spool.empty()) {
    file_ = std::move(spool);
    return;
  }
  const fs::path path = target_;
  std::error_code ignored;
  if (fs::exists(path / "run.json", ignored) || fs::is_directory(path / "spool", ignored)) {
    run_.emplace(RunDir::open(path));
  } else {
    const Input input = find_input(path);
    demand_no_archive(input, path, "nothing goes on in it; `torchprof report` shows what it has");
    demand_trace(input, path);
    if (input.spools.empty()) throw Error(target_ + ": is a trace of a run that has ended: `torchprof report`");
    if (!fs::is_directory(path)) file_ = path;
  }
  if (run_ && has_ended_run() && run_->spools().empty())
    throw Error(target_ +
                ": the run has ended and its raw records are gone (run --discard removes them): see "
                "`torchprof report`");
}

void LiveJob::look() {
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

bool LiveJob::has_ended() const {
  if (unwatched_ != 0) return false;
  if (std::ranges::any_of(watched_, [](const Watched& one) { return one.shown.is_live; })) return false;
  return !run_ || has_ended_run();
}

std::vector<LiveJob::Live> LiveJob::live_here() const {
  std::vector<Live> out;
  for (const Watched& one : watched_)
    if (one.shown.is_live && one.shown.is_seen) out.push_back({one.shown.pid, one.spool});
  return out;
}

TopState LiveJob::state() const {
  TopState state;
  state.target = target_;
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

std::vector<fs::path> LiveJob::spools() const {
  if (!file_.empty()) return {file_};
  if (run_) return run_->spools();
  return formats::find_spools(target_);
}

// A rank that has ended, and that no other process goes on with.
bool LiveJob::is_missing(const TopProcess& process) const {
  return process.view.rank && process.view.worker.empty() && std::ranges::none_of(watched_, [&](const Watched& one) {
           return one.shown.is_live && one.shown.view.rank == process.view.rank && one.shown.view.worker.empty();
         });
}

// The launcher is gone, or has seen the end of the command.
bool LiveJob::has_ended_run() const { return !is_locked(run_->path()) || run_->read_info().contains("end"); }

// Whether it is watched now, as the last one.
bool LiveJob::open(const fs::path& spool, bool is_live) {
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
  one.shown.is_seen = one.shown.pid != 0;
  if (one.shown.pid == 0) one.shown.pid = tail->header().pid;
  const FileHeader& header = tail->header();
  one.shown.host.assign(header.host, strnlen(header.host, sizeof(header.host)));
  one.process = std::make_unique<formats::LiveProcess>(std::move(tail), last_ns_, steps_);
  return true;
}

void LiveJob::look_at(Watched& one, uint64_t bytes) {
  if (!one.process) return;
  const bool is_live = is_written(one.spool).value_or(one.shown.is_live);
  one.process->look(is_live, bytes);
  one.shown.view = one.process->view(kMostRows);
  one.shown.is_live = is_live;
  if (is_live && one.shown.is_seen) one.shown.resident = resident_bytes(one.shown.pid);
  if (!is_live) one.process.reset();  // and its file is closed
}

// Those go first that are not shown beside live ones: workers, and ranks that live on. Then the highest ranks.
void LiveJob::forget_ended() {
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

}  // namespace torchprof::launcher
