#include "tracer/spool/open_spans.h"

#include <doctest/doctest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "formats/replay/replay.h"
#include "tests/unit/support/spool_builder.h"
#include "tracer/spool/reader.h"

namespace open_spans_test {

using namespace torchprof;
using namespace torchprof::test;

namespace {

// What is open on the only thread of the spool, in one line: "f1@10 op7@20"; names are ids.
std::string open_in(const SpoolBuilder& builder) {
  const auto bytes = builder.bytes();
  std::string error;
  const auto reader = SpoolReader::from_bytes(bytes, error);
  REQUIRE_MESSAGE(reader, error);
  const auto open = std::make_unique<OpenSpans>();
  uint32_t next = 0;
  for (const ChunkView& chunk : reader->chunks()) {
    if (chunk.kind != ChunkKind::kEvents) continue;
    open->fold(chunk.records, chunk.base, chunk.sequence == next);
    next = chunk.sequence + 1;
  }
  std::string out;
  for (const OpenSpans::Span& span : open->spans()) {
    if (!out.empty()) out += ' ';
    if (span.kind == Kind::PythonFrame) out.append("f").append(std::to_string(span.function.value));
    if (OpenSpans::is_c_call(span)) out.append("c");
    if (span.kind == Kind::OpBegin) out.append("op").append(std::to_string(span.op.key));
    out.append("@").append(std::to_string(span.begin.value - kStartTicks));
  }
  if (open->deeper() > 0) out.append(" +").append(std::to_string(open->deeper()));
  if (open->has_ended()) out.append(" ended");
  return out;
}

}  // namespace

TEST_CASE("what has begun and not ended is open, since it began") {
  SpoolBuilder s;
  const FunctionId f = s.function("f"), g = s.function("g");
  s.on(s.thread(1)).at(10).begin(f).at(20).op(7, "aten::add").at(30).begin(g).c_begin("len");
  CHECK(open_in(s) == "f1@10 op7@20 f2@30 c@30");
  s.at(40).c_end();
  CHECK(open_in(s) == "f1@10 op7@20 f2@30");
  s.at(50).op_end(7).end(g);
  CHECK(open_in(s) == "f1@10");
  s.thread_end();
  CHECK(open_in(s) == " ended");
}

TEST_CASE("a frame that ends takes the frames above it that lost their ends, and leaves the operators") {
  SpoolBuilder s;
  const FunctionId f = s.function("f"), g = s.function("g");
  s.on(s.thread(1)).at(10).begin(f).at(20).begin(g).at(30).annotation(3, "x").at(40).c_begin("len").at(50).end(f);
  CHECK(open_in(s) == "op3@30");
}

TEST_CASE("an end of what never began changes nothing") {
  SpoolBuilder s;
  const FunctionId f = s.function("f"), g = s.function("g");
  s.on(s.thread(1)).at(10).begin(f).at(20).end(g).c_end().op_end(9);
  CHECK(open_in(s) == "f1@10");
}

TEST_CASE("a restated stack takes the place of everything") {
  SpoolBuilder s;
  const FunctionId f = s.function("f"), g = s.function("g");
  s.on(s.thread(1)).at(10).begin(f).at(20).sync().frame(g);
  CHECK(open_in(s) == "f2@20");
}

TEST_CASE("a recursion that is deeper than what is held comes back to it") {
  SpoolBuilder s;
  const FunctionId f = s.function("f");
  s.on(s.thread(1));
  for (size_t i = 0; i < OpenSpans::kMost + 7; ++i) s.at(i).begin(f);
  CHECK(open_in(s).ends_with(" f1@511 +7"));
  for (size_t i = 0; i < OpenSpans::kMost + 6; ++i) s.at(1000 + i).end(f);
  CHECK(open_in(s) == "f1@0");
}

TEST_CASE("short records say what long ones say, also where they do not match or are too deep") {
  std::mt19937 random(7);  // NOLINT: the same numbers each time
  for (const unsigned begins_of_ten : {3u, 5u, 9u}) {
    SpoolBuilder longs, shorts;
    for (SpoolBuilder* const b : {&longs, &shorts}) b->on(b->thread(1));
    std::vector<uint32_t> calls;
    for (uint64_t i = 1; i < 1500; ++i) {
      const uint32_t any = 1 + random() % 3;
      const bool is_c = random() % 8 == 0;
      longs.at(i);
      shorts.at(i);
      if (random() % 10 < begins_of_ten) {
        calls.push_back(any);
        is_c ? longs.c_begin("len") : longs.begin(FunctionId{any});
        is_c ? shorts.c_begin("len") : shorts.short_record(kShortKindOf<PythonBegin>, any);
      } else {
        const uint32_t ended = random() % 20 != 0 && !calls.empty() ? calls.back() : any;
        if (!calls.empty()) calls.pop_back();
        longs.end(FunctionId{ended});
        shorts.short_record(kShortKindOf<PythonEnd>, ended);
      }
      REQUIRE(open_in(shorts) == open_in(longs));
    }
  }
}

TEST_CASE("long rows of calls leave open what each of them does, also where ends were lost") {
  for (const bool loses_ends : {false, true}) {
    std::mt19937 random(11);  // NOLINT: the same numbers each time
    for (int round = 0; round < 300; ++round) {
      SpoolBuilder longs, shorts;
      for (SpoolBuilder* const b : {&longs, &shorts}) b->on(b->thread(1));
      std::vector<uint32_t> calls;
      uint64_t time = 0;
      const auto begin = [&](uint32_t function, bool short_too = true) {
        calls.push_back(function);
        longs.at(++time).begin(FunctionId{function});
        shorts.at(time);
        short_too ? shorts.short_record(kShortKindOf<PythonBegin>, function) : shorts.begin(FunctionId{function});
      };
      const auto end = [&] {
        longs.at(++time).end(FunctionId{calls.back()});
        shorts.at(time).short_record(kShortKindOf<PythonEnd>, calls.back());
        calls.pop_back();
      };
      // What is open before the row: the row ends some of it, or all.
      for (uint32_t i = random() % 20; i > 0; --i) begin(1 + random() % 5000, false);
      for (uint32_t i = random() % 200; i > 0; --i) {
        const bool goes_down = round % 2 == 0 ? i % 40 < 20 : random() % 2 == 0;
        if (calls.empty() || goes_down) begin(1 + random() % 5000);
        // As after an exception that nobody told us of.
        if (loses_ends && random() % 100 == 0 && !calls.empty()) calls.pop_back();
        if (!calls.empty() && !goes_down) end();
      }
      REQUIRE(open_in(shorts) == open_in(longs));
    }
  }
}

TEST_CASE("a row of calls that is deeper than what is held leaves what there is room for") {
  SpoolBuilder s;
  s.on(s.thread(1));
  for (size_t i = 0; i < OpenSpans::kMost + 100; ++i) s.at(i).short_record(kShortKindOf<PythonBegin>, 1 + i);
  CHECK(open_in(s).ends_with(" f512@511 +100"));
}

TEST_CASE("a recursion that lost an end is not taken for one that did not") {
  SpoolBuilder s;
  const auto call = [&s](bool begins, uint32_t function) {
    s.short_record(begins ? kShortKindOf<PythonBegin> : kShortKindOf<PythonEnd>, function);
  };
  s.on(s.thread(1)).at(10);
  for (const uint32_t function : {1, 2, 1}) call(true, function);  // the last one's end is lost
  for (const uint32_t function : {2, 1}) call(false, function);
  for (int i = 0; i < 6; ++i) call(true, 3), call(false, 3);
  CHECK(open_in(s) == "");
}

TEST_CASE("words that are no records end the chunk") {
  const uint64_t begin = ShortRecord::make(kShortKindOf<PythonBegin>, 0, 5).bits;
  // What differs from an end as nothing does from a begin.
  const uint64_t damage = kShortKindOf<PythonBegin> ^ kShortKindOf<PythonEnd>;
  for (const bool begins_well : {false, true}) {
    std::vector<uint64_t> words(600, damage);
    words.insert(words.end(), 10, begin);
    if (begins_well) words.insert(words.begin(), begin);
    const auto open = std::make_unique<OpenSpans>();
    open->fold(std::as_bytes(std::span(words)), ClockSample{}, true);
    CHECK(open->spans().size() == (begins_well ? 1 : 0));
    CHECK(open->deeper() == 0);
  }
}

TEST_CASE("a span that is written at the beginning of a chunk is read back as it was") {
  SpoolBuilder s;
  const FunctionId f = s.function("f");
  const ObjectId linear = s.object("Linear");
  s.on(s.thread(1)).at(10).begin(f, linear).at(20).op(7, "aten::add", {.sequence = 3, .handle = 7});
  const auto bytes = s.bytes();
  std::string error;
  const auto reader = SpoolReader::from_bytes(bytes, error);
  const auto open = std::make_unique<OpenSpans>();
  const ChunkView& chunk = reader->chunks().back();
  open->fold(chunk.records, chunk.base, true);
  REQUIRE(open->spans().size() == 2);
  alignas(8) std::byte out[2 * kMaxExpanded];
  size_t size = OpenSpans::write(open->spans()[0], out);
  size += OpenSpans::write(open->spans()[1], out + size);
  RecordCursor cursor({out, size});
  RecordView record;
  REQUIRE(cursor.next(record));
  CHECK(record.kind() == Kind::PythonFrame);
  CHECK(record.as<PythonFrame>().object == linear);
  REQUIRE(cursor.next(record));
  CHECK(record.as<OpBegin>().sequence == 3);
  CHECK_FALSE(cursor.next(record));
}

}  // namespace open_spans_test
