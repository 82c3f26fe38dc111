#include "formats/write/format.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "formats/report/summary.h"
#include "formats/write/chrome_legacy.h"
#include "formats/write/kineto/kineto.h"
#include "formats/write/memory_snapshot.h"
#include "formats/write/memory_timeline.h"
#include "formats/write/perfetto/perfetto.h"
#include "formats/write/sqlite.h"
#include "formats/write/stacks.h"

namespace torchprof::formats {
namespace {

void write_table(const Trace& trace, Processes, Output& out) { out.write(summary_text(trace)); }

constexpr std::array kFormats = {
    Format{"kineto", ".pt.trace.json.gz", "merged", true, write_kineto},
    Format{"perfetto", ".perfetto-trace", "merged", false, write_perfetto},
    Format{"chrome-legacy", ".chrome-legacy.json", "merged", false, write_chrome_legacy},
    Format{"json-stream", ".stream.json", "merged", false, write_json_stream},
    Format{"stacks", ".stacks.txt", "merged", false, write_stacks},
    Format{"stacks-cuda", ".stacks-cuda.txt", "merged", false, write_cuda_stacks},
    Format{"speedscope", ".speedscope.json", "merged", false, write_speedscope},
    Format{"pprof", ".pb.gz", "merged", false, write_pprof},
    Format{"memory-timeline", ".memory.json", "merged", true, write_memory_timeline},
    Format{"memory-timeline-raw", ".memory.raw.json.gz", "merged", true, write_memory_timeline_raw},
    Format{"memory-timeline-html", ".memory.html", "merged", false, write_memory_timeline_html},
    Format{"memory-snapshot", ".memory.pickle", "merged", true, write_memory_snapshot},
    Format{"sqlite", ".sqlite", "merged", false, write_sqlite},
    Format{"table", ".txt", "summary", false, write_table},
};

}  // namespace

std::span<const Format> all_formats() { return kFormats; }

const Format* find_format(std::string_view name) {
  const auto it = std::ranges::find(kFormats, name, &Format::name);
  return it == kFormats.end() ? nullptr : &*it;
}

void write_file(const Format& format, const Trace& trace, Processes processes, const std::filesystem::path& file,
                Existing existing) {
  Output out(file, existing);
  format.write(trace, processes, out);
  out.commit();
}

std::string file_name(const Format& format, const Process& process) {
  std::string name(process.host.empty() ? std::string_view("host") : process.host);
  std::ranges::replace_if(
      name, [](unsigned char c) { return !std::isalnum(c) && c != '-' && c != '.'; }, '_');
  if (name.front() == '.') name.front() = '_';
  return name + "_" + std::to_string(process.pid) + "." + std::to_string(process.start.value) +
         std::string(format.extension);
}

std::string merged_name(const Format& format) { return std::string(format.stem) + std::string(format.extension); }

}  // namespace torchprof::formats
