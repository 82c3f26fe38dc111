// What a row of short PythonBegin and PythonEnd records leaves open, 16 words at a time. Begins and ends are counted;
// to hold each begin until its end comes would take three times as long.
//
// Counting matches an end with the last open begin, whatever functions the two name. A checksum makes up for that:
// where every end has its begin, a begin at an even place has its end at an odd one, and the exclusive or of all
// functions that are named is that of the begins that are left. If it is not, an end was lost, and the caller has to
// compare record by record.
//
// Any words may come. No allocation; an object belongs to one thread.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "tracer/processor/vectors.h"
#include "tracer/spool/layout.h"
#include "tracer/spool/record.h"

namespace torchprof {

class CallRun {
 public:
  // Takes the row at the beginning of `records`, in whole blocks: the row may go on after them. `open` receives the
  // begins that have no end, innermost first, as many as there is room for.
  CallRun(std::span<const std::byte> records, std::span<uint64_t> open) noexcept : records_(records) {
    count_blocks();
    if (blocks_ > 0) follow(open);
  }

  size_t words() const { return blocks_ * kBlock; }
  size_t open() const { return open_; }    // may be more than there was room for
  size_t ended() const { return ended_; }  // ends of calls that had begun before the row
  ShortRecord last() const { return word(words() - 1); }

  // The checksum that the row must have: of the functions that began before the row and ended in it, and of those that
  // it leaves open. Their places in the row are even and odd in turn, since the number of words between two is even.
  class Checksum {
   public:
    void end(uint32_t function) noexcept { of_[(ended_++ & 1) == 0] ^= function; }
    // Outermost first, after all ends.
    void begin(uint32_t function) noexcept { of_[(ended_ + begun_++) & 1] ^= function; }
    bool operator==(const CallRun& run) const noexcept { return of_[0] == run.even_ && of_[1] == run.odd_; }

   private:
    uint32_t of_[2] = {};
    size_t ended_ = 0, begun_ = 0;
  };

 private:
  static constexpr uint8_t kBegin = kShortKindOf<PythonBegin>;
  static_assert((kBegin & 1) == 0 && kShortKindOf<PythonEnd> == kBegin + 1, "the lowest bit tells an end");
  static constexpr size_t kBlock = 16, kMostBlocks = kChunkSize / 8 / kBlock;

  // Of eight words, walked backwards, by the mask that says which of them are ends. least: how many ends must come
  // after them so that no begin of theirs stays open. begins: how many more begins than ends there are.
  struct Eight {
    int8_t least, begins;
  };
  static constexpr std::array<Eight, 256> kEights = [] {
    std::array<Eight, 256> eights{};
    for (size_t ends = 0; ends < eights.size(); ++ends) {
      int least = 0, begins = 0;
      for (int i = 8; i-- > 0;) {
        begins += (ends >> i & 1) != 0 ? -1 : 1;
        least = std::max(least, begins);
      }
      eights[ends] = {static_cast<int8_t>(least), static_cast<int8_t>(begins)};
    }
    return eights;
  }();

  ShortRecord word(size_t i) const {
    ShortRecord record;
    std::memcpy(&record, records_.data() + i * sizeof(record), sizeof(record));
    return record;
  }

  void count_blocks() noexcept {
    using processor::Words;
    const size_t most = std::min(records_.size() / sizeof(uint64_t) / kBlock, kMostBlocks);
    // Most rows are short; this finds out before a whole block is looked at.
    if (most == 0 || (word(kBlock / 2).kind() | 1) != kBegin + 1 || (word(kBlock - 1).kind() | 1) != kBegin + 1) return;
    constexpr Words one = {1, 1}, is_call = {kBegin, kBegin};
    Words all = {}, ends_only = {};
    for (; blocks_ < most; ++blocks_) {
      const std::byte* words = records_.data() + blocks_ * kBlock * sizeof(uint64_t);
      const Words all_before = all, ends_before = ends_only;
      Words foreign = {};
      unsigned ends = 0;
#pragma GCC unroll 8
      for (unsigned i = 0; i < kBlock / 2; ++i) {
        const auto two = processor::load<Words>(words + i * sizeof(Words));
        ends |= processor::high_bits(two << 63) << 2 * i;
        foreign |= two ^ is_call;
        all ^= two;
        ends_only ^= two & ~((two & one) - one);
      }
      if (((foreign[0] | foreign[1]) & 0xfe) != 0) {
        all = all_before, ends_only = ends_before;
        break;
      }
      ends_[blocks_] = static_cast<uint16_t>(ends);
    }
    const auto function = [](const Words& words, bool odd) { return ShortRecord{words[odd]}.value(); };
    const Words begins_only = all ^ ends_only;
    even_ = function(begins_only, false) ^ function(ends_only, true);
    odd_ = function(begins_only, true) ^ function(ends_only, false);
  }

  void follow(std::span<uint64_t> open) noexcept {
    int64_t ended = 0;
    for (size_t i = words(); i > 0; i -= 8) {
      const auto ends = static_cast<uint8_t>(ends_[(i - 1) / kBlock] >> (i - 8) % kBlock);
      if (const Eight eight = kEights[ends]; eight.least <= ended) {
        ended -= eight.begins;
        continue;
      }
      for (size_t k = 8; k-- > 0;) {
        if ((ends >> k & 1) != 0)
          ++ended;
        else if (ended > 0)
          --ended;
        else if (open_++ < open.size())
          open[open_ - 1] = word(i - 8 + k).bits;
      }
    }
    ended_ = static_cast<size_t>(ended);
  }

  std::span<const std::byte> records_;
  size_t blocks_ = 0, open_ = 0, ended_ = 0;
  uint32_t even_ = 0, odd_ = 0;  // checksums: begins at even places and ends at odd ones; the others
  uint16_t ends_[kMostBlocks];   // of each block, one bit for each word: it is an end
};

}  // namespace torchprof
