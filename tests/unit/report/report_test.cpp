// A report as data, and its styles.
#include <doctest/doctest.h>

#include <deque>
#include <nlohmann/json.hpp>

#include "formats/report/columns.h"
#include "formats/report/report.h"
#include "formats/report/summary.h"
#include "formats/report/tables.h"
#include "tests/unit/support/gpu_program.h"
#include "tests/unit/support/small_training.h"

namespace report_test {

using namespace torchprof;
using namespace torchprof::formats;
using nlohmann::json;
using test::SpoolBuilder;

namespace {

std::string report(const SpoolBuilder& b, TableOptions options) {
  const test::LoadedTrace trace(b);
  return summary_text(*trace, options);
}

std::string trained(TableOptions options) {
  SpoolBuilder b;
  test::train(b, 100);
  return report(b, std::move(options));
}

}  // namespace

TEST_CASE("of many processes the names are kept in the sum, not by process") {
  Report report;
  for (int process = 0; process < 20; ++process) {
    ReportPart part{};
    part.statistics.operators["mm"].add_call(1, 1);
    part.statistics.python["f"].add_call(1, 1);
    report.add(std::move(part));
  }
  CHECK(report.all.operators.at("mm").calls == 20);
  CHECK(report.all.python.at("f").calls == 20);
  CHECK(report.parts[kShownProcesses - 1].statistics.operators.size() == 1);
  CHECK(report.parts[kShownProcesses].statistics.operators.empty());
  CHECK(report.parts[0].statistics.python.empty());
}

TEST_CASE("workers of a group are one row, but for one that has failed, and a row each where they are asked for") {
  Report report;
  for (uint32_t i = 0; i < 40; ++i) {
    ReportPart part{};
    part.pid = std::to_string(100 + i);
    if (i != 0) part.role = "DataLoader worker " + std::to_string(i);
    part.events = 10;
    part.ended = i == 3 ? "killed by SIGKILL" : i == 4 ? "clean" : "ended";
    part.group = i == 0 || i == 3 ? 0 : 1;
    part.group_name = i == 0 ? "" : "DataLoader workers, 13 epochs";
    part.statistics.operator_ns = 5;
    part.statistics.operators["mm"].add_call(5, 5);
    part.statistics.threads.emplace_back();
    part.statistics.threads.back().name = std::to_string(i) + " (python3)";
    part.statistics.threads.back().open_ns = 7;
    report.add(std::move(part));
  }
  const auto text = [](const ReportTable& table, size_t row, std::string_view column) {
    return std::get<std::string>(table.rows.at(row).at(table.column(column)));
  };
  const std::vector<PartGroup> groups = groups_of(report.parts, true);
  ReportTable folded = processes_table(groups);
  name_processes(folded, report.parts);
  REQUIRE(folded.rows.size() == 3);
  CHECK(text(folded, 1, "pid") == "38 of them");
  CHECK(text(folded, 1, "role") == "38 DataLoader workers, 13 epochs");
  CHECK(text(folded, 1, "ended") == "1 clean, 37 ended");
  CHECK(std::get<int64_t>(folded.rows[1][folded.column("events")]) == 380);
  CHECK(text(folded, 2, "pid") == "103");
  CHECK(text(folded, 2, "ended") == "killed by SIGKILL");
  CHECK(report.group_operators.at(1).at("mm").calls == 38);
  const ReportTable threads = threads_table(groups);
  REQUIRE(threads.rows.size() == 3);
  CHECK(text(threads, 1, "name") == "38 (python3)");
  CHECK(std::get<int64_t>(threads.rows[1][threads.column("open_ns")]) == 266);
  const ReportTable all = processes_table(groups_of(report.parts, false));
  CHECK(all.rows.size() == 40);
  CHECK(text(all, 3, "group") == "DataLoader workers, 13 epochs");
}

TEST_CASE("of many names no more rows are made than are shown, and the first of all are the first") {
  SpoolBuilder b;
  const TrackId main = b.thread(100);
  b.on(main);
  constexpr uint64_t kNames = 10'000;
  uint64_t now = 1'000;
  for (uint64_t i = 0; i < kNames; ++i) {
    const uint64_t ns = 1'000 + i * 7'919 % kNames;  // each another
    const FunctionId function = b.function("x.py", 1, "f" + std::to_string(i));
    b.at(now).begin(function).op(i + 1, "op" + std::to_string(i)).at(now + ns).op_end(i + 1);
    b.at(now += 2 * ns).end(function);
  }
  b.clean_exit(now + 1'000);
  const test::LoadedTrace trace(b);
  for (const char* order : {"", "total", "name"}) {
    const auto rows = [&](size_t number) {
      const std::string text = summary_text(
          *trace, {.tables = {"ops", "python"}, .rows = number, .sort = order, .style = ReportStyle::kJson});
      const json tables = json::parse(text)["tables"];
      return std::pair{tables[0]["rows"], tables[1]["rows"]};
    };
    const auto [all_operators, all_functions] = rows(kNames);
    const auto [operators, functions] = rows(20);
    CHECK(all_operators.size() == kNames);
    CHECK(operators.size() == 20);
    CHECK(operators == json(std::vector<json>(all_operators.begin(), all_operators.begin() + 20)));
    CHECK(functions == json(std::vector<json>(all_functions.begin(), all_functions.begin() + 20)));
  }
  const Statistics sum = statistics_of(trace->processes[0]);
  const OpGroups groups = [&sum] {
    OpGroups by_name;
    for (const auto& [name, tally] : sum.operators)
      by_name[name] = {.name = name, .detail = {}, .source = {}, .tally = tally};
    return by_name;
  }();
  size_t most = 0;
  const TrimRows trim = [&most](ReportTable& table) {
    most = std::max(most, table.rows.size());
    if (table.rows.size() == 64) table.rows.clear();
  };
  python_table(sum.python, sum.python_ns, false, trim);
  ops_table(sum.operators, sum.operator_ns, "", trim);
  ops_table(groups, {}, sum.operator_ns, "", trim);
  CHECK(most == 64);
}

TEST_CASE("JSON has raw numbers under the keys of the columns") {
  const std::string text = trained({.tables = {"ops", "modules", "steps"}, .style = ReportStyle::kJson});
  test::check_golden("report.json", text);
  const json parsed = json::parse(text);
  CHECK(parsed["tables"][0]["name"] == "ops");
  for (const json& table : parsed["tables"])
    for (const json& row : table["rows"]) CHECK(row.size() == table["columns"].size());
}

TEST_CASE("CSV has a line of keys, then values") {
  const std::string text = trained({.tables = {"ops"}, .style = ReportStyle::kCsv});
  CHECK(text.starts_with("self_cpu_ns,self_cpu_percent,cpu_total_ns,"));
  CHECK(text.find("\r\n1500,") != text.npos);
  CHECK(text.ends_with("\r\n"));
}

TEST_CASE("numbers of CSV and JSON have no exponent where they need none") {
  SpoolBuilder b;
  b.on(b.thread(100)).at(0).op(1, "aten::add").at(100'000).op_end(1).clean_exit(200'000);
  for (const ReportStyle style : {ReportStyle::kCsv, ReportStyle::kJson})
    CHECK(report(b, {.tables = {"ops"}, .style = style}).find("e+") == std::string::npos);
}

TEST_CASE("Markdown shows what text shows") {
  test::check_golden("report.md", trained({.tables = {"ops", "python"}, .style = ReportStyle::kMarkdown}));
}

TEST_CASE("chosen columns come in their order, units left out or not") {
  const std::string text = trained({.tables = {"ops"}, .columns = {"name", "calls", "self_cpu", "flops"}});
  CHECK(text.find("name  calls") != text.npos);
  CHECK(text.find("self %") == text.npos);
  CHECK(trained({.tables = {"ops"}, .columns = {"all"}}).find("average CUDA") != text.npos);
}

TEST_CASE("any column sorts, and says so in the title") {
  const std::string text = trained({.tables = {"ops"}, .sort = "name"});
  CHECK(text.find("Operators by name\n") != text.npos);
  CHECK(text.find("AddmmBackward0") < text.find("aten::add"));
  CHECK(trained({.tables = {"ops"}, .sort = "cuda_total"}).find("Operators by total CUDA\n") != text.npos);
}

TEST_CASE("names of a hostile program stay text in every style") {
  SpoolBuilder b;
  test::hostile(b);
  CHECK(json::parse(report(b, {.tables = {}, .style = ReportStyle::kJson}))["tables"].size() > 3);
  for (const ReportStyle style : {ReportStyle::kCsv, ReportStyle::kMarkdown, ReportStyle::kText}) {
    const std::string text = report(b, {.tables = {}, .style = style});
    CHECK(std::ranges::none_of(text, [](char c) { return c == '\x1b' || c == '\x02' || c == '\xff'; }));
  }
}

TEST_CASE("a table that nothing fills is empty in JSON, and in a summary absent") {
  CHECK(json::parse(trained({.tables = {"kernels"}, .style = ReportStyle::kJson}))["tables"][1]["rows"].empty());
  CHECK(trained({}).find("kernels") == std::string::npos);
}

TEST_CASE("no table that is asked for is a headline alone: one without rows says why, in each style for people") {
  SpoolBuilder nothing, python, training;
  nothing.thread(100);
  nothing.clean_exit(1'000);
  const FunctionId main = python.function("serve.py", 1, "main");
  python.on(python.thread(100)).at(0).begin(main).at(900).end(main).clean_exit(1'000);
  test::train(training, 100);
  for (const SpoolBuilder* b : {&nothing, &python, &training})
    for (const std::string& name : table_names())
      for (const ReportStyle style : {ReportStyle::kText, ReportStyle::kMarkdown}) {
        const std::string text = report(*b, {.tables = {name}, .style = style});
        CAPTURE(name);
        CAPTURE(text);
        CHECK(std::ranges::count(text, '\n') > 3);
      }
}

TEST_CASE("why a table has no rows: what was switched off, what was not there, and what would make some") {
  SpoolBuilder off, without_torch, with_torch;
  for (SpoolBuilder* b : {&off, &without_torch, &with_torch}) b->on(b->thread(100)).at(0);
  for (SpoolBuilder* b : {&off, &with_torch}) b->meta("torch.version", "2.6.0");
  off.source("operators", SourceState::kOff, "switched off (--ops off)");
  off.source("python", SourceState::kOff, "switched off (--python off)");
  off.source("gpu", SourceState::kFailed, "CUPTI 9 is too old");
  for (SpoolBuilder* b : {&off, &without_torch, &with_torch}) b->clean_exit(1'000);
  const auto has = [](const SpoolBuilder& b, const char* table, const std::string& line) {
    const std::string text = report(b, {.tables = {table}});
    CAPTURE(text);
    CHECK(text.find("\n  " + line) != text.npos);
  };
  has(off, "ops", "no operators: switched off (--ops off)\n");
  has(off, "python", "no Python functions: switched off (--python off)\n");
  has(off, "modules", "no calls of nn.Module: switched off (--python off)\n");
  has(off, "kernels", "no GPU kernels or copies: CUPTI 9 is too old\n");
  has(without_torch, "ops", "no operators: the program did not load torch\n");
  has(without_torch, "memory", "no allocations of torch's: the program did not load torch\n");
  has(with_torch, "ops", "no operators: none was called while the program was recorded\n");
  has(with_torch, "calls", "no calls of CUDA: the program made none while it was recorded, or ran with --gpu kernels;");
  has(with_torch, "comms", "no collectives: torch.distributed was not used while the program was recorded");
  has(with_torch, "steps", "no steps: no optimizer made any and nothing recurs; --step FUNCTION, MODULE or range=NAME");
  has(with_torch, "gpu", "no work of GPUs: the program did no work on a GPU while it was recorded; `torchprof doctor`");
}

TEST_CASE("the number of rows is that of each table, and what is left out is counted") {
  SpoolBuilder ranks[] = {SpoolBuilder(100), SpoolBuilder(200), SpoolBuilder(300)};
  for (SpoolBuilder& b : ranks) {
    b.context(1, 0, 7);
    b.thread(100, "python3", 1);
    for (uint64_t i = 0; i < 3; ++i) b.at(i * 1000).annotation(i + 1, "ProfilerStep#").at(i * 1000 + 900).op_end(i + 1);
    b.gpu(test::call(100, 100, 200, 1)).gpu(test::kernel(b, 300, 400, 1)).clean_exit(4000);
  }
  const SpoolBuilder* all[] = {&ranks[0], &ranks[1], &ranks[2]};
  const test::LoadedTrace trace(all);
  for (const std::string& name : table_names()) {
    CAPTURE(name);
    const auto tables =
        json::parse(summary_text(*trace, {.tables = {name}, .rows = 1, .style = ReportStyle::kJson}))["tables"];
    for (const json& table : tables) CHECK(table["rows"].size() <= 1);
  }
  const std::string text = summary_text(*trace, {.tables = {"kernels", "steps", "processes"}, .rows = 1});
  CHECK(text.find("2 more GPUs") != text.npos);
  CHECK(text.find("2 more processes") != text.npos);
}

TEST_CASE("the summary of many processes is as long as that of a few") {
  for (const size_t count : {size_t{2}, kShownProcesses, kShownProcesses + 1, size_t{100}}) {
    std::deque<SpoolBuilder> spools;
    for (size_t i = 0; i < count; ++i) test::train(spools.emplace_back(static_cast<uint32_t>(100 + i)), 100);
    std::vector<const SpoolBuilder*> all;
    for (const SpoolBuilder& spool : spools) all.push_back(&spool);
    const test::LoadedTrace trace(all);
    const std::string text = summary_text(*trace, {});
    CAPTURE(text);
    const bool has_each = count <= kShownProcesses;
    CHECK((text.find("Operators by self time in process") != text.npos) == has_each);
    if (!has_each) CHECK(std::ranges::count(text, '\n') < 60);
    CHECK(!summary_text(*trace, {.tables = {"memory"}}).empty());
  }
}

TEST_CASE("the summary of many processes begins with the slowest, and with those that ended otherwise") {
  constexpr size_t kCount = 40, kSlow = 29, kKilled = 33;
  std::deque<SpoolBuilder> spools;
  for (size_t i = 0; i < kCount; ++i) {
    SpoolBuilder& b = spools.emplace_back(static_cast<uint32_t>(100 + i));
    b.on(b.thread(static_cast<uint32_t>(100 + i), "python3"));
    const uint64_t each = i == kSlow ? 9000 : 1000 + 10 * i;
    for (uint64_t step = 0; step < 6; ++step)
      b.at(1 + step * each)
          .annotation(step + 1, "ProfilerStep#" + std::to_string(step))
          .at((step + 1) * each)
          .op_end(step + 1);
    if (i != kKilled) b.clean_exit(100'000);
  }
  std::vector<const SpoolBuilder*> all;
  for (const SpoolBuilder& spool : spools) all.push_back(&spool);
  const test::LoadedTrace trace(all);
  const std::string text = summary_text(*trace, {});
  CAPTURE(text);
  const auto row_of = [&text](const char* table, size_t process) {
    const size_t begin = text.find(std::string("\n") + table + "\n");
    const size_t head_end = text.find('\n', text.find('\n', begin + 1) + 1);
    return text.substr(head_end).find(std::to_string(100 + process)) < 20;
  };
  CHECK(row_of("Steps", kSlow));
  CHECK(row_of("Processes", kKilled));
  CHECK(text.find("of 40 processes the median steps take 1.19") != text.npos);
  CHECK(text.find("they ended: 39 clean, 1 killed or replaced") != text.npos);
  CHECK(text.find("35 more processes") != text.npos);
}

TEST_CASE("no two columns of a table have the same key") {
  for (const std::string& table : table_names()) {
    std::vector<std::string> names = column_names(table);
    CHECK(!names.empty());
    std::ranges::sort(names);
    CHECK(std::ranges::adjacent_find(names) == names.end());
  }
}

}  // namespace report_test
