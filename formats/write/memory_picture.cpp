// The picture of memory_timeline.h: inline SVG with a band for each category. A column shows the moment of its time
// range at which most was allocated.
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "formats/io/cells.h"
#include "formats/io/text.h"
#include "formats/memory/categories.h"
#include "formats/memory/memory.h"
#include "formats/replay/process_label.h"
#include "formats/write/memory_timeline.h"

namespace torchprof::formats {
namespace {

constexpr int kWide = 1000, kHigh = 240;  // size of a picture, with a column for each unit of width
constexpr std::array<const char*, kMemoryCategories> kColours = {  // torch's, with the black one lighter
    "#2e7d32", "#daa520", "#607d8b", "#9370db", "#e53935", "#1e40af", "#4169e1", "#9e9e9e"};

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : printable(text)) {
    if (c == '<')
      out += "&lt;";
    else if (c == '&')
      out += "&amp;";
    else
      out += c;
  }
  return out;
}

int64_t total(const CategorySizes& sizes) {
  int64_t sum = 0;
  for (const int64_t size : sizes) sum += std::max<int64_t>(0, size);
  return sum;
}

struct Picture {
  CategorySizes now{};
  std::vector<CategorySizes> columns;
  int64_t peak = 0, peak_ns = 0;
  CategorySizes at_peak{};

  void put(int64_t ns, int64_t whole) {
    const auto column = static_cast<size_t>(std::clamp<int64_t>(
        static_cast<int64_t>(static_cast<double>(ns) / static_cast<double>(whole) * kWide), 0, kWide - 1));
    const CategorySizes before = columns.empty() ? CategorySizes{} : last;
    while (columns.size() <= column) columns.push_back(before);
    if (total(now) > total(columns[column])) columns[column] = now;
    last = now;
    if (total(now) <= peak) return;
    peak = total(now);
    peak_ns = ns;
    at_peak = now;
  }
  CategorySizes last{};
};

std::string band(const Picture& p, size_t category) {
  const auto y = [&p](int64_t bytes) {
    return print("%.1f",
                 kHigh - static_cast<double>(bytes) / static_cast<double>(std::max<int64_t>(1, p.peak)) * kHigh);
  };
  std::string upper, lower;
  for (size_t x = 0; x < p.columns.size(); ++x) {
    int64_t below = 0;
    for (size_t c = 0; c < category; ++c) below += std::max<int64_t>(0, p.columns[x][c]);
    const int64_t top = below + std::max<int64_t>(0, p.columns[x][category]);
    upper.append(std::to_string(x)).append(",").append(y(top)).append(" ");
    lower.insert(0, std::to_string(x) + "," + y(below) + " ");
  }
  std::string out = "<polygon fill=\"";
  out.append(kColours[category]).append("\" points=\"").append(upper).append(lower).append("\"><title>");
  return out.append(kCategoryNames[category]).append("</title></polygon>\n");
}

void write_picture(const std::string& title, const Picture& p, int64_t whole, Output& out) {
  out.write("<h2>" + escaped(title) + "</h2>\n<p>at most " + bytes_text(static_cast<uint64_t>(p.peak)) + ", " +
            duration_text(static_cast<double>(p.peak_ns)) + " after the begin:</p>\n<ul>");
  std::string bands;
  for (size_t c = 0; c < kMemoryCategories; ++c) {
    const bool is_there = std::ranges::any_of(p.columns, [c](const CategorySizes& s) { return s[c] > 0; });
    if (!is_there) continue;
    bands += band(p, c);
    out.write(std::string("<li><i style=\"background:") + kColours[c] + "\"></i>" + kCategoryNames[c] + " " +
              bytes_text(static_cast<uint64_t>(std::max<int64_t>(0, p.at_peak[c]))) + "</li>");
  }
  out.write("</ul>\n<svg viewBox=\"0 0 " + std::to_string(kWide) + " " + std::to_string(kHigh) +
            "\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"memory over time\">\n" + bands + "</svg>\n" +
            "<p class=\"axis\"><span>0</span><span>" + duration_text(static_cast<double>(whole)) + "</span></p>\n");
}

constexpr std::string_view kHead = R"html(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Memory over time</title><style>
:root { color-scheme: light dark; } body { font: 14px system-ui, sans-serif; max-width: 1100px; margin: 2em auto; padding: 0 1em; }
h2 { font-size: 1.1em; } ul { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: .3em 1.5em; }
i { display: inline-block; width: .8em; height: .8em; margin-right: .4em; } svg { width: 100%; height: 260px; border: 1px solid #888; }
.axis { display: flex; justify-content: space-between; margin: 0; color: #888; }
</style></head><body><h1>Memory over time</h1>
)html";

}  // namespace

void write_memory_timeline_html(const Trace&, Processes processes, Output& out) {
  out.write(kHead);
  for (const Process& process : processes) {
    const MemoryCategories categories = categories_of(process);
    const int64_t whole = std::max<int64_t>(1, process.end - process.start);
    std::map<MemoryDevice, Picture> pictures;
    const auto take = [&](const CategorizedEvent& e) {
      Picture& p = pictures[e.device];
      add_memory(p.now[static_cast<size_t>(e.category)], e.change());
      p.put(e.time - process.start, whole);
    };
    CategorizedReplay(process, categories, take).run();
    for (auto& [device, picture] : pictures) {
      picture.put(whole, whole);
      write_picture(process_label(process) + ", " + device_text(device.first, device.second), picture, whole, out);
    }
  }
  out.write("</body></html>\n");
}

}  // namespace torchprof::formats
