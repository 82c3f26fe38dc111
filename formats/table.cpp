#include "formats/table.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <numeric>
#include <span>

#include "formats/cells.h"
#include "formats/error.h"
#include "formats/gpu_index.h"
#include "formats/gpu_table.h"
#include "formats/names.h"
#include "formats/read_kineto.h"
#include "formats/statistics.h"
#include "formats/text.h"

namespace torchprof::formats {
namespace {

using Named = std::pair<std::string, Tally>;

double average_ns(const Tally& t) {
  return static_cast<double>(t.total_ns) / static_cast<double>(std::max<uint64_t>(1, t.calls));
}

struct Order {
  std::string name;
  const char* title;
  double (*of)(const Tally&);
};
const std::array<Order, 4> kOrders{{
    {"self", "self time", [](const Tally& t) { return static_cast<double>(t.self_ns); }},
    {"total", "total time", [](const Tally& t) { return static_cast<double>(t.total_ns); }},
    {"calls", "calls", [](const Tally& t) { return static_cast<double>(t.calls); }},
    {"average", "average time", average_ns},
}};
constexpr size_t kBySelf = 0, kByTotal = 1;

std::vector<Named> top(const Tallies& tallies, const Order& order, size_t rows,
                       const std::function<bool(const Named&)>& wanted) {
  std::vector<Named> sorted;
  for (const auto& entry : tallies) {
    if (wanted(entry)) sorted.emplace_back(entry);
  }
  std::ranges::sort(sorted, [&order](const Named& a, const Named& b) {
    return std::pair(-order.of(a.second), a.first) < std::pair(-order.of(b.second), b.first);
  });
  if (sorted.size() > rows) sorted.resize(rows);
  return sorted;
}

bool any(const Named&) { return true; }

std::string tallies_table(const std::vector<Named>& list, int64_t self_sum) {
  if (list.empty()) return {};
  // Memory and FLOPs only where there are some.
  const bool has_cpu = std::ranges::any_of(list, [](const Named& n) { return n.second.cpu_bytes != 0; });
  const bool has_device = std::ranges::any_of(list, [](const Named& n) { return n.second.device_bytes != 0; });
  const bool has_flops = std::ranges::any_of(list, [](const Named& n) { return n.second.flops != 0; });
  const bool has_gpu = std::ranges::any_of(list, [](const Named& n) { return n.second.gpu_total_ns != 0; });
  Cells head{"self", "self %", "total", "calls", "average"};
  if (has_gpu) head.insert(head.end(), {"self CUDA", "total CUDA"});
  if (has_cpu) head.emplace_back("self CPU mem");
  if (has_device) head.emplace_back("self GPU mem");
  if (has_flops) head.emplace_back("GFLOPs");
  head.emplace_back("name");
  std::vector<Cells> rows;
  rows.reserve(list.size());
  for (const auto& [name, t] : list) {
    Cells& row = rows.emplace_back(Cells{time_text(static_cast<double>(t.self_ns)), percent_text(t.self_ns, self_sum),
                                         time_text(static_cast<double>(t.total_ns)), count_text(t.calls),
                                         time_text(average_ns(t))});
    if (has_gpu) {
      row.push_back(time_text(static_cast<double>(t.gpu_self_ns)));
      row.push_back(time_text(static_cast<double>(t.gpu_total_ns)));
    }
    if (has_cpu) row.push_back(memory_text(t.cpu_bytes));
    if (has_device) row.push_back(memory_text(t.device_bytes));
    if (has_flops) row.push_back(t.flops != 0 ? print("%.3f", static_cast<double>(t.flops) / 1e9) : "");
    row.push_back(printable(name));
  }
  return aligned(head, rows);
}

std::string modules_table(const ModuleTallies& modules, const Order& order, size_t most) {
  if (modules.empty()) return {};
  Tallies sums;
  for (const auto& [name, m] : modules)
    sums[name] = {.self_ns = m.self_ns(), .total_ns = m.total_ns(), .calls = m.calls};
  const bool has_backward = std::ranges::any_of(modules, [](const auto& m) { return m.second.backward_self_ns != 0; });
  Cells head{"fwd self", "fwd total"};
  if (has_backward) head.insert(head.end(), {"bwd self", "bwd total"});
  head.insert(head.end(), {"calls", "average", "name"});
  std::vector<Cells> rows;
  for (const auto& [name, sum] : top(sums, order, most, any)) {
    const ModuleTally& m = modules.at(name);
    Cells& row = rows.emplace_back(
        Cells{time_text(static_cast<double>(m.forward_self_ns)), time_text(static_cast<double>(m.forward_total_ns))});
    if (has_backward) {
      row.push_back(time_text(static_cast<double>(m.backward_self_ns)));
      row.push_back(time_text(static_cast<double>(m.backward_total_ns)));
    }
    row.insert(row.end(), {count_text(m.calls), time_text(average_ns(sum)),
                           printable(name) + (m.path.empty() ? "" : "  " + printable(m.path))});
  }
  return aligned(head, rows);
}

// ---- what is shown, whether it comes from spools or from a trace file ------------------------------------

struct Part {  // one process
  std::string pid;
  std::string command;
  std::string ended;   // empty: not known
  std::string events;  // empty: not known
  std::string role;    // Process::role
  Statistics statistics;
};

struct Report {
  std::string headline;
  UnixNs start{};  // times in tables count from here
  std::vector<Part> parts;
  std::vector<GpuLine> devices;
  std::vector<std::string> notes;  // what was not captured, lost or damaged: lines for people
};

// Between the two nearest; `sorted` is not empty.
double quantile(const std::vector<int64_t>& sorted, double part) {
  const double place = part * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const auto low = static_cast<double>(sorted[below]);
  return low + (place - static_cast<double>(below)) *
                   (static_cast<double>(sorted[std::min(below + 1, sorted.size() - 1)]) - low);
}

std::string steps_table(const std::vector<Part>& parts) {
  const bool has_jumps = std::ranges::any_of(parts, [](const Part& part) { return part.statistics.steps.jumps != 0; });
  std::vector<Cells> rows;
  for (const Part& part : parts) {
    const Steps& steps = part.statistics.steps;
    if (steps.count == 0) continue;
    std::vector<int64_t> ns = steps.ns;
    std::ranges::sort(ns);
    Cells row{part.pid, count_text(steps.count)};
    if (ns.empty()) {
      row.insert(row.end(), {"-", "-", "-", "-"});
    } else {
      row.insert(row.end(), {time_text(quantile(ns, 0.5)), time_text(quantile(ns, 0.9)), time_text(quantile(ns, 0)),
                             time_text(quantile(ns, 1))});
    }
    if (has_jumps) row.push_back(count_text(steps.jumps));
    row.push_back(printable(steps.ended_by));
    rows.push_back(std::move(row));
  }
  Cells head{"pid", "steps", "median", "p90", "min", "max", "a step ends with"};
  if (has_jumps) head.insert(head.end() - 1, "jumps");
  return rows.empty() ? std::string() : aligned(head, rows);
}

std::string processes_table(const std::vector<Part>& parts) {
  const bool has_roles = std::ranges::any_of(parts, [](const Part& part) { return !part.role.empty(); });
  std::vector<Cells> rows;
  for (const Part& part : parts) {
    const Statistics& s = part.statistics;
    rows.push_back({part.pid, part.events.empty() ? count_text(s.slices) : part.events,
                    time_text(static_cast<double>(s.operator_ns)), count_text(s.steps.count),
                    part.ended.empty() ? "-" : part.ended, printable(part.command)});
    if (has_roles) rows.back().insert(rows.back().begin() + 1, part.role);
  }
  Cells head{"pid", "events", "operators", "steps", "ended", "command"};
  if (has_roles) head.insert(head.begin() + 1, "role");
  return aligned(head, rows);
}

std::string owner_text(const OwnerText& owner) {
  std::string text = owner.op.empty() ? "(no operator)" : owner.op;
  if (!owner.outer_op.empty() && owner.outer_op != owner.op) text += " in " + owner.outer_op;
  for (const std::string* more : {&owner.module, &owner.place})
    if (!more->empty()) text += ", " + *more;
  return printable(text);
}

std::string memory_table(const DeviceMemory& device, size_t rows) {
  std::vector<Cells> lines;
  const auto line = [&](int64_t bytes, const std::string& blocks, const std::string& text) {
    lines.push_back({memory_text(bytes), percent_text(bytes, device.peak_bytes), blocks, text});
  };
  PeakShare rest = device.rest;
  for (size_t i = 0; i < device.shares.size(); ++i) {
    const PeakShare& share = device.shares[i];
    if (i < rows) {
      line(share.bytes, count_text(share.blocks), owner_text(share.owner));
    } else {
      rest.bytes += share.bytes;
      rest.blocks += share.blocks;
    }
  }
  if (rest.blocks != 0) line(rest.bytes, count_text(rest.blocks), "(others)");
  if (device.unknown_bytes != 0) line(device.unknown_bytes, "-", "(allocated before the capture)");
  return lines.empty() ? std::string() : aligned({"bytes", "peak %", "blocks", "allocated by"}, lines);
}

// The devices of all processes, the fullest first.
void add_memory(std::string& out, const std::vector<Part>& parts, UnixNs start, size_t rows) {
  constexpr size_t kMostDevices = 16;
  std::vector<std::pair<const Part*, const DeviceMemory*>> devices;
  for (const Part& part : parts)
    for (const DeviceMemory& device : part.statistics.memory) devices.emplace_back(&part, &device);
  std::ranges::stable_sort(devices, std::greater<>{}, [](const auto& d) { return d.second->peak_bytes; });
  if (devices.size() > kMostDevices) devices.resize(kMostDevices);
  for (const auto& [part, device] : devices) {
    std::string title = "Memory of the " + device_text(device->type, device->index);
    if (parts.size() > 1) title += " in process " + part->pid;
    title += ": at most " + memory_text(device->peak_bytes) + " after " +
             duration_text(static_cast<double>(std::max<int64_t>(0, device->peak - start))) +
             (device->step ? ", in step " + count_text(*device->step) : "") + "; " +
             plural(device->allocations, "allocation") + ", " + plural(device->frees, "free");
    std::string table = memory_table(*device, rows);
    if (device->failures != 0) {
      table += "  " +
               shorten("out of memory: " + plural(device->failures, "time") + ", at most " +
                           memory_text(device->largest_failure) + " for " + owner_text(device->failed_in),
                       kWidth - 2) +
               "\n";
    }
    section(out, shorten(title, kWidth), table);
  }
}

void check_name(const std::string& what, const std::string& name, const std::vector<std::string>& known) {
  if (std::ranges::find(known, name) != known.end()) return;
  std::string allowed;
  for (const std::string& each : known) allowed.append(allowed.empty() ? "" : ", ").append(each);
  throw Error("there is no " + what + " '" + name + "': " + allowed);
}

std::string render(const Report& report, const TableOptions& options) {
  for (const std::string& name : options.tables) check_name("table", name, table_names());
  if (!options.sort.empty()) check_name("order", options.sort, sort_names());
  const Order* chosen = nullptr;
  for (const Order& order : kOrders)
    if (order.name == options.sort) chosen = &order;
  auto wanted = [&options](const char* name) {
    return options.tables.empty() || std::ranges::find(options.tables, name) != options.tables.end();
  };
  Statistics all;
  for (const Part& part : report.parts) all += part.statistics;

  std::string out = shorten(report.headline, kWidth) + "\n";
  auto add_ops = [&](const Order& order) {
    section(out, std::string("Operators by ") + order.title,
            tallies_table(top(all.operators, order, options.rows, any), all.operator_ns));
  };
  if (wanted("ops")) {
    add_ops(chosen ? *chosen : kOrders[kBySelf]);
    if (!chosen) add_ops(kOrders[kByTotal]);
  }
  if (wanted("kernels")) {
    section(out, "GPUs", devices_table(report.devices));
    section(out, "GPU kernels by " + std::string(chosen ? chosen->title : "total time"),
            kernels_table(all.gpu.work, options.rows, chosen ? chosen->name : "total"));
  }
  if (wanted("modules")) {
    const Order& order = chosen ? *chosen : kOrders[kByTotal];
    section(out, std::string("Modules by ") + order.title, modules_table(all.modules, order, options.rows));
  }
  if (wanted("python")) {
    const Order& order = chosen ? *chosen : kOrders[kBySelf];
    section(out, std::string("Python functions by ") + order.title,
            tallies_table(top(all.python, order, options.rows, any), all.python_ns));
  }
  if (wanted("memory")) add_memory(out, report.parts, report.start, options.rows);
  if (wanted("steps")) section(out, "Steps", steps_table(report.parts));
  if (wanted("processes")) {
    if (report.parts.size() > 1) {
      section(out, "Processes", processes_table(report.parts));
      constexpr size_t kMostProcesses = 16, kRows = 5;
      for (size_t i = 0; i < std::min(report.parts.size(), kMostProcesses); ++i) {
        const Part& part = report.parts[i];
        const std::string who = part.pid + (part.role.empty() ? "" : ", " + part.role) + ": ";
        const std::string title = "Operators by self time in process " + who;
        section(
            out, title + shorten(printable(part.command), kWidth - columns(title)),
            tallies_table(top(part.statistics.operators, kOrders[kBySelf], kRows, any), part.statistics.operator_ns));
      }
    }
  }
  std::string notes;
  for (const std::string& note : report.notes) notes.append("  ").append(shorten(note, kWidth - 2)).append("\n");
  section(out, "Not in the trace", notes);
  return out;
}

// ---- from spools -----------------------------------------------------------------------------------------

std::string command_text(const Process& p) {
  std::string text;
  for (const std::string_view argument : p.command) text.append(text.empty() ? "" : " ").append(argument);
  return text.empty() ? "(unknown command)" : text;
}

std::string join_pids(const std::vector<uint32_t>& pids, size_t all) {
  if (pids.size() == all) return all == 1 ? "" : " (all processes)";
  std::string text;
  constexpr size_t kMost = 4;
  for (size_t i = 0; i < std::min(pids.size(), kMost); ++i)
    text.append(i == 0 ? " (pid " : ", ").append(std::to_string(pids[i]));
  return text + (pids.size() > kMost ? " and " + std::to_string(pids.size() - kMost) + " more)" : ")");
}

// Of a process whose window was not the whole run.
std::string window_text(const Process& p) {
  const std::string window = "window " + printable(p.meta("window"));
  if (p.windows.empty()) return window + ": never opened, nothing was recorded";
  int64_t ns = 0;
  for (const Window& w : p.windows) ns += w.end - w.begin;
  return window + ": opened " + plural(p.windows.size(), "time") + ", " + duration_text(static_cast<double>(ns)) +
         " in all" + (p.windows.back().closed ? "" : "; open at the end");
}

std::vector<std::string> notes_of(const Trace& trace) {
  // The same line for several processes comes once, with their pids, in the order in which it was first met.
  std::vector<std::pair<std::string, std::vector<uint32_t>>> lines;
  auto add = [&lines](const std::string& line, uint32_t pid) {
    const auto it = std::ranges::find(lines, line, &std::pair<std::string, std::vector<uint32_t>>::first);
    if (it == lines.end()) {
      lines.push_back({line, {pid}});
    } else {
      it->second.push_back(pid);
    }
  };
  for (const Process& p : trace.processes) {
    for (const Source& s : p.sources) {
      if (s.state == SourceState::kOn) continue;
      add(printable(s.name) + (s.state == SourceState::kFailed ? " failed: " : " off: ") + printable(s.detail), p.pid);
    }
    if (!p.meta("window").empty()) add(window_text(p), p.pid);
    if (p.recycled_bytes != 0)
      add("the last part of the run: " + bytes_text(p.recycled_bytes) + " of older events were let go (--keep last)",
          p.pid);
    for (size_t i = 0; i < p.lost.size(); ++i) {
      if (p.lost[i] != 0) add(plural(p.lost[i], "event") + " lost: " + loss_text(static_cast<LossCause>(i)), p.pid);
    }
    for (const std::string& line : gpu_notes(p)) add(line, p.pid);
    for (const Blind& blind : p.blind) {
      add("Python calls not recorded for " + duration_text(static_cast<double>(blind.ns)) + ": " +
              "Python's hook was taken by " + printable(blind.by) + ", " + plural(blind.times, "time"),
          p.pid);
    }
    if (p.damage) {
      add("spool damaged: " + plural(p.damage.chunks, "chunk") + ", " + plural(p.damage.bytes, "byte") + " and " +
              plural(p.damage.records, "record") + " could not be read; all else was recovered",
          p.pid);
    }
  }
  std::vector<std::string> notes;
  for (const auto& [line, pids] : lines) {
    const std::string who = join_pids(pids, trace.processes.size());
    notes.push_back(shorten(line, kWidth - 2 - columns(who)) + who);
  }
  for (const Unreadable& u : trace.unreadable) {
    notes.push_back("spool " + printable(u.file.filename().string()) + " cannot be read: " + printable(u.reason));
  }
  return notes;
}

void add_devices(Report& report) {
  for (const Part& part : report.parts)
    for (const GpuDeviceUse& device : part.statistics.gpu.devices) report.devices.push_back({part.pid, device});
}

Report report_of(const Trace& trace) {
  Report report;
  report.start = trace.start;
  EventCounts counts;
  std::vector<const Process*> in_order(trace.processes.size());
  for (const Process& p : trace.processes) in_order[p.place - 1] = &p;
  for (const Process* shown : in_order) {
    const Process& p = *shown;
    counts += p.counts;
    report.parts.push_back({std::to_string(p.pid), command_text(p), p.clean_exit ? "clean" : "killed or replaced",
                            count_text(p.counts.records), p.role, statistics_of(p)});
  }
  uint64_t unfinished = 0, kernels = 0;
  for (const Part& part : report.parts) unfinished += part.statistics.unfinished;
  report.headline = plural(trace.processes.size(), "process") + ", " +
                    duration_text(static_cast<double>(trace.end - trace.start)) + ": " +
                    plural(counts.operators, "operator") + ", " + plural(counts.python, "Python call");
  if (counts.c_calls != 0) report.headline += ", " + plural(counts.c_calls, "C call");
  if (unfinished != 0) report.headline += "; " + count_text(unfinished) + " still open at the end";
  for (const Process& p : trace.processes) {
    if (p.gpu && p.gpu->kernels() != 0) kernels += p.gpu->kernels();
  }
  if (kernels != 0) report.headline += ", " + plural(kernels, "GPU kernel");
  add_devices(report);
  report.notes = notes_of(trace);
  return report;
}

}  // namespace

const std::vector<std::string>& table_names() {
  static const std::vector<std::string> names{"ops", "kernels", "modules", "memory", "python", "steps", "processes"};
  return names;
}

const std::vector<std::string>& sort_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    all.reserve(kOrders.size());
    for (const Order& order : kOrders) all.push_back(order.name);
    return all;
  }();
  return names;
}

std::string summary_text(const Trace& trace, const TableOptions& options) { return render(report_of(trace), options); }

std::string summary_text(const std::filesystem::path& trace_file, const TableOptions& options) {
  TraceFile file = read_kineto(trace_file);
  Report report;
  report.start = file.start;
  uint64_t slices = 0;
  for (auto& part : file.processes) {
    slices += part.statistics.slices;
    report.parts.push_back({printable(part.pid), part.name, "", "", "", std::move(part.statistics)});
  }
  report.headline = plural(report.parts.size(), "process") + ", " + duration_text(static_cast<double>(file.wall_ns)) +
                    ": " + plural(slices, "slice") + " in " + printable(trace_file.filename().string());
  add_devices(report);
  return render(report, options);
}

}  // namespace torchprof::formats
