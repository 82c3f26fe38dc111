#include "formats/live/live_process.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <fstream>

#include "tests/unit/support/spool_builder.h"
#include "tracer/spool/clock.h"

namespace live_process_test {

using namespace torchprof;
using namespace torchprof::formats;
using test::SpoolBuilder;

namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kPlenty = uint64_t{1} << 30;

// A spool that is written again as it grows, at one place.
class Growing {
 public:
  void write(const SpoolBuilder& b) const {
    const std::vector<std::byte> bytes = b.bytes();
    std::fstream out(file(), std::ios::binary | std::ios::in | std::ios::out);
    if (!out) out.open(file(), std::ios::binary | std::ios::out);
    out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
  LiveProcess process(int64_t last_ns = 3'600'000'000'000, LiveSteps steps = LiveSteps::kLatest) const {
    std::string error;
    auto tail = SpoolTail::open(file(), error);
    REQUIRE_MESSAGE(tail, error);
    return {std::move(tail), last_ns, steps};
  }
  std::filesystem::path file() const { return directory_ / "a.spool"; }

 private:
  test::TemporaryDirectory directory_;
};

// Makes it a process of this machine that has started `ns` ago, and may still run.
// Less than a minute: the clock counts from the start of the machine, which may be little longer ago.
void started_before(SpoolBuilder& b, uint64_t ns) {
  const int64_t start = clock::read_ns(CLOCK_MONOTONIC) - static_cast<int64_t>(ns);
  b.header().start = {{static_cast<uint64_t>(start)}, start, {test::kStartNs}};
  gethostname(b.header().host, sizeof(b.header().host) - 1);
}

// "name self-in-us calls" in one line each
std::string text(const std::vector<LiveRow>& rows) {
  std::string out = "\n";
  for (const LiveRow& row : rows)
    out.append(row.name).append(" ").append(std::to_string(row.self_ns / 1000)).append(" ") +=
        std::to_string(row.calls) + "\n";
  return out;
}

}  // namespace

TEST_CASE("what is new is added, also inside of a chunk and of a call") {
  SpoolBuilder b;
  Growing spool;
  const FunctionId f = b.function("f"), g = b.function("g");
  b.on(b.thread(1)).at(1000).begin(f).at(5000).begin(g).at(7000).op(1, "aten::add").at(8000).op_end(1);
  spool.write(b);
  LiveProcess p = spool.process();
  p.look(false, kPlenty);
  CHECK(text(p.view(9).functions) == "\ntest.py(1): f 4 1\ntest.py(1): g 3 1\n");
  b.at(9000).end(g).at(20'000).op(2, "aten::mm").at(30'000).op_end(2).end(f);
  spool.write(b);
  p.look(false, kPlenty);
  CHECK(text(p.view(9).functions) == "\ntest.py(1): f 25 1\ntest.py(1): g 4 1\n");
  CHECK(text(p.view(9).operators) == "\naten::mm 10 1\naten::add 1 1\n");
}

TEST_CASE("who only waits is left out, with its time") {
  SpoolBuilder b;
  Growing spool;
  const FunctionId f = b.function("f"), wait = b.function("/usr/lib/python3.12/threading.py", 300, "wait");
  b.on(b.thread(1)).at(1000).begin(f).at(5000).begin(wait).at(90'000).end(wait).at(92'000).end(f);
  spool.write(b);
  LiveProcess p = spool.process();
  p.look(false, kPlenty);
  CHECK(text(p.view(9).functions) == "\ntest.py(1): f 6 1\n");
  CHECK(p.view(9).function_ns == 6000);
}

TEST_CASE("however often one looks, short records add up to the same") {
  for (const uint64_t looks : {1, 9, 900}) {
    SpoolBuilder b;
    b.use_chunks_of(kChunkSize);
    Growing spool;
    const FunctionId f = b.function("f");
    const StringId add = b.string("aten::add");
    b.on(b.thread(1)).at(0).begin(f);
    spool.write(b);
    LiveProcess p = spool.process();
    for (uint64_t i = 1; i <= 900; ++i) {
      b.at(i * 1000).short_record(kShortOp, add.value, {(100 + i) << 8});
      b.short_record(kShortNextOp, add.value).at(i * 1000 + 100).short_record(kShortKindOf<OpEndHere>, 101 + i);
      b.at(i * 1000 + 300).short_record(kShortKindOf<OpEndHere>, 100 + i);
      if (i % (900 / looks) != 0) continue;
      spool.write(b);
      p.look(false, kPlenty);
    }
    const LiveView view = p.view(9);
    CHECK(text(view.operators) == "\naten::add 270 1800\n");
    CHECK(view.read_share == 1);
  }
}

TEST_CASE("of more than a look may read the newest is read, and no time is invented for the rest") {
  SpoolBuilder b;
  Growing spool;
  const FunctionId f = b.function("f"), g = b.function("g");
  b.on(b.thread(1)).at(0).begin(f);
  spool.write(b);
  LiveProcess p = spool.process();
  p.look(false, kPlenty);
  for (uint64_t i = 1; i <= 5000; ++i) b.at(i * 1000).begin(g).at(i * 1000 + 500).end(g);
  spool.write(b);
  p.look(false, 8000);
  const LiveView view = p.view(9);
  CHECK(view.read_share < 0.1);
  REQUIRE(view.functions.size() == 1);
  CHECK(view.functions[0].calls <= 500);
  CHECK(view.functions[0].self_ns == static_cast<int64_t>(view.functions[0].calls) * 500);
}

TEST_CASE("a step is the time between two ends of the optimizer's step") {
  SpoolBuilder b;
  Growing spool;
  const FunctionId step = b.function("optimizer.py", 1, "wrapper", 0, FunctionKind::kOptimizerStep);
  const ObjectId sgd = b.object("SGD", ObjectKind::kOptimizer), adam = b.object("Adam", ObjectKind::kOptimizer);
  b.on(b.thread(1));
  for (const uint64_t at : {10, 20, 40}) {
    b.at(at * kMs).begin(step, sgd).at((at + 1) * kMs).end(step);
    b.at((at + 2) * kMs).begin(step, adam).at((at + 3) * kMs).end(step);
  }
  spool.write(b);
  LiveProcess p = spool.process();
  p.look(false, kPlenty);
  const LiveView view = p.view(9);
  CHECK(view.steps == 3);
  CHECK(view.step_ns == std::vector<int64_t>{10'000'000, 20'000'000});
  REQUIRE(view.steps_per_second);
  CHECK(*view.steps_per_second == doctest::Approx(2 / 0.03));
}

TEST_CASE("with windows the last one counts alone") {
  SpoolBuilder b;
  Growing spool;
  const FunctionId f = b.function("f"), g = b.function("g");
  b.meta("window", "manual");
  spool.write(b);
  LiveProcess p = spool.process();
  p.look(false, kPlenty);
  CHECK(p.view(9).window == "manual");
  CHECK(p.view(9).window_number == 0);
  b.window(1, 0, 1000);
  b.on(b.thread(1)).at(1000).begin(f).at(3000).end(f);
  b.window(1, 0, 1000, 3000);
  b.window(2, 7, 9000);
  b.at(9000).begin(g).at(9500).end(g);
  spool.write(b);
  p.look(false, kPlenty);
  CHECK(text(p.view(9).functions) == "\ntest.py(1): g 0 1\n");
  CHECK(p.view(9).window_number == 2);
  CHECK(p.view(9).is_window_open);
}

TEST_CASE("the first look goes back to the begin of the last window, however long ago that was") {
  SpoolBuilder b;
  started_before(b, 30'000 * kMs);
  Growing spool;
  const FunctionId f = b.function("f"), g = b.function("g");
  b.meta("window", "time:0");
  b.window(1, 0, 0, 1000 * kMs);
  b.window(2, 0, 10'000 * kMs, 12'000 * kMs);
  b.on(b.thread(1));
  for (uint64_t i = 0; i < 1000; ++i) b.at(i * kMs).begin(g).at(i * kMs + 1).end(g);
  for (uint64_t i = 0; i < 2000; ++i) b.at((10'000 + i) * kMs).begin(f).at((10'001 + i) * kMs).end(f);
  spool.write(b);
  LiveProcess p = spool.process(5'000'000'000);
  p.look(true, kPlenty);
  CHECK(text(p.view(9).functions) == "\ntest.py(1): f 2000000 2000\n");
  CHECK(p.view(9).covered_ns == 2'000'000'000);
  CHECK(p.view(9).read_share == 1);
  LiveProcess hurried = spool.process(5'000'000'000);
  hurried.look(true, 12 * uint64_t{test::kTestChunkSize});
  const double share = hurried.view(9).read_share;
  CHECK(share > 0.6);  // what came before the window is not missed
  CHECK(share < 0.9);
  hurried.look(true, kPlenty);
  CHECK(hurried.view(9).read_share == share);  // it still counts
}

TEST_CASE("what was counted of the beginning of -w auto stays when it becomes a window") {
  SpoolBuilder b;
  Growing spool;
  const FunctionId f = b.function("f"), g = b.function("g");
  b.on(b.thread(1)).in_window(1).at(0);
  for (uint64_t i = 0; i < 100; ++i) b.at(i * kMs).begin(g).at((i + 1) * kMs).end(g);
  spool.write(b);
  LiveProcess p = spool.process(250 * kMs);
  p.look(false, kPlenty);
  CHECK(p.view(9).window_number == 0);
  for (uint64_t i = 1; i < 4; ++i) {
    GpuKernel kernel{};
    kernel.start = SpoolBuilder::cupti(i * 100 * kMs), kernel.end = SpoolBuilder::cupti((i * 100 + 50) * kMs);
    b.at(i * 100 * kMs).begin(f).gpu(kernel).at((i + 1) * 100 * kMs).end(f);
    spool.write(b);
    p.look(false, kPlenty);
  }
  b.meta("window", "auto");
  b.window(1, 0, 0, 450 * kMs, WindowReason::kStart);
  b.at(400 * kMs).begin(g).at(440 * kMs).end(g);
  spool.write(b);
  p.look(false, kPlenty);
  CHECK(p.view(9).window_number == 1);
  CHECK_FALSE(p.view(9).is_window_open);
  CHECK(text(p.view(9).functions) == "\ntest.py(1): f 300000 3\ntest.py(1): g 40000 1\n");
  CHECK(p.view(9).covered_ns == 340'000'000);
  REQUIRE(p.view(9).gpu_busy);
  CHECK(*p.view(9).gpu_busy == doctest::Approx(150.0 / 340));
}

TEST_CASE("a window that is given up stays if it is shown, and is passed over by the first look") {
  SpoolBuilder b;
  Growing spool;
  const FunctionId f = b.function("f"), g = b.function("g");
  const TrackId thread = b.thread(1);
  b.window(1, 0, 0, 5 * kMs, WindowReason::kStart);
  b.on(thread).in_window(1).at(0).begin(f).at(4 * kMs).end(f);
  b.window(2, 10, 10 * kMs, 0, WindowReason::kTypical);
  b.on(thread).in_window(2).at(10 * kMs).begin(g).at(12 * kMs).end(g);
  spool.write(b);
  LiveProcess p = spool.process();
  p.look(false, kPlenty);
  CHECK(p.view(9).is_window_open);
  b.window(2, 10, 10 * kMs, 12 * kMs, WindowReason::kTypical);
  b.window_given_up(2);
  spool.write(b);
  p.look(false, kPlenty);
  CHECK(p.view(9).window_number == 2);
  CHECK_FALSE(p.view(9).is_window_open);
  CHECK(text(p.view(9).functions) == "\ntest.py(1): g 2000 1\n");
  LiveProcess later = spool.process();
  later.look(false, kPlenty);
  CHECK(later.view(9).window_number == 1);
  CHECK(text(later.view(9).functions) == "\ntest.py(1): f 4000 1\n");
}

TEST_CASE("with -w auto every step is known, between windows and after one that was given up") {
  SpoolBuilder b;
  Growing spool;
  const FunctionId f = b.function("f");
  const TrackId thread = b.thread(1);
  b.window(1, 0, 0, 5 * kMs, WindowReason::kStart);
  b.on(thread).in_window(1).at(0).begin(f).at(4 * kMs).end(f);
  for (uint64_t step = 1; step <= 10; ++step) b.at(step * kMs).step_end(step, step <= 5 ? 1 : 0, step <= 5 ? 2 : 0);
  spool.write(b);
  LiveProcess p = spool.process();
  p.look(false, kPlenty);
  CHECK(p.view(9).steps == 10);
  CHECK(p.view(9).step_ns == std::vector<int64_t>(9, kMs));
  b.window(2, 10, 10 * kMs, 12 * kMs, WindowReason::kTypical);
  b.window(3, 12, 12 * kMs, 13 * kMs, WindowReason::kSlow);
  b.window_given_up(2);
  b.window_stands_for(1, WindowReason::kSlow);
  b.on(thread).in_window(3).at(12 * kMs).begin(f).at(13 * kMs).end(f);
  for (uint64_t step = 11; step <= 14; ++step) b.at((2 * step - 10) * kMs).step_end(step, 0, 0);
  spool.write(b);
  p.look(false, kPlenty);
  CHECK(p.view(9).window_number == 3);
  CHECK(p.view(9).steps == 14);
  CHECK(p.view(9).step_ns.back() == 2 * kMs);
  CHECK(p.view(9).step_ns.size() == 13);
}

TEST_CASE("every step is counted by its length, however late the first look comes and however often one looks") {
  SpoolBuilder b;
  Growing spool;
  b.meta("window", "auto");
  b.on(b.thread(1)).at(0).begin(b.function("f"));
  started_before(b, 3000 * kMs);
  ProcessorTime used{};
  used.tid = 7, used.ran = 5, used.queued = ProcessorTime::kNotKnown, used.process_ran = 9;
  b.at(1 * kMs).step_end(1, 0, 0).used(used);
  uint64_t end = 1;
  for (uint64_t step = 2; step <= 300; ++step) b.at((end += step % 2 == 0 ? 2 : 5) * kMs).step_end(step, 0, 0, 500);
  spool.write(b);
  LiveProcess p = spool.process(1'000'000'000, LiveSteps::kAll);
  LiveProcess latest = spool.process(1'000'000'000);
  for (uint64_t step = 301; step <= 304; ++step) {
    p.look(true, kPlenty);
    latest.look(true, kPlenty);
    b.at((end += step % 2 == 0 ? 2 : 5) * kMs).step_end(step, 0, 0);
    used.ran += 10, used.process_ran += 10;
    b.used(used);
    spool.write(b);
  }
  p.look(true, kPlenty);
  const LiveView view = p.view(0);
  REQUIRE(view.has_every_step);
  CHECK(!latest.view(0).has_every_step);
  CHECK(view.steps == 304);
  // 152 of 2 ms and 151 of 5 ms, some of them without what switching took.
  CHECK(view.step_sizes.counts[0] == 0);
  CHECK(view.step_sizes.counts[1] == 152);
  CHECK(view.step_sizes.counts[2] == 151);
  CHECK(view.step_sizes.sum_ns == static_cast<int64_t>((152 * 2 + 151 * 5) * kMs - 299 * kMs / 2));
  CHECK(view.switching_ns == static_cast<int64_t>(299 * kMs / 2));
  CHECK(view.ran_ns == 45);
  CHECK(view.process_ran_ns == 49);
  CHECK(!view.queued_ns);
}

TEST_CASE("of a run that was recorded whole every step is known only to who has read all of it") {
  for (const uint64_t most : {kPlenty, uint64_t{4000}}) {
    SpoolBuilder b;
    Growing spool;
    const FunctionId step = b.function("optimizer.py", 1, "wrapper", 0, FunctionKind::kOptimizerStep),
                     f = b.function("f");
    b.on(b.thread(1));
    spool.write(b);
    LiveProcess p = spool.process(3'600'000'000'000, LiveSteps::kAll);
    p.look(false, most);
    for (uint64_t i = 1; i <= 2000; ++i) b.at(i * kMs).begin(f).end(f).begin(step).end(step);
    spool.write(b);
    p.look(false, most);
    CHECK(p.view(0).has_every_step == (most == kPlenty));
    if (most == kPlenty) CHECK(p.view(0).steps == 2000);
  }
}

TEST_CASE("time in a DataLoader's next batch is loading") {
  SpoolBuilder b;
  Growing spool;
  b.on(b.thread(1)).at(0).begin(b.function("f"));
  spool.write(b);
  LiveProcess p = spool.process();
  p.look(false, kPlenty);
  CHECK(!p.view(0).loading_ns);
  b.at(10 * kMs).annotation(1, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__").at(14 * kMs).op_end(1);
  b.at(20 * kMs).annotation(2, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__").at(23 * kMs).op_end(2);
  spool.write(b);
  p.look(false, kPlenty);
  CHECK(p.view(0).loading_ns == static_cast<int64_t>(7 * kMs));
  CHECK(p.view(0).since_covered_ns == 0);
}

TEST_CASE("a chunk that begins before the one that it follows comes after it") {
  SpoolBuilder b;
  Growing spool;
  const FunctionId f = b.function("f"), g = b.function("g");
  b.on(b.thread(1)).at(2000).frame(f);
  b.at(1500).next_chunk(0, {}).end(f).begin(g).at(9500).end(g);
  spool.write(b);
  LiveProcess p = spool.process();
  p.look(false, kPlenty);
  CHECK(text(p.view(9).functions) == "\ntest.py(1): g 7 1\n");
}

TEST_CASE("GPUs are busy while any of their work runs") {
  SpoolBuilder b;
  Growing spool;
  b.on(b.thread(1)).at(0).begin(b.function("f"));
  const auto kernel = [&b](uint64_t from, uint64_t to) {
    GpuKernel k{};
    k.start = SpoolBuilder::cupti(from), k.end = SpoolBuilder::cupti(to);
    b.gpu(k);
  };
  b.at(1000 * kMs);
  kernel(100 * kMs, 300 * kMs), kernel(200 * kMs, 400 * kMs), kernel(600 * kMs, 700 * kMs);
  spool.write(b);
  LiveProcess p = spool.process();
  p.look(false, kPlenty);
  REQUIRE(p.view(1).gpu_busy);
  CHECK(*p.view(1).gpu_busy == doctest::Approx(0.4).epsilon(0.01));
}

TEST_CASE("whatever is damaged, it is read to its end") {
  SpoolBuilder b;
  const FunctionId f = b.function("f");
  b.on(b.thread(1));
  for (uint64_t i = 0; i < 400; ++i) b.at(i * 100).begin(f).op(i, "aten::add").op_end(i).end(f);
  const std::vector<std::byte> good = b.bytes();
  for (size_t at = kFileHeaderSize; at < good.size(); at += 37) {
    std::vector<std::byte> bad = good;
    for (size_t i = at; i < std::min(at + 9, bad.size()); ++i) bad[i] = std::byte{0xff};
    const test::TemporaryDirectory directory;
    std::ofstream(directory / "a.spool", std::ios::binary)
        .write(reinterpret_cast<const char*>(bad.data()), static_cast<std::streamsize>(bad.size() - at % 500));
    std::string error;
    auto tail = SpoolTail::open(directory / "a.spool", error);
    REQUIRE_MESSAGE(tail, error);
    LiveProcess p(std::move(tail), 1'000'000'000);
    p.look(false, kPlenty);
    p.view(20);
  }
}

}  // namespace live_process_test
