#include "launcher/subcommands/ask_steps.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "formats/io/cells.h"
#include "formats/io/error.h"
#include "formats/io/median.h"
#include "formats/io/text.h"
#include "formats/live/live_process.h"
#include "launcher/run_dir/input.h"
#include "launcher/run_dir/writers.h"
#include "launcher/subcommands/control.h"
#include "launcher/terminal/say.h"
#include "tracer/spool/control_file.h"
#include "tracer/spool/file_lock.h"
#include "tracer/spool/run_files.h"

namespace torchprof::launcher {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using std::chrono::steady_clock;

// How far ahead the first step is to be: time for all to read the request, which they do once a second. Those of other
// hosts see it when their file system does.
constexpr auto kAhead = 3s, kAheadOfHosts = 10s;
constexpr auto kAnswerLook = 20ms;    // between two looks for answers
constexpr int kMostTries = 4;         // each three times as far ahead as the one before it
constexpr int64_t kStepsOf = 3600;    // seconds: steps that ended longer ago tell nothing
constexpr size_t kTypicalSteps = 32;  // the latest ones, by whose median time is counted in steps
constexpr uint64_t kRound = 10;       // first steps that are far ahead are a multiple of it

struct StepRange {
  uint64_t first, last;
  std::string text() const {
    if (first == last) return "step " + std::to_string(first);
    return "steps " + std::to_string(first) + " to " + std::to_string(last);
  }
};

struct AskedProcess {
  fs::path spool;
  uint32_t pid;      // in our namespace; 0: we do not see it
  std::string name;  // for people
  std::unique_ptr<formats::LiveProcess> live;
  formats::LiveView view;  // of the last look at all of it
  std::string answer;      // "taken at 150"; empty: none so far

