#include "formats/read/perfetto.h"

#include <unordered_map>

#include "formats/io/perfetto_fields.h"
#include "formats/read/perfetto_packets.h"
#include "formats/trace/name_role.h"
#include "formats/trace/names.h"

namespace torchprof::formats {
namespace {

using namespace perfetto;

class PerfettoReader final : public PacketSink {
 public:
  explicit PerfettoReader(ByteStream& stream) : stream_(stream) {}

  ReadEvents read() {
    events_.names("unknown");  // the name of events without one
    const bool has_clock = read_packets(stream_, events_, tracks_, *this);
    for (auto& [id, lane] : lanes_)
      if (lane.device != nullptr) read_device(lane);
    if (events_.slices.empty() && events_.work.empty() && !has_clock)
      stream_.fail("it has no slices as torchprof writes them");
    events_.is_ours = true;
    return std::move(events_);
  }

  void event(uint64_t track, const PacketEvent& e, const PacketArguments& arguments) override {
    Lane& lane = lane_of(track);
    if (e.type == event::kSliceBegin) return lane.open.push_back(e);
    if (lane.open.empty()) return;
    const PacketEvent begin = lane.open.back();
    lane.open.pop_back();
    if (!events_.takes(begin.time, e.time)) return;
    if (lane.device != nullptr)
      lane.work.push_back({begin, e.time, e.occupancy});
    else
      add_slice(lane, begin, e.time, arguments);
  }

 private:
  static constexpr int kDeepest = 8;  // levels of tracks

  struct Work {
    PacketEvent begin;
    int64_t end;
    float occupancy;
  };
  struct Lane {  // a track with events
    uint32_t pid = 0;
    uint32_t row = 0;
    bool is_steps = false;
    bool is_overflow = false;
    std::vector<PacketEvent> open;
    const PacketTrack* device = nullptr;  // the track "GPU 0, NVIDIA H100" above it; null: none
    std::vector<Work> work;               // a device's work, until all calls are known
  };

  // ---- tracks ----------------------------------------------------------------------------------------------

  const PacketTrack* parent_of(const PacketTrack& track) const {
    const auto it = tracks_.find(track.parent);
    return track.parent == 0 || it == tracks_.end() ? nullptr : &it->second;
  }
  const PacketTrack* device_of(const PacketTrack& track) const {
    const PacketTrack* t = &track;
    for (int i = 0; i < kDeepest && t != nullptr; ++i, t = parent_of(*t))
      if (t->name.starts_with("GPU ")) return t;
    return nullptr;
  }
  std::string pid_of(const PacketTrack& track) const {
    const PacketTrack* t = &track;
    for (int i = 0; i < kDeepest && t != nullptr; ++i, t = parent_of(*t))
      if (!t->pid.empty()) return t->pid;
    return "unknown";
  }

  Lane& lane_of(uint64_t id) {
    if (last_lane_ != nullptr && last_track_ == id) return *last_lane_;
    const auto [it, is_new] = lanes_.try_emplace(id);
    Lane& lane = it->second;
    last_track_ = id;
    last_lane_ = &lane;
    if (!is_new) return lane;
    const PacketTrack& track = tracks_[id];
    const std::string pid = pid_of(track);
    lane.device = device_of(track);
    lane.pid = events_.pids(pid);
    if (lane.device != nullptr) return lane;
    lane.is_steps = track.name == "Steps" && track.tid.empty();
    if (lane.is_steps) return lane;
    const PacketTrack* const parent = parent_of(track);
    lane.row = events_.row(pid, track.tid.empty() ? "track " + std::to_string(id) : track.tid);
    lane.is_overflow = track.name == kOverlapping && parent != nullptr;
    std::string& name = events_.row_names[lane.row] = lane.is_overflow ? parent->name : track.name;
    if (lane.is_overflow) name.append(", ").append(kOverlapping);
    return lane;
  }

  // ---- slices ----------------------------------------------------------------------------------------------

  // A flow joins a call to its work, as Kineto's correlation does; 0: there is none.
  uint32_t number_of(uint64_t flow) {
    return flow == 0 ? 0 : numbers_.try_emplace(flow, static_cast<uint32_t>(numbers_.size() + 1)).first->second;
  }

  void add_slice(Lane& lane, const PacketEvent& begin, int64_t end, const PacketArguments& of) {
    const PacketCategory category = begin.category;
    const uint32_t name = begin.name;
    const std::string& text = *events_.names.texts[name];
    if (lane.is_steps) {
      if (const auto number = step_number(text))
        events_.steps.push_back({*number, begin.time, end, lane.pid, std::string(of.ended_by)});
      return;
    }
    if (category == PacketCategory::kCall)
      events_.calls.push_back({begin.time, end, name, lane.row, number_of(begin.flow)});
    const bool is_operator = category == PacketCategory::kOperator || category == PacketCategory::kAnnotation;
    if (!is_operator && category != PacketCategory::kPython) return;
    uint32_t module = 0;
    if (is_operator) {
      if (of.flops != 0) events_.flops[{lane.pid, name}] += of.flops;
      if (!of.module.empty()) module = events_.names(std::string(of.module)) + 1;
    } else if (role_of_name(text) == NameRole::kModule) {
      events_.places.try_emplace(name, ModulePlace{std::string(of.path), std::string(of.root)});
    }
    events_.slices.push_back({.begin = begin.time,
                              .duration = end - begin.time,
                              .name = name,
                              .row = lane.row,
                              .is_operator = is_operator,
                              .is_annotation = category == PacketCategory::kAnnotation,
                              .is_backward = of.is_backward,
                              .is_async = of.is_async,
                              .is_apart = 0,
                              .module = module,
                              .external = is_operator ? 0 : events_.cut(cut_of(of))});
  }

  static ReadCut cut_of(const PacketArguments& of) {
    constexpr uint64_t kMost = 1'000'000'000'000'000;
    return {static_cast<int64_t>(std::min(of.cut_begin, kMost)), static_cast<int64_t>(std::min(of.cut_end, kMost))};
  }

  // After all calls are known.
  void read_device(Lane& lane) {
    const std::string& name = lane.device->name;
    const size_t comma = name.find(", ");
    const uint32_t row = events_.pids(*events_.pids.texts[lane.pid] + " " + name);
    events_.device_labels[row] = name;
    const auto number = static_cast<uint32_t>(std::strtoul(name.c_str() + 4, nullptr, 10));
    if (comma != std::string::npos) events_.device_names.try_emplace(number, name.substr(comma + 2));
    for (const Work& w : lane.work) {
      const bool is_kernel = w.begin.category == PacketCategory::kKernel;
      if (!is_kernel && w.begin.category != PacketCategory::kCopyOrSet) continue;
      events_.work.push_back({.begin = w.begin.time,
                              .duration = w.end - w.begin.time,
                              .name = w.begin.name,
                              .pid = row,
                              .process = lane.pid,
                              .correlation = number_of(w.begin.flow),
                              .device = number,
                              .occupancy = w.occupancy,
                              .is_kernel = is_kernel});
    }
    lane.work = {};
  }

  ByteStream& stream_;
  ReadEvents events_;
  std::map<uint64_t, PacketTrack> tracks_;
  std::map<uint64_t, Lane> lanes_;
  uint64_t last_track_ = 0;
  Lane* last_lane_ = nullptr;                       // the lane of `last_track_`
  std::unordered_map<uint64_t, uint32_t> numbers_;  // of flows
};

}  // namespace

ReadEvents read_perfetto(ByteStream& stream) { return PerfettoReader(stream).read(); }

}  // namespace torchprof::formats
