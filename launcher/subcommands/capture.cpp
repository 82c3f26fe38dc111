#include "launcher/subcommands/capture.h"

#include <poll.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "formats/io/cells.h"
#include "formats/io/error.h"
#include "formats/live/live_process.h"
#include "launcher/run_dir/input.h"
#include "launcher/run_dir/writers.h"
#include "launcher/subcommands/ask_steps.h"
#include "launcher/subcommands/export.h"
#include "launcher/terminal/say.h"

namespace torchprof::launcher {
namespace {

namespace fs = std::filesystem;

constexpr int kLookMs = 100;          // between two looks at the spools
constexpr size_t kLooksToClose = 50;  // for which a window is waited for that does not close after its last step

// A process that records the steps.
struct Captured {
  fs::path spool;
  std::unique_ptr<formats::LiveProcess> live;
  bool makes_steps = true;  // otherwise it has nothing to wait for: a worker
  bool is_over = false;
  bool has_ended = false;  // before they were over
  size_t looks = 0;        // since the last step was over
};

// Whether it has recorded all of them: its window is closed behind the last one.
void look_at_captured(Captured& one, uint64_t last) {
  const bool is_alive = Writers().is_written(one.spool);
  one.live->look(is_alive, 0);
  const formats::LiveView view = one.live->view(0);
  one.makes_steps = view.steps > 0;
  const bool has_passed = view.steps > last;
  one.has_ended = !is_alive && !has_passed;
  const bool is_closed = !view.is_window_open || view.window == "auto";
  one.is_over = !is_alive || (has_passed && (is_closed || ++one.looks > kLooksToClose));
}

// Returns how many processes have ended before the steps were over.
size_t wait_for_steps(std::vector<Captured>& processes, uint64_t last) {
  const bool has_steps = std::ranges::any_of(processes, &Captured::makes_steps);
  for (;;) {
    bool is_over = true;
    for (Captured& one : processes) {
      if (!one.is_over) look_at_captured(one, last);
      is_over = is_over && (one.is_over || (has_steps && !one.makes_steps));
    }
    if (is_over) break;
    poll(nullptr, 0, kLookMs);
  }
  return static_cast<size_t>(std::ranges::count_if(processes, &Captured::has_ended));
}

}  // namespace

int capture(const std::string& target, const CtlOptions& options) {
  const TakenSteps taken = ask_steps(target, *options.steps, options.ranks);
  if (taken.spools.empty()) return 1;
  std::vector<Captured> processes;
  for (const fs::path& spool : taken.spools) {
    std::string error;
    std::unique_ptr<formats::SpoolTail> tail = formats::SpoolTail::open(spool, error);
    if (!tail) throw Error(spool.string() + ": " + error);
    Captured one{spool, std::make_unique<formats::LiveProcess>(std::move(tail), 0)};
    look_at_captured(one, taken.last);
    processes.push_back(std::move(one));
  }
  const size_t ended = wait_for_steps(processes, taken.last);
  if (ended != 0)
    complain(formats::plural(ended, "process") + " ended before step " + std::to_string(taken.last) + " was over");
  Input input = find_input(target);
  input.spools = taken.spools;
  ExportOptions exported;
  exported.input = target;
  exported.slice.steps = {taken.first, taken.last};
  fs::path output = options.output;
  if (output.empty()) output = "steps-" + std::to_string(taken.first) + "-" + std::to_string(taken.last) + ".json.gz";
  exported.outputs.push_back(output);
  exported.formats = formats_named(output.extension() == ".perfetto-trace" ? "perfetto" : "kineto");
  if (const int status = export_files(input, exported); status != 0) return status;
  say(output.string() + ": written");
  return taken.is_by_all && ended == 0 ? 0 : 1;
}

}  // namespace torchprof::launcher
