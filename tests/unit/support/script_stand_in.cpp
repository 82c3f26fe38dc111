#include "tests/unit/support/script_stand_in.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

namespace script_stand_in::ABI {
namespace {

struct Source {
  std::string file;
};
struct Entry {  // StackEntry: {function, SourceRange}
  std::string function;
  std::shared_ptr<Source> source;
  size_t start = 0, end = 0;
  size_t iterator[4] = {};
};
struct Line {  // FileLineFunc
  std::string file;
  size_t line = 0;
  std::string function;
};

std::vector<Entry> g_entries;  // what the interpreter holds
size_t g_functions = 0;
bool g_is_wrong = false;

std::vector<Entry> current() {
  std::vector<Entry> entries(g_entries.begin(), g_entries.begin() + static_cast<long>(g_functions));
  if (g_is_wrong) entries.back().iterator[0] = 1, entries.front().function.swap(entries.back().function);
  return entries;
}

std::vector<Line> prepare(const std::vector<Entry>& entries) {
  std::vector<Line> lines;
  lines.reserve(entries.size());
  for (const Entry& entry : entries)
    if (!entry.source->file.empty()) lines.push_back({entry.source->file, entry.start, entry.function});
  if (g_is_wrong) lines.front().line = ~size_t{0};
  return lines;
}

long owned() {
  long count = 0;
  for (const Entry& entry : g_entries) count += entry.source.use_count() - 1;
  return count;
}

void set(size_t functions, size_t without_file, bool is_wrong) {
  g_entries.clear();
  for (size_t i = 0; i < functions; ++i) {
    const bool has_file = i >= without_file;
    g_entries.push_back({i % 2 == 0 ? "short" : "a_function_with_a_long_name_" + std::to_string(i),
                         std::make_shared<Source>(Source{has_file ? "directory/model.py" : ""}), 10 + i, 20});
  }
  g_functions = functions;
  g_is_wrong = is_wrong;
}

}  // namespace

StandIn stand_in() {
  return {reinterpret_cast<void*>(current), reinterpret_cast<void*>(prepare), sizeof(std::string), owned, set};
}

}  // namespace script_stand_in::ABI
