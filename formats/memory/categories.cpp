#include "formats/memory/categories.h"

#include <algorithm>
#include <limits>

#include "formats/replay/thread_stack.h"
#include "formats/trace/name_role.h"
#include "formats/values/object_details.h"

namespace torchprof::formats {
namespace {

// The live blocks at the peak of a device: the last state before or at its time, and of several at that time the
// largest.
struct Moment {
  UnixNs peak;
  bool is_taken = false;
  int64_t most = std::numeric_limits<int64_t>::min();  // largest of the states at the peak's own time
  std::vector<std::pair<size_t, int64_t>> live{};      // ordinal of the allocation, and bytes
  uint32_t window = 0;
  int64_t freed_unknown = 0;  // bytes freed in the window until then whose allocation was not recorded
};

class CategorySink final : public Sink, public Analysis<MemoryCategories> {
 public:
  CategorySink(const Process& process, Replay& replay) : replay_(replay) {
    replay.add(*this);
    for (const ObjectDetail& detail : process.details) note(decode_details(detail));
  }

  // The live blocks at this peak will be taken.
  void look_at_peak(MemoryDevice device, UnixNs peak) { moments_[device].peak = peak; }

  MemoryCategories finish() override {
    for (auto& [device, moment] : moments_)
      if (!moment.is_taken) take(device, moment);
    end_lives();
    for (const auto& [address, known] : known_)
      if (known.last != kNone) result_.of_allocation[known.last] = known.category;
    return std::move(result_);
  }
  const std::map<MemoryDevice, Moment>& moments() const { return moments_; }

  void slice(const Slice&) override {}
  void memory(const MemoryEvent& m) override {
    if (!is_counted(m)) return;
    if (const uint32_t window = window_of(m); window != window_) {
      end_lives();
      sizes_.clear();
      window_ = window;
    }
    const Phase phase = phase_of(m);
    enter(m.row, phase);
    const MemoryDevice device{m.device_type, m.device_index};
    auto& blocks = live_[device];
    const auto moment = moments_.find(device);
    if (moment != moments_.end() && !moment->second.is_taken && m.time > moment->second.peak)
      take(device, moment->second);
    if (m.bytes > 0) {
      const size_t ordinal = result_.of_allocation.size();
      result_.of_allocation.push_back(MemoryCategory::kUnknown);
      if (const auto known = known_.find(m.address); known != known_.end() && m.bytes >= known->second.bytes)
        known->second.last = ordinal;
      blocks.insert_or_assign(
          m.address, Block{ordinal, m.bytes, phase, static_cast<bool>(m.op), backwards_, optimizers_, modules_});
      add_memory(sizes_[device], m.bytes);
    } else {
      if (const auto block = blocks.extract(m.address))
        decide(block.mapped(), phase);
      else
        add_memory(result_.preexisting[{window_, device}], -m.bytes);
      add_memory(sizes_[device], m.bytes);
    }
    int64_t& peak = result_.peak[device];
    peak = std::max(peak, sizes_[device]);
    if (moment != moments_.end() && m.time == moment->second.peak && sizes_[device] >= moment->second.most) {
      take(device, moment->second);
      moment->second.most = sizes_[device];
    }
  }

 private:
  enum class Phase : uint8_t { kOutside, kModule, kBackward, kOptimizer, kEnd };
  static constexpr size_t kNone = std::numeric_limits<size_t>::max();
  struct Known {
    MemoryCategory category;
    int64_t bytes;
    size_t last = kNone;  // ordinal of the latest allocation that it can be
  };
  struct Block {
    size_t ordinal;
    int64_t bytes;
    Phase phase;
    bool by_operator;
    uint32_t backwards, optimizers, modules;  // how often each had begun when it was allocated
  };

  void end_lives() {
    for (const auto& [device, blocks] : live_)
      for (const auto& [address, block] : blocks) decide(block, Phase::kEnd);
    live_.clear();
  }

  void take(MemoryDevice device, Moment& moment) {
    moment.is_taken = true;
    moment.live.clear();
    for (const auto& [address, block] : live_[device]) moment.live.emplace_back(block.ordinal, block.bytes);
    moment.window = window_;
    moment.freed_unknown = result_.preexisting[{window_, device}];
  }

  // ---- what objects hold -----------------------------------------------------------------------------------

  void note(const HeldTensor& held, MemoryCategory category) {
    if (held.storage == 0 || !held.tensor.is_readable) return;
    int64_t bytes = element_size(held.tensor.type);
    for (const int64_t size : held.tensor.sizes)
      if (__builtin_mul_overflow(bytes, size, &bytes)) return;
    known_.insert_or_assign(held.storage, Known{category, bytes});
  }
  void note(const std::vector<Parameter>& parameters) {
    for (const Parameter& p : parameters) {
      note(p.value, MemoryCategory::kParameter);
      if (p.gradient) note(*p.gradient, MemoryCategory::kGradient);
    }
  }
  void note(const HeldByObject& held) {
    note(held.parameters);
    note(held.buffers);
    for (const ParameterGroup& group : held.groups) note(group.parameters);
    for (const ParameterState& state : held.state)
      for (const HeldValue& value : state.values)
        if (const auto* tensor = std::get_if<HeldTensor>(&value.value)) note(*tensor, MemoryCategory::kOptimizerState);
  }

