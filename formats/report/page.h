// An HTML page with everything in one file: advice, what the run was (run_facts.h), all tables, steps and their parts,
// timelines of two steps (timeline.h), modules as a tree, call paths as a flame graph, memory over time. The page
// fetches nothing, and its Content-Security-Policy forbids it.
//
// Its data are JSON in a script element whose type is not run. Every '<' in it is written as an escape of JSON, so no
// name can end the element. The script sets text, never markup. Memory is bounded by call paths; a flame graph keeps at
// most kMostFrames frames, the widest.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "formats/io/output.h"
#include "formats/trace/trace.h"

namespace torchprof::formats {

inline constexpr size_t kMostFrames = 20'000;

// In a run directory the page has this name (`report --open`, torchprof.profile()), and its first kPageHead bytes have
// the mark, by which a later run there knows that it is ours and of the run before.
inline constexpr const char* kPageOfRun = "report.html";
inline constexpr std::string_view kPageMark = "<meta name=\"generator\" content=\"torchprof\">";
inline constexpr size_t kPageHead = 512;

struct PageOptions {  // as in TableOptions (summary.h)
  bool has_all_processes = false;
  bool has_waits = false;
  std::string step{};
};

void write_html(const Trace& trace, Output& out, const PageOptions& options = {});
// For a trace file: without flame graph and memory over time, which need raw records. Throws Error like the file's
// reader.
void write_html(const std::filesystem::path& trace_file, Output& out, const PageOptions& options = {});

// The frame of such a page. `title`: printable; the first is the heading. `summary`: what it is where no script runs.
// `members`: of the object of data, without its braces.
void write_shell(const std::vector<std::string>& title, std::string_view summary, std::string_view members,
                 Output& out);

// What a page that compares two runs shows of each (formats/write/diff_page.h), as JSON: {"name","facts","report"}.
std::string run_for_pair(const Trace& trace, const std::string& name);
std::string run_for_pair(const std::filesystem::path& trace_file, const std::string& name);

}  // namespace torchprof::formats
