#include "formats/write/perfetto/gpu.h"

#include <algorithm>
#include <cmath>

#include "formats/gpu/counters.h"
#include "formats/gpu/names.h"
#include "formats/gpu/occupancy.h"
#include "formats/trace/gpu_index.h"

namespace torchprof::formats::perfetto {
namespace {

using protozero::pbf_writer;

constexpr int64_t kShortestInterval = 100'000;  // ns

std::string flow_field(uint64_t flow) {
  std::string field;
  pbf_writer(field).add_fixed64(event::kFlowIds, flow);
  return field;
}

std::string triple(const uint32_t (&size)[3]) {
  return std::to_string(size[0]) + "x" + std::to_string(size[1]) + "x" + std::to_string(size[2]);
}

}  // namespace

GpuTracks::GpuTracks(const Process& process, Interning& names, Packets& packets, uint64_t process_track,
                     uint64_t& last_flow)
    : process_(process),
      names_(names),
      packets_(packets),
      process_track_(process_track),
      last_flow_(last_flow),
      end_(type_field(event::kSliceEnd)) {
  for (const auto& [number, definition] : process.gpu->devices()) device(number);
}

GpuTracks::Device& GpuTracks::device(uint32_t number) {
  Device& d = devices_[number];
  if (d.track != 0) return d;
  std::string name = "GPU " + std::to_string(number);
  const auto known = process_.gpu->devices().find(number);
  if (known != process_.gpu->devices().end() && known->second.name)
    name.append(", ").append(process_.string(known->second.name));
  d.track = packets_.add_track(process_track_, name);
  return d;
}

GpuTracks::Lane& GpuTracks::lane(uint32_t number, uint32_t stream, Place place, uint32_t depth, int64_t begin) {
  std::vector<Lane>& lanes = lanes_[{number, stream, place, depth}];
  for (Lane& lane : lanes)
    if (lane.end <= begin) return lane;
  uint64_t& parent = streams_[{number, stream}];
  if (parent == 0) {
    const std::string name = stream == kNoGpuNumber ? "events and contexts" : "stream " + std::to_string(stream);
    parent = packets_.add_track(device(number).track, name);
  }
  constexpr const char* kNames[] = {"overlapping work", "waits", "annotations"};
  const bool is_first = place == Place::kWork && lanes.empty();
  const uint64_t track = is_first ? parent : packets_.add_track(parent, kNames[static_cast<size_t>(place)]);
  return lanes.emplace_back(Lane{track_field(track), 0});
}

// ---- calls and work --------------------------------------------------------------------------------------

std::string GpuTracks::begins(const GpuCall& call) {
  call_flow_ = call.has_work ? ++last_flow_ : 0;
  return call.has_work ? flow_field(call_flow_) : std::string{};
}

std::string GpuTracks::arguments(const GpuCall& call) {
  return call.api->result == 0 ? std::string{} : names_.argument("result", int64_t{call.api->result});
}

void GpuTracks::activity(const GpuActivity& a, const std::string& begin, const std::string& module) {
  const bool is_work = runs_on_device(a.kind);
  std::string fields = begin;
  if (a.call != nullptr && a.kind != Kind::GpuEvent) fields += flow_field(call_flow_);
  if (a.kind == Kind::GpuEvent) {
    Lane& on = lane(a.device, a.stream, Place::kWaits, 0, a.begin.value);
    return packets_.event(a.begin, on.track, fields, arguments(a));
  }
  Lane& on = lane(a.device, a.stream, is_work ? Place::kWork : Place::kWaits, 0, a.begin.value);
  on.end = a.end.value;
  packets_.event(a.begin, on.track, fields);
  packets_.event(a.end, on.track, end_, arguments(a) + (is_work ? module : std::string{}));
  if (!is_work) return;
  Device& d = device(a.device);
  d.busy.emplace_back(a.begin.value, a.end.value);
  if (a.call == nullptr) return;
  annotations_.extend(a);
  if (a.queue_ns <= 0) return;
  d.queued.emplace_back(a.begin.value - a.queue_ns, 1);
  d.queued.emplace_back(a.begin.value, -1);
}

void GpuTracks::annotation_ended(uint64_t external_id, uint32_t depth, const std::string& begin) {
  for (const GpuAnnotations::Span& span : annotations_.take(external_id)) {
    Lane& on = lane(span.device, span.stream, Place::kAnnotations, depth, span.begin);
    on.end = span.end;
    packets_.event({span.begin}, on.track, begin);
    packets_.event({span.end}, on.track, end_);
  }
}

// ---- arguments -------------------------------------------------------------------------------------------

const std::string& GpuTracks::of_kernel(const GpuKernel& k) {
  std::string key;
  for (const uint32_t n : {k.grid[0], k.grid[1], k.grid[2], k.block[0], k.block[1], k.block[2], uint32_t{k.registers},
                           static_cast<uint32_t>(k.static_shared), static_cast<uint32_t>(k.dynamic_shared), k.device})
    key.append(reinterpret_cast<const char*>(&n), sizeof(n));
  const auto [it, is_new] = kernels_.try_emplace(std::move(key));
  if (!is_new) return it->second;
  const auto device = process_.gpu->devices().find(k.device);
  const Occupancy o = occupancy_of(k, device == process_.gpu->devices().end() ? nullptr : &device->second);
  std::string& text = it->second;
  text += names_.argument("grid", std::string_view(triple(k.grid)));
  text += names_.argument("block", std::string_view(triple(k.block)));
  text += names_.argument("registers per thread", int64_t{k.registers});
  text += names_.argument("shared memory", int64_t{k.static_shared} + k.dynamic_shared);
  text += names_.argument("est. achieved occupancy %", int64_t{std::lround(o.achieved * 100)});
  return text;
}

std::string GpuTracks::arguments(const GpuActivity& a) {
  std::string text;
  const auto copied = [&](uint64_t bytes) {
    text += names_.argument("bytes", static_cast<int64_t>(std::min<uint64_t>(bytes, INT64_MAX)));
    if (a.end > a.begin)
      text +=
          names_.argument("memory bandwidth (GB/s)", static_cast<double>(bytes) / static_cast<double>(a.end - a.begin));
  };
  if (a.kind == Kind::GpuKernel) {
    text = of_kernel(a.as<GpuKernel>());
    if (const uint32_t graph = a.as<GpuKernel>().graph; graph != 0) text += names_.argument("graph id", int64_t{graph});
  }
  if (a.kind == Kind::GpuCopy) copied(a.as<GpuCopy>().bytes);
  if (a.kind == Kind::GpuSet) copied(a.as<GpuSet>().bytes);
  if (a.kind == Kind::GpuSync) text += names_.argument("cuda_sync_kind", std::string_view(sync_name(a.as<GpuSync>())));
  if (a.call != nullptr && runs_on_device(a.kind))
    text += names_.argument("queue time (us)", static_cast<double>(a.queue_ns) / 1000);
  return text;
}

// ---- counters --------------------------------------------------------------------------------------------

void GpuTracks::write_busy(const Device& d) {
  const int64_t from = process_.start.value, whole = std::max<int64_t>(1, process_.end.value - from);
  const int64_t width = std::max(kShortestInterval, whole / kIntervals + 1);
  std::vector<int64_t> ns(static_cast<size_t>(whole / width + 1));
  int64_t covered = from;
  for (auto [begin, end] : d.busy) {  // sorted
    begin = std::max(begin, covered);
    end = std::min(end, from + whole);
    for (int64_t at = begin; at < end;) {
      const int64_t bin = (at - from) / width, stop = std::min(end, from + (bin + 1) * width);
      ns[static_cast<size_t>(bin)] += stop - at;
      at = stop;
    }
    covered = std::max(covered, end);
  }
  const std::string track = Packets::counter_fields(packets_.add_track(d.track, "busy", CounterUnit::kPercent));
  int64_t last = -1;
  for (size_t i = 0; i < ns.size(); ++i) {
    const int64_t percent = ns[i] * 100 / width;
    if (percent != last) packets_.count(track, {from + static_cast<int64_t>(i) * width}, percent);
    last = percent;
  }
}

void GpuTracks::write_queue(Device& d) {
  if (d.queued.empty()) return;
  std::ranges::sort(d.queued);
  const std::string track = Packets::counter_fields(packets_.add_track(d.track, "queue depth", CounterUnit::kCount));
  int64_t depth = 0;
  for (size_t i = 0; i < d.queued.size(); ++i) {
    depth += d.queued[i].second;
    if (i + 1 == d.queued.size() || d.queued[i + 1].first != d.queued[i].first)
      packets_.count(track, {d.queued[i].first}, depth);
  }
}

void GpuTracks::write_counters() {
  for (const GpuCounter& counter : gpu_counters(*process_.gpu)) {
    const CounterUnit unit = counter.is_bytes ? CounterUnit::kBytes : CounterUnit::kCount;
    const uint64_t track = packets_.add_track(device(counter.device).track, counter.name, unit);
    const std::string fields = Packets::counter_fields(track);
    for (const auto& [time, value] : counter.values) packets_.count(fields, time, value);
  }
}

void GpuTracks::finish() {
  write_counters();
  for (auto& [number, d] : devices_) {
    if (d.busy.empty()) continue;
    std::ranges::sort(d.busy);
    write_busy(d);
    write_queue(d);
  }
}

}  // namespace torchprof::formats::perfetto
