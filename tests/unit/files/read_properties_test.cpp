// What holds for the totals of any trace file, whatever wrote it: random traces of torch.profiler's form, with slices
// that cross, calls whose ends were missed, memory, launches and several ranks.
#include <doctest/doctest.h>

#include <fstream>
#include <random>

#include "formats/read/read_trace.h"
#include "tests/unit/support/spool_builder.h"

namespace read_properties_test {

using namespace torchprof;
using namespace torchprof::formats;

namespace {

struct Event {
  std::string category, name, arguments;
  int64_t begin, end;  // ns; a point of time: end -1
  int pid, tid;
  bool is_operator() const { return category == "cpu_op" || category == "user_annotation"; }
};
using Events = std::vector<Event>;

constexpr int kDevice = 0, kStream = 7;

class Generator {
 public:
  Generator(unsigned seed, int pid) : random_(seed), pid_(pid) {}

  Events make() {
    for (int thread = 0; thread < 1 + number(2); ++thread) {
      tid_ = pid_ + thread;
      body(0, 400'000, 0);
      for (int i = number(4); i > 0; --i) {
        const int64_t begin = number(390'000);
        add("user_annotation", "range" + std::to_string(number(3)), begin, begin + 1 + number(60'000));
      }
    }
    return events_;
  }

 private:
  int number(int below) { return static_cast<int>(random_() % static_cast<unsigned>(below)); }
  void add(const std::string& category, const std::string& name, int64_t begin, int64_t end,
           std::string arguments = {}) {
    events_.push_back({category, name, std::move(arguments), begin, std::max(begin, end), pid_, tid_});
  }

  // Fills a span with others, one after the other.
  void body(int64_t begin, int64_t end, int depth) {
    for (int64_t t = begin + number(500); t < end;) {
      const int64_t until = std::min<int64_t>(end, t + 10 + number(depth < 2 ? 150'000 : 20'000));
      const int kind = number(12);
      // Clocks are off by a little, and profilers miss ends.
      const int64_t seen = until + (number(8) == 0 ? number(9) - 4 : 0);
      if (kind < 4 && depth < 7) {
        const bool is_lost = number(20) == 0;
        const std::string name = kind == 0 ? "<built-in function next>" : "a.py(" + std::to_string(number(5)) + "): f";
        add("python_function", name, t, is_lost ? seen + number(300'000) : seen);
        body(t + 1, until - 1, depth + 1);
      } else if (kind < 8 && depth < 7) {
        add("cpu_op", "aten::op" + std::to_string(number(5)), t, seen);
        body(t + 1, until - 1, depth + 1);
      } else if (kind < 10) {
        const int correlation = ++correlation_;
        const std::string number_of = "\"correlation\": " + std::to_string(correlation);
        add("cuda_runtime", "cudaLaunchKernel", t, std::min(until, t + 1 + number(3'000)), number_of);
        if (number(4) == 0) add("cuda_driver", "cuLaunchKernel", t + 1, t + 1, number_of);
        for (int i = number(3); i > 0; --i) {
          const int64_t at = t + 2'000 + number(20'000);
          Event kernel{"kernel", "kernel" + std::to_string(number(4)), number_of, at, at + number(9'000), kDevice,
                       kStream};
          events_.push_back(std::move(kernel));
        }
      } else if (kind == 10) {
        events_.push_back({"memory", "[memory]", "", t, -1, pid_, tid_});
        events_.back().arguments = "\"Device Type\": " + std::to_string(number(2)) +
                                   ", \"Device Id\": 0, \"Addr\": " + std::to_string(1000 + correlation_) +
                                   ", \"Bytes\": " + std::to_string(number(4096) - 2048) +
                                   ", \"Total Allocated\": 4096, \"Total Reserved\": 0";
      }
      t = until + number(2'000);
    }
  }

  std::minstd_rand random_;
  int pid_, tid_ = 0;
  int correlation_ = 0;
  Events events_;
};

std::string us_text(int64_t ns) {
  char text[32];
  std::snprintf(text, sizeof text, "%lld.%03lld", static_cast<long long>(ns / 1000), static_cast<long long>(ns % 1000));
  return text;
}

TraceFile read(const test::TemporaryDirectory& directory, const Events& events) {
  const auto file = directory / "trace.json";
  std::ofstream out(file);
  out << "{\"traceEvents\": [";
  const char* comma = "\n";
  for (const Event& e : events) {
    out << comma << R"({"ph": ")" << (e.end < 0 ? "i" : "X") << R"(", "cat": ")" << e.category << R"(", "name": ")"
        << e.name << R"(", "pid": )" << e.pid << R"(, "tid": )" << e.tid << R"(, "ts": )"
        << us_text(e.begin + 1'000'000);
    if (e.end >= 0) out << R"(, "dur": )" << us_text(e.end - e.begin);
    out << R"(, "args": {)" << e.arguments << "}}";
    comma = ",\n";
  }
  out << "\n]}";
  out.close();
  return read_trace(file, {.has_timelines = true});
}

Events without(const Events& events, std::string_view category) {
  Events rest;
  for (const Event& e : events)
    if (!e.category.starts_with(category)) rest.push_back(e);
  return rest;
}

// The time of all threads in which anything was open that `counts`.
template <class Counts>
int64_t busy(const Events& events, Counts counts) {
  std::map<int, std::vector<std::pair<int64_t, int64_t>>> threads;
  for (const Event& e : events)
    if (e.end >= 0 && counts(e)) threads[e.tid].emplace_back(e.begin, e.end);
  int64_t ns = 0;
  for (auto& [tid, spans] : threads) {
    std::ranges::sort(spans);
    int64_t until = INT64_MIN;
    for (const auto& [begin, end] : spans) {
      if (end > until) ns += end - std::max(begin, until);
      until = std::max(until, end);
    }
  }
  return ns;
}

template <class T>
void check_sane(const T& tallies) {
  for (const auto& [name, tally] : tallies) {
    CAPTURE(name);
    CHECK(tally.self_ns >= 0);
    CHECK(tally.total_ns >= 0);
  }
}

void check_same(const Tallies& a, const Tallies& b, bool has_self = true) {
  CHECK(a.size() == b.size());
  for (const auto& [name, tally] : a) {
    CAPTURE(name);
    REQUIRE(b.contains(name));
    const Tally& other = b.at(name);
    if (has_self) CHECK(tally.self_ns == other.self_ns);
    CHECK(tally.total_ns == other.total_ns);
    CHECK(tally.calls == other.calls);
    CHECK(tally.cpu_bytes == other.cpu_bytes);
    CHECK(tally.device_bytes == other.device_bytes);
    CHECK(tally.cpu_total_bytes == other.cpu_total_bytes);
    CHECK(tally.device_total_bytes == other.device_total_bytes);
    if (has_self) CHECK(tally.gpu_self_ns == other.gpu_self_ns);
    if (has_self) CHECK(tally.gpu_total_ns == other.gpu_total_ns);
  }
}

const Statistics& of(const TraceFile& file, int pid) {
  const auto it = std::ranges::find(file.processes, std::to_string(pid), &TraceFile::ProcessPart::pid);
  REQUIRE(it != file.processes.end());
  return it->statistics;
}

constexpr unsigned kTraces = 100;

}  // namespace

TEST_CASE("times of a file add up to what its threads and devices had") {
  test::TemporaryDirectory directory;
  for (unsigned seed = 1; seed <= kTraces; ++seed) {
    CAPTURE(seed);
    const Events events = Generator(seed, 100).make();
    const TraceFile file = read(directory, events);
    const Statistics& all = of(file, 100);
    check_sane(all.operators);
    check_sane(all.python);
    check_sane(all.calls);
    CHECK(all.operator_ns <= busy(events, [](const Event& e) { return e.is_operator(); }));
    CHECK(all.python_ns <= busy(events, [](const Event& e) { return e.category == "python_function"; }));
    int64_t kernels = 0, credited = 0;
    for (const GpuDeviceUse& use : all.gpu.devices) {
      CHECK(use.busy_ns <= use.captured_ns);
      kernels += use.kernel_ns;
    }
    for (const auto& [name, tally] : all.operators) credited += tally.gpu_self_ns;
    CHECK(credited <= kernels);
    for (const Event& e : events) kernels -= e.category == "kernel" ? e.end - e.begin : 0;
    CHECK(kernels == 0);
    CHECK(file.wall_ns >= 0);
    // The timeline nests, so that what is directly inside of a span is never longer than the span.
    for (const auto& part : file.processes)
      for (const TimelineRow& row : part.timeline.rows) {
        std::vector<int64_t> inside(row.spans.size());
        for (const TimelineSpan& s : row.spans)
          if (s.parent != kNoSpan && !s.is_async) inside[s.parent] += s.ns();
        for (size_t i = 0; i < row.spans.size(); ++i)
          if (!row.is_overflow) CHECK(inside[i] <= row.spans[i].ns());
      }
  }
}

TEST_CASE("what a file leaves out changes nothing of what it has") {
  test::TemporaryDirectory directory;
  for (unsigned seed = 1; seed <= kTraces; ++seed) {
    CAPTURE(seed);
    const Events events = Generator(seed, 100).make();
    const TraceFile whole = read(directory, events);
    const Tallies& operators = of(whole, 100).operators;
    if (const Events rest = without(events, "python_function"); rest.size() > 1 && !operators.empty())
      check_same(of(read(directory, rest), 100).operators, operators);
    if (const Events rest = without(events, "cuda_"); !operators.empty())
      check_same(of(read(directory, rest), 100).operators, operators, false);
    Events shuffled = events;
    std::shuffle(shuffled.begin(), shuffled.end(), std::minstd_rand(seed));
    const Statistics again = of(read(directory, shuffled), 100);
    CHECK(again.operator_ns == of(whole, 100).operator_ns);
    CHECK(again.python_ns == of(whole, 100).python_ns);
  }
}

TEST_CASE("ranks in one file have what each of them has alone") {
  test::TemporaryDirectory directory;
  for (unsigned seed = 1; seed <= kTraces; ++seed) {
    CAPTURE(seed);
    Events both = Generator(seed, 100).make(), other = Generator(seed + kTraces, 200).make();
    const TraceFile one = read(directory, both), two = read(directory, other);
    if (seed % 2 == 0)
      for (Event& e : other)
        if (e.pid == kDevice) e.pid = kDevice + 1;
    both.insert(both.end(), other.begin(), other.end());
    const TraceFile merged = read(directory, both);
    for (const auto& [pid, alone] : {std::pair(100, &one), std::pair(200, &two)}) {
      CAPTURE(pid);
      check_same(of(merged, pid).operators, of(*alone, pid).operators);
      CHECK(of(merged, pid).python_ns == of(*alone, pid).python_ns);
      int64_t kernels[2] = {};
      for (const auto& [name, tally] : of(merged, pid).gpu.work) kernels[0] += tally.total_ns;
      for (const auto& [name, tally] : of(*alone, pid).gpu.work) kernels[1] += tally.total_ns;
      CHECK(kernels[0] == kernels[1]);
    }
  }
}

}  // namespace read_properties_test
