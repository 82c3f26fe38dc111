#include "formats/write/kineto/header.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "formats/trace/distributed.h"
#include "formats/trace/endings.h"
#include "formats/values/flops.h"
#include "formats/values/object_details.h"
#include "formats/write/kineto/gpu.h"

namespace torchprof::formats::kineto {
namespace {

using nlohmann::ordered_json;

ordered_json describe(const Process& p, UnixNs run_end) {
  auto text = [](std::string_view s) { return std::string(s); };
  ordered_json j{{"pid", p.pid}, {"ppid", p.parent_pid}, {"host", text(p.host)}};
  j["command"] = ordered_json::array();
  for (const auto argument : p.command) j["command"].push_back(text(argument));
  if (!p.role.empty()) j["role"] = p.role;
  if (p.group != 0) j["group"] = p.group_name;
  j["clean_exit"] = p.clean_exit;
  if (p.exit_status) j["ended"] = ending_text(p);
  j["events"] = p.counts.records;
  constexpr const char* kStates[] = {"off", "on", "failed"};
  for (const Source& s : p.sources) {
    j["sources"][text(s.name)] = {{"state", kStates[static_cast<size_t>(s.state)]}, {"detail", text(s.detail)}};
  }
  for (const Meta& m : p.metadata) j["metadata"][text(m.key)] = text(m.value);
  for (size_t i = 0; i < p.lost.size(); ++i) {
    if (p.lost[i] != 0 && (!p.stopped || static_cast<LossCause>(i) == LossCause::kReentry))
      j["lost"][loss_text(static_cast<LossCause>(i))] = p.lost[i];
  }
  if (const auto cut = cut_short(p, run_end)) {
    j["cut_short"] = {{"captured_seconds", cut->has_events ? static_cast<double>(cut->ns) / 1e9 : 0.0}};
    if (cut->of_ns) j["cut_short"]["of_seconds"] = static_cast<double>(*cut->of_ns) / 1e9;
    j["cut_short"]["reason"] = loss_text(cut->cause);
  }
  for (const Blind& blind : p.blind) {
    j["blind"].push_back(
        {{"by", text(blind.by)}, {"times", blind.times}, {"seconds", static_cast<double>(blind.ns) / 1e9}});
  }
  if (p.damage) {
    j["damage"] = {{"chunks", p.damage.chunks}, {"bytes", p.damage.bytes}, {"records", p.damage.records}};
  }
  if (p.doubtful_chunks != 0) j["doubtful_chunks"] = p.doubtful_chunks;
  if (p.gpu) j["gpu"] = describe_gpu(p);
  Names names(p);
  const ordered_json objects = objects_json(p, names);
  if (!objects.empty()) j.update(objects);
  return j;
}

std::string trace_id(Processes processes) {
  uint64_t a = 0xcbf29ce484222325u, b = 0x84222325cbf29ce4u;  // FNV-1a
  auto mix = [&a, &b](uint64_t value) {
    a = (a ^ value) * 0x100000001b3u;
    b = (b ^ a) * 0x100000001b3u;
  };
  for (const Process& p : processes) {
    for (const char c : p.host) mix(static_cast<unsigned char>(c));
    mix(p.pid);
    mix(static_cast<uint64_t>(p.start.value));
  }
  char text[33];
  std::snprintf(text, sizeof(text), "%016llX%016llX", static_cast<unsigned long long>(a),
                static_cast<unsigned long long>(b));
  return text;
}

}  // namespace

std::string header_of(const Trace& trace, Processes processes, int64_t base) {
  ordered_json about{{"version", TORCHPROF_VERSION}, {"processes", ordered_json::array()}};
  bool python = false, flops = false;
  for (const Process& p : processes) {
    about["processes"].push_back(describe(p, trace.run_end));
    python = python || p.counts.python != 0;
    const auto has_inputs = [](const Source& s) { return s.name == "inputs" && s.state == SourceState::kOn; };
    flops = flops || (std::ranges::any_of(p.sources, has_inputs) && Flops(p).is_on());
  }
  for (const Uncaptured& u : trace.uncaptured.processes)
    about["uncaptured"].push_back(
        {{"pid", u.pid}, {"ppid", u.parent_pid}, {"command", u.command}, {"reason", u.reason()}});
  if (trace.uncaptured.more != 0) about["uncaptured_more"] = trace.uncaptured.more;
  ordered_json top{{"schemaVersion", 1}, {"deviceProperties", device_properties(processes)}};
  top["host_name"] = std::string(processes.empty() ? std::string_view{} : processes.front().host);
  if (python) top["with_stack"] = 1;
  if (flops) top["with_flops"] = 1;
  top.update(gpu_versions(processes));
  top["trace_id"] = trace_id(processes);
  top["torchprof"] = std::move(about);
  top["displayTimeUnit"] = "ms";
  top["baseTimeNanoseconds"] = base;
  std::string text = top.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  text.pop_back();
  // With several processes, the ranks are in the processes' own traces.
  const std::string distributed = processes.size() == 1 ? distributed_json(distributed_of(processes[0])) : "";
  if (!distributed.empty()) text += ",\n\"distributedInfo\": " + distributed;
  return text + ",\n\"traceEvents\":[\n";
}

}  // namespace torchprof::formats::kineto
