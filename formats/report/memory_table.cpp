// The tables of what was alive at the peak of each device, and of memory that stays.
#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "formats/io/cells.h"
#include "formats/io/text.h"
#include "formats/report/columns.h"
#include "formats/report/tables.h"

namespace torchprof::formats {
namespace {

std::string owner_text(const OwnerText& owner, int8_t device_type = 0) {
  if (device_type == kPythonMemory && owner.op.empty() && owner.module.empty())
    return owner.place.empty() ? "(not known)" : owner.place;
  std::string text = owner.op.empty() ? "(no operator)" : owner.op;
  if (!owner.outer_op.empty() && owner.outer_op != owner.op) text += " in " + owner.outer_op;
  for (const std::string* more : {&owner.module, &owner.place})
    if (!more->empty()) text += ", " + *more;
  return text;
}

struct CategoryRow {
  const ReportPart& part;
  const DeviceMemory& device;
  size_t category;
  int64_t bytes;
};

constexpr RowColumn<CategoryRow> kCategoryColumns[] = {
    kPidColumn<CategoryRow>,
    {{"device", "device", Unit::kText, kHidden}, [](auto& r) { return device_text(r.device.type, r.device.index); }},
    {{"bytes", "at peak", Unit::kBytes}, [](auto& r) { return r.bytes; }},
    {{"peak_percent", "peak %", Unit::kPercent}, [](auto& r) { return percent(r.bytes, r.device.peak_bytes); }},
    {{"name", "name"}, [](auto& r) { return std::string(kCategoryNames[r.category]); }},
};
constexpr RowTable<CategoryRow> kCategories{"memory_categories", kCategoryColumns};

struct SumRow {
  const ReportPart& part;
  const DeviceMemory& device;
  const MemorySum& s;
  std::string_view nameless;  // the name of one without a name
};

constexpr RowColumn<SumRow> kSumColumns[] = {
    kPidColumn<SumRow>,
    {{"device", "device", Unit::kText, kHidden}, [](auto& r) { return device_text(r.device.type, r.device.index); }},
    {{"bytes", "at peak", Unit::kBytes}, [](auto& r) { return r.s.bytes; }},
    {{"peak_percent", "peak %", Unit::kPercent}, [](auto& r) { return percent(r.s.bytes, r.device.peak_bytes); }},
    {{"blocks", "blocks", Unit::kCount}, [](auto& r) { return count(r.s.blocks); }},
    {{"allocated_bytes", "allocated", Unit::kBytes}, [](auto& r) { return r.s.allocated; }},
    {{"allocations", "allocations", Unit::kCount}, [](auto& r) { return count(r.s.allocations); }},
    {{"name", "name"}, [](auto& r) { return r.s.name.empty() ? std::string(r.nameless) : r.s.name; }},
};
constexpr RowTable<SumRow> kMemoryLines{"memory_lines", kSumColumns}, kMemoryModules{"memory_modules", kSumColumns};

struct MemoryRow {
  const ReportPart& part;
  const DeviceMemory& device;
  int64_t bytes;
  Cell blocks;
  std::string allocated_by;
  const OwnerText& owner;
};

constexpr RowColumn<MemoryRow> kMemoryColumns[] = {
    kPidColumn<MemoryRow>,
    {{"device", "device", Unit::kText, kHidden}, [](auto& r) { return device_text(r.device.type, r.device.index); }},
    {{"bytes", "bytes", Unit::kBytes}, [](auto& r) { return r.bytes; }},
    {{"peak_percent", "peak %", Unit::kPercent}, [](auto& r) { return percent(r.bytes, r.device.peak_bytes); }},
    {{"blocks", "blocks", Unit::kCount}, [](auto& r) { return r.blocks; }},
    {{"allocated_by", "allocated by"}, [](auto& r) { return r.allocated_by; }},
    {{"op", "operator", Unit::kText, kHidden}, [](auto& r) { return text_or_missing(r.owner.op); }},
    {{"outer_op", "outer operator", Unit::kText, kHidden}, [](auto& r) { return text_or_missing(r.owner.outer_op); }},
    {{"module", "module", Unit::kText, kHidden}, [](auto& r) { return text_or_missing(r.owner.module); }},
    {{"place", "line", Unit::kText, kHidden}, [](auto& r) { return text_or_missing(r.owner.place); }},
};
constexpr RowTable<MemoryRow> kMemory{"memory", kMemoryColumns};

struct GrowthRow {
  const ReportPart& part;
  const MemoryGrowth& g;

