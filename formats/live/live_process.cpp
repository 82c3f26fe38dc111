#include "formats/live/live_process.h"

#include <unistd.h>

#include <algorithm>
#include <functional>
#include <tuple>
#include <utility>

#include "formats/io/sum.h"
#include "formats/trace/waiting.h"
#include "tracer/spool/clock.h"
#include "tracer/spool/reader.h"

namespace torchprof::formats {
namespace {

// How long any of the intervals lasted, in ns, summed over devices. They are sorted.
template <class Intervals>
int64_t union_of(Intervals& intervals) {
  std::ranges::sort(intervals, {}, [](const auto& i) { return std::tuple(i.device, i.begin); });
  int64_t total = 0;
  uint64_t covered = 0;
  for (size_t k = 0; k < intervals.size(); ++k) {
    if (k == 0 || intervals[k].device != intervals[k - 1].device) covered = 0;
    const uint64_t begin = std::max(intervals[k].begin, covered);
    if (intervals[k].end > begin) add_to(total, static_cast<int64_t>(intervals[k].end - begin));
    covered = std::max(covered, intervals[k].end);
  }
  return total;
}

}  // namespace

uint32_t LiveProcess::Table::slot(uint64_t key) {
  if (const auto it = slots.find(key); it != slots.end()) return it->second;
  if (keys.size() >= kMostNames) key = key_of(Of::kOthers, 0);
  const auto [it, is_new] = slots.try_emplace(key, static_cast<uint32_t>(keys.size()));
  if (is_new) {
    keys.push_back(key);
    now.emplace_back();
    kept.emplace_back();
  }
  return it->second;
}

void LiveProcess::set_clock(bool is_live) {
  const FileHeader& h = tail_->header();
  const auto is_sane = [](double ns, double ticks) {
    return ticks > 0 && ns > 1e6 && ns <= ticks * kMaxTicksPerNs && ns * kMaxTicksPerNs >= ticks;
  };
  const auto rate = [&](const ClockSample& to) {
    const auto ns = static_cast<double>(to.monotonic) - static_cast<double>(h.start.monotonic);
    const auto ticks = static_cast<double>(static_cast<int64_t>(to.ticks.value - h.start.ticks.value));
    if (!is_sane(ns, ticks)) return false;
    ns_per_tick_ = h.clock == ClockSource::kCounter ? ns / ticks : 1;
    return true;
  };
  rate(tail_->latest());
  if (h.clean_exit.load(std::memory_order_acquire) == 1)  // pairs with SpoolWriter::finish()
    rate({{h.last_ticks.load(std::memory_order_relaxed)}, h.last_monotonic.load(std::memory_order_relaxed), {}});
  char host[sizeof(h.host)] = "";
  const bool is_here = is_live && gethostname(host, sizeof(host) - 1) == 0 && std::string_view(h.host) == host;
  if (!is_here) return;
  const ClockSample sample = clock::sample(h.clock == ClockSource::kCounter ? h.clock : ClockSource::kMonotonic);
  if (rate(sample)) now_ = sample.ticks.value;
}

void LiveProcess::look(bool is_live, uint64_t event_bytes) {
  now_ = 0;
  set_clock(is_live);
  const bool is_first = buckets_.empty() && from_ == 0;
  if (is_first) is_read_from_begin_ = now_ == 0 || last_since() <= header().start.ticks.value;
  if (is_first && now_ != 0) from_ = std::max(last_since(), header().start.ticks.value);
  // Of a process that has ended all is read, as far as the bytes go.
  const auto since = [this] { return now_ == 0 ? 0 : last_since(); };
  tail_->look({.event_bytes = event_bytes,
               .definitions =
                   [this](const Portion& portion) {
                     names_.take(portion);
                     choose_step_source();
                     follow_windows();
                   },
               .steps_since = [&]() -> uint64_t {
                 return first_look_ == LiveSteps::kAll ? 0 : window_ != 0 ? std::min(from_, since()) : since();
               },
               .events_since = [&] { return window_ != 0 ? from_ : since(); },
               .steps = [this](const Portion& portion) { take_steps(portion); },
               .events = [this](const Portion& portion) { return take(portion); }});
  follow_windows();
  is_read_from_begin_ = is_read_from_begin_ && tail_->skipped_bytes() == 0;
  if (from_ == 0) from_ = first_record_;
  set_clock(is_live);
  const uint64_t stop = header().stop_ticks.load(std::memory_order_relaxed);
  if (now_ == 0 || stop != 0) now_ = std::max(last_record_, from_);
  if (is_live && stop == 0)
    for (auto& [track, thread] : threads_)
      if (thread.last != 0) advance(thread, now_);
  close_look();
}

// The begin of the last seconds, in ticks.
uint64_t LiveProcess::last_since() const { return now_ - std::min(now_, to_ticks(last_ns_)); }

void LiveProcess::close_look() {
  Bucket bucket{.ticks = now_, .operators = {}, .functions = {}};
  bucket.read_bytes = tail_->read_bytes();
  bucket.skipped_bytes = tail_->skipped_bytes();
  const auto collect = [](Table& table, std::vector<std::pair<uint32_t, Total>>& out) {
    for (uint32_t slot = 0; slot < table.now.size(); ++slot) {
      Total& now = table.now[slot];
      if (now.ticks == 0 && now.calls == 0) continue;
      table.kept[slot].ticks += now.ticks;
      table.kept[slot].calls += now.calls;
      out.emplace_back(slot, std::exchange(now, {}));
    }
  };
  collect(operators_, bucket.operators);
  collect(functions_, bucket.functions);
  bucket.busy_ns = union_of(busy_);
  busy_.clear();
  bucket.collective_ns = std::exchange(collective_ns_, 0);
  bucket.loading_ns = std::exchange(loading_ns_, 0);
  buckets_.push_back(std::move(bucket));
  if (window_ != 0) {  // a window counts as a whole
    Bucket& first = buckets_.front();
    first.ticks = now_;
    for (; buckets_.size() > 1; buckets_.pop_back()) {
      const Bucket& last = buckets_.back();
      add_to(first.busy_ns, last.busy_ns);
      add_to(first.collective_ns, last.collective_ns);
      add_to(first.loading_ns, last.loading_ns);
      first.read_bytes += last.read_bytes;
      first.skipped_bytes += last.skipped_bytes;
    }
    return;
  }
  while (buckets_.size() > 1 && buckets_.front().ticks <= last_since()) {
    const auto take_back = [](Table& table, const auto& totals) {
      for (const auto& [slot, total] : totals) {
        table.kept[slot].ticks -= total.ticks;
        table.kept[slot].calls -= total.calls;
      }
    };
    take_back(operators_, buckets_.front().operators);
    take_back(functions_, buckets_.front().functions);
    from_ = std::max(from_, buckets_.front().ticks);
    buckets_.pop_front();
  }
}

void LiveProcess::follow_windows() {
  if (const WindowDef* const shown = names_.window_of(window_)) until_ = shown->end;
  const WindowDef* const window = names_.window();
  // An earlier one: what is shown was given up. It stays until the next, as nobody has read the earlier one.
  if (window == nullptr || window->number <= window_) return;
  const bool is_of_what_was_counted = window_ == 0 && window->end != 0 && !buckets_.empty();
  window_ = window->number;
  until_ = window->end;
  if (is_of_what_was_counted) {  // the beginning of -w auto; before any other window nothing was counted
    from_ = std::max(from_, window->begin);
    return;
  }
  from_ = window->begin;
  for (Table* table : {&operators_, &functions_})
    for (size_t slot = 0; slot < table->keys.size(); ++slot) table->now[slot] = table->kept[slot] = {};
  for (auto& [track, thread] : threads_) thread = {};
  buckets_.clear();
  busy_.clear();
  async_.clear();
  collective_ns_ = loading_ns_ = 0;
  step_end_ = 0;
}

// ---- what is shown -----------------------------------------------------------------------------------------

const LiveProcess::Known& LiveProcess::known() const {
  if (known_.definition_bytes == tail_->definition_bytes()) return known_;
  known_ = {};
  known_.definition_bytes = tail_->definition_bytes();
  known_.rank = names_.rank();
  known_.worker = names_.fact("dataloader.worker");
  known_.window = names_.fact("window");
  return known_;
}

const std::string& LiveProcess::name_of(uint64_t key) const {
  known();
  const auto [it, is_new] = known_.names.try_emplace(key);
  if (is_new) it->second = read_name(key);
  return it->second;
}

std::string LiveProcess::read_name(uint64_t key) const {
  const auto id = static_cast<uint32_t>(key);
  if (key >> 32 == static_cast<uint64_t>(Of::kFunction)) return names_.text(FunctionId{id});
  if (key >> 32 == static_cast<uint64_t>(Of::kObject)) return names_.text(ObjectId{id});
  if (key >> 32 == static_cast<uint64_t>(Of::kName)) return names_.text(StringId{id});
  return "all others";
}

std::vector<LiveRow> LiveProcess::rows(const Table& table, size_t most, int64_t& all) const {
  std::vector<uint32_t> order;
  uint64_t ticks = 0, waiting = 0;
  for (uint32_t slot = 0; slot < table.keys.size(); ++slot) {
    if (table.kept[slot].ticks == 0) continue;
    ticks += table.kept[slot].ticks;
    order.push_back(slot);
  }
  // Idle time is not spent. What has too little of it to be seen is not looked up: there may be very many names.
  std::erase_if(order, [&](uint32_t slot) {
    const uint64_t own = table.kept[slot].ticks;
    if (own < ticks / 1000 || !is_waiting(name_of(table.keys[slot]))) return false;
    waiting += own;
    return true;
  });
  all = to_ns(ticks - waiting);
  const size_t count = std::min(most, order.size());
  std::ranges::partial_sort(order, order.begin() + static_cast<std::ptrdiff_t>(count), std::ranges::greater{},
                            [&table](uint32_t slot) { return table.kept[slot].ticks; });
  std::vector<LiveRow> out;
  for (size_t i = 0; i < count; ++i)
    out.push_back({.name = name_of(table.keys[order[i]]),
                   .self_ns = to_ns(table.kept[order[i]].ticks),
                   .calls = table.kept[order[i]].calls});
  return out;
}

LiveView LiveProcess::view(size_t most) const {
  LiveView view;
  view.rank = known().rank;
  if (const std::string& worker = known().worker; !worker.empty())
    if (const std::string own = std::to_string(header().pid) + '\t'; worker.starts_with(own))
      view.worker = "DataLoader worker " +
                    worker.substr(own.size(), worker.find_first_not_of("0123456789", own.size()) - own.size());
  for (const auto& [end, ticks] : steps_) view.step_ns.push_back(to_ns(ticks));
  view.steps = step_count_;
  if (!steps_.empty() || step_end_ != 0) {
    const uint64_t end = std::max(step_end_, steps_.empty() ? 0 : steps_.back().first);
    view.since_step_ns = to_ns(now_ - std::min(now_, end));
  }
  // The mean of the steps that ended in these seconds, or of the last one.
  uint64_t ticks = 0;
  size_t steps = 0;
  for (auto it = steps_.rbegin(); it != steps_.rend() && (steps == 0 || it->first >= last_since()); ++it, ++steps)
    ticks += it->second;
  const WindowDef* const window = names_.window();
  const WindowDef* const before = window != nullptr ? names_.window_before(window->number) : nullptr;
  if (ticks != 0) view.steps_per_second = static_cast<double>(steps) * 1e9 / static_cast<double>(to_ns(ticks));
  if (!has_step_records_ && before != nullptr && window->step > before->step && window->begin > before->begin) {
    const auto ns = static_cast<double>(to_ns(window->begin - before->begin));
    view.steps_per_second = static_cast<double>(window->step - before->step) * 1e9 / ns;
  }
  view.operators = rows(operators_, most, view.operator_ns);
  view.functions = rows(functions_, most, view.function_ns);
  const uint64_t end = until_ != 0 ? std::min(until_, now_) : now_;
  view.covered_ns = to_ns(end - std::min(end, from_));
  int64_t busy = 0, collective = 0, loading = 0;
  uint64_t read = 0, skipped = 0;
  for (const Bucket& bucket : buckets_) {
    add_to(busy, bucket.busy_ns);
    add_to(collective, bucket.collective_ns);
    add_to(loading, bucket.loading_ns);
    read += bucket.read_bytes;
    skipped += bucket.skipped_bytes;
  }
  if (has_gpu_ && view.covered_ns > 0)
    view.gpu_busy = std::min(1.0, static_cast<double>(busy) / static_cast<double>(view.covered_ns));
  if (has_collectives_) view.collective_ns = collective;
  if (has_loading_) view.loading_ns = loading;
  if (window_ != 0 || first_record_ != 0) view.since_covered_ns = to_ns(now_ - end);
  for (const auto& [device, total] : memory_)
    if (total.second != 0) view.memory.push_back({device.first, device.second, static_cast<uint64_t>(total.first)});
  view.window = known().window;
  view.has_all_steps = view.window.empty() || has_step_records_;
  view.window_number = window_;
  view.is_window_open = window_ != 0 && until_ == 0;
  view.has_stopped = header().stop_ticks.load(std::memory_order_relaxed) != 0;
  add_totals(view);
  if (skipped != 0) view.read_share = static_cast<double>(read) / static_cast<double>(read + skipped);
  return view;
}

void LiveProcess::add_totals(LiveView& view) const {
  const bool is_whole_run = view.window.empty() && window_ == 0 && is_read_from_begin_;
  view.has_every_step = step_count_ != 0 && (has_step_records_ ? first_look_ == LiveSteps::kAll : is_whole_run);
  view.step_sizes = step_sizes_;
  if (has_step_records_) view.switching_ns = switching_ns_;
  const auto ns = [](uint64_t value) { return static_cast<int64_t>(std::min<uint64_t>(value, INT64_MAX)); };
  if (used_) {
    view.ran_ns = ns(used_->ran);
    view.process_ran_ns = ns(used_->process_ran);
    if (used_->queued != ProcessorTime::kNotKnown) view.queued_ns = ns(used_->queued);
  }
  view.spool_bytes = tail_->bytes();
  view.recycled_bytes = header().recycled.load(std::memory_order_relaxed) * header().chunk_size;
  for (const std::atomic<uint64_t>& lost : header().lost) view.lost_events += lost.load(std::memory_order_relaxed);
}

}  // namespace torchprof::formats
