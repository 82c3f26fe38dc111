#include "launcher/subcommands/alive_runs.h"

#include <algorithm>
#include <ctime>
#include <map>
#include <memory>
#include <vector>

#include "formats/io/cells.h"
#include "formats/io/text.h"
#include "formats/live/live_process.h"
#include "launcher/run_dir/writers.h"
#include "launcher/terminal/say.h"

namespace torchprof::launcher {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostPids = 4;        // that are named
constexpr size_t kWidestProgram = 60;  // columns of a command

struct AliveProcess {
  uint32_t pid;
  int64_t since = 0;  // ns since 1970; 0: its spool cannot be read
  std::string command;
  formats::LiveView view;
};

AliveProcess look_at_alive(const Recorded& recorded) {
  AliveProcess one{recorded.pid, 0, "", {}};
  std::string error;
  std::unique_ptr<formats::SpoolTail> tail = formats::SpoolTail::open(recorded.spool, error);
  if (!tail) return one;
  const FileHeader& header = tail->header();
  one.since = header.start.realtime.value;
  one.command.assign(header.command, std::min<size_t>(header.command_size, sizeof(header.command)));
  while (one.command.ends_with('\0')) one.command.pop_back();
  std::ranges::replace(one.command, '\0', ' ');
  formats::LiveProcess live(std::move(tail), 0);
  live.look(true, 0);
  one.view = live.view(0);
  return one;
}

// "0 to 3, 7"
std::string ranges_text(std::vector<int64_t> numbers) {
  std::ranges::sort(numbers);
  std::string out;
  for (size_t i = 0; i < numbers.size();) {
    size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] <= numbers[last] + 1) ++last;
    out += (out.empty() ? "" : ", ") + std::to_string(numbers[i]);
    if (numbers[last] > numbers[i]) out += " to " + std::to_string(numbers[last]);
    i = last + 1;
  }
  return out.empty() ? "-" : out;
}

std::string time_of_day(int64_t ns) {
  if (ns == 0) return "-";
  const time_t seconds = ns / 1'000'000'000;
  tm parts{};
  localtime_r(&seconds, &parts);
  char text[32];
  strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &parts);
  return text;
}

// Of a run: ranks, steps, its window, since when, its processes, its directory and its command.
formats::Cells cells_of(const fs::path& directory, std::vector<AliveProcess> processes) {
  // The lowest rank speaks for all; workers and launchers have none.
  std::ranges::stable_sort(processes, {}, [](const AliveProcess& one) {
    return std::pair(one.view.rank && one.view.worker.empty() ? *one.view.rank : INT64_MAX, one.since);
  });
  std::vector<int64_t> ranks;
  uint64_t least = UINT64_MAX, most = 0;
  size_t open = 0, closed = 0;
  int64_t since = 0;
  std::string pids;
  for (size_t i = 0; i < processes.size(); ++i) {
    const AliveProcess& one = processes[i];
    if (one.view.rank && one.view.worker.empty()) ranks.push_back(*one.view.rank);
    if (one.view.steps > 0) least = std::min(least, one.view.steps), most = std::max(most, one.view.steps);
    if (one.since != 0 && (since == 0 || one.since < since)) since = one.since;
    ++(one.view.window.empty() || one.view.is_window_open ? open : closed);
    if (i < kMostPids) pids += (i > 0 ? ", " : "") + std::to_string(one.pid);
  }
  if (processes.size() > kMostPids) pids += " and " + std::to_string(processes.size() - kMostPids) + " more";
  const std::string steps = most == 0       ? "-"
                            : least == most ? std::to_string(most)
                                            : std::to_string(least) + " to " + std::to_string(most);
  return {ranges_text(std::move(ranks)),
          steps,
          closed == 0 ? "open"
          : open == 0 ? "closed"
                      : "open in " + std::to_string(open),
          time_of_day(since),
          pids,
          formats::printable(directory.native()) + "  " +
              formats::shorten(formats::printable(processes.front().command), kWidestProgram)};
}

}  // namespace

int list_alive_runs(const std::string& command) {
  std::map<fs::path, std::vector<AliveProcess>> runs;
  for (const Recorded& recorded : recorded_processes()) {
    const fs::path above = recorded.spool.parent_path();
    runs[above.filename() == "spool" ? above.parent_path() : above].push_back(look_at_alive(recorded));
  }
  if (runs.empty()) {
    complain("no run of this user is alive here");
    return 1;
  }
  std::vector<formats::Cells> rows;
  for (auto& [directory, processes] : runs) rows.push_back(cells_of(directory, std::move(processes)));
  print_text(formats::aligned({"ranks", "step", "window", "since", "processes", "run, command"}, rows,
                              formats::LastColumn::kWhole));
  say("go on with one of them: " + command);
  return 0;
}

}  // namespace torchprof::launcher
