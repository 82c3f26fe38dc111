// Records of older and newer versions. Here every field of today is one that was added later: a struct may once have
// been its header alone, or what says how long its tail is. So each site that reads a record meets it in every length
// that the growth of its struct will ever make (record.h, Compatibility).
#include <doctest/doctest.h>

#include <array>
#include <cstring>
#include <fstream>
#include <memory>
#include <set>
#include <vector>

#include "formats/live/live_process.h"
#include "formats/report/summary.h"
#include "formats/trace/open_threads.h"
#include "formats/write/format.h"
#include "tests/unit/support/gpu_program.h"
#include "tests/unit/support/small_training.h"
#include "tracer/spool/cursor.h"

namespace torchprof {

// In place of cursor.cpp's.
extern constinit const std::array<uint16_t, 256> kLeastBytes = [] {
  std::array<uint16_t, 256> least{};
  for (size_t i = 0; i < least.size(); ++i) least[i] = fixed_size(static_cast<Kind>(i)) == 0 ? 0 : 8;
  least[static_cast<size_t>(Kind::StringDef)] = kFirstBytes<StringDef>;
  least[static_cast<size_t>(Kind::ObjectDetailDef)] = kFirstBytes<ObjectDetailDef>;
  least[static_cast<size_t>(Kind::LinesDef)] = kFirstBytes<LinesDef>;
  least[static_cast<size_t>(Kind::Restate)] = kFirstBytes<Restate>;
  least[static_cast<size_t>(Kind::ThreadStack)] = kFirstBytes<ThreadStack>;
  return least;
}();

}  // namespace torchprof

using namespace torchprof;
using test::SpoolBuilder;

namespace {

static_assert(sizeof(GpuKernel) == kLargestRecord);  // used_view()
constexpr uint64_t kLonger = 4 * sizeof(uint64_t);   // what a later version may have added

// One record of `bytes` bytes, none of them zero behind the header, and nothing after it: a sanitizer sees a look
// beyond its end.
class Written {
 public:
  Written(Kind kind, uint64_t bytes) : words_(bytes / 8), memory_(new uint64_t[bytes / 8]) {
    for (uint64_t i = 0; i < words_; ++i) memory_[i] = 0x0102030405060708u * (i + 1) | 0x0101010101010101u;
    memory_[0] = RecordHeader::make(kind, words_, 77).bits;
  }
  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(memory_.get(), words_)); }
  void put(uint64_t at, const void* from, size_t size) {
    std::memcpy(reinterpret_cast<std::byte*>(memory_.get()) + at, from, size);
  }

 private:
  uint64_t words_;
  std::unique_ptr<uint64_t[]> memory_;
};

// A view whose room another record has filled before.
RecordView used_view() {
  const Written before(Kind::GpuKernel, kLargestRecord - 8);
  RecordCursor cursor(before.bytes());
  RecordView view;
  REQUIRE(cursor.next(view));
  return view;
}

template <class R>
void check_every_length() {
  const Kind kind = kKindOf<R>;
  const uint64_t least = kLeastBytes[static_cast<size_t>(kind)];
  for (uint64_t bytes = least; bytes <= sizeof(R) + kLonger; bytes += 8) {
    CAPTURE(+static_cast<uint8_t>(kind));
    CAPTURE(bytes);
    const Written written(kind, bytes);
    std::byte expected[sizeof(R)] = {};
    std::memcpy(expected, written.bytes().data(), std::min<uint64_t>(bytes, sizeof(R)));
    RecordCursor cursor(written.bytes());
    RecordView view = used_view();
    REQUIRE(cursor.next(view));
    CHECK(view.kind() == kind);
    CHECK(view.header().bytes() == bytes);
    CHECK(view.place() == written.bytes().data());
    CHECK(std::memcmp(&view.as<R>(), expected, sizeof(R)) == 0);
    CHECK((static_cast<const void*>(&view.as<R>()) == view.place()) == (bytes >= sizeof(R)));
    RecordRoom room;
    std::memset(room.bytes, 0xee, sizeof(room.bytes));
    CHECK(std::memcmp(&whole_record<R>(written.bytes(), room), expected, sizeof(R)) == 0);
    CHECK_FALSE(cursor.next(view));
    CHECK(cursor.dropped_bytes() == 0);
  }
  if (least < 16) return;  // a header is whole, or is no record
  const Written cut(kind, least - 8);
  RecordCursor cursor(cut.bytes());
  RecordView view;
  CHECK_FALSE(cursor.next(view));
  CHECK(cursor.dropped_bytes() == least - 8);
}

