#include "formats/analysis/arrivals.h"

#include <algorithm>
#include <map>
#include <optional>

#include "formats/io/text.h"
#include "formats/trace/distributed.h"
#include "formats/trace/track_cursor.h"
#include "formats/values/collectives.h"

namespace torchprof::formats {
namespace {

struct ArrivalGroup {
  bool has_collectives = false;
  std::string text;
  int64_t size = -1;
  std::vector<int64_t> members;  // global ranks; empty: not known
};

struct ProcessArrivals {
  int64_t rank = 0;
  bool is_whole = true;                 // all of its run was recorded: what is counted is its number
  bool is_recorded = true;              // until its end, or now
  std::map<std::string, Arrival> said;  // by the group's name
  Arrival counted;
};

bool is_counted(std::string_view op) {
  return op.starts_with("c10d::") && !op.starts_with("c10d::send") && !op.starts_with("c10d::recv");
}

class Reader {
 public:
  Reader(const Process& process, int64_t rank, std::map<std::string, ArrivalGroup>& groups)
      : process_(process), groups_(groups) {
    result_.rank = result_.counted.rank = rank;
    result_.is_recorded = !process.stopped && (process.windows.empty() || !process.windows.back().closed);
    result_.is_whole =
        result_.is_recorded && process.windows.empty() && process.recycled_bytes == 0 && process.lost_events() == 0;
  }

  ProcessArrivals read() {
    for (const Track& track : process_.tracks)
      for (TrackCursor at(*process_.spool, track); !at.done(); at.advance()) add(at.record(), at.time());
    return std::move(result_);
  }

 private:
  void add(const RecordView& record, Ticks time) {
    if (record.kind() == Kind::OpBegin) {
      const std::string_view name = process_.string(record.as<OpBegin>().name);
      if (is_counted(name)) arrive(result_.counted, result_.counted.number + 1, name.substr(0, name.find('\0')), time);
    } else if (record.kind() == Kind::Collective) {
      Collective c;
      const auto& said = record.as<torchprof::Collective>();
      if (!decode_collective(process_.string(said.info), c) || c.name == "send" || c.name == "recv") return;
      if (said.sequence < 0 && !result_.is_whole) return;
      Arrival& last = result_.said[c.group];
      const int64_t number = said.sequence < 0 ? last.number + 1 : said.sequence;
      if (number >= last.number) arrive(last, number, c.name, time);
      ArrivalGroup& group = groups_[c.group];
      group.has_collectives = true;
      group.size = std::max(group.size, c.size);
      group.text = c.description.empty() ? c.group : c.group + " (" + c.description + ")";
    }
  }
  void arrive(Arrival& last, int64_t number, std::string_view name, Ticks time) {
    last.rank = result_.rank;
    last.number = number;
    last.time = process_.clock.to_unix(time);
    if (last.name != name) last.name = name;
  }

  const Process& process_;
  std::map<std::string, ArrivalGroup>& groups_;
  ProcessArrivals result_;
};

// "rank 2", "ranks 0, 1 and 3"
std::string ranks_text(const std::vector<int64_t>& ranks) {
  std::string out = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i)
    out.append(i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ").append(std::to_string(ranks[i]));
  return out;
}

}  // namespace

int64_t GroupArrivals::latest() const {
  int64_t most = -1;
  for (const Arrival& rank : ranks) most = std::max(most, rank.number);
  return most;
}

bool GroupArrivals::have_all_arrived() const {
  return std::ranges::all_of(ranks, [most = latest()](const Arrival& rank) { return rank.number == most; });
}

std::vector<GroupArrivals> arrivals(const Trace& trace) {
  std::map<std::string, ArrivalGroup> groups;
  std::vector<ProcessArrivals> processes;
  for (const Process& process : trace.processes) {
    const Distributed distributed = distributed_of(process);
    if (!distributed.rank) continue;
    for (const ProcessGroup& group : distributed.groups) groups[group.name].members = group.ranks;
    ProcessArrivals read = Reader(process, *distributed.rank, groups).read();
    // Workers of a rank have its number in their environment as well, but not torch.distributed's word for it.
    if (distributed.source.empty() || !read.said.empty() || read.counted.number >= 0)
      processes.push_back(std::move(read));
  }
  std::ranges::stable_sort(processes, {}, &ProcessArrivals::rank);
  std::vector<GroupArrivals> out;
  for (const auto& [name, group] : groups) {
    if (!group.has_collectives) continue;
    GroupArrivals& all = out.emplace_back(GroupArrivals{printable(group.text), group.size, {}, {}});
    for (const ProcessArrivals& p : processes) {
      const auto found = p.said.find(name);
      const bool is_member = std::ranges::find(group.members, p.rank) != group.members.end();
      if (found == p.said.end() && !is_member) continue;
      if (!p.is_recorded)
        all.unknown.push_back(p.rank);
      else
        all.ranks.push_back(found != p.said.end() ? found->second : Arrival{p.rank, -1, {}, {}});
    }
  }
  if (out.empty() && std::ranges::all_of(processes, &ProcessArrivals::is_whole)) {
    GroupArrivals& all = out.emplace_back();
    for (const ProcessArrivals& p : processes) all.ranks.push_back(p.counted);
  }
  std::erase_if(out, [](const GroupArrivals& group) { return group.ranks.size() < 2 || group.latest() < 0; });
  return out;
}

std::string arrivals_text(const GroupArrivals& group) {
  const int64_t latest = group.latest();
  std::vector<int64_t> there;
  std::string missing, name;
  for (const Arrival& rank : group.ranks) {
    if (rank.number == latest) {
      there.push_back(rank.rank);
      name = rank.name;
      continue;
    }
    missing += missing.empty() ? "; not yet by rank " : ", by rank ";
    missing += std::to_string(rank.rank) + ", which ";
    missing += rank.number < 0 ? "has begun none" : "is at number " + std::to_string(rank.number);
  }
  std::string out = printable(name) + ", number " + std::to_string(latest);
  if (!group.group.empty()) out += " of group " + group.group;
  out += ": begun by " + ranks_text(there) + missing;
  if (!group.unknown.empty()) out += "; not recorded any more: " + ranks_text(group.unknown);
  const auto in_run = static_cast<int64_t>(group.ranks.size() + group.unknown.size());
  if (group.size > in_run) out += "; " + std::to_string(group.size - in_run) + " ranks are not in this run";
  return out;
}

}  // namespace torchprof::formats
