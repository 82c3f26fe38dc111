#include "formats/memory/growth.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "formats/memory/owners.h"
#include "formats/replay/thread_stack.h"

namespace torchprof::formats {
namespace {

using Device = std::pair<int8_t, int8_t>;  // type and index

class GrowthSink final : public Sink, public Analysis<std::vector<MemoryGrowth>> {
 public:
  GrowthSink(const Process& process, Replay& replay, std::span<const StepSpan> steps)
      : owners_(process, replay.names()), steps_(steps.begin(), steps.end()) {
    replay.add(*this);
    std::ranges::sort(steps_, {}, &StepSpan::begin);
    first_ = steps_[1].begin;
    last_ = steps_[steps_.size() - 1 - kGrowthAge].end;
  }

  std::vector<MemoryGrowth> finish() override {
    if (!stays_) stays_ = live_;
    return grown();
  }

  void slice(const Slice&) override {}
  void memory(const MemoryEvent& m) override {
    if (m.is_out_of_memory) return;
    if (!stays_ && m.time.value > steps_.back().end) stays_ = live_;
    if (stays_) return;
    auto& blocks = live_[{m.device_type, m.device_index}];
    blocks.erase(m.address);
    // Blocks outside of the steps that are looked at need no owner.
    if (m.bytes <= 0 || m.time.value < first_ || m.time.value >= last_) return;
    MemoryOwner owner = owners_.of(m);
    // Who keeps the block is near the program's line from which it came, and not in a library.
    if (m.stack != nullptr)
      if (const NameId line = m.stack->line()) owner.place = line.value;
    blocks.emplace(m.address, Block{owner, m.bytes, m.time.value});
  }
  void python_memory(const MemoryEvent& m) override { memory(m); }

 private:
  struct Block {
    MemoryOwner owner;
    int64_t bytes;
    int64_t time;
  };
  struct Left {
    int64_t bytes = 0;
    uint64_t blocks = 0;
    std::map<size_t, int64_t> by_step;
  };
  static auto key(const MemoryOwner& o) { return std::tuple(o.module, o.op, o.outer_op, o.place); }
  struct ByOwner {
    bool operator()(const MemoryOwner& a, const MemoryOwner& b) const { return key(a) < key(b); }
  };

  // None: the time lies between steps.
  std::optional<size_t> step_at(int64_t time) const {
    const auto after = std::ranges::upper_bound(steps_, time, {}, &StepSpan::begin);
    if (after == steps_.begin() || std::prev(after)->end <= time) return std::nullopt;
    return static_cast<size_t>(std::prev(after) - steps_.begin());
  }

  bool grows(const Left& left) const {
    const size_t looked = steps_.size() - 1 - kGrowthAge, later = 1 + looked / 2;
    int64_t earlier_bytes = 0, later_bytes = 0;
    for (const auto& [step, bytes] : left.by_step) (step < later ? earlier_bytes : later_bytes) += bytes / 2;
    return left.by_step.size() >= kFewestSteps && earlier_bytes > 0 && later_bytes >= earlier_bytes / 2;
  }

  std::vector<MemoryGrowth> grown() {
    std::vector<MemoryGrowth> result;
    for (const auto& [device, blocks] : *stays_) {
      std::map<MemoryOwner, Left, ByOwner> by_owner;
      for (const auto& [address, block] : blocks) {
        const auto step = step_at(block.time);
        if (!step) continue;
        constexpr int64_t kMost = int64_t{1} << 60;  // a damaged record may have any number
        Left& left = by_owner[block.owner];
        left.bytes = std::min(left.bytes + std::min(block.bytes, kMost), kMost);
        int64_t& of_step = left.by_step[*step];
        of_step = std::min(of_step + std::min(block.bytes, kMost), kMost);
        ++left.blocks;
      }
      for (const auto& [owner, left] : by_owner)
        if (grows(left))
          result.push_back({device.first, device.second, owners_.text(owner), left.bytes, left.blocks,
                            left.by_step.size(), steps_.size() - 1 - kGrowthAge});
    }
    std::ranges::stable_sort(result, std::greater<>{}, &MemoryGrowth::bytes);
    return result;
  }

  MemoryOwners owners_;
  std::vector<StepSpan> steps_;
  int64_t first_, last_;
  std::map<Device, std::unordered_map<uint64_t, Block>> live_;
  std::optional<std::map<Device, std::unordered_map<uint64_t, Block>>> stays_;  // `live_` at the last step's end
};

bool can_grow(const Process& process, std::span<const StepSpan> steps) {
  return steps.size() >= 1 + kGrowthAge + kFewestSteps && process.windows.size() <= 1;
}

}  // namespace

bool shows_growth(const Process& process, std::span<const StepSpan> steps) {
  const auto is_memory = [](const Source& s) { return s.name == "memory" && s.state == SourceState::kOn; };
  return can_grow(process, steps) && std::ranges::any_of(process.sources, is_memory);
}

std::unique_ptr<Analysis<std::vector<MemoryGrowth>>> find_growth(const Process& process, Replay& replay,
                                                                 std::span<const StepSpan> steps) {
  if (!can_grow(process, steps)) return nullptr;
  return std::make_unique<GrowthSink>(process, replay, steps);
}

std::vector<MemoryGrowth> growth_of(const Process& process, std::span<const StepSpan> steps) {
  Replay replay(process);
  const auto growth = find_growth(process, replay, steps);
  if (growth == nullptr) return {};
  replay.run();
  return growth->finish();
}

}  // namespace torchprof::formats
