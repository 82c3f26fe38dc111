#include "formats/read_perfetto.h"

#include <algorithm>
#include <array>
#include <limits>
#include <unordered_map>

#include "formats/names.h"
#include "formats/perfetto_fields.h"
#include "formats/read_packets.h"
#include "formats/read_ranges.h"

namespace torchprof::formats {
namespace {

using namespace perfetto;

class PerfettoReader {
 public:
  explicit PerfettoReader(ByteStream& stream) : stream_(stream) {}

  ReadEvents read() {
    events_.names("unknown");  // what an event without a name has
    packets_ = read_packets(stream_, events_);
    for (auto& [id, track] : packets_.tracks)
      if (!device_of(track)) read_thread(id, track);
    for (auto& [id, track] : packets_.tracks)
      if (const PacketTrack* device = device_of(track)) read_device(track, *device);
    if (events_.slices.empty() && events_.devices.empty() && !packets_.has_clock)
      stream_.fail("it has no slices as torchprof writes them");
    events_.is_ours = true;
    return std::move(events_);
  }

 private:
  static constexpr int kDeepest = 8;  // tracks below tracks

  // ---- tracks ----------------------------------------------------------------------------------------------

  const PacketTrack* parent_of(const PacketTrack& track) const {
    const auto it = packets_.tracks.find(track.parent);
    return track.parent == 0 || it == packets_.tracks.end() ? nullptr : &it->second;
  }
  // The track "GPU 0, NVIDIA H100" that it is below of.
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

  // Pairs begins with ends, as Perfetto does: by time, and in the order of the file where times are equal.
  // slice(begin, end, stack): `stack` has what is open around it. begun(stack): the last of it has begun.
  struct Open {
    const PacketEvent* begin;
    uint32_t external = 0;
  };
  template <class Begun, class Ended>
  static void pair(PacketTrack& track, Begun begun, Ended ended) {
    std::ranges::stable_sort(track.events, {}, &PacketEvent::time);
    std::vector<Open> open;
    for (const PacketEvent& e : track.events) {
      if (e.type == event::kSliceBegin) {
        open.push_back({&e});
        begun(open);
      } else if (!open.empty()) {
        const Open slice = open.back();
        open.pop_back();
        ended(slice, e);
      }
    }
  }

  void read_thread(uint64_t id, PacketTrack& track) {
    const std::string pid = pid_of(track);
    const bool is_steps = track.name == "Steps" && track.tid.empty();
    const std::string tid = track.tid.empty() ? "track " + std::to_string(id) : track.tid;
    const auto begun = [this](std::vector<Open>& open) {
      if (open.back().begin->category != PacketCategory::kCall || open.back().begin->flow == 0) return;
      for (size_t i = open.size(); i-- > 0;) {
        if (open[i].begin->category != PacketCategory::kOperator) continue;
        if (open[i].external == 0) open[i].external = ++last_external_;
        launched_by_[open.back().begin->flow] = open[i].external;
        return;
      }
    };
    pair(track, begun, [&](const Open& slice, const PacketEvent& end) {
      if (!is_sane(slice.begin->time, end.time)) return;
      const PacketArguments& of = end.arguments != 0 ? packets_.arguments[end.arguments - 1] : none_;
      const std::string& name = *events_.names.texts[slice.begin->name];
      if (const auto number = is_steps ? step_number(name) : std::nullopt)
        events_.steps.push_back({*number, slice.begin->time, end.time, events_.pids(pid), of.ended_by});
      else
        add_slice(slice, end, of, pid, events_.row(pid, tid));
    });
    track.events = {};
  }

  void add_slice(const Open& slice, const PacketEvent& end, const PacketArguments& of, const std::string& pid,
                 uint32_t row) {
    const PacketCategory category = slice.begin->category;
    const bool is_operator = category == PacketCategory::kOperator || category == PacketCategory::kAnnotation;
    if (!is_operator && category != PacketCategory::kPython) return;
    const uint32_t name = slice.begin->name;
    const std::string& text = *events_.names.texts[name];
    uint32_t module = 0;
    if (is_operator) {
      if (of.flops != 0) events_.flops[{events_.pids(pid), name}] += of.flops;
      if (!of.module.empty()) module = events_.names(of.module) + 1;
    } else if (text.starts_with(kModulePrefix)) {
      events_.places.try_emplace(name, ModulePlace{of.path, of.root});
    }
    events_.slices.push_back({.begin = slice.begin->time,
                              .duration = end.time - slice.begin->time,
                              .name = name,
                              .row = row,
                              .is_operator = is_operator,
                              .is_annotation = category == PacketCategory::kAnnotation,
                              .is_backward = of.is_backward,
                              .module = module,
                              .external = slice.external});
  }

  void read_device(PacketTrack& track, const PacketTrack& device) {
    const std::string pid = pid_of(track);
    // "GPU 0, NVIDIA H100"
    const size_t comma = device.name.find(", ");
    const uint32_t row = events_.pids(pid + " " + device.name);
    events_.devices.label(row, device.name);
    const auto number = static_cast<uint32_t>(std::strtoul(device.name.c_str() + 4, nullptr, 10));
    if (comma != std::string::npos) events_.devices.property(number, device.name.substr(comma + 2));
    pair(
        track, [](const std::vector<Open>&) {},
        [&](const Open& slice, const PacketEvent& end) {
          const bool is_kernel = slice.begin->category == PacketCategory::kKernel;
          if ((!is_kernel && slice.begin->category != PacketCategory::kCopyOrSet) ||
              !is_sane(slice.begin->time, end.time))
            return;
          events_.device_owners[row] = events_.pids(pid);
          const auto call = launched_by_.find(slice.begin->flow);
          events_.devices.add({.begin = slice.begin->time,
                               .duration = end.time - slice.begin->time,
                               .name = slice.begin->name,
                               .pid = row,
                               .external = slice.begin->flow == 0 || call == launched_by_.end() ? 0 : call->second,
                               .blocks_per_sm = 0,
                               .occupancy = end.arguments != 0
                                                ? static_cast<float>(packets_.arguments[end.arguments - 1].occupancy)
                                                : 0,
                               .is_kernel = is_kernel});
        });
    track.events = {};
  }

  ByteStream& stream_;
  PacketTracks packets_;
  ReadEvents events_;
  const PacketArguments none_{};
  std::unordered_map<uint64_t, uint32_t> launched_by_;  // external by flow
  uint32_t last_external_ = 0;
};

}  // namespace

ReadEvents read_perfetto(ByteStream& stream) { return PerfettoReader(stream).read(); }

}  // namespace torchprof::formats
