#include "formats/trace/roles.h"

#include <doctest/doctest.h>

#include <cstring>
#include <deque>

#include "formats/trace/endings.h"
#include "tests/unit/support/spool_builder.h"

namespace roles_test {

using namespace torchprof;
using namespace torchprof::formats;
using test::SpoolBuilder;

namespace {

// A tree of processes: each gives its pid, its parent's, its command and its facts.
class Tree {
 public:
  SpoolBuilder& add(uint32_t pid, uint32_t parent, std::vector<std::string> command = {"python3", "train.py"}) {
    spools_.emplace_back(pid, std::move(command));
    spools_.back().header().parent_pid = parent;
    spools_.back().header().start.realtime.value += static_cast<int64_t>(spools_.size()) * 1'000'000;
    return spools_.back();
  }
  // "PID: ROLE", in the order of their places.
  std::vector<std::string> roles() const {
    return each([](const Process& p) { return p.role; });
  }
  // "PID: GROUP NAME"
  std::vector<std::string> groups() const {
    return each(
        [](const Process& p) { return p.group == 0 ? p.group_name : std::to_string(p.group) + " " + p.group_name; });
  }
  // "PID ... + HELPER ..." of each job
  std::string jobs() const {
    std::vector<const SpoolBuilder*> all;
    for (const SpoolBuilder& spool : spools_) all.push_back(&spool);
    const test::LoadedTrace trace{std::span<const SpoolBuilder* const>(all)};
    std::string text;
    for (const Job& job : jobs_of(trace->processes)) {
      if (!text.empty()) text += "; ";
      for (const size_t i : job.programs) text.append(std::to_string(trace->processes[i].pid)).append(" ");
      text += "+";
      for (const size_t i : job.helpers) text.append(" ").append(std::to_string(trace->processes[i].pid));
    }
    return text;
  }
  // "PID: how it ended"
  std::vector<std::string> ends() const { return each(ending_text); }

 private:
  template <class Text>
  std::vector<std::string> each(Text text) const {
    std::vector<const SpoolBuilder*> all;
    for (const SpoolBuilder& spool : spools_) all.push_back(&spool);
    const test::LoadedTrace trace{std::span<const SpoolBuilder* const>(all)};
    std::vector<std::string> out(trace->processes.size());
    for (const Process& p : trace->processes) out.at(p.place - 1) = std::to_string(p.pid) + ": " + text(p);
    return out;
  }

