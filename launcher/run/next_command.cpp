#include "launcher/run/next_command.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "formats/io/text.h"
#include "launcher/run/armed_environment.h"

namespace torchprof::launcher {
namespace {

struct NextLook {
  std::string_view rule;  // of a finding
  const char* tables;     // options of `report`
  const char* what;
};

constexpr NextLook kLinesOfOperators{{}, "-t ops,python", "more operators, and functions and lines of Python"};
constexpr NextLook kPythonLook{{}, "-t python", "functions and lines of Python"};
constexpr NextLook kGpuLook{{}, "-t gpu,launches", "what each GPU waited for, and how work gets to it"};
// Of all other rules: operators. No table needs raw records, which may be gone by then (run --discard).
constexpr NextLook kLooks[] = {
    {"leak", "-t memory", "what stays, by the line that allocated it"},
    {"loading", "-t steps", "each step and what it waited for"},
    {"some steps", "-t steps", "each step and what it took its time for"},
    {"slow rank", "-t comms", "collectives, and who waits for whom"},
    {"communication", "-t comms", "collectives, and who waits for whom"},
    {"threads", "-t threads", "what each thread did"},
    {"processor", "-t threads", "what each thread did"},
    {"host bound", kGpuLook.tables, kGpuLook.what},
    {"idle", kGpuLook.tables, kGpuLook.what},
    {"waiting", "-t critical", "what each instant of the steps waited for"},
    {"python", kPythonLook.tables, kPythonLook.what},
    {"collecting", kPythonLook.tables, kPythonLook.what},
    {"compiling", kPythonLook.tables, kPythonLook.what},
};

NextLook next_look_of(const formats::Report& report) {
  if (!report.advice.findings.empty()) {
    const auto* const found = std::ranges::find(kLooks, report.advice.findings.front().rule, &NextLook::rule);
    return found == std::end(kLooks) ? kLinesOfOperators : *found;
  }
  return report.all.operators.empty() ? kPythonLook : kLinesOfOperators;
}

// As it is where a shell takes it so.
std::string shell_word(const std::string& text) {
  constexpr std::string_view kUnquoted = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./+=:,@%";
  if (!text.empty() && text.front() != '-' && text.find_first_not_of(kUnquoted) == text.npos) return text;
  return in_sh(text);
}

}  // namespace

std::string next_command(const formats::Report& report, const std::filesystem::path& run) {
  const std::string name = run.string();
  if (name != formats::printable(name)) return {};  // a terminal would not show what is to be typed
  if (report.all.operators.empty() && report.all.python.empty()) return {};
  const NextLook look = next_look_of(report);
  return "torchprof report " + shell_word(name) + " " + look.tables + "   (" + look.what + ")";
}

}  // namespace torchprof::launcher
