#include "formats/report/page.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <tuple>
#include <utility>

#include "formats/analysis/call_tree.h"
#include "formats/analysis/thread_statistics.h"
#include "formats/io/cells.h"
#include "formats/io/intervals.h"
#include "formats/io/sum.h"
#include "formats/io/text.h"
#include "formats/memory/memory.h"
#include "formats/memory/owners.h"
#include "formats/read/read_trace.h"
#include "formats/replay/process_label.h"
#include "formats/replay/replay.h"
#include "formats/report/page_assets.h"
#include "formats/report/page_timeline.h"
#include "formats/report/run_facts.h"
#include "formats/report/summary.h"
#include "formats/trace/endings.h"
#include "formats/trace/roles.h"

namespace torchprof::formats {
namespace {

// ---- call paths ------------------------------------------------------------------------------------------

struct Frame {
  uint32_t name;
  int64_t own_ns;
  uint64_t calls;
  int64_t total_ns;
  std::vector<uint32_t> inside;
  // The same three, in steps.
  int64_t step_own_ns = 0, step_total_ns = 0;
  uint64_t step_calls = 0;
};

// The frames of one thread: frames[0] is the thread itself, all others come after their callers.
std::vector<Frame> frames_of(const CallTree& tree, const CallTree::Thread& thread) {
  std::vector<Frame> frames{{0, 0, 0, 0, {}}};
  std::vector<std::pair<uint32_t, uint32_t>> open;  // name, index of the frame
  tree.each_path(thread, [&](const std::vector<NameId>& path, const CallTree::Node& node) {
    size_t common = 0;
    while (common < std::min(open.size(), path.size()) && open[common].first == path[common].value) ++common;
    open.resize(common);
    for (size_t i = common; i < path.size(); ++i) {
      const uint32_t parent = open.empty() ? 0 : open.back().second;
      const auto added = static_cast<uint32_t>(frames.size());
      frames[parent].inside.push_back(added);
      frames.push_back({path[i].value, 0, 0, 0, {}});
      open.emplace_back(path[i].value, added);
    }
    Frame& frame = frames[open.back().second];
    add_to(frame.own_ns, node.own_ns);
    add_to(frame.step_own_ns, node.step_ns);
    frame.calls += node.calls;
    frame.step_calls += node.step_calls;
  });
  for (size_t i = frames.size(); i-- > 0;) {
    add_to(frames[i].total_ns, frames[i].own_ns);
    add_to(frames[i].step_total_ns, frames[i].step_own_ns);
    for (const uint32_t child : frames[i].inside) {
      add_to(frames[i].total_ns, frames[child].total_ns);
      add_to(frames[i].step_total_ns, frames[child].step_total_ns);
    }
  }
  return frames;
}

// The total time that a frame needs to be among the widest kMostFrames. No frame is wider than its caller, so callers
// of these are among them, too.
int64_t narrowest(const std::vector<Frame>& frames) {
  if (frames.size() <= kMostFrames) return 0;
  std::vector<int64_t> totals;
  totals.reserve(frames.size());
  for (const Frame& frame : frames) totals.push_back(frame.total_ns);
  std::ranges::nth_element(totals, totals.begin() + kMostFrames, std::greater<>{});
  return totals[kMostFrames] + 1;
}

// "[[parent, name, total ns, own ns, calls], ...]". Frame 0 is the thread; parents come before their children. One that
// has a part in steps has three more values: total ns, own ns and calls in steps.
std::string frames_json(const std::vector<Frame>& frames, const std::function<uint32_t(uint32_t)>& number) {
  const int64_t least = narrowest(frames);
  std::vector<uint32_t> parents(frames.size()), numbers(frames.size(), 0);
  for (uint32_t i = 0; i < frames.size(); ++i)
    for (const uint32_t child : frames[i].inside) parents[child] = i;
  std::string out = "[";
  uint32_t shown = 0;
  for (uint32_t i = 0; i < frames.size(); ++i) {
    const Frame& f = frames[i];
    if (i != 0 && f.total_ns < least) continue;
    numbers[i] = shown++;
    if (i != 0) out += ',';
    for (const auto& [value, before] : {std::pair<int64_t, char>(numbers[parents[i]], '['),
                                        {i == 0 ? 0 : number(f.name), ','},
                                        {f.total_ns, ','},
                                        {f.own_ns, ','},
                                        {static_cast<int64_t>(f.calls), ','}})
      out.append(1, before).append(std::to_string(value));
    if (f.step_total_ns != 0 || f.step_calls != 0)
      for (const int64_t value : {f.step_total_ns, f.step_own_ns, static_cast<int64_t>(f.step_calls)})
        out.append(1, ',').append(std::to_string(value));
    out += ']';
  }
  return out + "]";
}

// How many processes each group has that are shown as one.
std::map<uint32_t, size_t> sizes_of_groups(const Trace& trace) {
  std::map<uint32_t, size_t> sizes;
  for (const Process& process : trace.processes)
    if (const uint32_t group = shown_group(process); group != 0) ++sizes[group];
  return sizes;
}

// "12 DataLoader workers, 3 epochs"; empty: the process is shown on its own.
std::string group_of(const Process& process, const std::map<uint32_t, size_t>& sizes, bool has_all_processes) {
  const auto size = sizes.find(shown_group(process));
  if (has_all_processes || size == sizes.end() || size->second == 1) return {};
  return std::to_string(size->second) + " " + process.group_name;
}

// Frames of several threads as those of one: the same path is one frame.
struct MergedFrames {
  std::vector<Frame> frames{{0, 0, 0, 0, {}}};
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> inside{};  // by caller and name