  bool says(std::string_view word) const { return answer.starts_with(word); }
};

bool may_live(const fs::path& spool, const FileHeader& header, uint32_t pid) {
  switch (spool_lock::look_for_writer(spool.c_str())) {
    case spool_lock::Writer::kLives:
      return true;
    case spool_lock::Writer::kGone:
      return false;
    case spool_lock::Writer::kUnknown:
      break;
  }
  return pid != 0 || (!is_this_host(header.host) && header.clean_exit.load(std::memory_order_relaxed) == 0);
}

// The file of the requests. Lines are written whole, and behind a line that somebody left without an end.
class ControlFile {
 public:
  explicit ControlFile(const fs::path& directory) : path_(directory / kControlName) {
    fd_ = Descriptor(open(path_.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (fd_.get() < 0) fail();
    // The program must be able to read what root has made.
    struct stat status {};
    if (geteuid() == 0 && stat(directory.c_str(), &status) == 0) [[maybe_unused]]
      const int ignored = fchown(fd_.get(), status.st_uid, status.st_gid);
  }
  void add(std::string line) const {
    struct stat status {};
    char last = '\n';
    if (fstat(fd_.get(), &status) == 0 && status.st_size > 0) [[maybe_unused]]
      const ssize_t n = pread(fd_.get(), &last, 1, status.st_size - 1);
    line = (last == '\n' ? "" : "\n") + line + "\n";
    const ssize_t written = write(fd_.get(), line.data(), line.size());
    if (written < 0) fail();
    if (static_cast<size_t>(written) != line.size()) throw Error(path_.string() + ": no room");
  }

 private:
  [[noreturn]] void fail() const { throw Error(path_.string() + ": " + std::strerror(errno)); }
  fs::path path_;
  Descriptor fd_;
};

class AskedJob {
 public:
  AskedJob(const std::string& target, std::string ranks) : target_(target), ranks_(std::move(ranks)) {
    if (process_named(target))
      throw Error(
          "the steps of all ranks are asked for together: give the run directory or its `torchprof run`, not a "
          "process");
    const Input input = find_input(target);
    demand_no_archive(input, target, "nobody records into it; give the run directory");
    demand_trace(input, target);
    most_open_spools();
    Writers writers;
    for (const fs::path& spool : input.spools) add(spool, writers);
    if (asked_.empty() && whole_ == 0 && others_ != 0)
      throw Error(target + ": none of its processes is of rank " + ranks_ + "; `torchprof ctl` shows its ranks");
    if (asked_.empty() && whole_ == 0) throw Error(target + ": none of its processes runs any more");
    if (asked_.empty()) throw Error(target + ": all that it does is recorded so far: there is no window to open");
    directory_ = input.spools.front().parent_path();
  }

  // The step that the fastest rank is in.
  uint64_t fastest() const {
    uint64_t most = 0;
    for (const AskedProcess& one : asked_) most = std::max(most, one.view.steps);
    return most;
  }
  // The first step that all can open: at least so far ahead.
  uint64_t step_in(std::chrono::nanoseconds ahead) const {
    int64_t shortest = INT64_MAX;
    for (const AskedProcess& one : asked_) {
      const std::vector<int64_t>& all = one.view.step_ns;
      const size_t count = std::min(all.size(), kTypicalSteps);
      if (count != 0)
        shortest =
            std::min(shortest, formats::median_of(std::vector(all.end() - static_cast<ptrdiff_t>(count), all.end())));
    }
    if (shortest == INT64_MAX)
      throw Error(
          target_ +
          ": no step has ended so far, so nobody knows which one comes next: give their numbers, as in steps=100..104");
    const auto steps = static_cast<uint64_t>(ahead.count() / std::max<int64_t>(1, shortest)) + 1;
    const uint64_t step = fastest() + 1 + steps;
    return steps < kRound ? step : (step + kRound - 1) / kRound * kRound;
  }
  std::chrono::nanoseconds ahead() const {
    const bool are_here = std::ranges::all_of(asked_, [](const AskedProcess& one) { return one.pid != 0; });
    return are_here ? kAhead : kAheadOfHosts;
  }

  void look() {
    for (AskedProcess& one : asked_) {
      one.live->look(true, 0);
      one.view = one.live->view(0);
    }
  }
  // Asks for these steps, and waits for answers: until one says that it is late, or so long. True: all record them.
  bool ask(StepRange steps, std::chrono::nanoseconds patience) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const std::string id = std::to_string(std::chrono::nanoseconds(now).count());
    const ControlFile file(directory_);
    file.add("window " + id + " steps=" + std::to_string(steps.first) + ".." + std::to_string(steps.last) +
             (ranks_.empty() ? "" : " ranks=" + ranks_));
    for (AskedProcess& one : asked_) {
      one.answer.clear();
      ControlRequest(one.pid, "control", one.spool);  // its answer is in the spool
    }
    const std::string key = std::string(kControlFact) + id;
    const auto end = steady_clock::now() + patience;
    while (!has_late() && count_of(kControlTaken) < asked_.size() && steady_clock::now() < end) {
      poll(nullptr, 0, static_cast<int>(std::chrono::milliseconds(kAnswerLook).count()));
      for (AskedProcess& one : asked_) {
        if (!one.answer.empty()) continue;
        one.live->look(true, 0);
        one.answer = one.live->fact(key.c_str());
      }
    }
    if (has_late()) file.add("drop " + id);
    return count_of(kControlTaken) == asked_.size();
  }
  std::vector<fs::path> spools_of_taken() const {
    std::vector<fs::path> spools;
    for (const AskedProcess& one : asked_)
      if (one.says(kControlTaken)) spools.push_back(one.spool);
    return spools;
  }
  bool has_late() const { return count_of(kControlLate) != 0; }

  void say_taken(StepRange steps) const {
    uint64_t least = UINT64_MAX, most = 0;
    for (const AskedProcess& one : asked_) {
      if (!one.says(kControlTaken)) continue;
      const uint64_t at = std::strtoull(one.answer.c_str() + kControlTaken.size() + std::strlen(" at "), nullptr, 10);
      if (at == 0) continue;  // it makes no steps, as a worker
      least = std::min(least, at);
      most = std::max(most, at);
    }
    std::string text = steps.text() + ": " + formats::plural(count_of(kControlTaken), "process");
    if (most != 0)
      text += least == most ? ", in step " + std::to_string(most) + " now"
                            : ", in steps " + std::to_string(least) + " to " + std::to_string(most) + " now";
    if (whole_ != 0) text += "; " + formats::plural(whole_, "more process") + " whose beginning is recorded";
    print_text(text + "\n");
  }
  // Those that do not record them.
  void say_others() const {
    std::map<std::string, std::vector<const AskedProcess*>> why;
    for (const AskedProcess& one : asked_)
      if (!one.says(kControlTaken))
        why[one.answer.empty()       ? "no answer; it records these steps if it reads the request in time"
            : one.says(kControlFull) ? "waits for too many other windows"
                                     : "was late: it was in step " + one.answer.substr(one.answer.rfind(' ') + 1)]
            .push_back(&one);
    constexpr size_t kShown = 5;
    for (const auto& [text, all] : why) {
      std::string names;
      for (size_t i = 0; i < std::min(all.size(), kShown); ++i) names += (i > 0 ? ", " : "") + all[i]->name;
      if (all.size() > kShown) names += " and " + std::to_string(all.size() - kShown) + " more";
      complain(names + ": " + text);
    }
  }

 private:
  void add(const fs::path& spool, Writers& writers) {
    std::string error;
    std::unique_ptr<formats::SpoolTail> tail = formats::SpoolTail::open(spool, error);
    if (!tail) return;
    const uint32_t pid = writers.writer_of(spool);
    if (!may_live(spool, tail->header(), pid)) return;
    const std::string host = is_this_host(tail->header().host) ? "" : " of host " + std::string(tail->header().host);
    const uint32_t number = pid != 0 ? pid : tail->header().pid;
    AskedProcess one{spool, pid, "", std::make_unique<formats::LiveProcess>(std::move(tail), kStepsOf * 1'000'000'000),
                     {},    ""};
    one.live->look(true, 0);
    one.view = one.live->view(0);
    if (!is_for_rank({.ranks = ranks_}, one.view.rank ? static_cast<uint64_t>(*one.view.rank) : kNoRank)) {
      ++others_;
      return;
    }
    one.name = one.view.rank ? "rank " + std::to_string(*one.view.rank) : "process " + std::to_string(number) + host;
    const std::string& window = one.view.window;
    if (window.empty()) {
      ++whole_;  // it reads the request when that is over
    } else if (window != "manual" && window != "auto") {
      throw Error(one.name + ": its window is " + formats::printable(window) +
                  "; only `manual` and `auto` are opened by hand");
    } else {
      asked_.push_back(std::move(one));
    }
  }
  size_t count_of(std::string_view answer) const {
    return static_cast<size_t>(
        std::ranges::count_if(asked_, [&](const AskedProcess& one) { return one.says(answer); }));
  }

  const std::string target_, ranks_;
  fs::path directory_;  // of the spools
  std::vector<AskedProcess> asked_;
  size_t others_ = 0;  // that are of other ranks
  size_t whole_ = 0;   // that record everything so far
};

}  // namespace

TakenSteps ask_steps(const std::string& target, const StepsAsked& asked, const std::string& ranks) {
  AskedJob job(target, ranks);
  std::chrono::nanoseconds ahead = job.ahead();
  if (asked.next == 0 && asked.first <= job.fastest())
    throw Error("step " + std::to_string(asked.first) + " has begun: a rank is in step " +
                std::to_string(job.fastest()) + "; `next=" + std::to_string(asked.last - asked.first + 1) +
                "` takes the next steps that all can record");
  for (int tries = 1;; ++tries, ahead *= 3) {
    StepRange steps{asked.first, asked.last};
    if (asked.next != 0) {
      steps.first = job.step_in(ahead);
      steps.last = steps.first + asked.next - 1;
    }
    const bool is_taken = job.ask(steps, ahead);
    if (is_taken || !job.has_late() || asked.next == 0 || tries == kMostTries) {
      if (!job.has_late()) job.say_taken(steps);
      job.say_others();
      const bool is_dropped = job.has_late();
      return {steps.first, steps.last, is_dropped ? std::vector<fs::path>{} : job.spools_of_taken(), is_taken};
    }
    job.look();
  }
}

}  // namespace torchprof::launcher
