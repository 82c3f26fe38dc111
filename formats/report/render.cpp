#include "formats/report/render.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include "formats/io/cells.h"
#include "formats/io/print.h"
#include "formats/io/text.h"

namespace torchprof::formats {
namespace {

double as_double(const Cell& cell) {
  if (const auto* whole = std::get_if<int64_t>(&cell)) return static_cast<double>(*whole);
  const auto* real = std::get_if<double>(&cell);
  return real == nullptr ? 0 : *real;
}

std::string for_people(const Cell& cell, const Column& column) {
  if (std::holds_alternative<std::monostate>(cell)) return std::string(column.missing);
  if (const auto* text = std::get_if<std::string>(&cell)) return printable(*text);
  const double value = as_double(cell);
  char format[16];
  switch (column.unit) {
    case Unit::kTime:
      return time_text(value);
    case Unit::kBytes:
      return memory_text(std::llround(value));
    case Unit::kPercent:
      std::snprintf(format, sizeof(format), "%%.%df %%%%", column.digits);
      return print(format, value);
    case Unit::kNumber:
      std::snprintf(format, sizeof(format), "%%.%df", column.digits);
      return print(format, value);
    case Unit::kFlops:
      return print("%.3f", value / 1e9);
    default:
      return count_text(static_cast<uint64_t>(std::max(0.0, value)));
  }
}

// A value as programs read it; JSON's null if there is none.
std::string raw(const Cell& cell) {
  if (const auto* text = std::get_if<std::string>(&cell)) return json_string(*text);
  char digits[32];
  if (const auto* whole = std::get_if<int64_t>(&cell)) return {digits, put_signed(digits, *whole)};
  const auto* real = std::get_if<double>(&cell);
  if (real == nullptr || !std::isfinite(*real)) return "null";
  // Without an exponent unless it is very large or small, because many readers of CSV take no exponents.
  const double size = std::abs(*real);
  if (size != 0 && (size < 1e-5 || size >= 1e15)) return {digits, put_float(digits, *real)};
  return {digits, std::to_chars(digits, digits + sizeof(digits), *real, std::chars_format::fixed).ptr};
}

// ---- text and Markdown -----------------------------------------------------------------------------------

struct Shown {  // columns as people see them
  Cells head;
  std::vector<int> importance;  // of each
  std::vector<Cells> rows;
};

// Limited, so that a deep tree leaves room for names.
size_t indent(uint32_t depth) { return std::min<size_t>(2 * size_t{depth}, kNarrowest / 2); }

Shown shown(const ReportTable& table, bool appends) {
  Shown out;
  for (const Column& column : table.columns)
    if (column.is_shown && !(appends && column.is_appended)) {
      out.head.emplace_back(column.title);
      out.importance.push_back(2 * column.importance + (column.unit == Unit::kText ? 1 : 0));
    }
  for (const std::vector<Cell>& row : table.rows) {
    const size_t number = out.rows.size();
    Cells& cells = out.rows.emplace_back();
    for (size_t i = 0; i < row.size(); ++i) {
      const Column& column = table.columns[i];
      if (!column.is_shown) continue;
      const bool is_indented = appends && column.key == "name" && number < table.indents.size();
      if (!appends || !column.is_appended || cells.empty())
        cells.push_back(std::string(is_indented ? indent(table.indents[number]) : 0, ' ') + for_people(row[i], column));
      else if (!std::holds_alternative<std::monostate>(row[i]))
        cells.back().append("  ").append(for_people(row[i], column));
    }
  }
  return out;
}

std::string report_text(const ReportDocument& report) {
  const size_t width = report.width;
  std::string out;
  if (report.leaves_out_columns)
    for (const std::string& line : wrap(report.headline, width)) out.append(line).append("\n");
  else
    out = shorten(report.headline, width) + "\n";
  for (const ReportTable& table : report.tables) {
    Shown s = shown(table, true);
    const Fit fit{width, report.leaves_out_columns ? std::move(s.importance) : std::vector<int>{}};
    std::string body =
        s.rows.empty() || s.head.empty() ? std::string() : aligned(s.head, s.rows, table.last_column, fit);
    for (const std::string& remark : table.remarks)
      for (const std::string& line : wrap(remark, width - 2)) body.append("  ").append(line).append("\n");
    std::string title;
    for (const std::string& line : wrap(table.title, width - 2)) title.append(title.empty() ? "" : "\n  ").append(line);
    section(out, title, body);
  }
  std::string notes;
  for (const std::string& note : report.notes)
    for (const std::string& line : wrap(note, width - 2)) notes.append("  ").append(line).append("\n");
  section(out, "Not in the trace", notes);
  return out;
}

// Escapes all that Markdown or HTML would take for markup.
std::string markdown_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '&')
      out += "&amp;";
    else if (std::string_view("\\`*_|[]~").find(c) != std::string_view::npos)
      out.append(1, '\\').append(1, c);
    else
      out += c;
  }
  return out;
}