  // ---- phases ----------------------------------------------------------------------------------------------

  Phase phase_of(const MemoryEvent& m) {
    const ThreadStack& stack = *m.stack;
    for (int32_t i = stack.size() - 1; i >= 0; --i) {
      const Span& span = stack[i];
      const NameRole role = replay_.names().role(span.name);
      if (span.is_op() && (span.is_backward || role == NameRole::kNode)) return Phase::kBackward;
      if (role == NameRole::kOptimizer || role == NameRole::kOptimizerStep) return Phase::kOptimizer;
    }
    return m.module ? Phase::kModule : Phase::kOutside;
  }
  void enter(uint32_t row, Phase phase) {
    if (row >= phases_.size()) phases_.resize(row + 1, Phase::kOutside);
    bool is_new = std::exchange(phases_[row], phase) != phase;
    if (phase != Phase::kOutside) is_new = std::exchange(last_, phase) != phase || is_new;
    if (!is_new) return;
    if (phase == Phase::kModule) ++modules_;
    if (phase == Phase::kOptimizer) ++optimizers_;
    if (phase != Phase::kBackward) return;
    ++backwards_;
    modules_at_backward_.push_back(modules_);
  }

  // `phase`: that in which the block is freed.
  void decide(const Block& block, Phase phase) {
    MemoryCategory& category = result_.of_allocation[block.ordinal];
    const bool saw_backward = backwards_ > block.backwards;
    const uint32_t modules = saw_backward ? modules_at_backward_[block.backwards] : modules_;
    switch (block.phase) {
      case Phase::kBackward:
        category = phase == Phase::kBackward && !saw_backward ? MemoryCategory::kTemporary : MemoryCategory::kGradient;
        break;
      case Phase::kOptimizer:
        category = phase == Phase::kOptimizer && optimizers_ == block.optimizers ? MemoryCategory::kTemporary
                                                                                 : MemoryCategory::kOptimizerState;
        break;
      case Phase::kModule:
        category = saw_backward ? MemoryCategory::kActivation : MemoryCategory::kTemporary;
        break;
      default:
        if (!block.by_operator) return;
        category = modules > block.modules ? MemoryCategory::kInput
                   : saw_backward          ? MemoryCategory::kActivation
                                           : MemoryCategory::kTemporary;
    }
  }

  Replay& replay_;
  MemoryCategories result_;
  std::unordered_map<uint64_t, Known> known_;  // by address
  std::map<MemoryDevice, std::unordered_map<uint64_t, Block>> live_;
  std::map<MemoryDevice, int64_t> sizes_;  // in this window
  uint32_t window_ = 0;
  std::map<MemoryDevice, Moment> moments_;
  // A thread of autograd's own runs nothing but backwards. So a new backward begins when another thread was in another
  // phase since.
  std::vector<Phase> phases_;     // by row
  Phase last_ = Phase::kOutside;  // the latest of any row that was not kOutside
  uint32_t backwards_ = 0, optimizers_ = 0, modules_ = 0;
  std::vector<uint32_t> modules_at_backward_;
};

class PeakCategoriesAnalysis final : public Analysis<PeakCategories> {
 public:
  PeakCategoriesAnalysis(const Process& process, Replay& replay, std::vector<DeviceMemory> devices)
      : sink_(process, replay), devices_(std::move(devices)) {
    for (const DeviceMemory& device : devices_) sink_.look_at_peak({device.type, device.index}, device.peak);
  }

  PeakCategories finish() override {
    const MemoryCategories categories = sink_.finish();
    PeakCategories result;
    for (const DeviceMemory& device : devices_) {
      const MemoryDevice key{device.type, device.index};
      const Moment& moment = sink_.moments().at(key);
      CategorySizes& sizes = result[key] = {};
      for (const auto& [allocation, bytes] : moment.live)
        add_memory(sizes[static_cast<size_t>(categories.of_allocation[allocation])], bytes);
      int64_t& unknown = sizes[static_cast<size_t>(MemoryCategory::kUnknown)];
      if (const auto before = categories.preexisting.find({moment.window, key}); before != categories.preexisting.end())
        add_memory(unknown, before->second - moment.freed_unknown);
      int64_t known = 0;
      for (const int64_t size : sizes) add_memory(known, size);
      add_memory(unknown, std::clamp<int64_t>(device.peak_bytes - known, 0, kMostMemory));
    }
    return result;
  }

 private:
  CategorySink sink_;
  std::vector<DeviceMemory> devices_;
};

}  // namespace

MemoryCategories categories_of(const Process& process) {
  Replay replay(process);
  CategorySink sink(process, replay);
  replay.run();
  return sink.finish();
}

std::unique_ptr<Analysis<PeakCategories>> find_peak_categories(const Process& process, Replay& replay,
                                                               std::vector<DeviceMemory> devices) {
  return std::make_unique<PeakCategoriesAnalysis>(process, replay, std::move(devices));
}

}  // namespace torchprof::formats
