#include "formats/write/kineto/kineto.h"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "formats/io/print.h"
#include "formats/replay/process_label.h"
#include "formats/write/kineto/header.h"
#include "formats/write/kineto/process.h"
#include "formats/write/kineto/texts.h"

namespace torchprof::formats {
namespace {

// Times count from the midnight (UTC) before the run, so that the runs of a job's hosts share the base. For 25 days
// from there the sum of a begin and a duration as doubles is off by less than half a nanosecond (in the first two days
// by 0.00003 us), so that slices that touch do so for a reader who rounds to ns. Kineto's base may be three months
// back: then the last decimal is off by one, and they overlap.
constexpr int64_t kBaseStep = int64_t{86'400} * 1'000'000'000;

// The four events at the end that torch's own tests look for.
void write_tail(UnixNs start, UnixNs end, int64_t base, Output& out) {
  auto us = [](int64_t ns) {
    char text[32];
    return std::string(text, put_us(text, ns));
  };
  const std::string begin = us(start.value - base);
  std::string text = R"({"ph":"X","cat":"Trace","ts":)" + begin + R"(,"dur":)" + us(end - start);
  text += R"json(,"pid":"Spans","tid":"PyTorch Profiler","name":"PyTorch Profiler (0)","args":{"Op count":0}},)json";
  text += "\n";
  text += R"({"name":"process_sort_index","ph":"M","ts":)" + begin;
  text += R"(,"pid":"Spans","tid":0,"args":{"sort_index":536870912}},)";
  text += "\n";
  text += R"({"name":"Iteration Start: PyTorch Profiler","ph":"i","s":"g","pid":"Traces",)";
  text += R"("tid":"Trace PyTorch Profiler","ts":)" + begin + "},\n";
  text += R"({"name":"Record Window End","ph":"i","s":"g","pid":"","tid":"","ts":)" + us(end.value - base) + "}\n],\n";
  out.write(text);
}

int64_t base_of(const Trace& trace) { return std::max<int64_t>(0, trace.start.value) / kBaseStep * kBaseStep; }

void write_events(const Trace& trace, Processes processes, bool names_first, Output& out) {
  const bool merged = processes.size() > 1;
  kineto::Ids ids;
  const std::vector<uint64_t> pids = distinct_pids(processes);
  for (size_t i = 0; i < processes.size(); ++i)
    kineto::write_process(processes[i],
                          {.pid = pids[i], .is_merged = merged, .base = base_of(trace), .names_first = names_first},
                          ids, out);
}

}  // namespace

void write_kineto(const Trace& trace, Processes processes, Output& out) {
  UnixNs start = processes.empty() ? trace.start : UnixNs{std::numeric_limits<int64_t>::max()};
  UnixNs end = processes.empty() ? trace.end : UnixNs{0};
  for (const Process& p : processes) {
    start = std::min(start, UnixNs{std::max(p.start.value, p.selection.begin)});
    end = std::max(end, UnixNs{std::min(p.end.value, p.selection.end)});
  }
  const int64_t base = base_of(trace);
  out.write(kineto::header_of(trace, processes, base));
  write_events(trace, processes, false, out);
  write_tail(start, end, base, out);
  out.write("\"traceName\":" + kineto::json_name(out.file().string()) + "\n}\n");
}

void write_json_stream(const Trace& trace, Processes processes, Output& out) {
  out.write("[\n");
  write_events(trace, processes, true, out);
}

}  // namespace torchprof::formats
