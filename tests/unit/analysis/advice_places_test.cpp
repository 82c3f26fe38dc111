// Which line of the program a finding names where no call of it tells: what the program's text says, and what was
// called long before the steps.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "formats/advice/advice.h"
#include "formats/advice/sharing_places.h"
#include "formats/io/source_line.h"
#include "formats/report/summary.h"
#include "formats/timeline/build.h"
#include "tests/unit/support/spool_builder.h"

namespace advice_places_test {

using namespace torchprof;
using namespace torchprof::formats;
using namespace torchprof::test;

namespace {

constexpr uint64_t kStep = 10'000'000;

bool says(const std::string& text, const std::string& words) { return text.find(words) != text.npos; }

// A program's file, as old as if it was written before any trace; gone with this object.
class Source {
 public:
  explicit Source(const std::string& text) {
    static int number = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("torchprof-" + std::to_string(getpid()) + "-" + std::to_string(++number) + ".py");
    std::ofstream(path_) << text;
    const timespec old[] = {{1'000'000'000, 0}, {1'000'000'000, 0}};
    utimensat(AT_FDCWD, path_.c_str(), old, 0);
  }
  ~Source() { std::filesystem::remove(path_); }
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace

TEST_CASE("calls in a program's text are found with their functions; comments, definitions and longer names are none") {
  std::mt19937 random(7);
  for (int round = 0; round < 100; ++round) {
    std::string text;
    std::vector<std::pair<uint32_t, std::string>> wanted;
    uint32_t line = 0;
    const auto add = [&](size_t indent, const std::string& code) {
      text.append(indent, ' ').append(code).append("\n");
      ++line;
    };
    const auto call = [&](size_t indent, const std::string& function) {
      switch (random() % 6) {
        case 0:
          add(indent, "torch.set_it(4)");
          break;
        case 1:
          add(indent, "if x: set_it(n)  # 4");
          break;
        case 2:
          add(indent, "# torch.set_it(4)");
          return;
        case 3:
          add(indent, "reset_it(set_it_again(4))");
          return;
        case 4:
          add(indent, "f = torch.set_it");
          return;
        default:
          add(indent, "");
          return;
      }
      wanted.emplace_back(line, function);
    };
    for (int part = 0; part < 5; ++part) {
      call(0, "<module>");
      const std::string name = "f" + std::to_string(part);
      add(0, random() % 2 ? "def " + name + "(a):" : "async def " + name + "():");
      call(4, name);
      add(4, "for i in a:");
      call(8, name);
      if (random() % 2) {
        add(4, "def inner(b): ");
        call(8, "inner");
        call(4, name);
      }
      add(0, "def set_it(n): pass");
    }
    const Source source(text);
    CAPTURE(text);
    std::vector<std::pair<uint32_t, std::string>> found;
    for (const SourceCall& c : calls_in_source(source.path(), "set_it", kStartNs))
      found.emplace_back(c.line, c.function);
    CHECK((found == wanted));
    CHECK(calls_in_source(source.path(), "set_it", 1).empty());  // it was changed since
  }
  CHECK(calls_in_source("/nowhere/train.py", "set_it", kStartNs).empty());
}

TEST_CASE("what a line adds to is known by its text") {
  CHECK(container_added_to("self.rows.extend(out.tolist())") == "self.rows");
  CHECK(container_added_to("seen.append(x)") == "seen");
  CHECK(container_added_to("for x in y: log[\"loss\"].append(x)") == "log[\"loss\"]");
  CHECK(container_added_to("x = x + 1").empty());
  CHECK(container_added_to("y = f(x)  # rows.append(x)").empty());
  CHECK(container_added_to("[].append(x)") == "[]");
  CHECK(container_added_to("").empty());
}

namespace {

enum class Shown { kByLook, kByOperator, kByLineOfCall };

// 100 steps of 10 ms. In each, add() of the program works for 8 ms at a line of `text`, where a look sees it, or an
// operator that add() calls there. Or nobody looks, and it works for 4 ms after it called an operator there. The
// process grows by 1 MiB a step, from `before`.
std::string advice_of_growth(const std::string& text, uint32_t line, Shown shown = Shown::kByLook,
                             uint64_t before = uint64_t{1} << 30) {
  const bool is_operator = shown == Shown::kByOperator;
  const Source source(text);
  SpoolBuilder b;
  b.source("memory", SourceState::kOn, "");
  const FunctionId train = b.function(source.path(), 1, "train"), add = b.function(source.path(), 2, "add");
  b.on(b.thread(100)).at(500).begin(train);
  b.seen(StackNode{{}, 1, 0, train, 1}).seen(StackNode{{}, 2, 1, add, line});
  b.lines(add, {{10, line}});
  uint64_t ran = 0;
  for (uint64_t step = 0; step < 100; ++step) {
    const uint64_t begin = 1'000 + step * kStep;
    b.at(begin).annotation(step + 1, "ProfilerStep#" + std::to_string(step));
    b.at(begin + 1'000'000).begin(add);
    if (is_operator) b.op(500, "aten::mm");
    b.at(begin + 5'000'000);
    if (shown == Shown::kByLineOfCall)
      b.line(add, 0).op(501, "aten::flatten").at(begin + 5'001'000).op_end(501);
    else
      b.seen(Sample{{}, 100, 2, 10'000, 10'000u, 0, 0, {}, SampledWait::kUnknown, 0, {}, 0, 0});
    b.at(begin + 9'000'000);
    if (is_operator) b.op_end(500);
    b.end(add);
    ran += kStep;
    b.at(begin + kStep - 10).op_end(step + 1);
    b.step_end(step, 0, 0).resident(before + (step << 20));
    b.used(ProcessorTime{{}, 100, 0, ran, 0, ran});
  }
  b.at(101 * kStep).end(train);
  b.clean_exit(102 * kStep);
  const LoadedTrace trace(b);
  return summary_text(*trace, {.tables = {"advice"}, .style = ReportStyle::kCsv});
}

}  // namespace

TEST_CASE("objects that are kept have a line where it works and adds to what outlives the step") {
  const auto named = [](const std::string& text) { return says(text, "Probably by this line"); };
  const std::string keeps = "def train():\n  def add(self, x):\n    self.rows.extend(x.tolist())\n    y = f(x)\n";
  const std::string text = advice_of_growth(keeps, 3);
  CAPTURE(text);
  CHECK(says(text, "So it is Python objects that are kept"));
  CHECK(named(text));
  CHECK(says(text, "(3): add"));
  CHECK(!named(advice_of_growth(keeps, 4)));                      // it works at another line
  CHECK(!named(advice_of_growth(keeps, 3, Shown::kByOperator)));  // it works in an operator
  // A list of its own is gone when the function returns.
  const std::string own = "def train():\n  def add(x):\n    rows.extend(x.tolist())\n";
  CHECK(!named(advice_of_growth(own, 3)));
  // Where nobody looks a finding about Python names the line.
  CHECK(named(advice_of_growth(keeps, 3, Shown::kByLineOfCall)));
  CHECK(!named(advice_of_growth(keeps, 4, Shown::kByLineOfCall)));
  CHECK(!named(advice_of_growth(own, 3, Shown::kByLineOfCall)));
}

TEST_CASE("growth that will soon end the process is told before what takes most of a step") {
  const std::string keeps = "def train():\n  def add(self, x):\n    self.rows.extend(x.tolist())\n";
  const auto leads = [&](uint64_t before) {
    const std::string text = advice_of_growth(keeps, 3, Shown::kByLineOfCall, before);
    REQUIRE(says(text, "Python objects that are kept"));
    REQUIRE(says(text, "\"python\""));
    return text.find("Python objects that are kept") < text.find("\"python\"");
  };
  CHECK(leads(uint64_t{128} << 20));  // 128 MiB to 228
  CHECK(!leads(uint64_t{16} << 30));
}

namespace {

// Where the program's thread waits for a processor, because of threads or children.
Advice advice_of_sharing(uint32_t threads, size_t children, const SharingPlaces& sharing) {
  ProcessAdvice program, child;
  program.has_steps = true;
  program.steps = 10;
  program.step_ns = program.mean_step_ns = 10'000'000;
  program.processors = 2;
  program.threads = threads;
  program.sharing = sharing;
  program.use = {.queued = std::vector<int64_t>(10, 8'000'000),
                 .slept = std::vector<int64_t>(10),
                 .is_known = std::vector<bool>(10, true),
                 .process_ran = threads > 2 ? 1.8 : 0.2,
                 .others_ran = threads > 2 ? 0.2 : 1.8};
  child.busy = 1;
  const CommsCalls none;
  std::vector<AdvisedProcess> processes{{"process 1", false, 0, &program, &none}};
  for (size_t i = 0; i < children; ++i) processes.push_back({"process 2", false, 0, &child, &none});
  return advice_of(processes);
}

}  // namespace

TEST_CASE("who has the processors is told with the line that decides on it") {
  SharingPlaces places{.children = {"a.py(3): <module>", "start()"},
                       .threads = {"a.py(4): <module>", "set()"},
                       .operators = {"a.py(5): forward", "mm()"}};
  const auto of = [&](uint32_t threads, size_t children) {
    const Advice advice = advice_of_sharing(threads, children, places);
    REQUIRE(advice.findings.size() == 1);
    return advice.findings.front();
  };
  CHECK(of(1, 4).where == "a.py(3): <module>");
  CHECK(of(1, 4).source == "start()");
  CHECK(of(16, 0).where == "a.py(4): <module>");
  CHECK(says(of(16, 0).todo, "Leave the call out"));
  places.threads = {};
  CHECK(of(16, 0).where == "a.py(5): forward");
  CHECK(says(of(16, 0).todo, "OMP_NUM_THREADS"));
}

namespace {

// A program that starts processes at lines of its own, before three steps; torch starts some as well.
std::string children_at(const std::vector<uint32_t>& lines, bool by_torch) {
  SpoolBuilder b;
  const FunctionId script = b.function("/home/u/train.py", 1, "<module>");
  b.lines(script, {{10, 10}, {10, 20}, {10, 30}});
  const FunctionId popen = b.function("/usr/lib/python3.12/subprocess.py", 800, "__init__");
  const FunctionId pool = b.function("/usr/lib/python3/dist-packages/torch/_inductor/pool.py", 8, "make");
  b.on(b.thread(100)).at(100).begin(script);
  uint64_t now = 1'000;
  for (const uint32_t line : lines) {
    b.at(now += 100).line(script, line - 10);
    if (by_torch) b.begin(pool);
    b.begin(popen).at(now += 100).end(popen);
    if (by_torch) b.end(pool);
  }
  for (uint64_t step = 0; step < 3; ++step) {
    const uint64_t begin = 1'000'000 + step * kStep;
    b.at(begin).annotation(step + 1, "ProfilerStep#" + std::to_string(step)).op(50, "aten::mm");
    b.at(begin + kStep).op_end(50).op_end(step + 1);
  }
  b.at(5 * kStep).end(script);
  b.clean_exit(6 * kStep);
  const LoadedTrace trace(b);
  const Timeline timeline = timeline_of(trace->processes[0], {});
  return sharing_places_of(StepView(timeline), false).children.where;
}

}  // namespace

TEST_CASE("processes have the line that started most of them, unless torch did") {
  CHECK(says(children_at({10, 10, 20}, false), "/home/u/train.py(10)"));
  CHECK(children_at({10, 20, 30}, false).empty());
  CHECK(children_at({10, 10, 10}, true).empty());
  CHECK(children_at({}, false).empty());
}

}  // namespace advice_places_test