  void add(const std::vector<Frame>& more, const std::function<uint32_t(uint32_t)>& number) {
    std::vector<uint32_t> places(more.size(), 0);
    for (uint32_t i = 0; i < more.size(); ++i) {
      Frame& here = frames[places[i]];
      add_to(here.own_ns, more[i].own_ns);
      add_to(here.total_ns, more[i].total_ns);
      here.calls += more[i].calls;
      add_to(here.step_own_ns, more[i].step_own_ns);
      add_to(here.step_total_ns, more[i].step_total_ns);
      here.step_calls += more[i].step_calls;
      for (const uint32_t child : more[i].inside) {
        const auto added = static_cast<uint32_t>(frames.size());
        const uint32_t name = number(more[child].name);
        const auto [it, is_new] = inside.try_emplace({places[i], name}, added);
        if (is_new) {
          frames[places[i]].inside.push_back(added);
          frames.push_back({name, 0, 0, 0, {}});
        }
        places[child] = it->second;
      }
    }
  }
};

// Steps of each process, by its place from 0; for one without steps, as a worker is, those of all others.
std::vector<Intervals> spans_in_steps(const Report& report) {
  std::vector<Intervals> steps(report.parts.size());
  Intervals all;
  for (size_t i = 0; i < steps.size(); ++i) {
    for (const StepSpan& span : report.parts[i].statistics.steps.spans) steps[i].add(span.begin, span.end);
    steps[i].settle();
    all.add(steps[i]);
  }
  all.settle();
  for (Intervals& own : steps)
    if (own.empty()) own = all;
  return steps;
}

// The flame graphs of all threads. `group`: that of the process, empty if it is shown on its own.
class FlameGraphs {
 public:
  void add(const Process& process, CallTree& tree, const std::string& group) {
    const auto number = [&](uint32_t name) {
      const auto [it, is_new] =
          numbers_.try_emplace(std::string(tree.text({name})), static_cast<uint32_t>(names_.size()));
      if (is_new) names_.push_back(it->first);
      return it->second;
    };
    for (const CallTree::Thread& thread : tree.threads()) {
      const std::vector<Frame> frames = frames_of(tree, thread);
      if (group.empty())
        append(process_label(process).append(": ").append(thread.label), frames, number);
      else
        of_groups_[group + ": " + std::string(without_number(thread.label))].add(frames, number);
    }
  }

  // To be called once.
  std::string json() {
    for (const auto& [label, merged] : of_groups_) append(label, merged.frames, [](uint32_t name) { return name; });
    std::string out = "{\"names\":[";
    for (const std::string& name : names_) out.append(&name == names_.data() ? "" : ",").append(json_string(name));
    return out.append("],\"threads\":[").append(threads_).append("]}");
  }

 private:
  void append(const std::string& label, const std::vector<Frame>& frames,
              const std::function<uint32_t(uint32_t)>& number) {
    threads_.append(threads_.empty() ? "" : ",").append("{\"label\":").append(json_string(label));
    threads_.append(",\"frames\":").append(frames_json(frames, number)).append("}");
  }

