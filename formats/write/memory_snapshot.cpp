#include "formats/write/memory_snapshot.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "formats/memory/categories.h"
#include "formats/memory/owners.h"
#include "formats/replay/process_label.h"
#include "formats/write/memory_snapshot_frames.h"

namespace torchprof::formats {
namespace {

// The sort key of a device (CPU last): torch's tools take a device's number for its index in a list.
MemoryDevice in_order(const MemoryDevice& device) {
  return {static_cast<int8_t>(device.first == 0 ? 127 : device.first), device.second};
}

// Finds the event with which each device reaches its peak, by its number among the device's events.
class PeakFinder final : public Sink {
 public:
  explicit PeakFinder(const Process& process) { Replay(process).run(*this); }
  void slice(const Slice&) override {}
  void memory(const MemoryEvent& e) override {
    const MemoryDevice device{e.device_type, e.device_index};
    uint64_t& seen = seen_[device];
    ++seen;
    if (collector_.add(change_of(e, {}))) until_[device] = seen;
  }
  uint64_t until(const MemoryDevice& device) const {
    const auto it = until_.find(device);
    return it == until_.end() ? 0 : it->second;
  }
  std::vector<DeviceMemory> devices() const {
    return collector_.finish([](uint32_t) { return std::string(); });
  }

 private:
  MemoryCollector collector_;
  std::map<MemoryDevice, uint64_t> seen_, until_;
};

constexpr int64_t kSmallSegment = int64_t{2} << 20;  // up to this torch's caching allocator calls them "small"

struct Block {
  int64_t bytes;
  SnapshotFrames::Stack stack;
};
using Blocks = std::map<uint64_t, Block>;  // by address

struct Shown {  // a device that is written
  const Process* process;
  DeviceMemory memory;
  uint64_t until;
  Blocks blocks;
};

// Writes the trace of one device of a process. Afterwards Shown::blocks has the blocks that are alive at its end.
class DeviceTrace final : public Sink {
 public:
  DeviceTrace(Shown& shown, Pickle& pickle)
      : shown_(shown), pickle_(pickle), replay_(*shown.process), frames_(*shown.process, replay_.names(), pickle) {}

  void run() {
    replay_.run(*this);
    events_.end();
  }
  void slice(const Slice&) override {}
  void memory(const MemoryEvent& e) override {
    if (MemoryDevice{e.device_type, e.device_index} != MemoryDevice{shown_.memory.type, shown_.memory.index}) return;
    if (++seen_ > shown_.until || e.is_out_of_memory) return;
    if (e.window != window_) end_window();
    window_ = e.window;
    SnapshotFrames::Stack stack = SnapshotFrames::stack_of(e);
    if (const auto node = shown_.blocks.extract(e.address)) {
      free(e, node.mapped().bytes, stack);
    } else if (e.bytes < 0) {
      free(e, std::min(-std::max(e.bytes, -kMostMemory), kMostMemory), stack);
    }
    if (e.bytes <= 0) return;
    const int64_t bytes = std::min(e.bytes, kMostMemory);
    event("segment_alloc", e, bytes, stack);
    event("alloc", e, bytes, stack);
    shown_.blocks.insert_or_assign(e.address, Block{bytes, std::move(stack)});
  }

  void write_segments(Pickle::List& segments, int64_t device) {
    for (const auto& [address, block] : shown_.blocks) {
      segments.next();
      write_segment(device, static_cast<int64_t>(address & INT64_MAX), block);
    }
  }

