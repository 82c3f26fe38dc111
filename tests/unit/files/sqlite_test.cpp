#include "formats/write/sqlite.h"

#include <doctest/doctest.h>

#include "formats/analysis/statistics.h"
#include "formats/io/sqlite_database.h"
#include "tests/unit/support/gpu_program.h"
#include "tests/unit/support/small_training.h"
#include "tests/unit/support/spool_builder.h"

namespace sqlite_test {

using namespace torchprof;
using namespace torchprof::formats;
using test::SpoolBuilder;

namespace {

// The database of a trace, and what queries of it give: rows in lines, columns with a bar between.
std::string joined(std::initializer_list<int64_t> numbers) {
  std::string text;
  for (const int64_t n : numbers) text.append(text.empty() ? "" : "|").append(std::to_string(n));
  return text.append("\n");
}

class Written {
 public:
  explicit Written(const Trace& trace) {
    write_file(*find_format("sqlite"), trace, trace.processes, directory_ / "x.sqlite");
    db_.emplace(directory_ / "x.sqlite", Database::Use::kCreate);  // reads views too
  }
  std::string rows(const std::string& sql, int columns) {
    Statement statement(*db_, sql);
    std::string text;
    while (statement.next()) {
      for (int i = 0; i < columns; ++i) text.append(i > 0 ? "|" : "").append(statement.text(i));
      text += "\n";
    }
    return text;
  }

 private:
  test::TemporaryDirectory directory_;
  std::optional<Database> db_;
};

}  // namespace

TEST_CASE("a step of training in its tables") {
  SpoolBuilder b(100, {"/usr/bin/python3", "train.py"});
  test::train(b, 100);
  Written db(*test::LoadedTrace(b));
  CHECK(db.rows("SELECT name, kind, parent, sequence, duration_ns, self_ns, module FROM op_events ORDER BY start_ns",
                7) ==
        "ProfilerStep#0|annotation|||7000|5500|\n"
        "aten::linear|op|1|7|1500|1500|nn.Module: Linear_0\n"
        "autograd::engine::evaluate_function: AddmmBackward0|op||7|1100|200|nn.Module: Linear_0\n"
        "AddmmBackward0|backward|3|7|900|900|nn.Module: Linear_0\n"
        "aten::add|op|||500|500|\n");
  CHECK(db.rows("SELECT name, kind, parent, self_ns FROM python_events ORDER BY id", 4) ==
        "test.py(1): <module>|function||5999\n"
        "nn.Module: Linear_0|module|1|2751\n"
        "<built-in function len>|c_call|2|250\n");
  CHECK(db.rows("SELECT tid, name, is_overflow FROM threads", 3) == "100|pt_main_thread|0\n101|pt_autograd_0|0\n");
  CHECK(db.rows("SELECT pid, command, rank, clean_exit FROM processes", 4) == "100|/usr/bin/python3 train.py||1\n");
}

TEST_CASE("views have the totals of the tables") {
  SpoolBuilder b(100), c(200);
  test::train(b, 100);
  test::train(c, 200);
  const SpoolBuilder* const spools[] = {&b, &c};
  const test::LoadedTrace trace(spools);
  Written db(*trace);
  for (const Process& process : trace->processes) {
    const Statistics expected = statistics_of(process);
    const std::string of = " WHERE pid = " + std::to_string(process.pid) + " AND name = '";
    for (const auto& [name, tally] : expected.operators) {
      if (name == "ProfilerStep*") continue;  // the database has each
      CAPTURE(name);
      CHECK(db.rows("SELECT calls, total_ns, self_ns FROM op_totals" + of + name + "'", 3) ==
            joined({static_cast<int64_t>(tally.calls), tally.total_ns, tally.self_ns}));
    }
    const ModuleTally& linear = expected.modules.at("nn.Module: Linear_0");
    CHECK(db.rows("SELECT calls, forward_total_ns, forward_self_ns, backward_self_ns FROM module_totals" + of +
                      "nn.Module: Linear_0'",
                  4) == joined({1, linear.forward_total_ns, linear.forward_self_ns, linear.backward_self_ns}));
  }
  CHECK(db.rows("SELECT count(*) FROM op_totals", 1) == "10\n");
}

TEST_CASE("a kernel with its operator, its call and what it waited") {
  test::Program p;
  p.b.at(1'000).op(1, "aten::mm").at(9'000).op_end(1);
  p.deliver();
  p.b.gpu(test::call(100, 2'000, 3'000, 5)).gpu(test::kernel(p.b, 4'000, 8'000, 5));
  p.b.clean_exit(1'000'000);
  Written db(*test::LoadedTrace(p.b));
  CHECK(db.rows("SELECT op, device, stream, duration_ns, queue_ns, grid FROM kernel_events", 6) ==
        "aten::mm|0|7|4000|1000|[66,1,1]\n");
  CHECK(db.rows("SELECT calls, total_ns FROM kernel_totals", 2) == "1|4000\n");
  CHECK(db.rows("SELECT gpu_self_ns FROM op_totals", 1) == "4000\n");
  CHECK(db.rows("SELECT count(*) FROM kernels JOIN cuda_calls ON cuda_calls.id = kernels.cuda_call", 1) == "1\n");
}

TEST_CASE("steps, the rest after the last one apart") {
  SpoolBuilder b;
  b.thread(100);
  for (uint64_t t = 0; t < 3000; t += 1000)
    b.at(t + 10).annotation(t + 1, "Optimizer.step#SGD.step").at(t + 500).op_end(t + 1);
  Written db(*test::LoadedTrace(b));
  CHECK(db.rows("SELECT number, duration_ns, ended_by FROM step_times", 3) ==
        "0|0|Optimizer.step#SGD.step\n1|1000|Optimizer.step#SGD.step\n2|1000|Optimizer.step#SGD.step\n");
}

TEST_CASE("the same bytes go through a pipe and into a compressed file") {
  SpoolBuilder b;
  test::train(b, 100);
  const test::LoadedTrace trace(b);
  const std::string text = test::written(*trace, write_sqlite);
  test::TemporaryDirectory directory;
  write_file(*find_format("sqlite"), *trace, trace->processes, directory / "x.sqlite");
  CHECK(text.starts_with("SQLite format 3"));
  CHECK(text == test::read_file(directory / "x.sqlite"));
}

TEST_CASE("hostile names are text, and the file is sound") {
  SpoolBuilder b;
  test::hostile(b);
  Written db(*test::LoadedTrace(b));
  CHECK(db.rows("PRAGMA integrity_check", 1) == "ok\n");
  CHECK(db.rows("SELECT count(*) FROM op_events", 1) == "4\n");
  CHECK(db.rows("SELECT text FROM strings WHERE text LIKE '%:\\x\"y%'", 1) == "C:\\x\"y\".py?(1): \xef\xbf\xbd(\n");
}

TEST_CASE("a full disk or no permission leaves nothing behind") {
  SpoolBuilder b;
  test::train(b, 100);
  const test::LoadedTrace trace(b);
  CHECK_THROWS(write_file(*find_format("sqlite"), *trace, trace->processes, "/nonexistent/x.sqlite"));
}

}  // namespace sqlite_test
