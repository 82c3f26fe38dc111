#include "formats/trace/roles.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "formats/io/text.h"
#include "formats/trace/distributed.h"

namespace torchprof::formats {
namespace {

constexpr size_t kWidest = 48;  // columns of a name that the program gave
constexpr size_t kNone = static_cast<size_t>(-1);

// Children of one process are shown in this order.
enum class ProcessKind : uint8_t {
  kRankLauncher,
  kProgram,
  kDataLoaderWorker,
  kMultiprocessingWorker,
  kCompileWorker,
  kForkServer,
  kResourceTracker,
};

struct Standing {
  ProcessKind kind = ProcessKind::kProgram;
  std::string name{};             // given by multiprocessing
  std::optional<int64_t> rank{};  // its own, or that of the process that it works for
  bool is_rank = false;
  int64_t worker = 0;       // number of a DataLoader worker
  int64_t workers = 0;      // that its DataLoader has
  int64_t epoch = 0;        // from 1; 0: there is but one
  std::string_view pool{};  // "pool workers", "executor workers"; empty: it is of neither
  size_t parent = kNone;
  uint32_t group = 0;  // in the order of the first members' starts
};

// VALUE of a fact "PID tab VALUE" if the PID is the process's own: a forked child has its parent's facts, too.
std::string_view own_fact(const Process& process, std::string_view key) {
  std::string_view fact = process.meta(key);
  const std::string pid = std::to_string(process.pid) + '\t';
  return fact.starts_with(pid) ? fact.substr(pid.size()) : std::string_view{};
}

struct Program {
  // One of them: `python SCRIPT`, `python -m MODULE` or `python -c TEXT`.
  std::string_view script{}, module{}, text{};
  std::string_view argument{};  // the script's first
};

// What an interpreter runs, from its arguments.
Program program_of(std::span<const std::string_view> command) {
  for (size_t i = 1; i < command.size(); ++i) {
    const std::string_view option = command[i], value = i + 1 < command.size() ? command[i + 1] : std::string_view{};
    if (option == "-m") return {.module = value};
    if (option == "-c") return {.text = value};
    if (option == "-X" || option == "-W") ++i;
    if (!option.starts_with('-')) return {.script = option, .argument = value};
  }
  return {};
}

ProcessKind kind_of_command(const Process& process) {
  const auto [script, module, text, argument] = program_of(process.command);
  const auto imports_main_of = [text = text](std::string_view helper) {
    return text.find("from multiprocessing." + std::string(helper)) != text.npos;  // 3.14 puts a line before it
  };
  if (imports_main_of("spawn import")) return ProcessKind::kMultiprocessingWorker;
  if (imports_main_of("forkserver import")) return ProcessKind::kForkServer;
  if (imports_main_of("resource_tracker import")) return ProcessKind::kResourceTracker;
  if (script.ends_with("torch/_inductor/compile_worker/__main__.py") || module == "torch._inductor.compile_worker")
    return ProcessKind::kCompileWorker;
  if (script == "torchrun" || script.ends_with("/torchrun") || module == "torch.distributed.run" ||
      module == "torch.distributed.launch" || module == "accelerate.commands.launch" ||
      script.ends_with("/accelerate-launch") || (script.ends_with("/accelerate") && argument == "launch"))
    return ProcessKind::kRankLauncher;
  return ProcessKind::kProgram;
}

bool runs_executor(const Process& process) {
  return std::ranges::any_of(process.functions, [&](const FunctionDef& f) {
    return process.string(f.name) == "_process_worker" &&
           process.string(f.file).ends_with("concurrent/futures/process.py");
  });
}

Standing standing_of(const Process& process) {
  Standing standing;
  if (std::string_view worker = own_fact(process, "dataloader.worker"); !worker.empty()) {
    const char* const last = worker.data() + worker.size();
    const auto [end, error] = std::from_chars(worker.data(), last, standing.worker);
    if (error == std::errc{} && standing.worker >= 0) standing.kind = ProcessKind::kDataLoaderWorker;
    if (end != last) std::from_chars(end + 1, last, standing.workers);
  }
  standing.rank = distributed_of(process).rank;
  standing.name = shorten(printable(own_fact(process, "multiprocessing.process")), kWidest);
  if (standing.kind == ProcessKind::kDataLoaderWorker) return standing;
  standing.kind = kind_of_command(process);
  // Inductor's compile workers have multiprocessing's names, too: they run in a pool of processes.
  if (!standing.name.empty() && standing.kind != ProcessKind::kCompileWorker) {
    standing.kind = ProcessKind::kMultiprocessingWorker;
    if (standing.name.find("PoolWorker-") != standing.name.npos)
      standing.pool = "pool workers";
    else if (runs_executor(process))
      standing.pool = "executor workers";
    return standing;
  }
  if (process.forked_from.empty()) return standing;
  // A forked child has its parent's command line. Only those of a fork server and of a compile worker do its work.
  if (standing.kind == ProcessKind::kForkServer) standing.kind = ProcessKind::kMultiprocessingWorker;
  if (standing.kind != ProcessKind::kCompileWorker && standing.kind != ProcessKind::kMultiprocessingWorker)
    standing.kind = ProcessKind::kProgram;
  return standing;
}

// A parent comes before its children in `processes`.
std::vector<size_t> parents_of(const std::vector<Process>& processes) {
  std::unordered_map<std::string, size_t> of_spool;
  std::map<std::pair<std::string_view, uint32_t>, size_t> of_pid;  // the latest so far
  std::vector<size_t> parents(processes.size(), kNone);
  for (size_t i = 0; i < processes.size(); ++i) {
    const Process& p = processes[i];
    if (const auto spool = of_spool.find(std::string(p.forked_from)); spool != of_spool.end())
      parents[i] = spool->second;
    else if (const auto pid = of_pid.find({p.host, p.parent_pid}); pid != of_pid.end())
      parents[i] = pid->second;
    of_spool[p.file.filename().string()] = i;
    of_pid[{p.host, p.pid}] = i;
  }
  return parents;
}

// Hands ranks down from parents to the children that work for them. A parent comes before its children.
void settle_ranks(std::vector<Standing>& standings) {
  for (Standing& s : standings) {
    const Standing* parent = s.parent == kNone ? nullptr : &standings[s.parent];
    const bool is_parents = parent && parent->rank && (!s.rank || s.rank == parent->rank);
    if (is_parents) s.rank = parent->rank;
    // torch.multiprocessing starts ranks, too.
    s.is_rank =
        s.rank && !is_parents && (s.kind == ProcessKind::kProgram || s.kind == ProcessKind::kMultiprocessingWorker);
  }
}

std::string role_text(const Standing& s) {
  std::string rank = s.rank ? "rank " + std::to_string(*s.rank) : "";
  if (s.is_rank) return rank;
  const auto of_rank = [&](const std::string& text) { return rank.empty() ? text : rank + ", " + text; };
  switch (s.kind) {
    case ProcessKind::kRankLauncher:
      return "launcher of ranks";
    case ProcessKind::kProgram:
      return rank.empty() ? "" : "child of " + rank;
    case ProcessKind::kDataLoaderWorker:
      return of_rank("DataLoader worker " + std::to_string(s.worker) +
                     (s.epoch != 0 ? ", epoch " + std::to_string(s.epoch) : ""));
    case ProcessKind::kMultiprocessingWorker:
      return of_rank("multiprocessing worker" + (s.name.empty() ? "" : " " + s.name));
    case ProcessKind::kCompileWorker:
      return of_rank("compile worker" + (s.name.empty() ? "" : " " + s.name));
    case ProcessKind::kForkServer:
      return of_rank("fork server");
    case ProcessKind::kResourceTracker:
      return of_rank("resource tracker");
  }
  return {};
}

// What a worker of this kind is called when there are several; empty: such processes are not shown together. A rank
// never is: what it does is its own.
std::string_view plural_of(const Standing& s) {
  if (s.is_rank) return {};
  switch (s.kind) {
    case ProcessKind::kDataLoaderWorker:
      return "DataLoader workers";
    case ProcessKind::kMultiprocessingWorker:
      return s.pool;
    case ProcessKind::kCompileWorker:
      return "compile workers";
    case ProcessKind::kForkServer:
      return "fork servers";
    case ProcessKind::kResourceTracker:
      return "resource trackers";
    case ProcessKind::kRankLauncher:
    case ProcessKind::kProgram:
      break;
  }
  return {};
}

struct Group {
  std::vector<size_t> members;
  std::map<int64_t, int64_t> epochs_of;  // by number of the worker
  int64_t epochs = 0;
};

// Numbers the epochs, and fills in `group` and Process::group_name. `processes` are sorted by start.
void make_groups(std::vector<Standing>& standings, std::vector<Process>& processes) {
  using Key = std::tuple<std::string_view, size_t, std::string_view, uint32_t, int64_t>;
  std::map<Key, size_t> numbers;
  std::vector<Group> groups;
  for (size_t i = 0; i < standings.size(); ++i) {
    Standing& s = standings[i];
    const std::string_view plural = plural_of(s);
    if (plural.empty()) continue;
    size_t parent = s.parent;  // Inductor's compiler has workers of its own
    while (s.kind == ProcessKind::kCompileWorker && parent != kNone && standings[parent].kind == s.kind)
      parent = standings[parent].parent;
    // Of a parent that was not recorded its number is known.
    const Key key{plural, parent, parent == kNone ? processes[i].host : std::string_view{},
                  parent == kNone ? processes[i].parent_pid : 0, s.workers};
    const auto [it, is_new] = numbers.try_emplace(key, groups.size());
    if (is_new) groups.emplace_back();
    Group& group = groups[it->second];
    group.members.push_back(i);
    s.epoch = ++group.epochs_of[s.worker];
    group.epochs = std::max(group.epochs, s.epoch);
  }
  uint32_t number = 0;
  for (const Group& group : groups) {
    const Standing& first = standings[group.members.front()];
    const bool has_epochs = first.kind == ProcessKind::kDataLoaderWorker && group.epochs > 1;
    std::string name(plural_of(first));
    if (first.rank) name += " of rank " + std::to_string(*first.rank);
    if (has_epochs) name += ", " + std::to_string(group.epochs) + " epochs";
    if (group.members.size() > 1) ++number;
    for (const size_t i : group.members) {
      if (!has_epochs) standings[i].epoch = 0;
      if (group.members.size() == 1) continue;
      standings[i].group = number;
      processes[i].group_name = name;
    }
  }
}

// The processes' indices in the order in which they are shown.
std::vector<size_t> order_of(const std::vector<Standing>& standings) {
  std::vector<size_t> all(standings.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = i;
  std::ranges::sort(all, {}, [&](size_t i) {
    const Standing& s = standings[i];
    return std::tuple(s.is_rank ? ProcessKind::kProgram : s.kind, s.is_rank, s.is_rank ? *s.rank : 0, s.group, s.epoch,
                      s.worker, i);
  });
  std::vector<std::vector<size_t>> children(standings.size());
  std::vector<size_t> open, order;
  for (const size_t i : all) (standings[i].parent == kNone ? open : children[standings[i].parent]).push_back(i);
  std::ranges::reverse(open);
  while (!open.empty()) {
    const size_t i = open.back();
    open.pop_back();
    order.push_back(i);
    open.insert(open.end(), children[i].rbegin(), children[i].rend());
  }
  return order;
}

}  // namespace

bool is_loader(std::string_view role) { return role.find("DataLoader worker") != role.npos; }

bool runs_multiprocessing(const Process& process) {
  const ProcessKind kind = kind_of_command(process);
  return kind == ProcessKind::kMultiprocessingWorker || kind == ProcessKind::kForkServer ||
         kind == ProcessKind::kResourceTracker;
}

namespace {

// Finds the job of a rank among those of other ranks; kNone: it begins one.
class RankJobs {
 public:
  explicit RankJobs(const std::vector<Process>& processes) : processes_(processes) {}

