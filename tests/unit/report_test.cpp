// A report as data, and its styles.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "formats/report_columns.h"
#include "formats/table.h"
#include "tests/unit/small_training.h"

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

TEST_CASE("a table that nothing fills is empty in JSON and absent in text") {
  CHECK(json::parse(trained({.tables = {"kernels"}, .style = ReportStyle::kJson}))["tables"][1]["rows"].empty());
  CHECK(trained({.tables = {"kernels"}}).find("kernels") == std::string::npos);
}

TEST_CASE("no two columns of a table have the same key") {
  for (const std::string& table : table_names()) {
    std::vector<std::string> names = column_names(table);
    CHECK(!names.empty());
    std::ranges::sort(names);
    CHECK(std::ranges::adjacent_find(names) == names.end());
  }
}
