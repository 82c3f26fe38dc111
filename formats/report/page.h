// An HTML page with everything in one file: advice, what the run was (run_facts.h), all tables, steps and their parts,
// timelines of two steps (timeline.h), modules as a tree, call paths as a flame graph, memory over time. The page
// fetches nothing, and its Content-Security-Policy forbids it.
//
// Its data are JSON in a script element whose type is not run. Every '<' in it is written \u003c, so no name can end
// the element. The script sets text, never markup. Memory is bounded by call paths; a flame graph keeps at most
// kMostFrames frames, the widest.
#pragma once

#include <filesystem>

#include "formats/io/output.h"
#include "formats/trace/trace.h"

namespace torchprof::formats {

inline constexpr size_t kMostFrames = 20'000;

struct PageOptions {  // as in TableOptions (summary.h)
  bool has_all_processes = false;
  bool has_waits = false;
  std::string step{};
};

void write_html(const Trace& trace, Output& out, const PageOptions& options = {});
// For a trace file: without flame graph and memory over time, which need raw records. Throws Error like the file's
// reader.
void write_html(const std::filesystem::path& trace_file, Output& out, const PageOptions& options = {});

}  // namespace torchprof::formats
