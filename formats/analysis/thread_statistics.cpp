#include "formats/analysis/thread_statistics.h"

#include <algorithm>
#include <unordered_map>

#include "formats/io/sum.h"
#include "formats/replay/process_label.h"

namespace torchprof::formats {

ThreadTally& ThreadCollector::at(uint32_t row) {
  if (row >= tallies_.size()) tallies_.resize(std::max<size_t>(row + size_t{1}, tallies_.size() * 2));
  return tallies_[row];
}

void ThreadCollector::slice(const Slice& s) {
  ThreadTally& t = at(s.row);
  add_to(t.open_ns, s.own_ns);
  const bool is_operator = s.kind == SliceKind::kOperator;
  add_to(is_operator ? t.operator_ns : t.python_ns, s.self_ns);
  // A collection, and a time in which nothing was recorded, are no calls.
  if (s.kind != SliceKind::kGc && s.kind != SliceKind::kBlind) ++(is_operator ? t.operators : t.python_calls);
}

void ThreadCollector::gpu(const GpuActivity& a) {
  if (a.call != nullptr) add_to(at(a.call->row).gpu_ns, a.end - a.begin);
}

std::vector<ThreadTally> ThreadCollector::finish(const std::vector<Row>& rows) const {
  std::vector<ThreadTally> result;
  std::unordered_map<uint32_t, size_t> by_tid;
  for (size_t row = 0; row < std::min(rows.size(), tallies_.size()); ++row) {
    const ThreadTally& t = tallies_[row];
    if (t.operators + t.python_calls == 0 && t.gpu_ns == 0) continue;
    const auto [it, is_new] = by_tid.try_emplace(rows[row].sort_tid, result.size());
    if (is_new) result.push_back({.name = thread_label(rows[row])});
    ThreadTally& sum = result[it->second];
    add_to(sum.open_ns, t.open_ns);
    add_to(sum.operator_ns, t.operator_ns);
    add_to(sum.python_ns, t.python_ns);
    sum.operators += t.operators;
    sum.python_calls += t.python_calls;
    add_to(sum.gpu_ns, t.gpu_ns);
  }
  return result;
}

std::string_view without_number(std::string_view label) {
  const size_t at = std::min(label.find_first_not_of("0123456789"), label.size());
  return at != 0 && label.substr(at).starts_with(' ') ? label.substr(at + 1) : label;
}

}  // namespace torchprof::formats
