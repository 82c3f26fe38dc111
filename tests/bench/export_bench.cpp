// How long a spool of a million slices takes to become a trace: export_bench [SLICES [FORMAT]]. One core.
#define DOCTEST_CONFIG_IMPLEMENT  // the builder's other users are tests
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <random>
#include <string>

#include "formats/analysis/statistics.h"
#include "formats/write/format.h"
#include "tests/unit/support/spool_builder.h"

using namespace torchprof;
using namespace torchprof::formats;

namespace {

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// Anonymous memory alone: pages of mapped files belong to the page cache.
long peak_kib(const char* what) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(what)) return std::atol(line.c_str() + std::string_view(what).size());
  }
  return 0;
}

// Module calls six deep, operators three deep at their bottom, as a forward pass makes them.
void make_spool(const std::filesystem::path& file, uint64_t slices) {
  test::SpoolBuilder b(4711);
  b.use_chunks_of(kChunkSize);
  b.thread(4711, "pt_main_thread", 1);
  std::mt19937_64 random(1);
  std::vector<FunctionId> functions;
  for (uint32_t i = 0; i < 300; ++i) {
    functions.push_back(
        b.function("/usr/lib/python3/dist-packages/torch/nn/modules/layer" + std::to_string(i % 40) + ".py", 10 + 7 * i,
                   "function_" + std::to_string(i), 31));
  }
  std::vector<std::string> operators;
  for (int i = 0; i < 60; ++i) operators.push_back("aten::operator_" + std::to_string(i));
  uint64_t t = 1000, key = 0, made = 0;
  while (made < slices) {
    FunctionId open[6];
    for (FunctionId& f : open) b.at(t += random() % 900).begin(f = functions[random() % functions.size()]);
    uint64_t keys[3];
    const int64_t sequence = static_cast<int64_t>(made / 9);
    for (uint64_t& k : keys) {
      b.at(t += random() % 900)
          .op(k = ++key, operators[random() % operators.size()], {.sequence = sequence, .handle = key});
    }
    for (int i = 2; i >= 0; --i) b.at(t += random() % 900).op_end(keys[i]);
    for (int i = 5; i >= 0; --i) b.at(t += random() % 900).end(open[i]);
    made += 9;
  }
  b.clean_exit(t + 1000);
  b.write(file);
}

}  // namespace

int main(int argc, char** argv) {
  const uint64_t slices = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1'000'000;
  const std::filesystem::path directory =
      std::filesystem::temp_directory_path() / ("export-bench-" + std::to_string(getpid()));
  std::filesystem::create_directory(directory);
  // In a process of its own, so that its memory does not count.
  if (const pid_t child = fork(); child == 0) {
    make_spool(directory / "x.spool", slices);
    _exit(0);
  } else {
    int status = 0;
    waitpid(child, &status, 0);
  }
  const double begin = seconds(), begin_cpu = cpu_seconds();
  const Trace trace = load({directory / "x.spool"});
  const double loaded = cpu_seconds();
  const auto statistics = statistics_of(trace.processes.at(0));
  const double counted = cpu_seconds();
  const Format* format = find_format(argc > 2 ? argv[2] : "kineto");
  if (format == nullptr) return std::fputs("no such format\n", stderr), 1;
  Output out(directory / ("x" + std::string(format->extension)));
  format->write(trace, trace.processes, out);
  out.commit();
  const double end = seconds(), end_cpu = cpu_seconds();

  const auto n = static_cast<double>(statistics.slices);
  const double json = static_cast<double>(out.bytes_in());
  std::printf("slices %.0f\n", n);
  std::printf("seconds to %s, summary included: %.3f (processor %.3f)\n", format->extension.data(), end - begin,
              end_cpu - begin_cpu);
  std::printf("  load %.3f, totals %.3f, write %.3f\n", loaded - begin_cpu, counted - loaded, end_cpu - counted);
  std::printf("  load and write for a million slices: %.3f\n", (loaded - begin_cpu + end_cpu - counted) / n * 1e6);
  std::printf("%.0f MB/s, %.1f bytes a slice; on the disk %.1f; spool %.1f\n", json / 1e6 / (end_cpu - counted),
              json / n, static_cast<double>(out.bytes_out()) / n,
              static_cast<double>(std::filesystem::file_size(directory / "x.spool")) / n);
  std::printf("peak RSS %ld KiB, of it anonymous now %ld KiB\n", peak_kib("VmHWM:"), peak_kib("RssAnon:"));
  std::filesystem::remove_all(directory);
}
