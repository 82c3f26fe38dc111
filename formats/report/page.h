// A page for a browser that holds all it shows: tables of all kinds, steps, modules as a tree, call paths as a flame
// graph, memory over time. Nothing is fetched; the page forbids itself to (Content-Security-Policy).
//
// Its data are JSON in a script element of a type that is not run, with every '<' written \u003c: no name can end the
// element. The script sets texts, never markup. Memory here is bounded by call paths; of a flame graph at most
// kMostFrames are kept, the widest.
#pragma once

#include <filesystem>

#include "formats/io/output.h"
#include "formats/trace/trace.h"

namespace torchprof::formats {

inline constexpr size_t kMostFrames = 20'000;

void write_html(const Trace& trace, Output& out);
// Of a trace file: without flame graph and memory over time, which only raw records have. Throws Error as its reader.
void write_html(const std::filesystem::path& trace_file, Output& out);

}  // namespace torchprof::formats
