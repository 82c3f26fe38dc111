#include "formats/ranks/match.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <tuple>

namespace torchprof::formats {
namespace {

// "gloo:all_reduce", "_allreduce_base", "allreduce_coalesced": "allreduce", "allreducebase", "allreducecoalesced"
std::string plain_name(std::string_view name) {
  std::string plain(name.substr(name.find(':') + 1));
  std::erase(plain, '_');
  return plain;
}

bool has_one_size(std::string_view name) {
  const std::string plain = plain_name(name);
  constexpr std::array<std::string_view, 3> kSame = {"allreduce", "broadcast", "reduce"};
  return std::ranges::find(kSame, plain) != kSame.end();
}

// Which of its kind a call is.
struct Place {
  MatchedBy since = MatchedBy::kTime;
  int64_t of = 0;    // the number, or the step
  uint64_t nth = 0;  // of that number, or since the begin or step
  auto operator<=>(const Place&) const = default;
};

struct Placed {
  Place place;
  uint32_t list;
  const CommsCall* call;
};

bool overlap(const CommsCall& a, const CommsCall& b) { return a.begin <= b.end && b.begin <= a.end; }

// The calls of one kind in processes of one job.
class KindMatcher {
 public:
  KindMatcher(const CommsKind& kind, const std::vector<const CommsCalls*>& processes, std::vector<size_t> members)
      : has_one_size_(has_one_size(kind.name)),
        must_overlap_(waits_for_all(kind.name) && is_backend_range(kind.name)),
        members_(std::move(members)) {
    for (const size_t process : members_) {
      machines_.push_back(processes[process]->machine);
      lists_.push_back(&processes[process]->kinds.at(kind));
    }
    loose_.resize(lists_.size());
  }

  MatchedCalls run(uint64_t& uncertain) {
    place();
    std::ranges::sort(placed_, {}, [](const Placed& p) { return std::tuple(p.place, p.list); });
    for (size_t begin = 0; begin < placed_.size();) {
      size_t end = begin + 1;
      const Place& first = placed_[begin].place;
      const bool is_number = first.since == MatchedBy::kNumber;
      while (end < placed_.size() && placed_[end].place.since == first.since &&
             (is_number || placed_[end].place.of == first.of))
        ++end;
      add_segment(std::span(placed_).subspan(begin, end - begin), is_number);
      begin = end;
    }
    find_loose();
    for (const auto& list : loose_) uncertain += list.size();
    std::ranges::sort(rows_, {}, &Found::begin);
    MatchedCalls matched{members_};
    for (const Found& found : rows_) {
      matched.calls.insert(matched.calls.end(), found.row.begin(), found.row.end());
      matched.by.push_back(found.by);
    }
    return matched;
  }

 private:
  using Row = std::vector<const CommsCall*>;
  struct Found {
    int64_t begin;  // by which they are sorted
    MatchedBy by;
    Row row;
  };
  static constexpr size_t kFewestPauses = 3;

  void place() {
    for (uint32_t list = 0; list < lists_.size(); ++list) {
      std::map<int64_t, uint64_t> of_number;
      int64_t step = CommsCall::kNoStep;
      uint64_t nth = 0;
      for (const CommsCall& call : *lists_[list]) {
        if (call.number >= 0) {
          placed_.push_back({{MatchedBy::kNumber, call.number, of_number[call.number]++}, list, &call});
        } else if (call.step == CommsCall::kNoStep) {
          loose_[list].push_back(&call);
        } else {
          nth = call.step == step ? nth + 1 : 0;
          step = call.step;
          placed_.push_back({{step == 0 ? MatchedBy::kBegin : MatchedBy::kStep, step, nth}, list, &call});
        }
      }
    }
  }

  // Calls that count from one moment, sorted.
  void add_segment(std::span<const Placed> calls, bool is_number) {
    std::vector<Row> rows;
    for (size_t i = 0; i < calls.size(); ++i) {
      if (i == 0 || calls[i].place != calls[i - 1].place) rows.emplace_back(lists_.size());
      rows.back()[calls[i].list] = calls[i].call;
    }
    const bool is_certain = is_number || (has_same_counts(calls) && is_possible(rows));
    bool has_right_sizes = true;
    for (Row& row : rows) {
      has_right_sizes = has_right_sizes && (is_number || has_same_sizes(row));
      if (is_certain && has_right_sizes)
        add(std::move(row), calls.front().place.since);
      else
        for (size_t list = 0; list < row.size(); ++list)
          if (row[list] != nullptr) loose_[list].push_back(row[list]);
    }
  }

  // Those who were recorded from their begin may end one before the other; a step has all of its calls.
  bool has_same_counts(std::span<const Placed> calls) const {
    if (calls.front().place.since != MatchedBy::kStep) return true;
    std::vector<uint64_t> counts(lists_.size());
    for (const Placed& call : calls) ++counts[call.list];
    std::erase(counts, 0);
    return std::ranges::min(counts) == std::ranges::max(counts);
  }

