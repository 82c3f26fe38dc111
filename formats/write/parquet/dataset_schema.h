// The columns of the tables of a dataset, in the order in which they are written. docs/formats.md lists them.
//
// A change of meaning, or of an existing column, raises kDatasetVersion; an addition does not. Times are nanoseconds
// since 1970 (UTC) on the clock of the process's host, durations nanoseconds.
#pragma once

#include <vector>

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

}  // namespace torchprof::formats::parquet
