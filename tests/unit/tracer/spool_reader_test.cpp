#include "tracer/spool/reader.h"

#include <doctest/doctest.h>

#include <cstring>
#include <fstream>
#include <random>

#include "formats/replay/replay.h"
#include "tests/unit/support/spool_builder.h"

namespace spool_reader_test {

using namespace torchprof;
using test::SpoolBuilder;

namespace {

struct Counted {
  uint64_t definitions = 0, events = 0, unknown = 0, dropped = 0;
};

Counted count(const SpoolReader& spool) {
  Counted n;
  for (const ChunkView& chunk : spool.chunks()) {
    RecordCursor cursor(chunk.records);
    RecordView record;
    while (cursor.next(record)) ++(is_definition(record.kind()) ? n.definitions : n.events);
    n.unknown += cursor.unknown_records();
    n.dropped += cursor.dropped_bytes();
  }
  return n;
}

// A spool with every kind of record, in several chunks of two threads.
void fill(SpoolBuilder& b) {
  const TrackId main = b.thread(100, "python3", 1), other = b.thread(101, "worker", 2);
  const FunctionId f = b.function("/usr/lib/x.py", 7, "f", 9), g = b.function("g");
  const ObjectId linear = b.object("Linear");
  b.meta("python.version", "3.11");
  b.source("operators", SourceState::kFailed, "no torch");
  for (uint64_t i = 0; i < 80; ++i) {
    b.on(main).at(i * 1000).begin(f).begin(g, linear).c_begin("<built-in len>").c_end();
    b.op(i, "aten::add", {.sequence = static_cast<int64_t>(i)}).op_end(i).end(g).end(f);
    b.short_record(kShortKindOf<PythonBegin>, f.value).short_record(kShortOp, 1, {i << 8 | 7});
    b.short_record(kShortKindOf<OpEndHere>, i).short_record(kShortKindOf<PythonEnd>, f.value);
    b.on(other).at(i * 1000 + 500).annotation(1000 + i, "step").frame(f).sync().op_end(1000 + i);
  }
  b.thread_end();
}

// Everything that reads a spool, to its end.
void read_all(std::span<const std::byte> bytes) {
  std::string error;
  const auto spool = SpoolReader::from_bytes(bytes, error);
  if (!spool) {
    CHECK(!error.empty());
    return;
  }
  CHECK(spool->host().size() <= 64);
  spool->command();
  spool->forked_from();
  count(*spool);
}

}  // namespace

TEST_CASE("a whole spool is read whole, chunks in order") {
  SpoolBuilder b(42);
  fill(b);
  const auto bytes = b.bytes();
  std::string error;
  const auto spool = SpoolReader::from_bytes(bytes, error);
  REQUIRE(spool);
  CHECK(spool->header().pid == 42);
  CHECK(spool->host() == "box");
  CHECK(spool->command() == std::vector<std::string_view>{"/usr/bin/python3", "train.py"});
  CHECK_FALSE(spool->damage());
  CHECK(spool->chunks().size() > 4);
  for (size_t i = 1; i < spool->chunks().size(); ++i) {
    const ChunkView &a = spool->chunks()[i - 1], &c = spool->chunks()[i];
    CHECK(std::pair(a.track, a.sequence) < std::pair(c.track, c.sequence));
  }
  const Counted n = count(*spool);
  CHECK(n.events == 80 * 16 + 1);
  CHECK(n.definitions == 14 + 2 + 2 + 2 + 1 + 1 + 1);  // strings, threads and their numbers, functions ...
  CHECK(n.unknown == 0);
  CHECK(n.dropped == 0);
}

TEST_CASE("where the machine had larger pages, the header takes one of those") {
  for (const uint32_t page : {0u, 4096u, 16384u, 65536u}) {
    SpoolBuilder b;
    b.header().page_size = page;
    fill(b);
    const auto bytes = b.bytes();
    std::string error;
    const auto spool = SpoolReader::from_bytes(bytes, error);
    REQUIRE(spool);
    CHECK(count(*spool).events == 80 * 16 + 1);
    CHECK_FALSE(spool->damage());
  }
  for (const uint32_t page : {3u, 4097u, 131072u, 0xffffffffu}) {
    SpoolBuilder b;
    fill(b);
    auto bytes = b.bytes();
    reinterpret_cast<FileHeader*>(bytes.data())->page_size = page;
    std::string error;
    CHECK_FALSE(SpoolReader::from_bytes(bytes, error));
    CHECK(error == "its header is damaged: a page of " + std::to_string(page) + " bytes");
  }
}

TEST_CASE("a chunk that is split holds the first records of many threads") {
  SpoolBuilder b;
  b.split_first_chunks();
  const FunctionId f = b.function("f");
  constexpr uint32_t kThreads = 10;  // more than one chunk has pieces
  for (uint32_t t = 1; t <= kThreads; ++t) b.thread(t);
  for (uint64_t i = 0; i < 40; ++i)
    for (uint32_t t = 1; t <= kThreads; ++t) b.on({t}).at(i * 10).begin(f).end(f);
  auto bytes = b.bytes();
  const size_t split = [&] {
    size_t at = kFileHeaderSize;
    while (reinterpret_cast<const ChunkHeader*>(bytes.data() + at)->kind != ChunkKind::kPieces)
      at += test::kTestChunkSize;
    return at;
  }();
  auto& head = *reinterpret_cast<ChunkHeader*>(bytes.data() + split);
  auto& third = *reinterpret_cast<ChunkHeader*>(bytes.data() + split + 3 * test::kTestPieceSize);
  constexpr uint64_t kAll = kThreads * 80,
                     kInPiece = (test::kTestPieceSize - sizeof(ChunkHeader)) / sizeof(PythonBegin);
  uint64_t events = kAll, damaged = 0;
  SUBCASE("whole") {}
  SUBCASE("a piece that was given away and never begun") { third.magic = 0, events -= kInPiece; }
  SUBCASE("a piece that is damaged") { third.magic = 7, events -= kInPiece, damaged = 1; }
  SUBCASE("a piece that says it is split") { third.kind = ChunkKind::kPieces, events -= kInPiece, damaged = 1; }
  SUBCASE("pieces of no size") { head.size_log2 = 0, events -= 7 * kInPiece, damaged = 1; }
  SUBCASE("pieces as large as the chunk") { head.size_log2 = 12, events -= 7 * kInPiece, damaged = 1; }
  SUBCASE("pieces larger than any file") { head.size_log2 = 255, events -= 7 * kInPiece, damaged = 1; }
  std::string error;
  const auto spool = SpoolReader::from_bytes(bytes, error);
  REQUIRE(spool);
  CHECK(spool->damage().chunks == damaged);
  CHECK(spool->damage().bytes == 0);
  CHECK(count(*spool).events == events);
}

TEST_CASE("records of unknown kinds are skipped, longer ones than ours are read") {
  SpoolBuilder b;
  b.thread(100);
  const FunctionId f = b.function("f");
  b.at(10).raw(50, {1, 2, 3}).raw(127, {});
  b.short_record(190, 1).short_record(200, 1, {2}).short_record(250, 1, {2, 3});
  b.raw(static_cast<uint8_t>(Kind::PythonEnd), {f.value, 99, 99}).end(f);
  const auto bytes = b.bytes();
  std::string error;
  const auto spool = SpoolReader::from_bytes(bytes, error);
  REQUIRE(spool);
  RecordCursor cursor(spool->chunks().back().records);
  RecordView record;
  for (int i = 0; i < 2; ++i) {
    REQUIRE(cursor.next(record));
    CHECK(record.kind() == Kind::PythonEnd);
    CHECK(record.as<PythonEnd>().function == f);
  }
  CHECK_FALSE(cursor.next(record));
  CHECK(cursor.unknown_records() == 5);
  CHECK(cursor.dropped_bytes() == 0);
}

TEST_CASE("short records read as their long forms") {
  SpoolBuilder b;
  b.thread(100);
  b.at(100).short_record(kShortKindOf<PythonBegin>, 7).at(223).short_record(kShortKindOf<PythonEnd>, 8);
  b.short_record(kShortOp, 9, {uint64_t{0x123456} << 8 | 7}).short_record(kShortOpWithSequence, 10, {5 << 8, 77});
  const auto bytes = b.bytes();
  std::string error;
  const auto spool = SpoolReader::from_bytes(bytes, error);
  REQUIRE(spool);
  RecordCursor cursor(spool->chunks().back().records);
  RecordView record;
  REQUIRE(cursor.next(record));
  CHECK(record.kind() == Kind::PythonBegin);
  CHECK(record.as<PythonBegin>().function == FunctionId{7});
  CHECK(record.as<PythonBegin>().object == ObjectId{});
  REQUIRE(cursor.next(record));
  CHECK(record.kind() == Kind::PythonEnd);
  CHECK(record.header().time() == 123);
  REQUIRE(cursor.next(record));
  CHECK(record.kind() == Kind::OpBegin);
  CHECK(record.as<OpBegin>().name == StringId{9});
  CHECK(record.as<OpBegin>().scope == OpScope::kUserScope);
  CHECK(record.as<OpBegin>().key == 0x123456);
  CHECK(record.as<OpBegin>().sequence == -1);
  REQUIRE(cursor.next(record));
  CHECK(record.as<OpBegin>().sequence == 77);
  CHECK(record.as<OpBegin>().fwd_thread == 0);
  CHECK_FALSE(cursor.next(record));
  CHECK(cursor.dropped_bytes() == 0);
}

TEST_CASE("what precedes damage is kept and what follows is counted") {
  SpoolBuilder b;
  b.thread(100);
  const FunctionId f = b.function("f");
  b.at(10).begin(f).end(f).begin(f).end(f);
  auto bytes = b.bytes();
  const size_t records = kFileHeaderSize + test::kTestChunkSize + sizeof(ChunkHeader);
  uint64_t word = 0;
  size_t at = 32;
  SUBCASE("a record of no words") {}
  SUBCASE("a record that passes the end") { word = RecordHeader::make(Kind::OpEnd, 100, 0).bits; }
  SUBCASE("a record too short for its kind") { word = RecordHeader::make(Kind::OpBegin, 2, 0).bits; }
  SUBCASE("a short record that passes the end") { word = ShortRecord::make(kShortOpWithSequence, 1, 0).bits, at = 48; }
  std::memcpy(bytes.data() + records + at, &word, sizeof(word));
  std::string error;
  const auto spool = SpoolReader::from_bytes(bytes, error);
  REQUIRE(spool);
  RecordCursor cursor(spool->chunks().back().records);
  RecordView record;
  int whole = 0;
  while (cursor.next(record)) ++whole;
  CHECK(whole == static_cast<int>(at / 16));
  CHECK(cursor.dropped_bytes() == 64 - at);
}

TEST_CASE("a record of fewer bytes than its kind ever had is damage, whatever the kind") {
  for (unsigned kind = 1; kind < 128; ++kind) {
    const uint64_t first = first_size(static_cast<Kind>(kind));
    CAPTURE(kind);
    CHECK(kLeastBytes[kind] == first);
    if (first < 16) continue;
    std::vector<uint64_t> words(first / 8);  // one too few, and the record after them
    words[0] = RecordHeader::make(static_cast<Kind>(kind), words.size() - 1, 0).bits;
    words.back() = RecordHeader::make(Kind::ThreadEnd, 1, 0).bits;
    RecordCursor cursor(std::as_bytes(std::span(words)));
    RecordView record;
    CHECK_FALSE(cursor.next(record));
    CHECK(cursor.dropped_bytes() == first);
  }
}

TEST_CASE("chunks that are damaged are dropped and counted, unclaimed ones are not") {
  SpoolBuilder b;
  b.thread(100);
  const FunctionId f = b.function("f");
  b.at(10).begin(f).end(f);
  auto bytes = b.bytes();
  auto& chunk = *reinterpret_cast<ChunkHeader*>(bytes.data() + kFileHeaderSize + test::kTestChunkSize);
  uint64_t damaged = 1;
  std::vector<std::byte> unclaimed;
  SUBCASE("another magic") { chunk.magic = 1; }
  SUBCASE("another kind") { chunk.kind = static_cast<ChunkKind>(9); }
  SUBCASE("events of no thread") { chunk.track = {}; }
  SUBCASE("claimed and not begun") { chunk.magic = 0, damaged = 0; }
  SUBCASE("never claimed") { chunk.magic = 0, damaged = 0, unclaimed.resize(3 * test::kTestChunkSize); }
  bytes.insert(bytes.end(), unclaimed.begin(), unclaimed.end());
  std::string error;
  const auto spool = SpoolReader::from_bytes(bytes, error);
  REQUIRE(spool);
  CHECK(spool->damage().chunks == damaged);
  REQUIRE(spool->chunks().size() == 1);
  CHECK(spool->chunks()[0].kind == ChunkKind::kDefinitions);
}

TEST_CASE("a chunk that began before the spool was opened is like any other") {
  SpoolBuilder b;
  const TrackId late = b.thread(100);
  const FunctionId f = b.function("f");
  b.on(late).at(10).begin(f).end(f);
  int64_t behind = 0;
  SUBCASE("a thread that lost the processor for 20 ms") { behind = 20'000'000; }
  SUBCASE("for a second and a half") { behind = 1'500'000'000; }
  SUBCASE("stopped for an hour") { behind = 3'600'000'000'000; }
  for (const uint64_t ticks_per_ns : {1, 3}) {
    if (ticks_per_ns > 1) b.header().clock = ClockSource::kCounter;
    auto bytes = b.bytes();
    const uint64_t start = uint64_t{1} << 60;
    reinterpret_cast<FileHeader*>(bytes.data())->start.ticks.value = start;
    ChunkHeader* definitions = reinterpret_cast<ChunkHeader*>(bytes.data() + kFileHeaderSize);
    definitions->base.ticks.value = start;
    auto& chunk = *reinterpret_cast<ChunkHeader*>(bytes.data() + kFileHeaderSize + test::kTestChunkSize);
    chunk.base.ticks.value = start - static_cast<uint64_t>(behind) * ticks_per_ns;
    chunk.base.monotonic -= behind;
    chunk.base.realtime.value -= behind;
    std::string error;
    const auto spool = SpoolReader::from_bytes(bytes, error);
    REQUIRE(spool);
    CHECK_FALSE(spool->damage());
    CHECK(spool->doubtful_chunks() == 0);
    REQUIRE(spool->chunks().size() == 2);
    CHECK(spool->chunks()[1].base.ticks == chunk.base.ticks);
  }
}

TEST_CASE("a chunk of a time that cannot be is kept, in its place on its thread") {
  SpoolBuilder b;
  const TrackId first = b.thread(100), second = b.thread(101);
  const FunctionId f = b.function("f");
  b.on(first).at(1'000).begin(f).end(f).next_chunk(0, {}).at(2'000).begin(f).end(f);
  b.on(second).at(3'000).begin(f).end(f);
  auto bytes = b.bytes();
  const auto chunk = [&bytes](int n) -> ChunkHeader& {
    return *reinterpret_cast<ChunkHeader*>(bytes.data() + kFileHeaderSize + n * test::kTestChunkSize);
  };
  SUBCASE("days later than the clock beside it") {
    for (const int n : {2, 3}) chunk(n).base.ticks.value ^= uint64_t{1} << 50;
  }
  SUBCASE("the ends of 64 bits") {
    chunk(2).base = {{0}, INT64_MIN, {INT64_MIN}};
    chunk(3).base = {{UINT64_MAX}, INT64_MAX, {INT64_MAX}};
  }
  std::string error;
  const auto spool = SpoolReader::from_bytes(bytes, error);
  REQUIRE(spool);
  CHECK_FALSE(spool->damage());
  CHECK(spool->doubtful_chunks() == 2);
  REQUIRE(spool->chunks().size() == 4);
  CHECK(spool->chunks()[2].base.ticks == spool->chunks()[1].base.ticks);
  CHECK(spool->chunks()[3].base.ticks == spool->header().start.ticks);
}

TEST_CASE("a committed size that cannot be costs no record") {
  SpoolBuilder b;
  b.thread(100);
  const FunctionId f = b.function("f");
  b.at(10).begin(f).end(f);
  auto bytes = b.bytes();
  reinterpret_cast<ChunkHeader*>(bytes.data() + kFileHeaderSize + test::kTestChunkSize)->committed = 0xffffffff;
  std::string error;
  const auto spool = SpoolReader::from_bytes(bytes, error);
  REQUIRE(spool);
  const ChunkView& chunk = spool->chunks().back();
  CHECK(chunk.records.size() == test::kTestChunkSize - sizeof(ChunkHeader));
  RecordCursor cursor(chunk.records);
  RecordView record;
  CHECK(cursor.next(record));
  CHECK(cursor.next(record));
  CHECK_FALSE(cursor.next(record));
  CHECK(cursor.dropped_bytes() == chunk.records.size() - 32);
}

TEST_CASE("files that are no spool are refused with their reason") {
  SpoolBuilder b;
  auto bytes = b.bytes();
  auto& header = *reinterpret_cast<FileHeader*>(bytes.data());
  std::string expected, error;
  SUBCASE("") { bytes.resize(100), expected = "it ends within its header"; }
  SUBCASE("") {
    std::memset(bytes.data(), 0, bytes.size()),
        expected = "its header was never written: the process died while it began";
  }
  SUBCASE("") { header.magic = 7, expected = "it is not a spool of torchprof"; }
  SUBCASE("") { header.version = 9, expected = "it is of version 9, this torchprof reads versions up to 3"; }
  SUBCASE("") { header.chunk_size = 12, expected = "its header is damaged: a chunk size of 12 bytes"; }
  CHECK_FALSE(SpoolReader::from_bytes(bytes, error));
  CHECK(error == expected);
}

TEST_CASE("a file that is missing, empty or a directory says so") {
  test::TemporaryDirectory directory;
  std::ofstream(directory / "empty").close();
  std::string error;
  CHECK_FALSE(SpoolReader::open(directory / "missing", error));
  CHECK(error == "No such file or directory");
  CHECK_FALSE(SpoolReader::open(directory / "empty", error));
  CHECK(error == "it is empty");
  CHECK_FALSE(SpoolReader::open(directory.path(), error));
  CHECK(error == "it is not a file");
}

TEST_CASE("cut at every byte, all whole records before the cut are read") {
  SpoolBuilder b;
  b.thread(100);
  const FunctionId f = b.function("f");
  for (uint64_t i = 0; i < 20; ++i) b.at(i).begin(f).end(f);
  const auto whole = b.bytes();
  const size_t events = kFileHeaderSize + test::kTestChunkSize + sizeof(ChunkHeader);
  for (size_t size = 0; size <= whole.size(); ++size) {
    // A copy of just that size: a sanitizer sees one byte too far.
    const std::vector<std::byte> cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size));
    std::string error;
    const auto spool = SpoolReader::from_bytes(cut, error);
    REQUIRE(static_cast<bool>(spool) == (size >= kFileHeaderSize));
    if (!spool) continue;
    uint64_t read = 0;
    for (const ChunkView& chunk : spool->chunks()) {
      RecordCursor cursor(chunk.records);
      RecordView record;
      while (cursor.next(record)) read += !is_definition(record.kind());
    }
    const uint64_t present = size < events ? 0 : std::min<uint64_t>((size - events) / 16, 40);
    REQUIRE(read == present);
    if (size >= events)
      REQUIRE(spool->damage().bytes == 40 * 16 - std::min<uint64_t>((size - events) / 8 * 8, 40 * 16));
  }
}

TEST_CASE("bytes flipped at random: never a crash, never a read out of bounds") {
  SpoolBuilder b;
  b.split_first_chunks();
  fill(b);
  const auto whole = b.bytes();
  // Flipping zeros shows little, so flips go to headers and records.
  std::vector<size_t> interesting;
  for (size_t i = 0; i < whole.size(); ++i) {
    if (whole[i] != std::byte{0} || i % 64 < 8) interesting.push_back(i);
  }
  std::mt19937_64 random(20240601);
  for (int variant = 0; variant < 4000; ++variant) {
    auto bytes = whole;
    for (uint64_t flips = 1 + random() % 8; flips > 0; --flips) {
      bytes[interesting[random() % interesting.size()]] ^= std::byte(1 << random() % 8);
    }
    if (random() % 4 == 0) bytes.resize(random() % bytes.size());
    read_all(bytes);
  }
}

}  // namespace spool_reader_test