  std::deque<SpoolBuilder> spools_;
};

void worker(SpoolBuilder& spool, uint32_t pid, int number, int of = 2) {
  spool.meta("multiprocessing.process", std::to_string(pid) + "\tForkProcess-9");
  spool.meta("dataloader.worker", std::to_string(pid) + "\t" + std::to_string(number) + "\t" + std::to_string(of));
}

void name(SpoolBuilder& spool, uint32_t pid, const std::string& name) {
  spool.meta("multiprocessing.process", std::to_string(pid) + "\t" + name);
}

const std::vector<std::string> kSpawned{"python3", "-B", "-c",
                                        "from multiprocessing.spawn import spawn_main; spawn_main()"};

}  // namespace

TEST_CASE("torchrun, its ranks in their order, and the workers below their rank") {
  Tree tree;
  tree.add(10, 1, {"python3", "-m", "torch.distributed.run", "train.py"});
  tree.add(12, 10).meta("environment.RANK", "1");
  tree.add(11, 10).meta("environment.RANK", "0");
  SpoolBuilder& second = tree.add(22, 11, kSpawned);
  second.meta("environment.RANK", "0");
  worker(second, 22, 1);
  worker(tree.add(21, 11, kSpawned), 21, 0);
  tree.add(30, 12, {"python3", "/x/torch/_inductor/compile_worker/__main__.py", "--workers=2"});
  tree.add(33, 30, {"python3", "/x/torch/_inductor/compile_worker/__main__.py", "--workers=2"})
      .meta("multiprocessing.process", "33\tForkProcess-1");
  tree.add(31, 12, {"python3", "-c", "from multiprocessing.resource_tracker import main;main(5)"});
  tree.add(32, 12, {"git", "log"});
  CHECK(tree.roles() == std::vector<std::string>{"10: launcher of ranks", "11: rank 0",
                                                 "21: rank 0, DataLoader worker 0", "22: rank 0, DataLoader worker 1",
                                                 "12: rank 1", "32: child of rank 1", "30: rank 1, compile worker",
                                                 "33: rank 1, compile worker ForkProcess-1",
                                                 "31: rank 1, resource tracker"});
}

TEST_CASE("ranks that multiprocessing starts are ranks, what they start works for them") {
  Tree tree;
  tree.add(10, 1);
  tree.add(11, 10, kSpawned).meta("distributed.rank", "1");
  tree.add(12, 10, kSpawned).meta("distributed.rank", "0");
  tree.add(13, 11, kSpawned).meta("multiprocessing.process", "13\tSpawnPoolWorker-3");
  CHECK(tree.roles() == std::vector<std::string>{"10: ", "12: rank 0", "11: rank 1",
                                                 "13: rank 1, multiprocessing worker SpawnPoolWorker-3"});
}

TEST_CASE("a forked child has its parent's facts and command line, and not its role") {
  Tree tree;
  SpoolBuilder& parent = tree.add(10, 1);
  worker(parent, 10, 3);
  SpoolBuilder& child = tree.add(11, 10);
  worker(child, 10, 3);
  std::strcpy(child.header().forked_from, "a.spool");
  tree.add(20, 10, {"python3", "-c", "import sys; from multiprocessing.forkserver import main; main(8, 9, [])"});
  SpoolBuilder& served =
      tree.add(21, 20, {"python3", "-c", "from multiprocessing.forkserver import main; main(8, 9, [])"});
  std::strcpy(served.header().forked_from, "b.spool");
  CHECK(tree.roles() ==
        std::vector<std::string>{"10: DataLoader worker 3", "11: ", "20: fork server", "21: multiprocessing worker"});
}

TEST_CASE("hostile facts and a process that is its own parent give no role") {
  Tree tree;
  SpoolBuilder& first = tree.add(10, 10);
  first.meta("dataloader.worker", "10\t-7\t2");
  first.meta("distributed.rank", "99999999999999999999");
  std::strcpy(first.header().forked_from, "x.spool");
  tree.add(11, 11, {"python3"}).meta("multiprocessing.process", "11\tna\nme");
  tree.add(12, 11, {}).meta("dataloader.worker", "12\tx");
  CHECK(tree.roles() == std::vector<std::string>{"10: ", "11: multiprocessing worker na?me", "12: "});
}

TEST_CASE("workers of DataLoaders are grouped by parent and by the workers that their DataLoader has") {
  Tree tree;
  tree.add(10, 1).meta("environment.RANK", "0");
  tree.add(50, 1).meta("environment.RANK", "1");
  worker(tree.add(11, 10), 11, 0);
  worker(tree.add(12, 10), 12, 1);
  worker(tree.add(13, 10), 13, 0, 1);  // of the DataLoader for validation, alone
  worker(tree.add(51, 50), 51, 0);
  worker(tree.add(14, 10), 14, 0);
  worker(tree.add(15, 10), 15, 1);
  worker(tree.add(52, 50), 52, 1);
  CHECK(tree.roles() ==
        std::vector<std::string>{"10: rank 0", "13: rank 0, DataLoader worker 0",
                                 "11: rank 0, DataLoader worker 0, epoch 1", "12: rank 0, DataLoader worker 1, epoch 1",
                                 "14: rank 0, DataLoader worker 0, epoch 2", "15: rank 0, DataLoader worker 1, epoch 2",
                                 "50: rank 1", "51: rank 1, DataLoader worker 0", "52: rank 1, DataLoader worker 1"});
  const std::string of_0 = "1 DataLoader workers of rank 0, 2 epochs", of_1 = "2 DataLoader workers of rank 1";
  CHECK(tree.groups() == std::vector<std::string>{"10: ", "13: ", "11: " + of_0, "12: " + of_0, "14: " + of_0,
                                                  "15: " + of_0, "50: ", "51: " + of_1, "52: " + of_1});
}

TEST_CASE("workers of pools are grouped, processes with functions of their own are not") {
  Tree tree;
  tree.add(10, 1, {"python3", "/usr/bin/accelerate", "launch", "train.py"});
  name(tree.add(11, 10), 11, "ForkPoolWorker-1");
  name(tree.add(12, 10), 12, "SpawnPoolWorker-2");
  name(tree.add(13, 10), 13, "Process-1");
  name(tree.add(14, 10), 14, "Process-2");
  for (const uint32_t pid : {15u, 19u}) {
    SpoolBuilder& executor = tree.add(pid, 10);
    name(executor, pid, "ForkProcess-3");
    executor.function("/usr/lib/python3.11/concurrent/futures/process.py", 200, "_process_worker");
  }
  SpoolBuilder& rank = tree.add(16, 10);
  name(rank, 16, "SpawnPoolWorker-4");
  rank.meta("distributed.rank", "0");
  tree.add(17, 10, {"python3", "eval.py"});
  tree.add(18, 10, {"python3", "eval.py"});
  CHECK(tree.roles().front() == "10: launcher of ranks");
  const std::string pool = "1 pool workers";
  const std::string all = "2 executor workers";
  CHECK(tree.groups() == std::vector<std::string>{"10: ", "17: ", "18: ", "16: ", "13: ", "14: ", "11: " + pool,
                                                  "12: " + pool, "15: " + all, "19: " + all});
}

TEST_CASE("a compiler and what it forks are one group") {
  Tree tree;
  const std::vector<std::string> compiler{"python3", "/x/torch/_inductor/compile_worker/__main__.py", "--workers=2"};
  tree.add(10, 1);
  tree.add(11, 10, compiler);
  tree.add(12, 11, compiler);
  tree.add(13, 11, compiler);
  const std::string group = "1 compile workers";
  CHECK(tree.groups() == std::vector<std::string>{"10: ", "11: " + group, "12: " + group, "13: " + group});
}

TEST_CASE("how a process ended is what its parent saw, and the usual end of a worker is none by force") {
  Tree tree;
  SpoolBuilder& parent = tree.add(10, 1);
  parent.clean_exit(90'000'000);
  for (const auto& [pid, end] : std::vector<std::pair<int, std::string>>{{11, "0"},
                                                                         {12, "-15\tsignalled"},
                                                                         {13, "-15"},
                                                                         {14, "-9\tsignalled"},
                                                                         {15, "3"},
                                                                         {16, "0"},
                                                                         {17, "-15\tsignalled"},
                                                                         {18, "-99999999999"},
                                                                         {10, "1"}})
    parent.meta("child." + std::to_string(pid), end);
  for (const uint32_t pid : {11u, 12u, 13u, 14u, 15u})
    name(tree.add(pid, 10), pid, "PoolWorker-" + std::to_string(pid));
  for (const uint32_t pid : {16u, 17u, 18u}) tree.add(pid, 10);
  CHECK(tree.ends() == std::vector<std::string>{"10: clean", "16: ended", "17: SIGTERM by parent",
                                                "18: killed or replaced", "11: ended", "12: ended",
                                                "13: killed by SIGTERM", "14: SIGKILL by parent", "15: exit 3"});
}

TEST_CASE("an ending is that of a child of who saw it, not of another process that had its number later") {
  Tree tree;
  tree.add(10, 1).meta("child.11", "3");
  tree.add(11, 10);
  tree.add(20, 1);
  tree.add(11, 20);
  CHECK(tree.ends() == std::vector<std::string>{"10: killed or replaced", "11: exit 3", "11: killed or replaced",
                                                "20: killed or replaced"});
}

TEST_CASE("the end of a worker of a fork server is that which the server told its parent, though it recorded nothing") {
  Tree tree;
  SpoolBuilder& parent = tree.add(10, 1);
  parent.meta("child.12", "4");
  parent.meta("child.13", "5");
  name(tree.add(12, 11), 12, "Process-1");  // 11 is the server
  tree.add(13, 9);                          // of somebody else
  CHECK(tree.ends() == std::vector<std::string>{"10: killed or replaced", "13: killed or replaced", "12: exit 4"});
}

TEST_CASE("two trainings of one script are two jobs, each with its workers") {
  Tree tree;
  worker(tree.add(1, 9), 1, 0);  // of a parent that was not recorded
  tree.add(10, 2);
  worker(tree.add(11, 10, kSpawned), 11, 0);
  tree.add(12, 10, {"python3", "-c", "from multiprocessing.resource_tracker import main;main(5)"});
  tree.add(20, 2);
  worker(tree.add(21, 20, kSpawned), 21, 0);
  tree.add(22, 20, {"python3", "other.py"});
  CHECK(tree.jobs() == "1 +; 10 + 11 12; 20 + 21; 22 +");
}

TEST_CASE("the ranks of a job are together, those of another launcher are not") {
  Tree tree;
  for (const uint32_t first : {10u, 20u}) {
    tree.add(first, 1, {"python3", "-m", "torch.distributed.run", "train.py"});
    for (const uint32_t rank : {1u, 0u}) {
      SpoolBuilder& spool = tree.add(first + 1 + rank, first);
      spool.meta("environment.RANK", std::to_string(rank));
      spool.meta("environment.WORLD_SIZE", "2");
      spool.clean_exit(900'000'000);
      worker(tree.add(first + 5 + rank, first + 1 + rank, kSpawned), first + 5 + rank, 0);
    }
  }
  CHECK(tree.jobs() == "11 12 + 15 16 10; 21 22 + 25 26 20");
}

}  // namespace roles_test
