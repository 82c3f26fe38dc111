#include "formats/write/format.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "formats/write/kineto/kineto.h"
#include "formats/write/size_estimate.h"
#include "tests/unit/support/small_training.h"
#include "tests/unit/support/spool_builder.h"

namespace format_test {

using namespace torchprof;
using namespace torchprof::formats;
using test::SpoolBuilder;

namespace {

using Names = std::vector<std::string>;

Names names_of(std::string_view format, Processes processes) {
  Names names;
  for (const PlannedFile& file : files_of(*find_format(format), processes)) {
    CHECK(file.count == (file.name == run_file(*find_format(format)) ? processes.size() : 1));
    names.push_back(file.name);
  }
  return names;
}

}  // namespace

TEST_CASE("a run has one file of a format; memory formats and ranks have those of processes") {
  SpoolBuilder launcher(10), rank1(11), rank0(12), again(10);
  rank1.meta("distributed.rank", "1");
  rank0.meta("distributed.rank", "0");
  test::train(launcher, 10);
  test::train(rank1, 11);
  test::train(rank0, 12);
  test::train(again, 10);
  const std::array<const SpoolBuilder*, 2> both{&launcher, &again};
  const std::array<const SpoolBuilder*, 3> all{&launcher, &rank1, &rank0};
  const test::LoadedTrace one(launcher), exec(both), ranks(all);

  CHECK(names_of("kineto", ranks->processes) == Names{"trace.json.gz"});
  CHECK(names_of("table", ranks->processes) == Names{"summary.txt"});
  CHECK(names_of("kineto-ranks", one->processes) == Names{"process10.pt.trace.json.gz"});
  CHECK(names_of("kineto-ranks", exec->processes) ==
        Names{"process10.pt.trace.json.gz", "process10-2.pt.trace.json.gz"});
  Names of_ranks = names_of("kineto-ranks", ranks->processes);
  std::ranges::sort(of_ranks);
  CHECK(of_ranks == Names{"rank0.pt.trace.json.gz", "rank1.pt.trace.json.gz"});
  CHECK(names_of("memory-snapshot", one->processes) == Names{"trace.memory.pickle"});
  CHECK(names_of("memory-snapshot", ranks->processes).size() == 4);
}

TEST_CASE("names of this version and of earlier ones are outputs, those of other files are not") {
  for (const char* name : {"trace.json.gz", "rank0.pt.trace.json.gz", "summary.txt", "trace.sqlite",
                           "merged.pt.trace.json.gz", "vm_1459.1795251740.pt.trace.json.gz", "merged.perfetto-trace"})
    CHECK_MESSAGE(may_be_output(name), name);
  for (const char* name : {"data.json.gz", "mytrace.json.gz", ".json.gz", ".pt.trace.json.gz", "train.py", ""})
    CHECK_MESSAGE(!may_be_output(name), name);
}

TEST_CASE("the size of a trace is known before it is written") {
  SpoolBuilder b(100);
  b.use_chunks_of(64 * 1024);
  const TrackId track = b.thread(100);
  const FunctionId f = b.function("torch/nn/modules/module.py", 1190, "some_function");
  b.on(track);
  for (uint64_t i = 0; i < 1000; ++i) {
    b.at(i * 1000 + 1).begin(f);
    if (i % 3 == 0) b.op(i + 1, "aten::addmm").at(i * 1000 + 500).op_end(i + 1);
    b.at(i * 1000 + 900).end(f);
  }
  const test::LoadedTrace trace(b);
  const auto written = static_cast<double>(test::written(*trace, write_kineto).size());
  const auto estimated = static_cast<double>(json_size_estimate(trace->processes));
  CHECK(estimated > 0.8 * written);
  CHECK(estimated < 1.25 * written);
}

}  // namespace format_test
