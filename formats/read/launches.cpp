#include "formats/read/launches.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

namespace torchprof::formats {
namespace {

// Calls or slices by a number that they share with work, and their places in the file.
class ByNumber {
 public:
  void add(uint32_t number, size_t index) {
    if (number != 0) entries_.emplace_back(number, static_cast<uint32_t>(index));
  }
  void sort() { std::ranges::sort(entries_); }
  bool empty() const { return entries_.empty(); }

  // The index nearest to `before` of those with this number that `may_be`; SIZE_MAX: there is none.
  template <class MayBe>
  size_t nearest(uint32_t number, uint32_t before, MayBe may_be) const {
    size_t found = SIZE_MAX, least = SIZE_MAX;
    for (auto it = std::ranges::lower_bound(entries_, std::pair(number, uint32_t{0}));
         it != entries_.end() && it->first == number; ++it) {
      const size_t index = it->second, distance = index < before ? before - index - 1 : index - before;
      if (distance >= least || !may_be(index)) continue;
      found = index;
      least = distance;
    }
    return found;
  }

 private:
  std::vector<std::pair<uint32_t, uint32_t>> entries_;
};

// False: the file has no calls with a correlation.
bool join_calls(ReadEvents& events) {
  ByNumber calls;
  for (size_t i = 0; i < events.calls.size(); ++i) calls.add(events.calls[i].correlation, i);
  if (calls.empty()) return false;
  calls.sort();
  const auto process_of = [&events](size_t call) { return events.rows[events.calls[call].row].pid; };
  for (ReadWork& w : events.work) {
    const size_t call = calls.nearest(w.correlation, w.calls_before, [&](size_t i) {
      return events.calls[i].begin <= w.end() && (w.process == ReadWork::kUnknown || process_of(i) == w.process);
    });
    if (call == SIZE_MAX) continue;
    w.process = process_of(call);
    add_to(events.calls[call].work_ns, w.duration);
  }
  return true;
}

void join_operators(ReadEvents& events) {
  ByNumber operators;
  for (size_t i = 0; i < events.slices.size(); ++i)
    if (events.slices[i].is_operator) operators.add(events.slices[i].external, i);
  operators.sort();
  for (size_t i = 0; i < events.slices.size(); ++i)
    if (events.slices[i].is_operator) events.slices[i].external = static_cast<uint32_t>(i + 1);
  for (ReadWork& w : events.work) {
    const size_t op = operators.nearest(w.external, w.slices_before, [](size_t) { return true; });
    w.external = op == SIZE_MAX ? 0 : events.slices[op].external;
    if (w.external == 0) continue;
    if (w.process == ReadWork::kUnknown) w.process = events.rows[events.slices[op].row].pid;
    add_to(events.launched[w.external], w.duration);
  }
}

// The process of work that is in nobody's call.
class Owners {
 public:
  explicit Owners(const ReadEvents& events) : is_known_(events.pids.texts.size()) {
    for (const ReadSlice& s : events.slices) came(events.rows[s.row].pid);
    for (const ReadCall& c : events.calls) came(events.rows[c.row].pid);
    std::map<std::pair<uint32_t, uint32_t>, uint64_t> count;  // of work, by row and process
    for (const ReadWork& w : events.work)
      if (w.process != ReadWork::kUnknown) ++count[{w.pid, w.process}];
    std::unordered_map<uint32_t, uint64_t> most;
    for (const auto& [of, works] : count)
      if (uint64_t& known = most[of.first]; works > known) {
        known = works;
        of_row_[of.first] = of.second;
      }
  }
  uint32_t of(uint32_t row) const {
    if (const auto it = of_row_.find(row); it != of_row_.end()) return it->second;
    return is_known_[row] || first_ == ReadWork::kUnknown ? row : first_;
  }

 private:
  void came(uint32_t pid) {
    if (first_ == ReadWork::kUnknown) first_ = pid;
    is_known_[pid] = true;
  }

  std::vector<bool> is_known_;
  std::unordered_map<uint32_t, uint32_t> of_row_;
  uint32_t first_ = ReadWork::kUnknown;
};

// "GPU 1, rank 3" as we label a device's row; otherwise the number at the end of its pid.
uint32_t device_of(const ReadEvents& events, uint32_t pid) {
  std::string_view text = *events.pids.texts[pid];
  const auto label = events.device_labels.find(pid);
  if (label != events.device_labels.end() && label->second.starts_with("GPU "))
    text = std::string_view(label->second).substr(4, label->second.find(',') - 4);
  const size_t digits = text.find_last_not_of("0123456789") + 1;
  return static_cast<uint32_t>(std::strtoul(std::string(text.substr(digits)).c_str(), nullptr, 10));
}

}  // namespace

bool is_call_category(std::string_view category) {
  return category.ends_with("_runtime") || category.ends_with("_driver") || category == "Runtime" ||
         category == "Driver";
}

bool is_work_category(std::string_view category) {
  return category == "kernel" || category == "gpu_memcpy" || category == "gpu_memset" || category == "Kernel" ||
         category == "Memcpy" || category == "Memset";
}

void join_launches(ReadEvents& events) {
  if (events.work.empty()) return;
  if (!join_calls(events)) join_operators(events);
  const Owners owners(events);
  std::unordered_map<uint32_t, uint32_t> devices;  // by the row's pid
  for (ReadWork& w : events.work) {
    if (w.process == ReadWork::kUnknown) w.process = owners.of(w.pid);
    if (w.device != ReadWork::kUnknown) continue;
    const auto [device, is_new] = devices.try_emplace(w.pid);
    if (is_new) device->second = device_of(events, w.pid);
    w.device = device->second;
  }
}

}  // namespace torchprof::formats
