// One SQLite database for all processes of the run; sqlite_schema.h is its schema.
//
//   * Slices are those of the other formats (formats/replay/replay.h); self times and totals are those of the tables
//     (formats/report/summary.h). Marks of steps that we make are only in `steps`; the program's own are operators,
//     too.
//   * Texts are valid UTF-8 without control characters, and each is stored once.
//   * Rows are written in one transaction with prepared statements. Memory: the replay, SQLite's cache (64 MiB) and the
//     texts. Indexes are sorted on the disk.
//   * SQLite needs a file with a name in which it can seek. If the output is not one (a pipe, a name in .gz), the
//     database is made in the directory for temporary files and then copied.
#pragma once

#include "formats/io/output.h"
#include "formats/trace/trace.h"

namespace torchprof::formats {

void write_sqlite(const Trace& trace, Processes processes, Output& out);

}  // namespace torchprof::formats
