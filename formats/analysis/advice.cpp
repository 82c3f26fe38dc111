#include "formats/analysis/advice.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "formats/analysis/program_places.h"
#include "formats/analysis/step_parts.h"
#include "formats/io/pair_key.h"
#include "formats/io/sum.h"
#include "formats/replay/replay.h"
#include "formats/replay/thread_stack.h"
#include "formats/values/collectives.h"

namespace torchprof::formats {
namespace {

class WasteSink final : public Sink {
 public:
  WasteSink(const Process& process, std::span<const StepSpan> steps)
      : process_(process), replay_(process), places_(process, replay_.names()), steps_(steps) {}

  StepWaste run() {
    replay_.run(*this);
    StepWaste result;
    for (const auto& [key, tally] : tallies_) result.by_place[{key.first, text(key.second)}] = tally;
    for (const auto& [key, tally] : kernels_) result.kernels[{text(first_of(key)), text(second_of(key))}] = tally;
    for (const auto& [key, ns] : host_)
      if (launches(first_of(key))) result.host_ns[text(second_of(key))] += ns;
    for (const auto& [key, calls] : collectives_)
      result.collectives[{text(first_of(key)), text(second_of(key))}] += calls;
    return result;
  }

  void slice(const Slice& s) override {
    const std::span<const Span> around(s.around, s.depth);
    if (s.kind == SliceKind::kPython && !s.object) return add_host(s, around);
    if (s.kind != SliceKind::kOperator) return;
    const Role role = role_of(s.name);
    if (role == Role::kCollective) return add_collective(s, around);
    if (role != Role::kZero && role != Role::kLoads) return;
    const auto ns = ns_in_steps(s.begin, s.end);
    if (!ns) return;
    if (role == Role::kLoads) return add(Waste::kLoading, around, *ns);
    for (size_t i = around.size(); i-- > 0;) {
      if (!around[i].is_op()) continue;
      const Role outer = role_of(around[i].name);
      if (outer == Role::kZero) return;  // the outer one counts
      if (outer == Role::kZeroGrad) return add(Waste::kZeroGrad, around, *ns, 0, s.native);
    }
  }

  void gpu_call(const GpuCall& call) override {
    if (call.row >= launches_.size()) launches_.resize(call.row + 1);
    launches_[call.row] = true;
    if (role_of(call.name) != Role::kWaits) return;
    if (const auto ns = ns_in_steps(call.begin, call.end)) add(Waste::kSync, call.stack->spans(), *ns);
  }

  void gpu_activity(const GpuActivity& a) override {
    constexpr uint8_t kPageable = 1;  // CUpti_ActivityMemoryKind
    if (a.kind != Kind::GpuKernel && a.kind != Kind::GpuCopy) return;
    const auto ns = ns_in_steps(a.begin, a.end);
    if (!ns) return;
    if (a.kind == Kind::GpuKernel) {
      const NameId place = a.call == nullptr ? NameId{} : place_of(*a.call);
      kernels_[pair_key(a.name.value, place.value)] += {.calls = 1, .ns = *ns};
      return;
    }
    const auto& copy = a.as<GpuCopy>();
    if (a.call == nullptr || (copy.src_kind != kPageable && copy.dst_kind != kPageable)) return;
    add(Waste::kPageable, a.call->stack->spans(), *ns, copy.bytes);
  }

 private:
  enum class Role : uint8_t { kUnseen, kPlain, kZero, kZeroGrad, kLoads, kCollective, kWaits };

  // Told by the names of CUDA's runtime and driver, and by the annotations of torch.optim.Optimizer.zero_grad and of
  // DataLoader's __next__, 1.13 to 2.14.
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
      if (text.starts_with(kLoaderPrefix)) role = Role::kLoads;
      if (is_communication(text)) role = Role::kCollective;
      if (std::ranges::find(kWaits, text) != kWaits.end()) role = Role::kWaits;
    }
    return role;
  }

  // Time from its begin to its end, or to the end of the step in which it began. None: it began in no step.
  std::optional<int64_t> ns_in_steps(UnixNs begin, UnixNs end) const {
    const StepSpan* step = step_at(steps_, begin.value);
    if (step == nullptr) return std::nullopt;
    return std::min(end.value, step->end) - begin.value;
  }
  // Time in all steps.
  int64_t ns_in_all_steps(UnixNs begin, UnixNs end) const {
    int64_t sum = 0;
    auto step = std::ranges::upper_bound(steps_, begin.value, {}, &StepSpan::begin);
    if (step != steps_.begin()) --step;
    for (; step != steps_.end() && step->begin < end.value; ++step)
      add_to(sum, std::max<int64_t>(0, std::min(end.value, step->end) - std::max(begin.value, step->begin)));
    return sum;
  }

  // A function of the program gets the time of torch's functions that it calls.
  void add_host(const Slice& s, std::span<const Span> around) {
    if (!process_.gpu || !places_.is_program(s.name)) return;  // without a GPU no thread launches anything
    const int64_t ns = ns_in_all_steps(s.begin, s.end);
    if (ns == 0) return;
    host_[pair_key(s.row, s.name.value)] += ns;
    for (size_t i = around.size(); i-- > 0;)
      if (places_.is_program(around[i])) {
        host_[pair_key(s.row, around[i].name.value)] -= ns;
        return;
      }
  }

  void add_collective(const Slice& s, std::span<const Span> around) {
    const NameId place = places_.of(around, s.native);
    if (!place) return;
    NameId name = s.name;
    Collective c;
    if (s.collective && decode_collective(process_.string(s.collective), c)) name = replay_.names().intern(c.name);
    ++collectives_[pair_key(name.value, place.value)];
  }

  void add(Waste waste, std::span<const Span> around, int64_t ns, uint64_t bytes = 0, NativeFrameId native = {}) {
    tallies_[{waste, places_.of(around, native).value}] += {.calls = 1, .ns = ns, .bytes = bytes};
  }

  // On autograd's own threads there is no Python function: there it is the module whose backward it is.
  NameId place_of(const GpuCall& call) {
    if (const NameId place = places_.of(call.stack->spans())) return place;
    return call.module ? replay_.names().function({}, call.module) : NameId{};
  }

  bool launches(uint32_t row) const { return row < launches_.size() && launches_[row]; }
  std::string text(uint32_t name) { return name == 0 ? std::string() : std::string(replay_.names().text({name})); }

  const Process& process_;
  Replay replay_;
  ProgramPlaces places_;
  std::span<const StepSpan> steps_;
  std::vector<Role> roles_;                                   // by name
  std::map<std::pair<Waste, uint32_t>, WasteTally> tallies_;  // by the name id of the place; 0: none
  std::unordered_map<uint64_t, WasteTally> kernels_;          // by the name ids of kernel and place
  std::unordered_map<uint64_t, int64_t> host_;                // by row and the place's name id
  std::unordered_map<uint64_t, uint64_t> collectives_;        // by the name ids of collective and place
  std::vector<bool> launches_;                                // by row
};

}  // namespace

const StepSpan* step_at(std::span<const StepSpan> steps, int64_t time) {
  const auto after = std::ranges::upper_bound(steps, time, {}, &StepSpan::begin);
  if (after == steps.begin() || std::prev(after)->end <= time) return nullptr;
  return &*std::prev(after);
}

StepWaste waste_of(const Process& process, std::span<const StepSpan> steps) { return WasteSink(process, steps).run(); }

}  // namespace torchprof::formats
