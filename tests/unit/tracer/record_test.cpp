#include "tracer/spool/record.h"

#include <doctest/doctest.h>

#include <iterator>

namespace record_test {

using namespace torchprof;

TEST_CASE("a record header keeps kind, length and time apart at their largest") {
  const auto h = RecordHeader::make(Kind::ThreadEnd, RecordHeader::kMaxWords, RecordHeader::kMaxTime);
  CHECK(h.kind() == Kind::ThreadEnd);
  CHECK(h.words() == 4095);
  CHECK(h.bytes() == 4095 * 8);
  CHECK(h.time() == (uint64_t{1} << 44) - 1);
  CHECK(!ShortRecord::is_short(h.bits));
}

TEST_CASE("a short record keeps kind, value and time apart at their largest") {
  const auto r = ShortRecord::make(kShortKindOf<CCallBegin>, ShortRecord::kMaxValue, ShortRecord::kMaxTime);
  CHECK(ShortRecord::is_short(r.bits));
  CHECK(r.long_kind() == Kind::CCallBegin);
  CHECK(r.value() == (1u << 20) - 1);
  CHECK(r.time() == (uint64_t{1} << 36) - 1);
  CHECK(ShortRecord::make(255, 1, 1).long_kind() == Kind{});
}

namespace {

// What each kind's struct had when the kind was new, as released. A new kind gets its entry here; none ever changes.
struct First {
  uint8_t kind;
  uint16_t bytes;
};
constexpr First kFirst[] = {
    {1, 16},  {2, 24},  {3, 24},  {4, 40},   {5, 32},   {6, 16},   {7, 24},   {8, 32},  {9, 40},  {11, 24}, {12, 24},
    {18, 72}, {20, 88}, {21, 24}, {22, 16},  {23, 48},  {24, 48},  {25, 32},  {32, 16}, {33, 16}, {34, 16}, {35, 8},
    {36, 16}, {37, 8},  {38, 16}, {39, 16},  {40, 24},  {41, 16},  {42, 16},  {44, 24}, {46, 16}, {64, 48}, {65, 16},
    {66, 16}, {67, 16}, {68, 48}, {69, 48},  {71, 16},  {72, 128}, {73, 88},  {74, 72}, {75, 40}, {76, 56}, {77, 40},
    {78, 48}, {79, 56}, {80, 64}, {81, 32},  {82, 32},  {83, 48},  {84, 40},  {85, 48}, {90, 16}, {91, 16}, {96, 8},
    {97, 16}, {98, 24}, {99, 16}, {100, 40}, {101, 24}, {102, 24}, {103, 48}, {104, 24}};

}  // namespace

TEST_CASE("kinds, and what their structs had at first, never change") {
  size_t kinds = 0;
  for (unsigned kind = 0; kind < 256; ++kind) kinds += first_size(static_cast<Kind>(kind)) != 0;
  CHECK(kinds == std::size(kFirst));
  for (const auto& [kind, bytes] : kFirst) {
    CAPTURE(+kind);
    CHECK(first_size(static_cast<Kind>(kind)) == bytes);
    CHECK(fixed_size(static_cast<Kind>(kind)) >= bytes);
  }
  CHECK(static_cast<Kind>(1) == Kind::StringDef);
  CHECK(static_cast<Kind>(4) == Kind::FunctionDef);
  CHECK(static_cast<Kind>(32) == Kind::PythonBegin);
  CHECK(static_cast<Kind>(44) == Kind::Collective);
  CHECK(static_cast<Kind>(64) == Kind::OpBegin);
  CHECK(static_cast<Kind>(72) == Kind::GpuKernel);
  CHECK(static_cast<Kind>(96) == Kind::ThreadEnd);
  CHECK(fixed_size(static_cast<Kind>(31)) == 0);
  CHECK(is_definition(Kind::SourceDef));
  CHECK(is_definition(Kind::GpuDeviceDef));
  CHECK(!is_definition(Kind::PythonBegin));
}

TEST_CASE("a short operator expands to its long form, with or without a sequence number") {
  for (const int64_t sequence : {int64_t{-1}, int64_t{41}}) {
    const uint64_t words[] = {ShortRecord::make(sequence < 0 ? kShortOp : kShortOpWithSequence, 77, 1234).bits,
                              uint64_t{99} << 8 | static_cast<uint8_t>(OpScope::kUserScope),
                              static_cast<uint64_t>(sequence)};
    alignas(8) std::byte bytes[kMaxExpanded];
    expand(reinterpret_cast<const std::byte*>(words), LastOp{}, 0, bytes);
    OpBegin op;
    std::memcpy(&op, bytes, sizeof(op));
    CHECK(op.header.kind() == Kind::OpBegin);
    CHECK(op.header.bytes() == sizeof(OpBegin));
    CHECK(op.header.time() == 1234);
    CHECK(op.name == StringId{77});
    CHECK(op.scope == OpScope::kUserScope);
    CHECK(op.key == 99);
    CHECK(op.handle == 99);
    CHECK(op.sequence == sequence);
    CHECK(op.fwd_thread == 0);
  }
}

TEST_CASE("a step of one word follows the one before it, also some steps later") {
  for (const uint64_t before : {uint64_t{1}, uint64_t{4095}, uint64_t{4096}, uint64_t{1} << 40})
    for (const uint64_t ahead : {uint64_t{1}, uint64_t{2}, ShortStep::kMostAhead}) {
      const auto record = ShortStep::make(before + ahead, RecordHeader::kMaxTime);
      CHECK(ShortRecord::is_short(record.bits));
      CHECK(ShortRecord{record.bits}.words() == 1);
      CHECK(ShortRecord{record.bits}.long_kind() == Kind::StepEnd);
      alignas(8) std::byte bytes[kMaxExpanded];
      expand(reinterpret_cast<const std::byte*>(&record), LastOp{}, before, bytes);
      StepEnd end;
      std::memcpy(&end, bytes, sizeof(end));
      CHECK(end.header.kind() == Kind::StepEnd);
      CHECK(end.header.time() == RecordHeader::kMaxTime);
      CHECK(end.step == before + ahead);
      CHECK(end.window == 0);
      CHECK(+end.was_open == 0);
      CHECK(+end.switching_us == 0);
    }
}

TEST_CASE("a place in the program is one word without a time, at its largest, too") {
  for (const uint32_t function : {1u, ~0u})
    for (const uint64_t instruction : {uint64_t{0}, ShortLine::kMostInstruction}) {
      const auto record = ShortLine::make({function}, instruction);
      CHECK(ShortRecord{record.bits}.words() == 1);
      CHECK(ShortRecord{record.bits}.long_kind() == Kind::PythonLine);
      alignas(8) std::byte bytes[kMaxExpanded];
      expand(reinterpret_cast<const std::byte*>(&record), LastOp{}, 0, bytes);
      PythonLine line;
      std::memcpy(&line, bytes, sizeof(line));
      CHECK(line.header.kind() == Kind::PythonLine);
      CHECK(line.header.time() == 0);
      CHECK(line.function == FunctionId{function});
      CHECK(line.instruction == instruction);
    }
}

TEST_CASE("an operator of one word follows the one before it") {
  for (const uint8_t kind : {kShortNextOp, kShortNextOpNextSequence}) {
    const uint64_t words[3] = {ShortRecord::make(kind, 5, 9).bits};
    alignas(8) std::byte bytes[kMaxExpanded];
    expand(reinterpret_cast<const std::byte*>(words), LastOp{.handle = 7, .sequence = 3}, 0, bytes);
    OpBegin op;
    std::memcpy(&op, bytes, sizeof(op));
    CHECK(op.name == StringId{5});
    CHECK(op.header.time() == 9);
    CHECK(op.scope == OpScope::kFunction);
    CHECK(op.handle == 8);
    CHECK(op.key == 8);
    CHECK(op.sequence == (kind == kShortNextOp ? 3 : 4));
  }
}

}  // namespace record_test
