// The table of what lived at the peak of each device.
#include <algorithm>
#include <functional>
#include <utility>

#include "formats/cells.h"
#include "formats/report_columns.h"
#include "formats/report_tables.h"
#include "formats/text.h"

namespace torchprof::formats {
namespace {

std::string owner_text(const OwnerText& owner) {
  std::string text = owner.op.empty() ? "(no operator)" : owner.op;
  if (!owner.outer_op.empty() && owner.outer_op != owner.op) text += " in " + owner.outer_op;
  for (const std::string* more : {&owner.module, &owner.place})
    if (!more->empty()) text += ", " + *more;
  return text;
}

std::string title_of(const ReportPart& part, const DeviceMemory& device, bool is_alone, UnixNs start) {
  std::string title = "Memory of the " + device_text(device.type, device.index);
  if (!is_alone) title += " in process " + part.pid;
  return title + ": at most " + memory_text(device.peak_bytes) + " after " +
         duration_text(static_cast<double>(std::max<int64_t>(0, device.peak - start))) +
         (device.step ? ", in step " + count_text(*device.step) : "") + "; " +
         plural(device.allocations, "allocation") + ", " + plural(device.frees, "free");
}

ReportTable memory_table(const ReportPart& part, const DeviceMemory& device, std::string title, UnixNs start,
                         size_t most) {
  ReportTable table = make_table("memory", std::move(title));
  const std::string name = device_text(device.type, device.index);
  const auto add = [&](int64_t bytes, const Cell& blocks, const std::string& by, const OwnerText& owner) {
    table.rows.push_back({part.pid, name, bytes, percent(bytes, device.peak_bytes), blocks, by,
                          text_or_missing(owner.op), text_or_missing(owner.outer_op), text_or_missing(owner.module),
                          text_or_missing(owner.place)});
  };
  PeakShare rest = device.rest;
  for (size_t i = 0; i < device.shares.size(); ++i) {
    const PeakShare& share = device.shares[i];
    if (i < most) {
      add(share.bytes, count(share.blocks), owner_text(share.owner), share.owner);
    } else {
      rest.bytes += share.bytes;
      rest.blocks += share.blocks;
    }
  }
  if (rest.blocks != 0) add(rest.bytes, count(rest.blocks), "(others)", {});
  if (device.unknown_bytes != 0) add(device.unknown_bytes, {}, "(allocated before the capture)", {});
  table.totals = {{"peak_bytes", device.peak_bytes},
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

}  // namespace

std::vector<ReportTable> memory_tables(const std::vector<ReportPart>& parts, UnixNs start, size_t most) {
  constexpr size_t kMostDevices = 16;
  std::vector<std::pair<const ReportPart*, const DeviceMemory*>> devices;
  for (const ReportPart& part : parts)
    for (const DeviceMemory& device : part.statistics.memory) devices.emplace_back(&part, &device);
  std::ranges::stable_sort(devices, std::greater<>{}, [](const auto& d) { return d.second->peak_bytes; });
  if (devices.size() > kMostDevices) devices.resize(kMostDevices);
  std::vector<ReportTable> tables;
  for (const auto& [part, device] : devices)
    tables.push_back(memory_table(*part, *device, title_of(*part, *device, parts.size() == 1, start), start, most));
  return tables;
}

}  // namespace torchprof::formats
