// One SQLite database for all processes of the run: formats/write/sqlite_schema.h is its schema.
//
//   * Slices are those of the other formats (formats/replay/replay.h), self times and totals those of the tables
//     (formats/report/summary.h). Marks of steps that are made here are in `steps` alone; the program's own are operators too.
//   * Texts are valid UTF-8 without control characters, each once.
//   * Streamed in one transaction with prepared statements: memory is that of the replay, SQLite's cache (64 MiB) and
//     the texts; indexes are sorted on the disk.
//   * SQLite writes a file by its name and goes back in it. Where the output is none (a pipe, a name in .gz) it is
//     made in the directory for temporary files and copied.
#pragma once

#include "formats/io/output.h"
#include "formats/trace/trace.h"

namespace torchprof::formats {

void write_sqlite(const Trace& trace, Processes processes, Output& out);

}  // namespace torchprof::formats