 private:
  void write_segment(int64_t device, int64_t at, const Block& block) {
    pickle_.dict();
    for (const char* const key : {"total_size", "allocated_size", "active_size", "requested_size"})
      pickle_.member(key, block.bytes);
    pickle_.member("device", device);
    pickle_.member("address", at);
    pickle_.member("stream", 0);
    pickle_.word("segment_type");
    pickle_.word(block.bytes > kSmallSegment ? "large" : "small");
    pickle_.word("is_expandable");
    pickle_.boolean(false);
    pickle_.word("frames");
    frames_.write(block.stack);
    pickle_.word("blocks");
    Pickle::List blocks(pickle_);
    blocks.next();
    write_block(at, block);
    blocks.end();
    pickle_.end_dict();
  }
  void write_block(int64_t at, const Block& block) {
    pickle_.dict();
    pickle_.member("address", at);
    pickle_.member("size", block.bytes);
    pickle_.member("requested_size", block.bytes);
    pickle_.word("state");
    pickle_.word("active_allocated");
    pickle_.word("frames");
    frames_.write(block.stack);
    pickle_.end_dict();
  }

  // What becomes of its blocks after it is not recorded.
  void end_window() {
    for (const auto& [address, block] : shown_.blocks) {
      MemoryEvent e{};
      e.time = window_->end;
      e.address = address;
      free(e, block.bytes, block.stack);
    }
    shown_.blocks.clear();
  }
  void free(const MemoryEvent& e, int64_t bytes, const SnapshotFrames::Stack& stack) {
    for (const char* const action : {"free_requested", "free_completed", "segment_free"})
      event(action, e, bytes, stack);
  }
  void event(std::string_view action, const MemoryEvent& e, int64_t bytes, const SnapshotFrames::Stack& stack) {
    events_.next();
    pickle_.dict();
    pickle_.word("action");
    pickle_.word(action);
    pickle_.member("addr", static_cast<int64_t>(e.address & INT64_MAX));
    pickle_.member("size", bytes);
    pickle_.member("stream", 0);
    pickle_.member("time_us", e.time.value / 1000);
    pickle_.word("frames");
    frames_.write(stack);
    pickle_.end_dict();
  }

  Shown& shown_;
  Pickle& pickle_;
  Pickle::List events_{pickle_};
  Replay replay_;
  SnapshotFrames frames_;
  uint64_t seen_ = 0;
  const Window* window_ = nullptr;
};

void write_devices(Pickle& pickle, const std::vector<Shown>& devices) {
  Pickle::List list(pickle);
  for (size_t i = 0; i < devices.size(); ++i) {
    const DeviceMemory& memory = devices[i].memory;
    list.next();
    pickle.dict();
    pickle.member("device", static_cast<int64_t>(i));
    pickle.word("name");
    pickle.text(device_text(memory.type, memory.index));
    pickle.word("process");
    pickle.text(process_label(*devices[i].process));
    pickle.member("peak_bytes", memory.peak_bytes);
    pickle.member("peak_us", memory.peak.value / 1000);
    pickle.member("unknown_bytes", memory.unknown_bytes);
    pickle.end_dict();
  }
  list.end();
}

}  // namespace

void write_memory_snapshot(const Trace&, Processes processes, Output& out) {
  std::vector<Shown> devices;
  for (const Process& process : processes) {
    const PeakFinder peaks(process);
    std::vector<DeviceMemory> of_process = peaks.devices();
    std::ranges::stable_sort(of_process, {}, [](const DeviceMemory& d) { return in_order({d.type, d.index}); });
    for (DeviceMemory& device : of_process) {
      const uint64_t until = peaks.until({device.type, device.index});
      devices.push_back({&process, std::move(device), until, {}});
    }
  }
  Pickle pickle(out);
  pickle.dict();
  pickle.word("torchprof");
  write_devices(pickle, devices);
  pickle.word("device_traces");
  Pickle::List traces(pickle);
  std::vector<std::unique_ptr<DeviceTrace>> traced;
  for (Shown& device : devices) {
    traces.next();
    traced.push_back(std::make_unique<DeviceTrace>(device, pickle));
    traced.back()->run();
  }
  traces.end();
  pickle.word("segments");
  Pickle::List segments(pickle);
  for (size_t i = 0; i < traced.size(); ++i) traced[i]->write_segments(segments, static_cast<int64_t>(i));
  segments.end();
  pickle.end_dict();
  pickle.finish();
}

}  // namespace torchprof::formats
