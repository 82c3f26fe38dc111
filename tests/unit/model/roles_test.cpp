#include "formats/trace/roles.h"

#include <doctest/doctest.h>

#include <cstring>
#include <deque>

#include "tests/unit/support/spool_builder.h"

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
    std::vector<const SpoolBuilder*> all;
    for (const SpoolBuilder& spool : spools_) all.push_back(&spool);
    const test::LoadedTrace trace{std::span<const SpoolBuilder* const>(all)};
    std::vector<std::string> out(trace->processes.size());
    for (const Process& p : trace->processes) out.at(p.place - 1) = std::to_string(p.pid) + ": " + p.role;
    return out;
  }

 private:
  std::deque<SpoolBuilder> spools_;
};

void worker(SpoolBuilder& spool, uint32_t pid, int number) {
  spool.meta("multiprocessing.process", std::to_string(pid) + "\tForkProcess-9");
  spool.meta("dataloader.worker", std::to_string(pid) + "\t" + std::to_string(number) + "\t2");
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