  std::map<std::string, uint32_t> numbers_;
  std::vector<std::string> names_;
  std::string threads_;
  std::map<std::string, MergedFrames> of_groups_;  // by label
};

// ---- memory over time ------------------------------------------------------------------------------------

constexpr size_t kMoments = 800;

// The most that a device had in each of kMoments equal parts of the process's time, counted as its peak is.
class MemoryLine final : public Sink {
 public:
  explicit MemoryLine(const Process& process) : process_(process) {}
  void slice(const Slice&) override {}
  void memory(const MemoryEvent& e) override {
    if (e.is_out_of_memory) return;
    memory_.add(change_of(e, {}));
    auto& line = lines_[{e.device_type, e.device_index}];
    line.resize(kMoments, -1);
    const int64_t all = std::max<int64_t>(1, process_.capture_end - process_.start);
    const double part = static_cast<double>(e.time - process_.start) / static_cast<double>(all);
    const auto at = static_cast<size_t>(std::clamp(part, 0.0, 1.0) * (kMoments - 1));
    if (e.window != window_) {
      if (window_ != nullptr)
        for (size_t i = last_ + 1; i < at; ++i)
          for (auto& [device, values] : lines_) values[i] = kNotKnown;
      window_ = e.window;
    }
    last_ = std::max(last_, at);
    line[at] = std::max(line[at], memory_.total(e.device_type, e.device_index));
  }
  void python_memory(const MemoryEvent& e) override { memory(e); }
  // A value of -1: nothing changed in this part; kNotKnown: it lies between windows.
  const std::map<std::pair<int8_t, int8_t>, std::vector<int64_t>>& lines() const { return lines_; }

 private:
  static constexpr int64_t kNotKnown = -2;
  const Process& process_;
  MemoryCollector memory_;
  const Window* window_ = nullptr;
  size_t last_ = 0;  // part of the latest event
  std::map<std::pair<int8_t, int8_t>, std::vector<int64_t>> lines_;
};

// Those of all processes. Of a group it is that of the process in which the device was fullest.
class MemoryLines {
 public:
  void add(const Process& process, const MemoryLine& memory, const std::string& group) {
    for (const auto& [device, bytes] : memory.lines()) {
      Line line{device_text(device.first, device.second) + " of " + process_label(process),
                process.capture_end - process.start, *std::ranges::max_element(bytes), bytes};
      if (!group.empty()) line.label += ", the most of " + group;
      const auto known = fullest_.find({shown_group(process), device.first, device.second});
      if (group.empty() || known == fullest_.end()) {
        if (!group.empty()) fullest_[{shown_group(process), device.first, device.second}] = all_.size();
        all_.push_back(std::move(line));
      } else if (line.most > all_[known->second].most) {
        all_[known->second] = std::move(line);
      }
    }
  }

  std::string json() const {
    std::string out = "[";
    for (const Line& line : all_) {
      out.append(out.size() > 1 ? "," : "").append("{\"label\":").append(json_string(line.label));
      out.append(",\"ns\":").append(std::to_string(line.ns)).append(",\"bytes\":[");
      for (size_t i = 0; i < line.bytes.size(); ++i)
        out.append(i == 0 ? "" : ",").append(std::to_string(line.bytes[i]));
      out.append("]}");
    }
    return out + "]";
  }

 private:
  struct Line {
    std::string label;
    int64_t ns, most;
    std::vector<int64_t> bytes;
  };
  std::vector<Line> all_;
  std::map<std::tuple<uint32_t, int8_t, int8_t>, size_t> fullest_;  // by group and device: its place in `all_`
};

// ---- the page --------------------------------------------------------------------------------------------

std::string without_markup(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '&')
      out += "&amp;";
    else
      out += c;
  }
  return out;
}

// As data in the page's script element.
void write_data(std::string_view data, Output& out) {
  for (size_t at = 0; at < data.size();) {
    const size_t end = std::min(data.find('<', at), data.size());
    out.write(data.substr(at, end - at));
    if (end < data.size()) out.write("\\u003c");
    at = end + 1;
  }
}

TableOptions all_tables(bool has_records, const PageOptions& options) {
  std::vector<std::string> tables = table_names();
  if (!has_records) std::erase_if(tables, wants_records);
  return {.tables = tables,
          .rows = std::numeric_limits<size_t>::max(),
          .style = ReportStyle::kJson,
          .has_all_processes = options.has_all_processes,
          .has_waits = options.has_waits,
          .has_totals = true};
}

std::string facts_json(const RunFacts& facts) {
  std::string out = "[";
  for (const auto& [label, text] : facts)
    out.append(out.size() > 1 ? ",[" : "[")
        .append(json_string(label))
        .append(",")
        .append(json_string(text))
        .append("]");
  return out + "]";
}

// What a run was, in the words of its facts: command or file, number of steps, host, and when it began.
std::vector<std::string> title_of(const RunFacts& facts, const Report& report) {
  const auto fact = [&](std::string_view label) {
    const auto found = std::ranges::find(facts, label, [](const auto& each) { return each.first; });
    return found == facts.end() ? std::string() : printable(found->second);
  };
  constexpr size_t kLongest = 100;
  const std::string command = fact("Command");
  std::vector<std::string> title{shorten(command.empty() ? fact("File") : command, kLongest)};
  const uint64_t steps = report.all.steps.count;
  for (const std::string& text : {steps == 0 ? std::string() : plural(steps, "step"), fact("Host"), fact("Began")})
    if (!text.empty()) title.push_back(text);
  if (title.front().empty()) title.front() = "torchprof";
  return title;
}