  bool has_same_sizes(const Row& row) const {
    if (!has_one_size_) return true;
    uint64_t bytes = 0;
    for (const CommsCall* call : row) {
      if (call == nullptr || call->bytes == 0) continue;
      if (bytes != 0 && bytes != call->bytes) return false;
      bytes = call->bytes;
    }
    return true;
  }

  // Whether on each machine nobody has left before all had entered.
  bool is_possible(const Row& row) const {
    for (size_t i = 0; i < row.size(); ++i)
      for (size_t k = i + 1; k < row.size(); ++k)
        if (row[i] != nullptr && row[k] != nullptr && machines_[i] == machines_[k] && !overlap(*row[i], *row[k]))
          return false;
    return true;
  }

  // A call may fail and end early; where more than one in fifty is impossible, it is the order that is wrong.
  bool is_possible(std::vector<Row>& rows) {
    if (!must_overlap_) return true;
    const auto wrong =
        std::stable_partition(rows.begin(), rows.end(), [this](const Row& row) { return is_possible(row); });
    if (static_cast<size_t>(rows.end() - wrong) * 50 > rows.size()) return false;
    rows.erase(wrong, rows.end());
    return true;
  }

  void add(Row row, MatchedBy by) {
    if (std::ranges::count(row, nullptr) + 1 >= std::ssize(row)) return;
    const auto first = std::ranges::find_if(row, [](const CommsCall* call) { return call != nullptr; });
    rows_.push_back({(*first)->begin, by, std::move(row)});
  }

  // Those that no common moment places: on each machine by what goes on at once. Left in `loose_` are those that may
  // be several others, and those of which another machine has some.
  void find_loose() {
    std::map<uint32_t, std::vector<size_t>> by_machine;  // lists
    for (size_t list = 0; list < lists_.size(); ++list) {
      std::ranges::sort(loose_[list], {}, &CommsCall::begin);
      if (!loose_[list].empty()) by_machine[machines_[list]].push_back(list);
    }
    if (!must_overlap_) return;
    const bool is_one_machine = by_machine.size() == 1;
    for (const auto& on_machine : by_machine) {
      const std::vector<size_t>& lists = on_machine.second;
      const size_t base = *std::ranges::max_element(lists, {}, [this](size_t list) { return loose_[list].size(); });
      std::vector<Row> rows(loose_[base].size(), Row(lists_.size()));
      for (size_t i = 0; i < rows.size(); ++i) rows[i][base] = loose_[base][i];
      for (const size_t list : lists)
        if (list != base) find_loose(base, list, rows);
      std::vector<const CommsCall*> left;
      for (Row& row : rows) {
        if (std::ranges::count(row, nullptr) + 1 == std::ssize(row))
          left.push_back(row[base]);
        else
          add(std::move(row), MatchedBy::kTime);
      }
      // What goes on while no other one does is of a time in which nobody else was recorded.
      if (is_one_machine)
        std::erase_if(left, [&](const CommsCall* call) { return !is_beside_others(*call, base, lists); });
      loose_[base] = std::move(left);
    }
  }

  bool is_beside_others(const CommsCall& call, size_t base, const std::vector<size_t>& lists) const {
    return std::ranges::any_of(lists, [&](size_t list) {
      return list != base && std::ranges::any_of(loose_[list], [&](const CommsCall* c) { return overlap(*c, call); });
    });
  }

  // Goes through one list; each call that may be one of several of the base's is the one after which most follow.
  void find_loose(size_t base, size_t list, std::vector<Row>& rows) {
    const std::vector<const CommsCall*>& others = loose_[base];
    std::vector<const CommsCall*> left;
    const std::vector<const CommsCall*>& calls = loose_[list];
    size_t from = 0;  // in `others`: those before have ended
    for (size_t at = 0; at < calls.size();) {
      while (from < others.size() && others[from]->end < calls[at]->begin) ++from;
      size_t best = 0, most = 0, next = 0;
      for (size_t i = from; i < others.size() && others[i]->begin <= calls[at]->end; ++i) {
        const size_t follow = count_alike(calls, at, others, i);
        next = std::max(next, std::min(follow, most));
        if (follow <= most) continue;
        most = follow;
        best = i;
      }
      if (most == 0) {
        ++at;  // the base has not recorded it
      } else if (next == most || count_pauses(others, best, most) < kFewestPauses) {
        left.push_back(calls[at++]);
      } else {
        for (size_t n = 0; n < most; ++n) rows[best + n][list] = calls[at + n];
        at += most;
        from = best + most;
      }
    }
    loose_[list] = std::move(left);
  }