  int64_t step_bytes() const { return g.bytes / static_cast<int64_t>(g.looked); }
};

constexpr RowColumn<GrowthRow> kGrowthColumns[] = {
    kPidColumn<GrowthRow>,
    {{"device", "device", Unit::kText, kHidden},
     [](auto& r) { return device_text(r.g.device_type, r.g.device_index); }},
    {{"bytes", "bytes", Unit::kBytes}, [](auto& r) { return r.g.bytes; }},
    {{"step_bytes", "per step", Unit::kBytes}, [](auto& r) { return r.step_bytes(); }},
    {{"blocks", "blocks", Unit::kCount}, [](auto& r) { return count(r.g.blocks); }},
    {{"steps", "of steps", Unit::kCount}, [](auto& r) { return count(r.g.steps); }},
    {{"allocated_by", "allocated by"}, [](auto& r) { return owner_text(r.g.owner, r.g.device_type); }},
    {{"op", "operator", Unit::kText, kHidden}, [](auto& r) { return text_or_missing(r.g.owner.op); }},
    {{"outer_op", "outer operator", Unit::kText, kHidden}, [](auto& r) { return text_or_missing(r.g.owner.outer_op); }},
    {{"module", "module", Unit::kText, kHidden}, [](auto& r) { return text_or_missing(r.g.owner.module); }},
    {{"place", "line", Unit::kText, kHidden}, [](auto& r) { return text_or_missing(r.g.owner.place); }},
};
constexpr RowTable<GrowthRow> kGrowth{"memory_growth", kGrowthColumns};

struct Device {
  const ReportPart* part;
  const DeviceMemory* memory;
  std::string of_group;  // empty: the process stands on its own
};

// Of several processes the one in which the device was fullest.
void add_devices(std::vector<Device>& devices, const PartGroup& group) {
  std::map<std::pair<int8_t, int8_t>, Device> fullest;
  for (const ReportPart* part : group.parts)
    for (const DeviceMemory& memory : part->statistics.memory) {
      const auto [it, is_new] = fullest.try_emplace({memory.type, memory.index});
      if (is_new || memory.peak_bytes > it->second.memory->peak_bytes)
        it->second = {part, &memory, group.is_one() ? "" : group.role()};
    }
  for (auto& [key, device] : fullest) devices.push_back(std::move(device));
}

std::string title_of(const ReportPart& part, const DeviceMemory& device, const std::string& of_group, bool is_alone,
                     UnixNs start) {
  std::string title = "Memory of the " + device_text(device.type, device.index);
  if (!of_group.empty())  // without rank and epochs, so that it is one line
    title += " in " + part.pid + ", one of " + of_group.substr(0, std::min(of_group.find(" of "), of_group.find(',')));
  else if (!is_alone)
    title += " in process " + part.pid;
  return title + ": at most " + memory_text(device.peak_bytes) + " after " +
         duration_text(static_cast<double>(std::max<int64_t>(0, device.peak - start))) +
         (device.step ? ", in step " + count_text(*device.step) : "") + "; " +
         plural(device.allocations, "allocation") + ", " + plural(device.frees, "free");
}

ReportTable categories_table(const ReportPart& part, const DeviceMemory& device, std::string_view of) {
  ReportTable table = kCategories.make(std::string("Memory of the ").append(of).append(" by category"));
  const auto sizes = part.statistics.memory_categories.find({device.type, device.index});
  if (sizes == part.statistics.memory_categories.end()) return table;
  for (size_t i = 0; i < kMemoryCategories; ++i)
    if (const int64_t bytes = sizes->second[i]; bytes > 0) kCategories.add(table, {part, device, i, bytes});
  sort_rows(table, table.column("bytes"));
  return table;
}

ReportTable sums_table(const ReportPart& part, const DeviceMemory& device, bool by_line, std::string_view of,
                       size_t most) {
  const std::vector<MemorySum>& sums = by_line ? device.lines : device.modules;
  const RowTable<SumRow>& kind = by_line ? kMemoryLines : kMemoryModules;
  ReportTable table = kind.make(std::string("Memory of the ").append(of).append(by_line ? " by line" : " by module"));
  for (const MemorySum& s : sums) {
    if (table.rows.size() == most) break;
    kind.add(table, {part, device, s, by_line ? "(no line)" : "(no module)"});
  }
  // If no block has a line (or module), the only row says nothing.
  if (sums.size() == 1 && sums.front().name.empty()) table.rows.clear();
  return table;
}

ReportTable memory_table(const ReportPart& part, const DeviceMemory& device, std::string title, UnixNs start,
                         size_t most) {
  ReportTable table = kMemory.make(std::move(title));
  PeakShare rest = device.rest;
  for (size_t i = 0; i < device.shares.size(); ++i) {
    const PeakShare& share = device.shares[i];
    if (i < most) {
      kMemory.add(table,
                  {part, device, share.bytes, count(share.blocks), owner_text(share.owner, device.type), share.owner});
    } else {
      rest.bytes += share.bytes;
      rest.blocks += share.blocks;
    }
  }
  const OwnerText nobody{};
  const char* before = device.has_windows ? "(allocated before the window)" : "(allocated before the capture)";
  if (rest.blocks != 0) kMemory.add(table, {part, device, rest.bytes, count(rest.blocks), "(others)", nobody});
  if (device.unknown_bytes != 0) kMemory.add(table, {part, device, device.unknown_bytes, {}, before, nobody});
  if (device.has_windows)
    table.remarks.push_back(counts_by_window(device.type)
                                ? "in windows: counted is what was allocated in the same window; of what is older it "
                                  "is not known whether it lives"
                                : "in windows: owners are known of what was allocated in the window of the peak");
  if (device.type == kPythonMemory)
    table.remarks.push_back(
        "these are samples: bytes are estimates, and blocks are those sampled; without what numpy and C++ take from "
        "malloc");
  if (device.peak_mapped_bytes != 0)
    table.remarks.push_back(memory_text(device.peak_mapped_bytes) +
                            " of it are mapped files and shared memory, which torch's allocator does not count");
  table.totals = {{"peak_bytes", device.peak_bytes},
                  {"peak_mapped_bytes", device.peak_mapped_bytes},
                  {"peak_ns", std::max<int64_t>(0, device.peak - start)},
                  {"peak_step", device.step ? count(*device.step) : Cell{}},
                  {"end_bytes", device.end_bytes},
                  {"allocations", count(device.allocations)},
                  {"frees", count(device.frees)},
                  {"failures", count(device.failures)}};
  if (device.failures != 0) {
    table.remarks.push_back("out of memory: " + plural(device.failures, "time") + ", at most " +
                            memory_text(device.largest_failure) + " for " + printable(owner_text(device.failed_in)));
  }
  return table;
}

ReportTable growth_table(const std::vector<ReportPart>& parts, size_t most) {
  ReportTable table = kGrowth.make("Memory that stays, step after step");
  int64_t bytes = 0;
  for (const ReportPart& part : parts) {
    for (const MemoryGrowth& g : part.statistics.growth) {
      const GrowthRow row{part, g};
      bytes += row.step_bytes();
      if (table.rows.size() != most) kGrowth.add(table, row);
    }
  }
  table.totals = {{"step_bytes", bytes}};
  if (bytes != 0)
    table.remarks.push_back("all: " + memory_text(bytes) + " a step that were not freed " + std::to_string(kGrowthAge) +
                            " steps later");
  return table;
}

}  // namespace

std::vector<ReportTable> empty_memory_tables() {
  return {kMemory.make(), kCategories.make(), kMemoryLines.make(), kMemoryModules.make(), kGrowth.make()};
}

std::vector<ReportTable> memory_tables(const std::vector<ReportPart>& parts, const std::vector<PartGroup>& groups,
                                       UnixNs start, size_t most, bool is_detailed) {
  constexpr size_t kMostDevices = 16;
  std::vector<Device> devices;
  for (const PartGroup& group : groups) add_devices(devices, group);
  std::ranges::stable_sort(devices, std::greater<>{}, [](const Device& d) { return d.memory->peak_bytes; });
  if (devices.size() > kMostDevices) devices.resize(kMostDevices);
  std::vector<ReportTable> tables;
  for (const auto& [part, device, of_group] : devices) {
    tables.push_back(
        memory_table(*part, *device, title_of(*part, *device, of_group, parts.size() == 1, start), start, most));
    if (!is_detailed) continue;
    const std::string of =
        device_text(device->type, device->index) + (parts.size() == 1 ? "" : " in process " + part->pid);
    if (device->type != kPythonMemory) tables.push_back(categories_table(*part, *device, of));
    for (const bool by_line : {true, false}) tables.push_back(sums_table(*part, *device, by_line, of, most));
  }
  if (is_detailed) tables.push_back(growth_table(parts, most));
  return tables;
}

}  // namespace torchprof::formats
