// A run as a directory of tables that engines for columns read, one machine or many: Apache Parquet.
//
//   host=H/rank=N.parquet      the slices of a process that is a rank, a row each; host=H/process=PID.parquet of any
//                              other. A process id comes again after exec, a rank in other jobs: rank=N-2.parquet
//   collectives.parquet        a row a call of a collective, which collective it is, and how long it waited
//   steps.parquet              a row a step
//   processes.parquet          a row a process
//
// Readers take `host=H` for a column of all files below it. dataset_schema.h has the columns, their meaning and the
// version of both. Slices are those of the other formats (formats/replay/replay.h), times those of the tables.
// Row groups are kRowGroup slices by the order of their ends, sorted by begin: engines skip the others by time.
//
// Memory: a row group, its texts, and what a replay takes; 56 bytes a call of a collective and what match() takes, and
// 24 a step of a rank. Replays each process twice: which step a slice belongs to is known when the step has ended.
// Throws Error.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "formats/io/output.h"
#include "formats/trace/trace.h"

namespace torchprof::formats {

inline constexpr size_t kRowGroup = 122'880;  // DuckDB's

// The files' names below `directory`. What a file of that name becomes: `existing`.
std::vector<std::string> write_dataset(const Trace& trace, Processes processes, const std::filesystem::path& directory,
                                       Existing existing);

}  // namespace torchprof::formats