  // Those in which none goes on: pairs that are not the same soon do not go on at once behind one.
  static size_t count_pauses(const std::vector<const CommsCall*>& calls, size_t from, size_t count) {
    size_t pauses = 0;
    for (size_t i = from + 1; i < from + count; ++i) pauses += calls[i - 1]->end < calls[i]->begin;
    return pauses;
  }

  size_t count_alike(const std::vector<const CommsCall*>& a, size_t i, const std::vector<const CommsCall*>& b,
                     size_t k) const {
    size_t count = 0;
    while (i + count < a.size() && k + count < b.size() && overlap(*a[i + count], *b[k + count]) &&
           (!has_one_size_ || a[i + count]->bytes == b[k + count]->bytes))
      ++count;
    return count;
  }

  const bool has_one_size_;
  const bool must_overlap_;            // ranges that last until all are done. Not so what NCCL's calls take on the host
  const std::vector<size_t> members_;  // processes
  std::vector<uint32_t> machines_;     // by list, one a member
  std::vector<const std::vector<CommsCall>*> lists_;
  std::vector<Placed> placed_;
  std::vector<std::vector<const CommsCall*>> loose_;  // by list
  std::vector<Found> rows_;
};

using JobKey = std::pair<uint32_t, uint32_t>;  // and the clock
JobKey key_of(const CommsCalls& calls, Compared compared) {
  return {calls.job, compared == Compared::kClocks ? calls.reference : 0};
}

}  // namespace

bool waits_for_all(std::string_view name) {
  const std::string plain = plain_name(name);
  constexpr std::array<std::string_view, 4> kRooted = {"broadcast", "reduce", "gather", "scatter"};
  return !is_pair(name) && (plain.starts_with("reducescatter") ||
                            std::ranges::none_of(kRooted, [&plain](auto rooted) { return plain.starts_with(rooted); }));
}

std::map<CommsKind, MatchedKind> match(const std::vector<const CommsCalls*>& processes, Compared compared) {
  std::map<CommsKind, std::map<JobKey, std::vector<size_t>>> kinds;
  for (size_t i = 0; i < processes.size(); ++i)
    for (const auto& [kind, calls] : processes[i]->kinds)
      if (!is_pair(kind.name)) kinds[kind][key_of(*processes[i], compared)].push_back(i);
  std::map<CommsKind, MatchedKind> matched;
  for (auto& [kind, jobs] : kinds) {
    MatchedKind& all = matched[kind];
    const bool is_of_backend = is_backend_range(kind.name);
    for (auto& [key, members] : jobs) {
      if (members.size() < 2) continue;
      const auto is_known = [&](size_t i) { return processes[i]->has_one_group || !is_of_backend; };
      if (std::ranges::all_of(members, is_known)) {
        all.of_jobs.push_back(KindMatcher(kind, processes, members).run(all.uncertain));
        continue;
      }
      for (const size_t i : members) all.uncertain += processes[i]->kinds.at(kind).size();
    }
  }
  return matched;
}

std::map<CommsKind, std::vector<Pair>> match_pairs(const std::vector<const CommsCalls*>& processes, Compared compared) {
  // From, to, tag, torch's number and which of these.
  using Key = std::tuple<JobKey, int64_t, int64_t, int32_t, int64_t, uint64_t>;
  struct Side {
    size_t process;
    const CommsCall* call;
    const CommsKind* kind;
  };
  std::map<Key, Side> sends;
  std::map<CommsKind, std::map<Key, Side>> receives;
  for (size_t i = 0; i < processes.size(); ++i) {
    if (!processes[i]->rank) continue;
    for (const auto& [kind, calls] : processes[i]->kinds) {
      if (!is_pair(kind.name)) continue;
      const bool is_send = plain_name(kind.name).starts_with("send");
      std::map<std::tuple<int64_t, int32_t, int64_t>, uint64_t> nth;
      for (const CommsCall& call : calls) {
        // In a window what one sends in a step another may receive in the next one.
        if (call.peer < 0 || (call.number < 0 && call.step != 0)) continue;
        const int64_t own = *processes[i]->rank;
        const uint64_t count = nth[{call.peer, call.tag, call.number}]++;
        const Key key{key_of(*processes[i], compared),
                      is_send ? own : call.peer,
                      is_send ? call.peer : own,
                      call.tag,
                      call.number,
                      count};
        (is_send ? sends : receives[kind])[key] = {i, &call, &kind};
      }
    }
  }
  std::map<CommsKind, std::vector<Pair>> pairs;
  for (const auto& [kind, of_kind] : receives)
    for (const auto& [key, receive] : of_kind)
      if (const auto send = sends.find(key); send != sends.end())
        pairs[kind].push_back(
            {send->second.process, receive.process, send->second.call, receive.call, send->second.kind});
  return pairs;
}

}  // namespace torchprof::formats