// `length_at`: where the struct says, as a Length, how many units of `unit` bytes its tail has.
template <class R, class Length = uint32_t>
void check_every_tail(uint64_t length_at, uint64_t unit, auto tail_of_view) {
  const uint64_t least = kLeastBytes[static_cast<size_t>(kKindOf<R>)];
  // Of a record of `bytes` bytes that says `length`, alone in its chunk.
  const auto check = [&](uint64_t bytes, Length length, auto expect) {
    Written written(kKindOf<R>, bytes);
    written.put(length_at, &length, sizeof(length));
    RecordCursor cursor(written.bytes());
    RecordView view;
    REQUIRE(cursor.next(view));
    const auto [whole, tail] = tail_of_view(view);
    expect(written, whole, tail);
    CHECK_FALSE(cursor.next(view));
    CHECK(cursor.dropped_bytes() == 0);
  };
  for (uint64_t head = least; head <= sizeof(R) + kLonger; head += 8) {
    for (Length length = 0; length <= 20; ++length) {
      CAPTURE(head);
      CAPTURE(length);
      const uint64_t rounded = (length * unit + 7) / 8 * 8;
      check(head + rounded, length, [&](const Written& written, bool whole, auto tail) {
        CHECK(whole);
        CHECK(tail.size() == length * unit);
        CHECK((tail.empty() || tail.data() == written.bytes().data() + head));
      });
    }
    // More than the record has room for, also beside what is certainly the struct: what there is after the struct.
    for (const Length length : {Length{100}, static_cast<Length>(kMaxString + 1), static_cast<Length>(-1)}) {
      check(head, length, [&](const Written&, bool whole, auto tail) {
        CHECK_FALSE(whole);
        CHECK(tail.size() == (head > sizeof(R) ? head - sizeof(R) : 0));
      });
    }
  }
}

std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace

TEST_CASE("a record of any length says what it has, and zeros for what it does not have") {
#define X(number, name, first) check_every_length<name>();
  TORCHPROF_RECORDS(X)
#undef X
}

TEST_CASE("a tail is found after a struct of any length") {
  check_every_tail<StringDef>(offsetof(StringDef, length), 1, [](const RecordView& view) {
    bool whole = false;
    const auto text = as_bytes(view.text(whole));
    return std::pair(whole, text);
  });
  check_every_tail<ObjectDetailDef>(offsetof(ObjectDetailDef, length), 1, [](const RecordView& view) {
    bool whole = false;
    const auto bytes = as_bytes(view.detail(whole));
    return std::pair(whole, bytes);
  });
  check_every_tail<LinesDef>(offsetof(LinesDef, length), 1, [](const RecordView& view) {
    bool whole = false;
    const auto pairs = as_bytes(view.lines(whole));
    return std::pair(whole, pairs);
  });
  check_every_tail<Restate>(offsetof(Restate, count), sizeof(uint64_t), [](const RecordView& view) {
    const auto begins = view.begins();
    return std::pair(begins.size() == view.as<Restate>().count, std::as_bytes(begins));
  });
  check_every_tail<ThreadStack, uint16_t>(offsetof(ThreadStack, count), sizeof(StackFrame), [](const RecordView& view) {
    const auto frames = view.frames();
    return std::pair(frames.size() == view.as<ThreadStack>().count, std::as_bytes(frames));
  });
}

TEST_CASE("a short record says what two words say, whatever stood in its room before") {
  const Written old(Kind::GpuKernel, 64);
  std::vector<std::byte> bytes(old.bytes().begin(), old.bytes().end());
#define X(number, name)                                         \
  {                                                             \
    const uint64_t word = ShortRecord::make(number, 5, 9).bits; \
    const auto* at = reinterpret_cast<const std::byte*>(&word); \
    bytes.insert(bytes.end(), at, at + sizeof(word));           \
  }
  TORCHPROF_SHORT_RECORDS(X)
#undef X
  std::vector<uint64_t> aligned(bytes.size() / 8);
  std::memcpy(aligned.data(), bytes.data(), bytes.size());
  RecordCursor cursor(std::as_bytes(std::span(aligned)));
  RecordView view;
  REQUIRE(cursor.next(view));
#define X(number, name)                                                                         \
  {                                                                                             \
    REQUIRE(cursor.next(view));                                                                 \
    const uint64_t expected[sizeof(name) / 8] = {RecordHeader::make(Kind::name, 2, 9).bits, 5}; \
    CHECK(std::memcmp(&view.as<name>(), expected, sizeof(name)) == 0);                          \
  }
  TORCHPROF_SHORT_RECORDS(X)
#undef X
}

