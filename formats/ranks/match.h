// Which calls of several processes are the same collective, and which send belongs to which receive.
//
// Calls of one kind and job are the same
//   * if torch has given them the same number in their group; or
//   * if they are the nth of their kind since a moment that their ranks have in common: their begin, or that of a step
//     that all of them recorded in full; or
//   * on one machine, if each goes on while the others do, and so do those that follow, over some pauses, for longer
//     than in any other pairing. For nobody leaves a collective before the last one has entered it (waits_for_all()).
// By order alone they are not the same if the sizes differ where they must not, if a step has more of them in one rank
// than in another, or if one had ended before another began. What is not certain is not matched; `uncertain` counts it.
// A rank that lacks a step is left out for that step alone.
//
// A send and a receive are a pair: the nth with the same tag from one rank to another, where both were recorded from
// their begin and say whom it is for.
//
// Memory: 40 bytes for each call, while they are matched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/ranks/calls.h"

namespace torchprof::formats {

// By what a row is known to be one collective.
enum class MatchedBy : uint8_t {
  kNumber,  // torch's
  kBegin,   // its place since its ranks began
  kStep,    // its place in a step
  kTime,    // what went on at once
};

// Of processes whose times can be compared, unless that is left to the caller.
struct MatchedCalls {
  std::vector<size_t> processes{};        // indices; at least two
  std::vector<const CommsCall*> calls{};  // row by row, one a process; null: it lacks that one
  std::vector<MatchedBy> by{};            // of each row
  size_t rows() const { return calls.size() / processes.size(); }
  const CommsCall* const* row(size_t n) const { return calls.data() + n * processes.size(); }
};

struct MatchedKind {
  std::vector<MatchedCalls> of_jobs{};
  uint64_t uncertain = 0;  // calls
};

// kClocks: only of processes with the same CommsCalls::reference. kNone: the clocks of machines are not known yet.
enum class Compared : uint8_t { kClocks, kNone };

// Sends and receives are not among them. The calls have to stay where they are.
std::map<CommsKind, MatchedKind> match(const std::vector<const CommsCalls*>& processes, Compared compared);

struct Pair {
  size_t sender, receiver;  // indices
  const CommsCall *send, *receive;
  const CommsKind* kind_of_send;  // in its CommsCalls
};
// By the kind of the receive.
std::map<CommsKind, std::vector<Pair>> match_pairs(const std::vector<const CommsCalls*>& processes, Compared compared);

// Whether no rank leaves it before all have entered it: not so for a broadcast, reduce, gather or scatter.
bool waits_for_all(std::string_view name);

}  // namespace torchprof::formats
