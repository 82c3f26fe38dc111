#include "formats/trace/trace.h"

#include <doctest/doctest.h>

#include <fstream>
#include <random>

#include "formats/analysis/statistics.h"
#include "formats/io/error.h"
#include "formats/report/summary.h"
#include "formats/write/kineto/kineto.h"
#include "tests/unit/support/spool_builder.h"

namespace trace_test {

using namespace torchprof;
using namespace torchprof::formats;
using test::SpoolBuilder;

TEST_CASE("definitions, counts and losses of a process are loaded") {
  SpoolBuilder b(42, {"/usr/bin/python3", "train.py", "--epochs", "3"});
  const TrackId main = b.thread(42, "python3", 1);
  b.thread(43, "worker");
  const FunctionId f = b.function("f");
  b.meta("python.version", "3.11");
  b.source("python", SourceState::kOn, "PyEval_SetProfile");
  b.source("operators", SourceState::kOn, "yes");
  b.source("operators", SourceState::kFailed, "the probe does not agree");
  b.on(main).at(1000).begin(f).c_begin("<built-in len>").c_end().end(f).op(1, "aten::add").op_end(1);
  b.header().lost[static_cast<size_t>(LossCause::kSizeLimit)] = 7;
  b.clean_exit(5000);
  const test::LoadedTrace trace(b);

  REQUIRE(trace->processes.size() == 1);
  const Process& p = trace->processes[0];
  CHECK(p.pid == 42);
  CHECK(p.host == "box");
  CHECK(p.command.back() == "3");
  CHECK(p.clean_exit);
  CHECK(p.start == UnixNs{test::kStartNs});
  CHECK(p.end == UnixNs{test::kStartNs + 5000});
  REQUIRE(p.tracks.size() == 2);
  CHECK(p.tracks[0].tid == 42);
  CHECK(p.tracks[0].torch_threads == std::vector<uint64_t>{1});
  CHECK(p.tracks[1].name == "worker");
  CHECK(p.meta("python.version") == "3.11");
  CHECK(p.meta("nothing") == "");
  REQUIRE(p.sources.size() == 2);
  CHECK(p.sources[1].state == SourceState::kFailed);
  CHECK(p.sources[1].detail == "the probe does not agree");
  CHECK(p.counts.python == 1);
  CHECK(p.counts.c_calls == 1);
  CHECK(p.counts.operators == 1);
  CHECK(p.counts.records == 6);
  CHECK(p.lost_events() == 7);
  CHECK_FALSE(p.damage);
}

TEST_CASE("a process that was killed ends with its last event") {
  SpoolBuilder b;
  b.thread(100);
  const FunctionId f = b.function("f");
  b.at(1000).begin(f).at(2500).end(f);
  const test::LoadedTrace trace(b);
  CHECK_FALSE(trace->processes[0].clean_exit);
  CHECK(trace->processes[0].end == UnixNs{test::kStartNs + 2500});
}

TEST_CASE("time that others had the profile function is summed by who had it") {
  SpoolBuilder b;
  const TrackId first = b.thread(100), second = b.thread(101);
  b.on(first).at(1'000).blind(first, "cProfile").at(3'000).blind_end(first, "cProfile");
  b.at(5'000)
      .blind(second, "torch.profiler")
      .blind(first, "torch.profiler")
      .at(6'000)
      .blind_end(first, "torch.profiler");
  b.on(second).at(7'000).thread_end();
  b.on(first).at(8'000).blind(first, "cProfile");
  b.clean_exit(10'000);
  const test::LoadedTrace trace(b);
  const std::vector<Blind>& blind = trace->processes.front().blind;
  REQUIRE(blind.size() == 2);
  CHECK((blind[0].by == "cProfile" && blind[0].times == 2 && blind[0].ns == 2'000 + 2'000));
  CHECK((blind[1].by == "torch.profiler" && blind[1].times == 2 && blind[1].ns == 1'000 + 2'000));
}

TEST_CASE("a process begins with its first event, also one that is older than its spool") {
  SpoolBuilder b;
  b.thread(100);
  const FunctionId f = b.function("f");
  b.at(0).begin(f).at(1'000).end(f);
  b.header().start.ticks.value += 50'000'000;
  b.header().start.monotonic += 50'000'000;
  b.header().start.realtime.value += 50'000'000;
  test::TemporaryDirectory directory;
  auto bytes = b.bytes();
  for (const int n : {0, 1}) {
    ClockSample& base = reinterpret_cast<ChunkHeader*>(bytes.data() + kFileHeaderSize + n * test::kTestChunkSize)->base;
    base = {{base.ticks.value - 50'000'000}, base.monotonic - 50'000'000, {base.realtime.value - 50'000'000}};
  }
  std::ofstream(directory / "a.spool", std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  const Trace trace = load({directory / "a.spool"});
  CHECK(trace.processes[0].start == UnixNs{test::kStartNs});
  CHECK(trace.processes[0].end == UnixNs{test::kStartNs + 50'000'000});
}

TEST_CASE("one bad spool does not keep the others from loading") {
  test::TemporaryDirectory directory;
  SpoolBuilder b;
  b.thread(100);
  b.write(directory / "good.spool");
  std::ofstream(directory / "bad.spool") << "nonsense";
  std::ofstream(directory / "notes.txt") << "not asked for";
  const Trace trace = load(find_spools(directory.path()));
  CHECK(trace.processes.size() == 1);
  REQUIRE(trace.unreadable.size() == 1);
  CHECK(trace.unreadable[0].file == directory / "bad.spool");
  CHECK(trace.unreadable[0].reason == "it ends within its header");
  CHECK_THROWS_WITH_AS(find_spools(directory / "none"),
                       ("cannot list " + (directory / "none").string() + ": No such file or directory").c_str(), Error);
}

TEST_CASE("processes that count one TSC are put on one clock, that of the widest baseline") {
  // Three ticks a nanosecond. The second process lives for 2 us only and its wall clock was set back by a second:
  // alone it would know neither the rate nor the offset.
  SpoolBuilder parent(1), child(2);
  parent.use_tsc(3);
  parent.thread(1);
  const FunctionId f = parent.function("f");
  parent.at(1'000'000).begin(f).at(3'000'000'000).end(f);
  parent.clean_exit(3'000'000'000);
  child.use_tsc(3);
  child.header().start.ticks.value += 3'000'000'000;
  child.header().start.monotonic += 1'000'000'000;
  child.header().start.realtime.value += 0;
  child.thread(2);
  const FunctionId g = child.function("g");
  child.at(1000).begin(g).at(2000).end(g);
  const SpoolBuilder* both[] = {&child, &parent};
  const test::LoadedTrace trace(both);
  REQUIRE(trace->processes.size() == 2);
  CHECK(trace->processes[1].pid == 2);
  CHECK(trace->processes[1].start == UnixNs{test::kStartNs + 1'000'000'000});
  CHECK(trace->processes[1].end == UnixNs{test::kStartNs + 1'000'002'000});
  CHECK(trace->end == UnixNs{test::kStartNs + 3'000'000'000});
}

TEST_CASE("processes of another boot keep their own clock") {
  SpoolBuilder a(1), b(2);
  for (SpoolBuilder* s : {&a, &b}) s->use_tsc(3);
  b.header().start.ticks.value += 900'000'000'000;  // not what its monotonic clock says
  b.header().start.realtime.value += 5'000;
  a.clean_exit(1'000'000'000);
  b.clean_exit(2'000'000'000);
  const SpoolBuilder* both[] = {&a, &b};
  const test::LoadedTrace trace(both);
  CHECK(trace->processes[0].start == UnixNs{test::kStartNs});
  CHECK(trace->processes[1].start == UnixNs{test::kStartNs + 5'000});
  CHECK(trace->processes[1].end == UnixNs{test::kStartNs + 2'000'005'000});
}

TEST_CASE("ids past all that was defined and texts past their record are damage, not memory") {
  SpoolBuilder b;
  b.thread(100);
  b.at(10).raw(static_cast<uint8_t>(Kind::StringDef), {0xffffffff'fffffff0});  // id and length too large
  b.raw(static_cast<uint8_t>(Kind::StringDef),
        {uint64_t{500} << 32 | 1, 0x4141414141414141});  // longer than its record
  b.raw(static_cast<uint8_t>(Kind::FunctionDef), {0xfffffff0, 0, 0, 0});
  const test::LoadedTrace trace(b);
  const Process& p = trace->processes[0];
  CHECK(p.damage.records == 4);
  CHECK(p.strings.size() < 1000);
  CHECK(p.functions.empty());
  CHECK(p.string({1}) == "AAAAAAAA");
}

TEST_CASE("spools flipped at random load and export to well-formed traces") {
  SpoolBuilder b;
  const TrackId main = b.thread(100, "python3", 1), other = b.thread(101, "worker", 2);
  const FunctionId f = b.function("/usr/lib/x.py", 7, "f", 9), g = b.function("g");
  const ObjectId linear = b.object("Linear");
  b.source("operators", SourceState::kFailed, "no torch");
  for (uint64_t i = 0; i < 40; ++i) {
    b.on(main).at(i * 1000).begin(f).begin(g, linear).op(i, "aten::add", {.sequence = static_cast<int64_t>(i)});
    b.op_end(i).end(g).end(f);
    b.on(other)
        .at(i * 1000 + 500)
        .op(1000 + i, "B", {.sequence = static_cast<int64_t>(i), .fwd_thread = 1})
        .op_end(1000 + i);
  }
  const auto whole = b.bytes();
  std::mt19937_64 random(7);
  test::TemporaryDirectory directory;
  for (int variant = 0; variant < 1500; ++variant) {
    auto bytes = whole;
    for (uint64_t flips = 1 + random() % 4; flips > 0; --flips) {
      size_t at = random() % bytes.size();
      while (whole[at] == std::byte{0}) at = (at + 1) % bytes.size();
      bytes[at] ^= std::byte(1 << random() % 8);
    }
    std::ofstream(directory / "x.spool", std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    const Trace trace = load({directory / "x.spool"});
    const std::string json = test::written(trace, write_kineto);
    CHECK(json.find("Record Window End") != json.npos);
    CHECK(!summary_text(trace).empty());
  }
}

TEST_CASE("little of a spool stays in memory once it is loaded") {
  const test::TemporaryDirectory directory;
  SpoolBuilder b;
  b.on(b.thread(42));
  for (uint64_t i = 1; i < 3000; ++i) b.at(i * 100).op(i, "aten::add").op_end(i).next_chunk(0, {});
  b.write(directory / "x.spool");
  const Trace trace = load({directory / "x.spool"});
  REQUIRE(trace.processes[0].counts.operators == 2999);
  std::ifstream maps("/proc/self/smaps");
  size_t size_kib = 0, resident_kib = 0;
  for (std::string line; std::getline(maps, line);) {
    if (!line.ends_with("x.spool")) continue;
    for (std::string key; key != "Rss:";) {
      size_t kib = 0;
      maps >> key >> kib >> line;
      (key == "Size:" ? size_kib : resident_kib) = kib;
    }
  }
  CHECK(size_kib >= 12000);
  CHECK(resident_kib < size_kib / 4);
}

}  // namespace trace_test
