// A diff as text, markdown and JUnit's XML.
#include <algorithm>
#include <cmath>

#include "formats/diff/checks.h"
#include "formats/diff/diff.h"
#include "formats/io/cells.h"
#include "formats/io/text.h"

namespace torchprof::formats {
namespace {

struct ShownDiff {
  std::string title;
  Cells head;
  std::vector<Cells> rows;
};

// One number if nothing changed, otherwise both.
std::string counts_text(Metric metric, const Quantity& q) {
  if (q.base == 0 && q.now == 0) return "-";
  const std::string base = amount_text(metric, q.base), now = amount_text(metric, q.now);
  return base == now ? now : base + " -> " + now;
}

ShownDiff memory_cells(const DiffTable& table, const std::string& title) {
  ShownDiff shown{title, {"base", "new", "change", "device"}, {}};
  for (const DiffRow& row : table.rows)
    shown.rows.push_back({amount_text(table.metric, row.bytes.base), amount_text(table.metric, row.bytes.now),
                          change_text(row.bytes, row.fate), printable(row.name)});
  return shown;
}

ShownDiff cells_of(const DiffTable& table, bool by_step, size_t most) {
  const std::string title = diff_title(table.metric, by_step);
  if (table.metric == Metric::kMemory) return memory_cells(table, title);
  const bool has_bytes =
      std::ranges::any_of(table.rows, [](const DiffRow& row) { return row.bytes.base + row.bytes.now != 0; });
  ShownDiff shown{title, {"base", "new", "change", "p", "", "calls"}, {}};
  if (has_bytes) shown.head.emplace_back("allocated");
  shown.head.emplace_back("name");
  for (const DiffRow& row : table.rows) {
    if (row.is_left_out) continue;
    if (shown.rows.size() == most) break;
    const std::string base = row.fate == Fate::kNew ? "-" : time_text(row.time.base);
    const std::string now = row.fate == Fate::kVanished ? "-" : time_text(row.time.now);
    Cells& cells = shown.rows.emplace_back(Cells{base, now, change_text(row.time, row.fate), p_text(row.time),
                                                 verdict(row), counts_text(Metric::kCalls, row.calls)});
    if (has_bytes) cells.push_back(counts_text(Metric::kAllocated, row.bytes));
    cells.push_back(printable(row.name));
  }
  return shown;
}

std::string outcome(const Diff& diff) {
  const std::string judged = plural(diff.checks.size(), "check");
  return diff.failed() == 0 ? judged + ", none past its limit"
                            : judged + ", " + count_text(diff.failed()) + " past the limit";
}

std::string check_line(const Check& check) { return check.suite + ": " + check.name + ": " + check.text; }

// Text as code in a cell of a table: nothing in it is markup, and no bar ends the cell.
std::string as_code(const std::string& text) {
  if (text.empty()) return "";
  std::string out = "`";
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c == '`' ? '\'' : c;
  }
  return out + "`";
}

std::string markdown_table(const ShownDiff& shown) {
  std::string out = "|";
  for (const std::string& title : shown.head) out += " " + title + " |";
  out += "\n|";
  for (size_t i = 0; i < shown.head.size(); ++i) out += i + 1 < shown.head.size() ? " ---: |" : " :--- |";
  out += "\n";
  for (const Cells& row : shown.rows) {
    out += "|";
    for (size_t i = 0; i < row.size(); ++i) out += " " + (i + 1 < row.size() ? row[i] : as_code(row[i])) + " |";
    out += "\n";
  }
  return out;
}

// Text of an attribute: `printable` has made it UTF-8 without control characters.
std::string xml(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    switch (text[i]) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        // XML does not allow U+FFFE and U+FFFF.
        if (text.compare(i, 3, "\xef\xbf\xbe") == 0 || text.compare(i, 3, "\xef\xbf\xbf") == 0) {
          out += "\xef\xbf\xbd";
          i += 2;
        } else {
          out += text[i];
        }
    }
  }
  return out;
}

}  // namespace

