#include "formats/write/format.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "formats/report/summary.h"
#include "formats/trace/distributed.h"
#include "formats/write/chrome_legacy.h"
#include "formats/write/kineto/kineto.h"
#include "formats/write/memory_snapshot.h"
#include "formats/write/memory_timeline.h"
#include "formats/write/perfetto/manifest.h"
#include "formats/write/perfetto/perfetto.h"
#include "formats/write/sqlite.h"
#include "formats/write/stacks.h"

namespace torchprof::formats {
namespace {

void write_table(const Trace& trace, Processes, Output& out) { out.write(summary_text(trace)); }

constexpr std::string_view kPerfettoExtension = ".perfetto-trace";
// Too common for a file to be known by it.
constexpr std::string_view kCommonExtension = ".json.gz";

constexpr std::array kFormats = {
    Format{"kineto", "trace", kCommonExtension, Files::kOfRun, write_kineto},
    Format{"kineto-ranks", "", ".pt.trace.json.gz", Files::kOfRanks, write_kineto},
    Format{"perfetto", "trace", kPerfettoExtension, Files::kOfRun, write_perfetto},
    Format{"perfetto-ranks", "", kPerfettoExtension, Files::kOfRanks, write_perfetto},
    Format{"chrome-legacy", "trace", ".chrome-legacy.json", Files::kOfRun, write_chrome_legacy},
    Format{"json-stream", "trace", ".stream.json", Files::kOfRun, write_json_stream},
    Format{"stacks", "trace", ".stacks.txt", Files::kOfRun, write_stacks},
    Format{"stacks-cuda", "trace", ".stacks-cuda.txt", Files::kOfRun, write_cuda_stacks},
    Format{"speedscope", "trace", ".speedscope.json", Files::kOfRun, write_speedscope},
    Format{"pprof", "trace", ".pb.gz", Files::kOfRun, write_pprof},
    Format{"memory-timeline", "trace", ".memory.json", Files::kOfRunAndProcess, write_memory_timeline},
    Format{"memory-timeline-raw", "trace", ".memory.raw.json.gz", Files::kOfRunAndProcess, write_memory_timeline_raw},
    Format{"memory-timeline-html", "trace", ".memory.html", Files::kOfRun, write_memory_timeline_html},
    Format{"memory-snapshot", "trace", ".memory.pickle", Files::kOfRunAndProcess, write_memory_snapshot},
    Format{"sqlite", "trace", ".sqlite", Files::kOfRun, write_sqlite},
    Format{"table", "summary", ".txt", Files::kOfRun, write_table},
};

constexpr std::string_view kRank = "rank";

// "rank0" for the process that is a rank, "process4711" for any other: a rank's workers have its number, too.
std::string stem_of(const Process& process) {
  const std::optional<int64_t> rank = distributed_of(process).rank;
  if (rank && process.role == "rank " + std::to_string(*rank)) return std::string(kRank) + std::to_string(*rank);
  return "process" + std::to_string(process.pid);
}

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

std::string run_file(const Format& format) {
  return format.stem.empty() ? std::string() : std::string(format.stem) + std::string(format.extension);
}

std::vector<PlannedFile> files_of(const Format& format, Processes all) {
  std::vector<PlannedFile> files;
  if (format.files != Files::kOfRun && (format.stem.empty() || all.size() > 1)) {
    std::vector<std::string> stems;
    for (const Process& process : all) stems.push_back(stem_of(process));
    const auto is_rank = [](const std::string& stem) { return stem.starts_with(kRank); };
    const bool ranks_alone = format.files == Files::kOfRanks && std::ranges::any_of(stems, is_rank);
    // A process id comes again after exec and on other hosts, a rank in other jobs.
    std::map<std::string, size_t> times;
    for (size_t i = 0; i < all.size(); ++i) {
      if (ranks_alone && !is_rank(stems[i])) continue;
      std::string name = stems[i];
      if (const size_t time = ++times[stems[i]]; time > 1) name.append("-").append(std::to_string(time));
      files.push_back({name.append(format.extension), i, 1});
    }
  }
  if (!format.stem.empty()) files.push_back({run_file(format), 0, all.size()});
  return files;
}

std::string manifest_file(const Format& format, Processes all) {
  return format.name == "perfetto-ranks" && files_of(format, all).size() > 1 ? kPerfettoManifest : "";
}

void write_manifest(const Format& format, Processes all, const std::filesystem::path& file, Existing existing) {
  std::vector<std::pair<std::string, const Process*>> files;
  for (const PlannedFile& one : files_of(format, all)) files.emplace_back(one.name, &all[one.first]);
  Output out(file, existing);
  out.write(perfetto_manifest(files));
  out.commit();
}

bool may_be_output(std::string_view file) {
  return file == kPerfettoManifest || std::ranges::any_of(kFormats, [file](const Format& format) {
           // Earlier versions named the files of runs "merged" and those of processes by host, process and time.
           const bool is_any_stem = format.extension != kCommonExtension;
           return (!file.empty() && file == run_file(format)) ||
                  (is_any_stem && file.ends_with(format.extension) && file.size() > format.extension.size());
         });
}

}  // namespace torchprof::formats
