#include <algorithm>
#include <iterator>
#include <utility>

#include "formats/io/cells.h"
#include "formats/io/sum.h"
#include "formats/io/text.h"
#include "formats/report/gpu_notes.h"
#include "formats/report/report.h"

namespace torchprof::formats {
namespace {

std::string join_pids(const std::vector<uint32_t>& pids, size_t all) {
  if (pids.size() == all) return all == 1 ? "" : " (all processes)";
  std::string text;
  constexpr size_t kMost = 4;
  for (size_t i = 0; i < std::min(pids.size(), kMost); ++i)
    text.append(i == 0 ? " (pid " : ", ").append(std::to_string(pids[i]));
  return text + (pids.size() > kMost ? " and " + std::to_string(pids.size() - kMost) + " more)" : ")");
}

// A note about a process whose window was not the whole run.
std::string window_text(const Process& p) {
  const std::string window = "window " + printable(p.meta("window"));
  if (p.windows.empty()) return window + ": never opened, nothing was recorded";
  int64_t ns = 0;
  for (const Window& w : p.windows) add_to(ns, w.end - w.begin);
  std::string text = window + ": what lies outside of " + plural(p.windows.size(), "window") + " (" +
                     duration_text(static_cast<double>(ns)) + " in all" +
                     (p.meta("window") == "auto" || p.windows.back().closed ? ")" : ", open at the end)");
  if (p.windows_given_up != 0) text += "; " + count_text(p.windows_given_up) + " more were given up for others";
  return text;
}

// Lines of processes. One that several processes have comes once, with their pids, in the order of its first process.
class Lines {
 public:
  void add(const std::string& line, uint32_t pid) {
    const auto it = std::ranges::find(lines_, line, &std::pair<std::string, std::vector<uint32_t>>::first);
    if (it == lines_.end()) {
      lines_.push_back({line, {pid}});
    } else {
      it->second.push_back(pid);
    }
  }

  // `processes`: how many there are.
  std::vector<std::string> finish(size_t processes) const {
    std::vector<std::string> out;
    for (const auto& [line, pids] : lines_) {
      out.push_back(line + join_pids(pids, processes));
    }
    return out;
  }

 private:
  std::vector<std::pair<std::string, std::vector<uint32_t>>> lines_{};
};

}  // namespace

std::vector<std::string> gpu_remarks_of(const Trace& trace) {
  Lines lines;
  for (const Process& p : trace.processes)
    for (const std::string& line : gpu_remarks(p)) lines.add(line, p.pid);
  return lines.finish(trace.processes.size());
}

std::vector<std::string> notes_of(const Trace& trace) {
  Lines lines;
  const auto add = [&lines](const std::string& line, uint32_t pid) { lines.add(line, pid); };
  for (const Process& p : trace.processes) {
    for (const Source& s : p.sources) {
      if (s.state == SourceState::kOn) continue;
      add(printable(s.name) + (s.state == SourceState::kFailed ? " failed: " : " off: ") + printable(s.detail), p.pid);
    }
    if (!p.meta("window").empty()) add(window_text(p), p.pid);
    if (p.recycled_bytes != 0 && p.meta("window") != "auto")
      add("the last part of the run: " + bytes_text(p.recycled_bytes) + " of older events were dropped (--keep last)",
          p.pid);
    for (size_t i = 0; i < p.lost.size(); ++i) {
      if (p.lost[i] != 0 && (!p.stopped || static_cast<LossCause>(i) == LossCause::kReentry))
        add(plural(p.lost[i], "event") + " lost: " + loss_text(static_cast<LossCause>(i)), p.pid);
    }
    for (const std::string& line : gpu_notes(p)) add(line, p.pid);
    for (const Blind& blind : p.blind) {
      add("Python calls not recorded for " + duration_text(static_cast<double>(blind.ns)) + ": " +
              "Python's hook was taken by " + printable(blind.by) + ", " + plural(blind.times, "time"),
          p.pid);
    }
    if (p.doubtful_chunks != 0) {
      add("the times of " + plural(p.doubtful_chunks, "chunk") + ", which are impossible: their events are kept in " +
              "their order, at the time at which the chunk before them began",
          p.pid);
    }
    if (p.counts.unknown != 0)
      add(plural(p.counts.unknown, "record") + " of kinds that this version does not know: a newer one wrote them",
          p.pid);
    if (p.damage) {
      add("spool damaged: " + plural(p.damage.chunks, "chunk") + ", " + plural(p.damage.bytes, "byte") + " and " +
              plural(p.damage.records, "record") + " could not be read; all else was recovered",
          p.pid);
    }
  }
  std::vector<std::string> notes = uncaptured_lines(trace);
  std::ranges::move(lines.finish(trace.processes.size()), std::back_inserter(notes));
  for (const Unreadable& u : trace.unreadable) {
    notes.push_back("spool " + printable(u.file.filename().string()) + " cannot be read: " + printable(u.reason));
  }
  return notes;
}

}  // namespace torchprof::formats