  size_t find(size_t process, int64_t rank, size_t launcher) {
    const Process& p = processes_[process];
    const std::optional<int64_t> size = distributed_of(p).world_size;
    One* found = nullptr;
    for (One& one : all_) {
      if (one.size != size || one.ranks.contains(rank) || one.end < p.start) continue;
      if (found == nullptr || (found->launcher != launcher && one.launcher == launcher)) found = &one;
    }
    // With launchers of their own they may be of different hosts, or of different jobs.
    if (found != nullptr && found->launcher != launcher && found->host == p.host) found = nullptr;
    if (found == nullptr) {
      all_.push_back({.size = size, .launcher = launcher, .host = p.host, .end = p.end});
      found = &all_.back();
    }
    found->ranks.insert(rank);
    found->end = std::max(found->end, p.end);
    return static_cast<size_t>(found - all_.data());
  }

 private:
  struct One {
    std::optional<int64_t> size{};
    size_t launcher = kNone;
    std::string_view host{};
    UnixNs end{};
    std::set<int64_t> ranks{};
  };
  const std::vector<Process>& processes_;
  std::vector<One> all_;
};

std::vector<Standing> standings_of(const std::vector<Process>& processes) {
  const std::vector<size_t> parents = parents_of(processes);
  std::vector<Standing> standings;
  for (size_t i = 0; i < processes.size(); ++i) {
    standings.push_back(standing_of(processes[i]));
    standings.back().parent = parents[i];
  }
  settle_ranks(standings);
  return standings;
}

}  // namespace

std::vector<Job> jobs_of(const std::vector<Process>& processes) {
  const std::vector<Standing> standings = standings_of(processes);
  std::vector<Job> jobs;
  std::vector<size_t> of(processes.size(), kNone);  // the job of each
  std::map<size_t, size_t> by_rank_job;
  RankJobs rank_jobs(processes);
  const auto begin = [&](size_t i) {
    jobs.emplace_back();
    of[i] = jobs.size() - 1;
  };
  for (size_t i = 0; i < processes.size(); ++i) {
    const Standing& s = standings[i];
    if (s.kind == ProcessKind::kRankLauncher) continue;
    const bool is_program = s.kind == ProcessKind::kProgram && processes[i].forked_from.empty();
    const size_t parents_job = s.parent == kNone ? kNone : of[s.parent];
    if (s.is_rank) {
      const auto [known, is_new] = by_rank_job.try_emplace(rank_jobs.find(i, *s.rank, s.parent), jobs.size());
      if (is_new) jobs.emplace_back();
      of[i] = known->second;
    } else if (!is_program && parents_job != kNone) {
      of[i] = parents_job;
      jobs[of[i]].helpers.push_back(i);
      continue;
    } else {
      begin(i);
    }
    jobs[of[i]].programs.push_back(i);
  }
  // A launcher works for those that it started.
  for (size_t i = 0; i < processes.size(); ++i) {
    if (standings[i].kind != ProcessKind::kRankLauncher) continue;
    for (size_t child = i + 1; child < processes.size() && of[i] == kNone; ++child)
      if (standings[child].parent == i) of[i] = of[child];
    if (of[i] != kNone) {
      jobs[of[i]].helpers.push_back(i);
    } else {
      begin(i);
      jobs[of[i]].programs.push_back(i);
    }
  }
  for (Job& job : jobs)
    std::ranges::stable_sort(job.programs, {}, [&](size_t i) { return standings[i].is_rank ? *standings[i].rank : 0; });
  return jobs;
}

std::vector<uint32_t> job_numbers(const std::vector<Process>& processes) {
  std::vector<uint32_t> numbers(processes.size());
  uint32_t number = 0;
  for (const Job& job : jobs_of(processes)) {
    for (const auto* members : {&job.programs, &job.helpers})
      for (const size_t i : *members) numbers[i] = number;
    ++number;
  }
  return numbers;
}

void assign_roles(std::vector<Process>& processes) {
  std::vector<Standing> standings = standings_of(processes);
  make_groups(standings, processes);
  uint32_t place = 0;
  for (const size_t i : order_of(standings)) processes[i].place = ++place;
  for (size_t i = 0; i < processes.size(); ++i) {
    const Standing& s = standings[i];
    processes[i].role = role_text(s);
    processes[i].is_helper = !s.is_rank && s.kind != ProcessKind::kProgram && s.kind != ProcessKind::kRankLauncher;
    processes[i].group = s.group;
  }
}

std::vector<const Process*> in_shown_order(const std::vector<Process>& processes) {
  std::vector<const Process*> shown(processes.size());
  for (const Process& p : processes) shown[p.place - 1] = &p;
  return shown;
}

}  // namespace torchprof::formats
