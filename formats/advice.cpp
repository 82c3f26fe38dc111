#include "formats/advice.h"

#include <algorithm>
#include <array>

#include "formats/thread_stack.h"

namespace torchprof::formats {

// Names: the CUDA runtime's and driver's, and torch.optim.Optimizer.zero_grad's annotation, 1.13 to 2.14.
WasteCollector::Role WasteCollector::role_of(NameId name) {
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

// The innermost Python function that is no module's or optimizer's call.
WasteTally& WasteCollector::at(Waste waste, const Span* around, uint32_t depth) {
  uint32_t place = 0;
  for (uint32_t i = depth; i-- > 0 && place == 0;)
    if (around[i].kind == SliceKind::kPython && !around[i].object) place = around[i].name.value;
  return tallies_[{waste, place}];
}

void WasteCollector::slice(const Slice& s) {
  if (s.kind != SliceKind::kOperator || role_of(s.name) != Role::kZero) return;
  for (uint32_t i = s.depth; i-- > 0;) {
    if (!s.around[i].is_op()) continue;
    const Role role = role_of(s.around[i].name);
    if (role == Role::kZero) return;  // told by the outer one
    if (role != Role::kZeroGrad) continue;
    WasteTally& tally = at(Waste::kZeroGrad, s.around, i);
    ++tally.calls;
    tally.ns += s.end - s.begin;
    return;
  }
}

void WasteCollector::gpu_call(const GpuCall& call) {
  if (role_of(call.name) != Role::kWaits) return;
  const ThreadStack& stack = *call.stack;
  const auto depth = static_cast<uint32_t>(stack.size());
  WasteTally& tally = at(Waste::kSync, depth == 0 ? nullptr : &stack[0], depth);
  ++tally.calls;
  tally.ns += call.end - call.begin;
}

void WasteCollector::gpu(const GpuActivity& a) {
  constexpr uint8_t kPageable = 1;  // CUpti_ActivityMemoryKind
  if (a.kind != Kind::GpuCopy || a.call == nullptr) return;
  const auto& copy = a.as<GpuCopy>();
  if (copy.src_kind != kPageable && copy.dst_kind != kPageable) return;
  const ThreadStack& stack = *a.call->stack;
  const auto depth = static_cast<uint32_t>(stack.size());
  WasteTally& tally = at(Waste::kPageable, depth == 0 ? nullptr : &stack[0], depth);
  ++tally.calls;
  tally.ns += a.end - a.begin;
  tally.bytes += copy.bytes;
}

WasteTallies WasteCollector::finish() {
  WasteTallies result;
  for (const auto& [key, tally] : tallies_) {
    const std::string_view place = key.second == 0 ? std::string_view{} : replay_.names().text({key.second});
    result[{key.first, std::string(place)}] = tally;
  }
  return result;
}

}  // namespace torchprof::formats
