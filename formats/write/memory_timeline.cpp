#include "formats/write/memory_timeline.h"

#include <optional>

#include "formats/io/text.h"
#include "formats/memory/categories.h"
#include "formats/replay/process_label.h"

namespace torchprof::formats {
namespace {

std::optional<MemoryDevice> device_of(const MemoryCategories& categories) {
  std::optional<MemoryDevice> best;
  int64_t most = -1;
  for (const auto& [device, peak] : categories.peak) {
    if (device.first == 0 ? best.has_value() : peak <= most) continue;
    best = device;
    most = device.first == 0 ? -1 : peak;
  }
  return best;
}

template <class Take>
void replay_of(const Process& process, const MemoryCategories& categories, const MemoryDevice& device, Take take) {
  const auto of_device = [&](const CategorizedEvent& e) {
    if (e.device == device) take(e);
  };
  CategorizedReplay(process, categories, of_device).run();
}

std::string us(UnixNs time) { return std::to_string(time.value / 1000); }

void write_row(bool is_first, const CategorySizes& sizes, Output& out) {
  std::string row(is_first ? "" : ",\n");
  row.append("[0");
  for (const int64_t size : sizes) row.append(",").append(std::to_string(size));
  out.write(row.append("]"));
}

// [times, sizes]. Does a replay for each of the two, since the file has all times before all sizes.
void write_coalesced(const Process& process, Output& out) {
  const MemoryCategories categories = categories_of(process);
  const auto device = device_of(categories);
  if (!device) return out.write("[[],[]]");
  std::optional<int64_t> last;
  out.write("[[");
  replay_of(process, categories, *device, [&](const CategorizedEvent& e) {
    if (last == e.time.value / 1000) return;
    if (last) out.write(",");
    out.write(us(e.time));
    last = e.time.value / 1000;
  });
  out.write("],\n[");
  CategorySizes sizes{};
  last.reset();
  bool is_first = true;
  replay_of(process, categories, *device, [&](const CategorizedEvent& e) {
    if (last && *last != e.time.value / 1000) {
      write_row(is_first, sizes, out);
      is_first = false;
    }
    last = e.time.value / 1000;
    add_memory(sizes[static_cast<size_t>(e.category)], e.change());
  });
  if (last) write_row(is_first, sizes, out);
  out.write("]]");
}

void write_raw(const Process& process, Output& out) {
  const MemoryCategories categories = categories_of(process);
  const auto device = device_of(categories);
  bool is_first = true;
  out.write("[");
  if (device)
    replay_of(process, categories, *device, [&](const CategorizedEvent& e) {
      std::string row(is_first ? "[" : ", [");
      is_first = false;
      const bool was_there = e.action == CategorizedEvent::Action::kPreexisting && process.windows.empty();
      row.append(std::to_string(was_there ? -1 : e.time.value)).append(", ");
      row.append(std::to_string(static_cast<int>(e.action))).append(", ").append(std::to_string(e.change()));
      row.append(", ").append(std::to_string(static_cast<int>(e.category)));
      out.write(row.append("]"));
    });
  out.write("]");
}

void write_each(Processes processes, Output& out, void (*write)(const Process&, Output&)) {
  if (processes.size() == 1) {
    write(processes.front(), out);
  } else {
    out.write("{");
    for (const Process& p : processes) {
      if (&p != &processes.front()) out.write(",\n");
      out.write(json_string(process_label(p)));
      out.write(": ");
      write(p, out);
    }
    out.write("}");
  }
}

}  // namespace

void write_memory_timeline(const Trace&, Processes processes, Output& out) {
  write_each(processes, out, write_coalesced);
  out.write("\n");
}

void write_memory_timeline_raw(const Trace&, Processes processes, Output& out) {
  write_each(processes, out, write_raw);  // without a newline at its end, as by json.dump
}

}  // namespace torchprof::formats
