#include "formats/write/diff_page.h"

#include <cmath>
#include <optional>
#include <string_view>
#include <vector>

#include "formats/diff/checks.h"
#include "formats/io/cells.h"
#include "formats/io/text.h"
#include "formats/report/page.h"

namespace torchprof::formats {
namespace {

constexpr size_t kTextRows = 15;  // of each table, where no script runs

const char* tab_of(Metric metric, bool by_step) {
  switch (metric) {
    case Metric::kStep:
      return by_step ? "Steps" : "Totals";
    case Metric::kOps:
      return "Operators";
    case Metric::kModules:
      return "Modules";
    case Metric::kKernels:
      return "GPU kernels";
    case Metric::kCuda:
      return "CUDA calls";
    case Metric::kPython:
      return "Python";
    default:
      return "Memory";
  }
}

// "null" for what is not known, and for what no number of JSON's can be.
std::string json_number(std::optional<double> value) {
  if (!value || !std::isfinite(*value)) return "null";
  return print("%.17g", *value);
}

class JsonObject {
 public:
  JsonObject& add(std::string_view key, std::string_view json) {
    text_.append(text_.empty() ? "{" : ",").append(json_string(key)).append(":").append(json);
    return *this;
  }
  std::string text() const { return text_.empty() ? "{}" : text_ + "}"; }

 private:
  std::string text_;
};

template <class List, class Each>
std::string json_list_of(const List& list, Each each) {
  std::string out = "[";
  for (const auto& element : list) out.append(out.size() == 1 ? "" : ",").append(each(element));
  return out + "]";
}

std::string texts_json(const std::vector<std::string>& texts) {
  return json_list_of(texts, [](const std::string& text) { return json_string(text); });
}

std::string columns_json(Metric metric) {
  struct Described {
    const char *key, *title, *unit;
  };
  std::vector<Described> columns{{"name", metric == Metric::kMemory ? "device" : "name", "text"},
                                 {"verdict", "verdict", "text"},
                                 {"change_percent", "change", "percent"}};
  if (metric != Metric::kMemory)
    columns.insert(columns.end(), {{"base_ns", "base", "ns"},
                                   {"new_ns", "new", "ns"},
                                   {"p", "p", "number"},
                                   {"base_calls", "calls, base", "number"},
                                   {"new_calls", "calls, new", "number"}});
  columns.insert(columns.end(), {{"base_bytes", metric == Metric::kMemory ? "base" : "allocated, base", "bytes"},
                                 {"new_bytes", metric == Metric::kMemory ? "new" : "allocated, new", "bytes"}});
  return json_list_of(columns, [](const Described& c) {
    return JsonObject()
        .add("key", json_string(c.key))
        .add("title", json_string(c.title))
        .add("unit", json_string(c.unit))
        .text();
  });
}

std::string row_json(Metric metric, const DiffRow& row) {
  const Quantity& judged = metric == Metric::kMemory ? row.bytes : row.time;
  const bool is_in_base = row.fate != Fate::kNew, is_in_new = row.fate != Fate::kVanished;
  const auto value = [](bool is_there, double value) {
    return json_number(is_there ? std::optional(value) : std::nullopt);
  };
  JsonObject out;
  out.add("name", json_string(row.name));
  out.add("verdict", json_string(!is_in_base ? "new" : !is_in_new ? "gone" : verdict(row)));
  out.add("change_percent", value(is_in_base && is_in_new, 100 * judged.change()));
  if (metric != Metric::kMemory) {
    out.add("base_ns", value(is_in_base, row.time.base)).add("new_ns", value(is_in_new, row.time.now));
    out.add("p", json_number(row.time.p));
    out.add("base_calls", value(is_in_base, row.calls.base)).add("new_calls", value(is_in_new, row.calls.now));
  }
  out.add("base_bytes", value(is_in_base, row.bytes.base)).add("new_bytes", value(is_in_new, row.bytes.now));
  return out.text();
}

std::string tables_json(const Diff& diff) {
  return json_list_of(diff.tables, [&](const DiffTable& table) {
    std::vector<const DiffRow*> rows;
    for (const DiffRow& row : table.rows)
      if (!row.is_left_out) rows.push_back(&row);
    return JsonObject()
        .add("name", json_string(metric_names()[static_cast<size_t>(table.metric)]))
        .add("tab", json_string(tab_of(table.metric, diff.by_step)))
        .add("title", json_string(diff_title(table.metric, diff.by_step)))
        .add("columns", columns_json(table.metric))
        .add("rows", json_list_of(rows, [&](const DiffRow* row) { return row_json(table.metric, *row); }))
        .text();
  });
}

std::string checks_json(const Diff& diff) {
  return json_list_of(diff.checks, [](const Check& check) {
    return JsonObject()
        .add("suite", json_string(check.suite))
        .add("name", json_string(check.name))
        .add("text", json_string(check.text))
        .add("passed", check.is_passed ? "true" : "false")
        .text();
  });
}

}  // namespace

void write_diff_html(const Diff& diff, const RunOfPair& base, const RunOfPair& now, Output& out) {
  const std::string report = JsonObject()
                                 .add("headline", json_string(""))
                                 .add("tables", tables_json(diff))
                                 .add("notes", texts_json(diff.notes))
                                 .text();
  const std::string compared = JsonObject()
                                   .add("head", texts_json(diff.head))
                                   .add("checks", checks_json(diff))
                                   .add("runs", "[" + base.json + "," + now.json + "]")
                                   .text();
  write_shell({printable(now.name) + " against " + printable(base.name), "torchprof diff"}, diff_text(diff, kTextRows),
              "\"report\":" + report + ",\"diff\":" + compared, out);
}

}  // namespace torchprof::formats
