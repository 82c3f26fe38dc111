#include "formats/analysis/comms.h"

#include <algorithm>
#include <array>
#include <tuple>

#include "formats/io/sum.h"
#include "formats/values/collectives.h"
#include "formats/values/inputs.h"

namespace torchprof::formats {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 50;  // more than that comes from a damaged record

uint64_t bytes_of(int64_t elements, uint8_t type) {
  return elements <= 0 ? 0 : std::min(static_cast<uint64_t>(elements), kMostBytes) * element_size(type);
}

uint64_t bytes_of(std::string_view inputs) {
  uint64_t bytes = 0;
  for (const Input& input : decode_inputs(inputs)) {
    for (const Tensor& tensor : input.tensors) {
      uint64_t elements = element_size(tensor.type);
      for (const int64_t size : tensor.sizes) {
        if (size <= 0) elements = 0;
        if (elements == 0) break;
        elements =
            static_cast<uint64_t>(size) > kMostBytes / elements ? kMostBytes : elements * static_cast<uint64_t>(size);
      }
      bytes = std::min(kMostBytes, bytes + elements);
    }
  }
  return bytes;
}

}  // namespace

void CommsCollector::slice(const Slice& s, std::string_view name) {
  if (s.kind != SliceKind::kOperator) return;
  if (s.collective) {
    Collective c;
    if (!decode_collective(process_.string(s.collective), c)) return;
    CommsCall call{s.begin.value, s.end.value, bytes_of(std::max(c.in_elements, c.out_elements), c.type)};
    if (const auto kernels = kernels_.find(s.external_id); kernels != kernels_.end()) {
      std::tie(call.begin, call.end) = kernels->second;
      kernels_.erase(kernels);
    }
    const std::string ranks = text_of(c.ranks);
    calls_[{c.name, c.description.empty() ? c.group : c.description, c.group + ":" + ranks, ranks}].push_back(call);
    return;
  }
  if (s.name.value >= is_range_.size()) is_range_.resize(std::max<size_t>(s.name.value + 1, is_range_.size() * 2));
  int8_t& is_range = is_range_[s.name.value];
  if (is_range == 0) {
    constexpr std::array<std::string_view, 3> kBackends = {"gloo:", "mpi:", "ucc:"};
    is_range = std::ranges::any_of(kBackends, [name](std::string_view b) { return name.starts_with(b); }) ? 1 : -1;
  }
  if (is_range < 0) return;
  calls_[{std::string(name)}].push_back({s.begin.value, s.end.value, bytes_of(process_.string(s.inputs))});
}

void CommsCollector::gpu(const GpuActivity& a) {
  if (a.call == nullptr || !a.call->collective) return;
  const auto [it, is_first] = kernels_.try_emplace(a.call->external_id, a.begin.value, a.end.value);
  if (is_first) return;
  it->second.first = std::min(it->second.first, a.begin.value);
  it->second.second = std::max(it->second.second, a.end.value);
}

CommsCalls CommsCollector::finish() {
  for (auto& [kind, calls] : calls_) std::ranges::stable_sort(calls, {}, &CommsCall::begin);
  return std::move(calls_);
}

std::map<CommsKind, CommsTally> compare(const std::vector<const CommsCalls*>& processes, const CommsCounts& counts) {
  std::map<CommsKind, CommsTally> tallies;
  std::map<CommsKind, std::vector<std::pair<size_t, const std::vector<CommsCall>*>>> kinds;
  for (size_t i = 0; i < processes.size(); ++i)
    for (const auto& [kind, calls] : *processes[i]) kinds[kind].emplace_back(i, &calls);
  for (const auto& [kind, lists] : kinds) {
    CommsTally& tally = tallies[kind];
    size_t shared = lists.front().second->size();
    for (const auto& [process, calls] : lists) {
      shared = std::min(shared, calls->size());
      tally.calls += calls->size();
      for (const CommsCall& call : *calls) {
        tally.bytes += call.bytes;
        add_to(tally.total_ns, call.end - call.begin);
      }
    }
    if (lists.size() < 2) continue;
    std::vector<uint64_t> was_last(lists.size());
    for (size_t n = 0; n < shared; ++n) {
      const auto begin = [n](const auto& list) { return (*list.second)[n].begin; };
      const auto last = std::ranges::max_element(lists, {}, begin);
      if (counts && !counts(last->first, begin(*last))) continue;
      ++tally.compared;
      ++was_last[static_cast<size_t>(last - lists.begin())];
      for (const auto& list : lists)
        add_to(tally.waiting_ns, std::min(begin(*last), (*list.second)[n].end) - begin(list));
    }
    const auto slowest = std::ranges::max_element(was_last) - was_last.begin();
    tally.slowest = lists[static_cast<size_t>(slowest)].first;
    tally.slowest_calls = was_last[static_cast<size_t>(slowest)];
  }
  return tallies;
}

}  // namespace torchprof::formats