struct PageData {  // JSON
  std::string report, facts, timeline;
  std::string flame = "null", memory = "null";
};

void write_page(const PageData& page, const RunFacts& facts, const Report& report, Output& out) {
  // A viewer that lets no script run shows this.
  const std::string summary = summary_text(report, {});
  write_shell(title_of(facts, report), summary,
              "\"report\":" + page.report + ",\"facts\":" + page.facts + ",\"timeline\":" + page.timeline +
                  ",\"flame\":" + page.flame + ",\"memory\":" + page.memory,
              out);
}

// The tables of which a page that compares runs shows those of each.
constexpr std::array kTablesOfPair = {"advice", "steps", "processes"};

std::string run_of_pair(const std::string& name, const RunFacts& facts, const Report& report,
                        const TableOptions& tables) {
  return "{\"name\":" + json_string(name) + ",\"facts\":" + facts_json(facts) +
         ",\"report\":" + summary_text(report, tables) + "}";
}

TableOptions tables_of_pair() {
  TableOptions tables = all_tables(true, {});
  tables.tables.assign(kTablesOfPair.begin(), kTablesOfPair.end());
  return tables;
}

}  // namespace

void write_shell(const std::vector<std::string>& title, std::string_view summary, std::string_view members,
                 Output& out) {
  std::string whole, list;
  for (const std::string& part : title) {
    whole.append(part).append(", ");
    list.append(list.empty() ? "" : ",").append(json_string(part));
  }
  out.write("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
  out.write(kPageMark);
  out.write(
      "\n<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "script-src 'unsafe-inline'\">\n<meta name=\"viewport\" content=\"width=device-width\">\n<title>");
  out.write(without_markup(whole) + "torchprof</title>\n<style>\n");
  out.write(kPageCss);
  out.write("</style>\n</head>\n");
  out.write(kPageHtml);
  out.write(
      "<noscript><p>The tables and charts of this page need JavaScript; without it, this is its summary:</p>\n<pre>");
  out.write(without_markup(summary) + "</pre></noscript>\n");
  out.write("<script type=\"application/json\" id=\"data\">");
  write_data("{\"title\":[" + list + "],", out);
  write_data(members, out);
  out.write("}</script>\n<script>\n");
  for (const char* const script : kPageScripts) out.write(script);
  out.write("</script>\n</body>\n</html>\n");
}

void write_html(const Trace& trace, Output& out, const PageOptions& options) {
  const TableOptions tables = all_tables(true, options);
  const Report report = report_for(trace, tables);
  const RunFacts facts = facts_of(trace);
  // What is drawn wants the steps of all processes, so that it takes a replay of its own.
  TimelineOfRun timeline(trace, report);
  FlameGraphs flames;
  MemoryLines memory;
  std::vector<Intervals> steps = spans_in_steps(report);
  const auto sizes = sizes_of_groups(trace);
  for (const Process* process : in_shown_order(trace.processes)) {
    Replay replay(*process);
    const std::unique_ptr<Sink> drawing = timeline.draw(*process, replay);
    CallTree tree(*process, replay, CallTree::Native::kByText, std::move(steps[process->place - 1]));
    MemoryLine line(*process);
    replay.add(line);
    replay.run();
    const std::string group = group_of(*process, sizes, options.has_all_processes);
    flames.add(*process, tree, group);
    memory.add(*process, line, group);
    process->spool->release();
  }
  write_page({.report = summary_text(report, tables),
              .facts = facts_json(facts),
              .timeline = timeline.json(),
              .flame = flames.json(),
              .memory = memory.json()},
             facts, report, out);
}

void write_html(const std::filesystem::path& trace_file, Output& out, const PageOptions& options) {
  TraceFile file = read_trace(trace_file, {.step = options.step, .has_timelines = true});
  const std::string name = trace_file.filename().string();
  const TableOptions tables = all_tables(false, options);
  const Report report = report_for(file, name, tables);
  const RunFacts facts = facts_of_file(name, report);
  write_page(
      {.report = summary_text(report, tables), .facts = facts_json(facts), .timeline = timeline_json(file, report)},
      facts, report, out);
}

std::string run_for_pair(const Trace& trace, const std::string& name) {
  const TableOptions tables = tables_of_pair();
  return run_of_pair(name, facts_of(trace), report_for(trace, tables), tables);
}

std::string run_for_pair(const std::filesystem::path& trace_file, const std::string& name) {
  TraceFile file = read_trace(trace_file, {.step = {}, .has_timelines = true});
  const TableOptions tables = tables_of_pair();
  const Report report = report_for(file, trace_file.filename().string(), tables);
  return run_of_pair(name, facts_of_file(trace_file.filename().string(), report), report, tables);
}

}  // namespace torchprof::formats
