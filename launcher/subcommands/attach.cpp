// torchprof attach: records a part of a program that runs already, writes its trace, and leaves the program as it was.
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "formats/io/error.h"
#include "launcher/run/environment.h"
#include "launcher/run/signals.h"
#include "launcher/run_dir/input.h"
#include "launcher/run_dir/run_dir.h"
#include "launcher/run_dir/run_info.h"
#include "launcher/subcommands/attach_targets.h"
#include "launcher/subcommands/attachment.h"
#include "launcher/subcommands/finish_run.h"
#include "launcher/subcommands/subcommands.h"
#include "launcher/terminal/say.h"

namespace torchprof::launcher {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono;
using Attachments = std::vector<std::unique_ptr<Attachment>>;

constexpr milliseconds kLook{50};
constexpr seconds kUntilSteps{10};  // without a step until then, time is recorded

std::vector<uint32_t> targets_of(const AttachOptions& options) {
  const std::optional<uint32_t> pid = process_named(without_launcher(options.target));
  if (!pid) throw Error("attach: '" + options.target + "' is not the id of a process");
  std::vector<uint32_t> pids{*pid};
  if (options.all_ranks) {
    pids = ranks_of_job(*pid);
    if (pids.empty())
      throw Error("process " + std::to_string(*pid) +
                  ": neither it nor what it has started has a RANK and a MASTER_PORT");
  }
  if (options.children) {
    for (const uint32_t each : std::vector<uint32_t>(pids))
      std::ranges::copy(python_children(each), std::back_inserter(pids));
  }
  std::ranges::sort(pids);
  pids.erase(std::unique(pids.begin(), pids.end()), pids.end());
  return pids;
}

// Attaches to each; one that cannot be is said, unless it is the only one.
Attachments attach_all(const std::vector<uint32_t>& pids, const Library& library, const Config& config,
                       const fs::path& run) {
  Attachments out;
  std::string last;
  for (const uint32_t pid : pids) {
    try {
      out.push_back(std::make_unique<Attachment>(pid, library, config, run));
      const Attached& how = out.back()->how();
      std::string line = "attached to process " + std::to_string(pid) + " by " + how.way;
      if (how.stopped.count() > 0)
        line += ", for which it stood still for " + std::to_string(how.stopped.count()) + " us";
      say_each(line + "\n" + how.lines);
    } catch (const Error& error) {
      if (pids.size() == 1) throw;
      last = error.what();
      complain(last);
    }
  }
  if (out.empty()) throw Error(last);
  return out;
}

enum class End { kRecorded, kNoSteps, kInterrupted };

// Until every window has closed, or the process of it has gone. `may_be_without`: there may be no steps.
End wait(const Attachments& attachments, const Signals& signals, bool may_be_without) {
  const auto begin = steady_clock::now();
  bool has_told = false;
  for (;;) {
    const bool is_over = std::ranges::all_of(attachments, [](const auto& each) {
      const Attachment::Progress progress = each->progress();
      return !progress.is_there || (progress.window > 0 && !progress.is_open);
    });
    if (is_over) return End::kRecorded;
    if (!has_told && steady_clock::now() - begin > kUntilSteps) {
      const bool has_begun = std::ranges::any_of(attachments, [](const auto& each) {
        const Attachment::Progress progress = each->progress();
        return progress.window > 0 || progress.steps > 0;
      });
      if (!has_begun && may_be_without) return End::kNoSteps;
      if (!has_begun) say("no step has ended so far; Ctrl-C ends the recording");
      has_told = true;
    }
    const std::optional<Signal> signal = signals.next(kLook);
    if (signal && (signal->number == SIGINT || signal->number == SIGTERM)) return End::kInterrupted;
  }
}

// False: one of them is not as it was; a line has said why.
bool leave_all(Attachments& attachments) {
  bool is_well = true;
  for (auto& each : attachments) {
    try {
      each->leave();
    } catch (const Error& error) {
      complain(error.what());
      is_well = false;
    }
  }
  attachments.clear();
  return is_well;
}

// As leave_all().
bool record(const AttachOptions& options, const std::vector<uint32_t>& pids, const Library& library, const RunDir& dir,
            const Signals& signals) {
  Config config = options.config;
  const auto record_once = [&](bool may_be_without, bool& is_well) {
    Holding holding(dir.path());
    Attachments attachments = attach_all(pids, library, config, dir.path());
    const End end = wait(attachments, signals, may_be_without);
    holding.let_go();
    is_well = leave_all(attachments);
    return end;
  };
  bool is_well = false;
  const End end = record_once(!options.window_named, is_well);
  if (end != End::kNoSteps || !is_well) return is_well;
  constexpr char kTime[] = "after=0s,for=10s";
  say("no step of an optimizer has ended within 10 s: 10 s are recorded instead");
  std::error_code ignored;
  for (const fs::path& spool : dir.spools()) fs::remove(spool, ignored);
  std::copy(std::begin(kTime), std::end(kTime), config.window);
  record_once(false, is_well);
  return is_well;
}

}  // namespace

int attach(const Arguments& arguments) {
  const AttachOptions options = parse_attach(arguments);
  set_quiet(options.config.quiet);
  const Library library = find_library();
  const std::vector<uint32_t> pids = targets_of(options);
  // Before a directory is made.
  const AttachTarget first = look_at_target_process(Image(pids.front()));
  if (const std::string why = why_not(first); pids.size() == 1 && !why.empty())
    throw Error("process " + std::to_string(pids.front()) + ": " + why);
  const Signals signals;
  RunDir dir = RunDir::create(output_path(options.config));
  Info info = begin_info(first.command, {});
  info["attached"] = pids;
  if (!options.step.empty()) info["step"] = options.step;
  bool is_well = true;
  try {
    dir.begin();
    dir.write_info(info);
    is_well = record(options, pids, library, dir, signals);
  } catch (const std::exception&) {
    dir.give_up();
    throw;
  }
  add_end(info, 0, {}, {});
  if (const std::string befell = dir.what_befell(); !befell.empty()) {
    finish_without_directory(dir, befell, info);
    return 1;
  }
  if (dir.has_earlier()) replace_earlier(dir, false);
  finish_run(dir, info, options.config, signals);
  return is_well ? 0 : 1;
}

}  // namespace torchprof::launcher
