// The columns of the tables of a dataset, in the order in which they are written. docs/formats.md lists them.
//
// A change of meaning, or of an existing column, raises kDatasetVersion; an addition does not. Times are nanoseconds
// since 1970 (UTC) on the clock of the trace (formats/ranks/align.h), durations nanoseconds.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/replay/steps.h"
#include "formats/write/parquet/table_file.h"

namespace torchprof::formats::parquet {

inline constexpr int kDatasetVersion = 1;

// slices: a row an operator, annotation, Python or C call, call of CUDA, kernel, copy and set
enum class SliceColumn : uint8_t {
  kRank,        // of a distributed program, the process's; null: none
  kPid,         //
  kTid,         // the thread; of work on a GPU null
  kStart,       //
  kDuration,    //
  kSelf,        // without what is directly inside: operators without operators and calls of CUDA, Python calls without
                // Python and C calls
  kName,        //
  kKind,        // slice_kind.h; 'cuda_call', 'kernel', 'memcpy', 'memset'
  kModule,      // path of the innermost nn.Module whose call is around it, or its name where it has no path; null: none
  kStep,        // number of the step that was running at the begin; null: none
  kIsBackward,  //
  kIsOutermost,  // 0: inside a slice of the same name; durations of the others add up to a total
  kOperator,     // number of the operator in its process; of CUDA's calls and GPU work that of the operator around
  kCorrelation,  // joins a call of CUDA and its work; null: none
  kDevice,       // of work on a GPU; null otherwise
  kStream,       //
  kShapes,       // "[[2,3],[]]", an operator's inputs; null: not recorded
  kCount,
};

// steps: a row a step of a process; those of windows have the borders of the marks ProfilerStep#N (step_tracker.h), the
// others are from the end of the step before to their own end
enum class StepColumn : uint8_t {
  kRank,
  kHost,
  kPid,
  kStep,      // its number
  kStart,     //
  kDuration,  //
  kInFull,    // 0: slices of it are missing, since no window was open for all of it
  kEndedBy,   // "ProfilerStep", "Optimizer: AdamW_0"
  kCount,
};

// collectives: a row a call of a rank, with the numbers of the table comms. Rows with the same `collective` are the
// same collective, or a send and its receive (formats/ranks/match.h)
enum class CollectiveColumn : uint8_t {
  kRank,
  kHost,
  kPid,
  kCollective,  // from 1, in the whole dataset; this and the next two null: nobody can be sure which one it is
  kMatchedBy,   // "number", "begin", "step", "time" (MatchedBy)
  kRanks,       // that were found in it
  kName,        // "allreduce", "gloo:all_reduce"
  kGroup,       // for people: its description, or its name; null: not known
  kGroupRanks,  // "0, 2"; null: not known
  kPeer,        // of a send or receive: the global rank of the other side; null: not known
  kNumber,      // of torch's own count in its group; null: not known
  kStep,        // as of slices
  kBytes,       // of the input or the output, whichever is larger; null: not recorded
  kType,        // "Float"; null: not known, or of several types
  kStart,       //
  kDuration,    //
  kWaiting,  // until the last one began, or the other side sent; 0 where the clocks may be off by as much; null: it was
             // not compared, or is a send
  kIsLast,   // for this one the others waited; null: it was not compared
  kClockError,  // by how much its clock and that of the last one may differ, 0 on one machine; null: not compared
  kCount,
};

enum class ProcessColumn : uint8_t {
  kRank,
  kHost,
  kPid,
  kParentPid,
  kRole,
  kCommand,
  kStart,
  kEnd,
  kCleanExit,
  kLostEvents,
  kFile,
  kCount,
};

inline std::vector<ColumnSpec> slice_columns() {
  return {{"rank", ColumnKind::kCategory, true},
          {"pid", ColumnKind::kCategory},
          {"tid", ColumnKind::kCategory, true},
          {"start_ns"},
          {"duration_ns"},
          {"self_ns"},
          {"name", ColumnKind::kText},
          {"kind", ColumnKind::kText},
          {"module", ColumnKind::kText, true},
          {"step", ColumnKind::kNumber, true},
          {"is_backward", ColumnKind::kFlag},
          {"is_outermost", ColumnKind::kFlag},
          {"operator", ColumnKind::kNumber, true},
          {"correlation", ColumnKind::kNumber, true},
          {"device", ColumnKind::kCategory, true},
          {"stream", ColumnKind::kCategory, true},
          {"shapes", ColumnKind::kText, true}};
}

inline std::vector<ColumnSpec> step_columns() {
  return {{"rank", ColumnKind::kCategory, true},
          {"host", ColumnKind::kText},
          {"pid", ColumnKind::kCategory},
          {"step"},
          {"start_ns"},
          {"duration_ns"},
          {"in_full", ColumnKind::kFlag},
          {"ended_by", ColumnKind::kText}};
}

inline std::vector<ColumnSpec> collective_columns() {
  return {{"rank", ColumnKind::kCategory, true},
          {"host", ColumnKind::kText},
          {"pid", ColumnKind::kCategory},
          {"collective", ColumnKind::kNumber, true},
          {"matched_by", ColumnKind::kText, true},
          {"ranks", ColumnKind::kCategory, true},
          {"name", ColumnKind::kText},
          {"group_name", ColumnKind::kText, true},
          {"group_ranks", ColumnKind::kText, true},
          {"peer", ColumnKind::kCategory, true},
          {"number", ColumnKind::kNumber, true},
          {"step", ColumnKind::kNumber, true},
          {"bytes", ColumnKind::kCategory, true},
          {"dtype", ColumnKind::kText, true},
          {"start_ns"},
          {"duration_ns"},
          {"waiting_ns", ColumnKind::kNumber, true},
          {"is_last", ColumnKind::kFlag, true},
          {"clock_error_ns", ColumnKind::kCategory, true}};
}

inline std::vector<ColumnSpec> process_columns() {
  return {{"rank", ColumnKind::kNumber, true},
          {"host", ColumnKind::kText},
          {"pid"},
          {"parent_pid"},
          {"role", ColumnKind::kText},
          {"command", ColumnKind::kText},
          {"start_ns"},
          {"end_ns"},
          {"clean_exit", ColumnKind::kFlag},
          {"lost_events"},
          {"file", ColumnKind::kText}};
}

// What each file says of itself.
inline std::vector<std::pair<std::string, std::string>> about(std::string_view table) {
  return {{"torchprof.table", std::string(table)}, {"torchprof.dataset_version", std::to_string(kDatasetVersion)}};
}

// The number of the step that ran at this time. `steps`: sorted, and apart.
inline std::optional<int64_t> step_at(const std::vector<StepSpan>& steps, int64_t time) {
  const auto step = std::ranges::upper_bound(steps, time, {}, &StepSpan::end);
  if (step == steps.end() || step->begin > time) return {};
  return static_cast<int64_t>(step->number);
}

}  // namespace torchprof::formats::parquet