namespace {

constexpr uint8_t number_of(Kind kind) { return static_cast<uint8_t>(kind); }

void memory(SpoolBuilder& b, Kind kind, uint64_t address, int64_t bytes) {
  b.raw(number_of(kind), {address, static_cast<uint64_t>(bytes), 1 << 20, 1 << 21, 0xff00});
}

std::vector<std::byte> program() {
  SpoolBuilder b;
  b.use_chunks_of(64 * 1024);
  test::train(b, 100);
  b.python_name({1}, 100, "main thread");
  const TrackId other = b.thread(102, "worker", 3);
  const FunctionId f = b.function("/usr/lib/x.py", 7, "f", 9),
                   call = b.function("/usr/lib/torch/m.py", 9, "_call_impl", 9, FunctionKind::kModuleCall);
  const ObjectId linear = b.object("Linear");
  b.called(linear, "Linear", 1);
  b.detail(linear, linear, "layer.0", "p\1w\1T");
  b.thread_handle(other, 5);
  b.raw_definition(number_of(Kind::NativeObjectDef), {1 | uint64_t{b.string("/lib/libx.so").value} << 32,
                                                      b.string("\xab").value, 0x10000, 0x20000, 0x10000});
  b.raw_definition(number_of(Kind::NativeFrameDef), {1, 1, 0x10010});
  b.raw_definition(number_of(Kind::NativeFrameDef), {2 | uint64_t{1} << 32, 1, 0x10020});
  const CallSiteId site = b.call_site("len", f, 8);
  b.lines(f, {{3, 7}, {5, 9}});
  b.on(other).at(10'000).frame(f).at(11'000).begin(f).begin(call, linear).c_begin("max").c_end().c_begin(site).c_end();
  b.at(12'000).gc_begin(1).at(12'500).gc_end(3, 1).blind(other, "cProfile").at(13'000).blind_end(other, "cProfile");
  b.line(f, 4).op(21, "aten::mm", {.sequence = 3, .handle = 21}).raw(number_of(Kind::OpInputs), {b.string("").value});
  b.raw(number_of(Kind::NativeStack), {2});
  b.raw(number_of(Kind::AllocationSite), {f.value | uint64_t{8} << 32}).raw(number_of(Kind::AllocationStack), {2});
  memory(b, Kind::Memory, 0x1000, 4096);
  memory(b, Kind::OutOfMemory, 0, 1 << 30);
  b.at(14'000).raw(number_of(Kind::OpEndHere), {21}).op(22, "record_param_comms");
  b.raw(number_of(Kind::Collective), {b.string(std::string("\4send\0010\2pg\2\10\17\22\0\0\0\6\4\1\1", 18)).value, 4});
  b.at(15'000).op_end(22).op(23, "range", {.scope = OpScope::kNvtx});
  b.raw(number_of(Kind::NvtxInfo), {b.string("domain").value, 7, 99, 1});
  b.raw(number_of(Kind::NvtxMark), {b.string("mark").value, b.string("domain").value, 7, 99, 1});
  b.at(16'000).op_end(23).end(call).sync().frame(f).next_chunk(2, {11'000, 16'500}).frame(f).op(24, "aten::mul");
  b.at(18'000).op_end(24).thread_end();
  return b.bytes();
}

std::vector<std::byte> steps() {
  SpoolBuilder b;
  b.use_chunks_of(64 * 1024);
  b.on(b.thread(100));
  b.meta("window", "auto");
  b.window(1, 3, 100, 1'000);
  for (uint64_t step = 1; step < 6; ++step)
    b.at(100 * step)
        .annotation(step, "Optimizer.step#SGD.step")
        .at(100 * step + 50)
        .op_end(step)
        .step_end(step, 1, 2, 3)
        .resident(step << 20)
        .used(ProcessorTime{{}, 100, 0, 10 * step, 20 * step, 30 * step})
        .used(MachineTime{{}, 10 * step, 2, 1, 16, 0});
  const FunctionId waits = b.function("/usr/lib/x.py", 7, "waits", 9);
  b.raw_definition(number_of(Kind::InterpreterDef), {0x1000, 0x2000, 1, 2, 3, 4, 5, 6});
  b.at(650).seen(StackNode{{}, 1, 0, waits, 9}).seen(StackNode{{}, 2, 1, waits, 10});
  b.seen(Sample{{}, 100, 2, 20, 10, 5, 7, b.string("pipe"), SampledWait::kRead, 1, {}, 3, 0});
  b.at(700).thread_stack(100, {{waits, 8}}).thread_stack(101, {{waits, 9}, {waits, 10}});
  return b.bytes();
}

std::vector<std::byte> gpu() {
  test::Program p;
  SpoolBuilder& b = p.b;
  b.use_chunks_of(64 * 1024);
  b.at(1'000).op(1, "aten::mm").at(9'000).op_end(1);
  p.deliver();
  const auto cupti = [](uint64_t ns) { return SpoolBuilder::cupti(ns); };
  b.gpu_clock().gpu(test::call(100, 2'000, 3'000, 5)).gpu(test::kernel(b, 4'000, 8'000, 5));
  b.gpu(test::call(100, 3'000, 3'500, 6, test::kMemcpyAsync));
  b.gpu(GpuCopy{.header = {},
                .start = cupti(8'000),
                .end = cupti(8'500),
                .bytes = 64,
                .graph_node = 0,
                .correlation = 6,
                .graph = 0,
                .device = 0,
                .context = 1,
                .stream = 7,
                .copy_kind = 1,
                .src_kind = 1,
                .dst_kind = 3,
                .flags = 1,
                .src_device = kNoGpuNumber,
                .src_context = kNoGpuNumber,
                .dst_device = kNoGpuNumber,
                .dst_context = kNoGpuNumber,
                .channel = 3,
                .channel_type = 1,
                .is_peer = 0,
                .pad = {}});
  GpuSet set{};
  set.start = cupti(8'600), set.end = cupti(8'700), set.bytes = 8, set.correlation = 7, set.context = 1, set.stream = 7;
  GpuSync sync{};
  sync.start = cupti(8'800), sync.end = cupti(8'900), sync.correlation = 8, sync.context = 1, sync.stream = 7,
  sync.type = 3;
  GpuEvent event{};
  event.device_time = cupti(8'950), event.event_record = 1, event.correlation = 9, event.context = 1, event.stream = 7;
  GpuOverhead overhead{};
  overhead.start = cupti(1'500), overhead.end = cupti(1'600), overhead.kind = 1;
  GpuMemory allocated{};
  allocated.time = cupti(1'700), allocated.address = 4096, allocated.bytes = 512, allocated.operation = 1,
  allocated.kind = 3;
  GpuMemoryPool pool{};
  pool.time = cupti(1'800), pool.address = 8192, pool.bytes = 1024, pool.used = 512, pool.operation = 1;
  GpuEnvironment sample{};
  sample.time = cupti(1'900), sample.kind = 1, sample.values[0] = 1980, sample.values[4] = 4;
  b.gpu(set).gpu(sync).gpu(event).gpu(overhead).gpu(allocated).gpu(pool).gpu(sample);
  b.gpu(
      GpuDropped{.header = {}, .count = 3, .context = kNoGpuNumber, .stream = 0, .loss = GpuLoss::kDropped, .pad = {}});
  b.thread_handle(p.main, 100);
  b.raw_definition(number_of(Kind::GpuStuckDef),
                   {cupti(4'000), 1 | uint64_t{5} << 32, uint64_t{1} << 32, 7 | uint64_t{1} << 32, 0});
  return b.bytes();
}

// How a version wrote records of one kind: what it did not know is left out, or is zero; or it knew more.
enum class Writer { kShorter, kZeros, kLonger };

// `spool` as such a writer would have written it; `head`: the bytes of the struct that it knew.
std::vector<std::byte> rewritten(std::vector<std::byte> spool, Kind kind, uint64_t head, Writer writer) {
  const auto& file = *reinterpret_cast<const FileHeader*>(spool.data());
  for (uint64_t at = first_chunk(file); at < spool.size(); at += file.chunk_size) {
    auto& chunk = *reinterpret_cast<ChunkHeader*>(spool.data() + at);
    const std::byte* from = spool.data() + at + sizeof(ChunkHeader);
    const std::byte* end = from + chunk.committed;
    std::vector<std::byte> out;
    while (from < end) {
      const auto& header = *reinterpret_cast<const RecordHeader*>(from);
      const bool is_short = ShortRecord::is_short(header.bits);
      const uint64_t bytes = is_short ? ShortRecord{header.bits}.words() * 8 : header.bytes();
      std::vector<std::byte> record(from, from + bytes);
      from += bytes;
      if (!is_short && header.kind() == kind) {
        const uint64_t fixed = fixed_size(kind);
        const auto begin = record.begin();
        if (writer == Writer::kLonger)
          record.insert(begin + static_cast<ptrdiff_t>(fixed), head - fixed, std::byte{0xa5});
        if (writer == Writer::kZeros)
          std::fill(begin + static_cast<ptrdiff_t>(head), begin + static_cast<ptrdiff_t>(fixed), std::byte{});
        if (writer == Writer::kShorter)
          record.erase(begin + static_cast<ptrdiff_t>(head), begin + static_cast<ptrdiff_t>(fixed));
        const RecordHeader now = RecordHeader::make(kind, record.size() / 8, header.time());
        std::memcpy(record.data(), &now, sizeof(now));
      }
      out.insert(out.end(), record.begin(), record.end());
    }
    REQUIRE(out.size() + sizeof(ChunkHeader) <= file.chunk_size);
    chunk.committed = static_cast<uint32_t>(out.size());
    std::memset(spool.data() + at + sizeof(ChunkHeader), 0, file.chunk_size - sizeof(ChunkHeader));
    std::memcpy(spool.data() + at + sizeof(ChunkHeader), out.data(), out.size());
  }
  return spool;
}

// What the commands say of a spool.
std::string said_of(const std::vector<std::byte>& spool, const std::filesystem::path& file) {
  std::ofstream(file, std::ios::binary)
      .write(reinterpret_cast<const char*>(spool.data()), static_cast<std::streamsize>(spool.size()));
  const formats::Trace trace = formats::load({file});
  CHECK(trace.unreadable.empty());
  std::vector<std::string> tables = formats::table_names();
  std::erase(tables, "profiler");  // how many bytes there were
  std::string said = formats::summary_text(trace, {.tables = tables, .has_totals = true});
  for (const char* format : {"kineto", "perfetto", "memory-timeline-raw"})
    said += test::written(trace, trace.processes, formats::find_format(format)->write);
  for (const formats::Process& process : trace.processes) {
    CHECK(process.damage.chunks == 0);
    CHECK(process.damage.bytes == 0);
    said += std::to_string(process.damage.records) + " bad\n";
    for (const formats::OpenThread& thread : formats::open_threads(process, formats::stated_stacks(process)))
      for (const formats::OpenSpan& span : thread.spans) said += span.name + std::to_string(span.line) + "\n";
  }
  std::string error;
  auto tail = formats::SpoolTail::open(file, error);
  REQUIRE_MESSAGE(tail, error);
  formats::LiveProcess live(std::move(tail), 3'600'000'000'000);
  live.look(false, uint64_t{1} << 30);
  const formats::LiveView view = live.view(100);
  for (const auto* rows : {&view.operators, &view.functions})
    for (const formats::LiveRow& row : *rows)
      said += row.name + " " + std::to_string(row.self_ns) + " " + std::to_string(row.calls) + "\n";
  for (const formats::LiveMemory& m : view.memory) said += std::to_string(m.bytes) + " bytes\n";
  for (const int64_t step : view.step_ns) said += std::to_string(step) + " ns\n";
  return said += view.window + std::to_string(view.window_number);
}

std::set<Kind> kinds_in(const std::vector<std::byte>& bytes) {
  std::set<Kind> kinds;
  std::string error;
  const auto spool = SpoolReader::from_bytes(bytes, error);
  REQUIRE_MESSAGE(spool, error);
  for (const ChunkView& chunk : spool->chunks()) {
    RecordCursor cursor(chunk.records);
    for (RecordView view; cursor.next(view);) kinds.insert(view.kind());
  }
  return kinds;
}

}  // namespace

TEST_CASE("what an older or newer version wrote is read by every command as if it had zeros, or nothing more") {
  const test::TemporaryDirectory directory;
  std::set<Kind> seen;
  for (const std::vector<std::byte>& spool : {program(), steps(), gpu()}) {
    const std::string as_it_is = said_of(spool, directory / "a.spool");
    for (const Kind kind : kinds_in(spool)) {
      seen.insert(kind);
      CAPTURE(+number_of(kind));
      const uint64_t least = kLeastBytes[number_of(kind)], fixed = fixed_size(kind);
      for (const uint64_t head : std::set<uint64_t>{least, (least + fixed) / 16 * 8, fixed - 8}) {
        if (head < least || head >= fixed) continue;
        CAPTURE(head);
        CHECK(said_of(rewritten(spool, kind, head, Writer::kShorter), directory / "a.spool") ==
              said_of(rewritten(spool, kind, head, Writer::kZeros), directory / "a.spool"));
      }
      CHECK(said_of(rewritten(spool, kind, fixed + kLonger, Writer::kLonger), directory / "a.spool") == as_it_is);
    }
  }
#define X(number, name, first) CHECK_MESSAGE(seen.contains(Kind::name), #name);
  TORCHPROF_RECORDS(X)
#undef X
}