std::string markdown_of(const ReportDocument& report) {
  std::string out = markdown_text(report.headline) + "\n";
  const auto line = [&out](const Cells& cells) {
    for (const std::string& cell : cells) out.append("| ").append(markdown_text(cell)).append(" ");
    out += "|\n";
  };
  for (const ReportTable& table : report.tables) {
    const Shown s = shown(table, false);
    if (s.rows.empty() && table.remarks.empty()) continue;
    out.append("\n### ").append(markdown_text(printable(table.title))).append("\n\n");
    if (!s.rows.empty()) {
      line(s.head);
      for (const Column& column : table.columns)
        if (column.is_shown) out.append(column.unit == Unit::kText ? "|---" : "|---:");
      out += "|\n";
      for (const Cells& row : s.rows) line(row);
    }
    for (const std::string& remark : table.remarks) out.append("\n").append(markdown_text(remark)).append("\n");
  }
  if (!report.notes.empty()) out += "\n### Not in the trace\n\n";
  for (const std::string& note : report.notes) out.append("- ").append(markdown_text(note)).append("\n");
  return out;
}

// ---- JSON and CSV ----------------------------------------------------------------------------------------

std::string_view unit_name(Unit unit) {
  switch (unit) {
    case Unit::kTime:
      return "ns";
    case Unit::kBytes:
      return "bytes";
    case Unit::kCount:
      return "count";
    case Unit::kPercent:
      return "percent";
    case Unit::kNumber:
      return "number";
    case Unit::kFlops:
      return "flops";
    case Unit::kText:
      break;
  }
  return "text";
}

// "[...]" with what `each` makes of the elements.
template <class List, class Each>
std::string json_list(const List& list, std::string_view separator, Each each) {
  std::string out = "[";
  for (const auto& element : list) out.append(out.size() == 1 ? "" : ",").append(separator).append(each(element));
  return out.append("]");
}

void append_member(std::string& out, std::string_view key, std::string_view value) {
  out.append(out.empty() || out.back() == '{' ? "\"" : ",\"").append(key).append("\":").append(value);
}

std::string table_json(const ReportTable& table) {
  std::string out = "{";
  append_member(out, "name", json_string(table.name));
  append_member(out, "title", json_string(table.title));
  append_member(out, "columns", json_list(table.columns, "", [](const Column& c) {
                  std::string column = "{";
                  append_member(column, "key", json_string(c.key));
                  append_member(column, "title", json_string(c.title));
                  append_member(column, "unit", json_string(unit_name(c.unit)));
                  return column + "}";
                }));
  append_member(out, "rows", json_list(table.rows, "\n", [&table](const std::vector<Cell>& row) {
                  std::string object = "{";
                  for (size_t i = 0; i < row.size(); ++i) append_member(object, table.columns[i].key, raw(row[i]));
                  return object + "}";
                }));
  std::string totals = "{";
  for (const auto& [key, value] : table.totals) append_member(totals, key, raw(value));
  append_member(out, "totals", totals + "}");
  append_member(out, "remarks", json_list(table.remarks, "", [](const std::string& r) { return json_string(r); }));
  return out + "}";
}

std::string json_of(const ReportDocument& report) {
  std::string out = "{";
  append_member(out, "headline", json_string(report.headline));
  append_member(out, "tables", json_list(report.tables, "\n", table_json));
  append_member(out, "notes", json_list(report.notes, "", [](const std::string& note) { return json_string(note); }));
  return out + "}\n";
}

std::string csv_cell(const Cell& cell) {
  const auto* text = std::get_if<std::string>(&cell);
  if (text == nullptr) return std::holds_alternative<std::monostate>(cell) ? "" : raw(cell);
  std::string quoted = "\"";
  for (const char c : printable(*text)) quoted.append(c == '"' ? 2 : 1, c);
  return quoted + "\"";
}

std::string csv_of(const ReportDocument& report) {
  std::string out;
  for (const ReportTable& table : report.tables) {
    if (!out.empty()) out += "\r\n";
    for (size_t i = 0; i < table.columns.size(); ++i) out.append(i == 0 ? "" : ",").append(table.columns[i].key);
    out += "\r\n";
    for (const std::vector<Cell>& row : table.rows) {
      for (size_t i = 0; i < row.size(); ++i) out.append(i == 0 ? "" : ",").append(csv_cell(row[i]));
      out += "\r\n";
    }
  }
  return out;
}

}  // namespace

std::string render(const ReportDocument& report, ReportStyle style) {
  switch (style) {
    case ReportStyle::kJson:
      return json_of(report);
    case ReportStyle::kCsv:
      return csv_of(report);
    case ReportStyle::kMarkdown:
      return markdown_of(report);
    case ReportStyle::kText:
      break;
  }
  return report_text(report);
}

}  // namespace torchprof::formats