std::string diff_title(Metric metric, bool by_step) {
  const std::string where = by_step ? ", per step" : ", in the whole run";
  switch (metric) {
    case Metric::kStep:
      return by_step ? "Steps" : "Totals";
    case Metric::kOps:
      return "Operators by change of self time" + where;
    case Metric::kModules:
      return "Modules by change of their own time, forward and backward" + where;
    case Metric::kKernels:
      return "GPU kernels by change of time" + where;
    case Metric::kCuda:
      return "Calls of CUDA by change of time" + where;
    case Metric::kPython:
      return "Python functions by change of self time" + where;
    default:
      return "Memory at the peak";
  }
}

std::string verdict(const DiffRow& row) {
  if (row.fate != Fate::kBoth || row.time.is_minor || !row.time.p || !row.time.is_real()) return "";
  return row.time.now > row.time.base ? "slower" : "faster";
}

std::string diff_text(const Diff& diff, size_t rows) {
  std::string out;
  for (const std::string& line : diff.head) out += shorten(printable(line), kWidth) + "\n";
  for (const DiffTable& table : diff.tables) {
    const ShownDiff shown = cells_of(table, diff.by_step, rows);
    if (!shown.rows.empty()) section(out, shown.title, aligned(shown.head, shown.rows));
  }
  std::string notes, failed;
  for (const std::string& note : diff.notes) notes += "  " + shorten(note, kWidth - 2) + "\n";
  section(out, "Notes", notes);
  if (diff.checks.empty()) return out;
  for (const Check& check : diff.checks)
    if (!check.is_passed) failed += "  " + shorten(check_line(check), kWidth - 2) + "\n";
  section(out, "Limits: " + outcome(diff), failed.empty() ? "" : failed);
  if (failed.empty()) out += "\nLimits: " + outcome(diff) + "\n";
  return out;
}

std::string diff_markdown(const Diff& diff, size_t rows) {
  std::string out = "### torchprof diff" + (diff.checks.empty() ? "" : ": " + outcome(diff)) + "\n\n";
  for (const Check& check : diff.checks)
    if (!check.is_passed) out += "- **" + check.suite + "** " + as_code(check.name) + " " + check.text + "\n";
  if (diff.failed() != 0) out += "\n";
  for (const std::string& line : diff.head) out += "- " + as_code(printable(line)) + "\n";
  for (const std::string& note : diff.notes) out += "- " + as_code(printable(note)) + "\n";
  bool is_first = true;
  for (const DiffTable& table : diff.tables) {
    const ShownDiff shown = cells_of(table, diff.by_step, rows);
    if (shown.rows.empty()) continue;
    if (is_first)
      out += "\n**" + shown.title + "**\n\n" + markdown_table(shown);
    else
      out += "\n<details><summary>" + shown.title + "</summary>\n\n" + markdown_table(shown) + "\n</details>\n";
    is_first = false;
  }
  return out;
}

std::string diff_junit(const Diff& diff) {
  const auto counts = [](size_t tests, size_t failures) {
    return " tests=\"" + std::to_string(tests) + "\" failures=\"" + std::to_string(failures) + "\"";
  };
  std::string out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"torchprof diff\"" +
                    counts(diff.checks.size(), diff.failed()) + ">\n";
  std::vector<std::string> suites;
  for (const Check& check : diff.checks)
    if (std::ranges::find(suites, check.suite) == suites.end()) suites.push_back(check.suite);
  for (const std::string& suite : suites) {
    std::string cases;
    size_t tests = 0, failures = 0;
    for (const Check& check : diff.checks) {
      if (check.suite != suite) continue;
      ++tests;
      cases += "    <testcase classname=\"torchprof." + suite + "\" name=\"" + xml(check.name) + "\"";
      if (check.is_passed) {
        cases += "/>\n";
        continue;
      }
      ++failures;
      cases += ">\n      <failure message=\"" + xml(check.text) + "\"/>\n    </testcase>\n";
    }
    out += "  <testsuite name=\"" + suite + "\"" + counts(tests, failures) + ">\n" + cases + "  </testsuite>\n";
  }
  return out + "</testsuites>\n";
}

}  // namespace torchprof::formats
