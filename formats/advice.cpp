#include "formats/advice.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "formats/replay.h"
#include "formats/thread_stack.h"

namespace torchprof::formats {
namespace {

class WasteSink final : public Sink {
 public:
  WasteSink(const Process& process, std::span<const StepSpan> steps) : replay_(process), steps_(steps) {}

  StepWaste run() {
    replay_.run(*this);
    StepWaste result;
    for (const auto& [key, tally] : tallies_) {
      const std::string_view place = key.second == 0 ? std::string_view{} : replay_.names().text({key.second});
      result.by_place[{key.first, std::string(place)}] = tally;
    }
    for (const auto& [name, tally] : kernels_) result.kernels[std::string(replay_.names().text({name}))] += tally;
    return result;
  }

  void slice(const Slice& s) override {
    if (s.kind != SliceKind::kOperator || role_of(s.name) != Role::kZero) return;
    const auto ns = ns_in_steps(s.begin, s.end);
    if (!ns) return;
    for (uint32_t i = s.depth; i-- > 0;) {
      if (!s.around[i].is_op()) continue;
      const Role role = role_of(s.around[i].name);
      if (role == Role::kZero) return;  // told by the outer one
      if (role != Role::kZeroGrad) continue;
      return add(Waste::kZeroGrad, s.around, i, *ns);
    }
  }

  void gpu_call(const GpuCall& call) override {
    if (role_of(call.name) != Role::kWaits) return;
    if (const auto ns = ns_in_steps(call.begin, call.end)) add(Waste::kSync, *call.stack, *ns);
  }

  void gpu_activity(const GpuActivity& a) override {
    constexpr uint8_t kPageable = 1;  // CUpti_ActivityMemoryKind
    if (a.kind != Kind::GpuKernel && a.kind != Kind::GpuCopy) return;
    const auto ns = ns_in_steps(a.begin, a.end);
    if (!ns) return;
    if (a.kind == Kind::GpuKernel) {
      kernels_[a.name.value] += GpuTally{.calls = 1, .total_ns = *ns, .is_kernel = true};
      return;
    }
    const auto& copy = a.as<GpuCopy>();
    if (a.call == nullptr || (copy.src_kind != kPageable && copy.dst_kind != kPageable)) return;
    add(Waste::kPageable, *a.call->stack, *ns, copy.bytes);
  }

 private:
  enum class Role : uint8_t { kUnseen, kPlain, kZero, kZeroGrad, kWaits };

  // Names: the CUDA runtime's and driver's, and torch.optim.Optimizer.zero_grad's annotation, 1.13 to 2.14.
  Role role_of(NameId name) {
    if (name.value >= roles_.size()) roles_.resize(std::max<size_t>(name.value + 1, roles_.size() * 2));
    Role& role = roles_[name.value];
    if (role == Role::kUnseen) {
      constexpr std::array<std::string_view, 8> kWaits = {
          "cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaMemcpy",
          "cuStreamSynchronize",   "cuCtxSynchronize",      "cuEventSynchronize",   "cuMemcpyDtoH_v2"};
      const std::string_view text = replay_.names().text(name);
      role = Role::kPlain;
      if (text == "aten::zero_" || text == "aten::_foreach_zero_") role = Role::kZero;
      if (text.starts_with("Optimizer.zero_grad#")) role = Role::kZeroGrad;
      if (std::ranges::find(kWaits, text) != kWaits.end()) role = Role::kWaits;
    }
    return role;
  }

  // From its begin to its end or that of the step in which it began. None: that is no step.
  std::optional<int64_t> ns_in_steps(UnixNs begin, UnixNs end) const {
    const StepSpan* step = step_at(steps_, begin.value);
    if (step == nullptr) return std::nullopt;
    return std::min(end.value, step->end) - begin.value;
  }

  // For the innermost Python function that is no module's or optimizer's call.
  void add(Waste waste, const Span* around, uint32_t depth, int64_t ns, uint64_t bytes = 0) {
    uint32_t place = 0;
    for (uint32_t i = depth; i-- > 0 && place == 0;)
      if (around[i].kind == SliceKind::kPython && !around[i].object) place = around[i].name.value;
    tallies_[{waste, place}] += {.calls = 1, .ns = ns, .bytes = bytes};
  }
  void add(Waste waste, const ThreadStack& stack, int64_t ns, uint64_t bytes = 0) {
    const auto depth = static_cast<uint32_t>(stack.size());
    add(waste, depth == 0 ? nullptr : &stack[0], depth, ns, bytes);
  }

  Replay replay_;
  std::span<const StepSpan> steps_;
  std::vector<Role> roles_;                                   // by name
  std::map<std::pair<Waste, uint32_t>, WasteTally> tallies_;  // by the function's name, 0: none
  std::map<uint32_t, GpuTally> kernels_;                      // by name
};

}  // namespace

const StepSpan* step_at(std::span<const StepSpan> steps, int64_t time) {
  const auto after = std::ranges::upper_bound(steps, time, {}, &StepSpan::begin);
  if (after == steps.begin() || std::prev(after)->end <= time) return nullptr;
  return &*std::prev(after);
}

StepWaste waste_of(const Process& process, std::span<const StepSpan> steps) {
  if (steps.empty()) return {};
  return WasteSink(process, steps).run();
}

}  // namespace torchprof::formats
