#include "formats/trace/uncaptured.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <span>
#include <string_view>

#include "formats/io/cells.h"
#include "formats/io/open_file.h"
#include "formats/io/text.h"
#include "formats/trace/trace.h"

namespace torchprof::formats {
namespace {

constexpr size_t kMostLines = 8;
constexpr size_t kFields = 7;
constexpr size_t kCommand = 32;  // columns of a command
constexpr size_t kRole = 40;

// False: the line is cut off or was not written by us.
bool read_line(std::string_view line, Uncaptured& out) {
  std::array<std::string_view, kFields> fields;
  for (size_t i = 0; i + 1 < kFields; ++i) {
    const size_t tab = line.find('\t');
    if (tab == line.npos) return false;
    fields[i] = line.substr(0, tab);
    line.remove_prefix(tab + 1);
  }
  const auto number = [&fields](size_t i, auto& value) {
    const auto [end, error] = std::from_chars(fields[i].data(), fields[i].data() + fields[i].size(), value);
    return error == std::errc{} && end == fields[i].data() + fields[i].size();
  };
  unsigned cause = 0, forked = 0;
  if (!number(0, out.pid) || !number(1, out.parent_pid) || !number(2, out.time.value) || !number(3, cause) ||
      !number(4, out.error) || !number(5, forked) || cause >= static_cast<unsigned>(LossCause::kCount))
    return false;
  out.cause = static_cast<LossCause>(cause);
  out.is_forked = forked != 0;
  out.command = line;
  return true;
}

const char* short_text(LossCause cause) {
  switch (cause) {
    case LossCause::kSizeLimit:
      return "--max-size was reached";
    case LossCause::kRunSize:
      return "--max-run-size was reached";
    case LossCause::kFileSize:
      return "ulimit -f was reached";
    case LossCause::kDiskFull:
      return "the disk was full";
    default:
      return loss_text(cause);
  }
}

std::string seconds(int64_t ns) { return duration_text(static_cast<double>(ns)); }

}  // namespace

std::optional<CutShort> cut_short(const Process& process, UnixNs run_end) {
  if (!process.stopped) return std::nullopt;
  CutShort cut{.ns = std::max<int64_t>(0, *process.stopped - process.start), .has_events = process.counts.records != 0};
  for (size_t i = process.lost.size(); i-- > 0;)
    if (static_cast<LossCause>(i) != LossCause::kReentry && process.lost[i] != 0) cut.cause = static_cast<LossCause>(i);
  const UnixNs end = process.clean_exit ? process.end : run_end;
  if (end.value != 0 && end - process.start >= cut.ns) cut.of_ns = end - process.start;
  cut.is_at_most = !process.clean_exit;
  return cut;
}

std::string text_of(const CutShort& cut) {
  if (!cut.has_events) return "never captured";
  std::string text = "captured until " + seconds(cut.ns);
  if (cut.of_ns) text.append(cut.is_at_most ? " of at most " : " of ").append(seconds(*cut.of_ns));
  return text;
}

std::string cut_label(const Process& process) {
  const auto cut = cut_short(process, {});
  return cut ? ", " + text_of(*cut) : std::string{};
}

std::string Uncaptured::reason() const {
  const auto because = [this](const std::string& what) {
    return what + " (" + (is_forked || error == 0 ? short_text(cause) : std::strerror(error)) + ")";
  };
  return because(is_forked ? "its parent's capture had ended" : "no spool could be made");
}

void read_uncaptured(const std::filesystem::path& directory, UncapturedList& list) {
  const std::string text = read_file(directory / kUncapturedName);
  std::string_view rest = text;
  list.more += static_cast<uint64_t>(std::ranges::count(text, kUncapturedMore));
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    line = line.substr(0, line.find(kUncapturedMore));
    Uncaptured process;
    if (read_line(line, process)) list.processes.push_back(std::move(process));
  }
}

std::vector<std::string> uncaptured_lines(const Trace& trace) {
  std::vector<std::string> lines;
  size_t cut_off = 0;
  for (const Process& p : trace.processes) {
    const auto cut = cut_short(p, trace.run_end);
    if (!cut || ++cut_off > kMostLines) continue;
    std::string line = "process " + std::to_string(p.pid);
    if (!p.role.empty()) line.append(", ").append(shorten(printable(p.role), kRole));
    lines.push_back(line.append(": ").append(text_of(*cut)).append(" (").append(short_text(cut->cause)).append(")"));
    if (cut->has_events) lines.back().append("; all that followed is missing");
  }
  if (cut_off > kMostLines)
    lines.push_back("and " + plural(cut_off - kMostLines, "process") +
                    " more were not captured to their end: see run.json");
  const auto& missing = trace.uncaptured.processes;
  for (const Uncaptured& p : std::span(missing).first(std::min(missing.size(), kMostLines))) {
    std::string line = "process " + std::to_string(p.pid) + ", started by " + std::to_string(p.parent_pid) +
                       ": never captured: " + p.reason();
    // A forked child has its parent's command.
    if (!p.is_forked) line.append(": ").append(shorten(printable(p.command), kCommand));
    lines.push_back(std::move(line));
  }
  const uint64_t more = trace.uncaptured.more + (missing.size() > kMostLines ? missing.size() - kMostLines : 0);
  if (more != 0 && missing.empty())
    lines.push_back(plural(more, "process") +
                    " or more found no room: nothing of them was captured, not even the name");
  else if (more != 0)
    lines.push_back("and " + plural(more, "process") + " more were never captured: see run.json");
  return lines;
}

}  // namespace torchprof::formats
