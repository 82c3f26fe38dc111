#include "formats/read/nvprof.h"

#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "formats/gpu/names.h"
#include "formats/read/ranges.h"

namespace torchprof::formats {
namespace {

constexpr int64_t kLaunches[] = {211, 214, 13};  // cudaLaunchKernel, _ptsz, and cudaLaunch of old: cupti_runtime_cbid.h
constexpr const char* kPid = "nvprof";
constexpr const char* kTid = "0";  // as torch, which does not tell threads apart

bool is_launch(int64_t cbid) {
  for (const int64_t launch : kLaunches)
    if (cbid == launch) return true;
  return false;
}

std::unordered_map<int64_t, std::string> strings_of(const Database& database) {
  std::unordered_map<int64_t, std::string> strings;
  Statement rows(database, "SELECT _id_, value FROM StringTable");
  while (rows.next()) strings[rows.integer(0)] = rows.text(1);
  return strings;
}

}  // namespace

ReadEvents read_nvprof(const Database& database) {
  ReadEvents events;
  const auto strings = strings_of(database);
  const auto text = [&strings](int64_t id) {
    const auto it = strings.find(id);
    return it == strings.end() ? std::string("unknown") : it->second;
  };
  std::vector<Ranges::Range> ranges;
  std::optional<int64_t> last;
  Statement markers(database,
                    "SELECT s.id, s.name, s.timestamp, e.timestamp FROM CUPTI_ACTIVITY_KIND_MARKER s "
                    "JOIN CUPTI_ACTIVITY_KIND_MARKER e ON s.id = e.id WHERE s.name != 0 AND e.name = 0 ORDER BY s.id");
  while (markers.next()) {
    const int64_t id = markers.integer(0), begin = markers.integer(2), end = markers.integer(3);
    if (last == id) database.fail("the marker " + std::to_string(id) + " is there twice");
    last = id;
    if (!events.takes(begin, end)) continue;
    const auto external = static_cast<uint32_t>(ranges.size() + 1);
    ranges.push_back({begin, end, external});
    events.slices.push_back({.begin = begin,
                             .duration = end - begin,
                             .name = events.names(range_name(text(markers.integer(1)))),
                             .row = events.row(kPid, kTid),
                             .is_operator = 1,
                             .is_annotation = 0,
                             .is_backward = 0,
                             .module = 0,
                             .external = external});
  }
  Ranges around(std::move(ranges));
  std::unordered_set<int64_t> seen;
  const bool has_device = database.has_column("CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL", "deviceId");
  Statement kernels(database,
                    std::string("SELECT r._id_, r.cbid, r.start, r.end, k.start, k.end, k.name, ") +
                        (has_device ? "k.deviceId" : "0") +
                        " FROM CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL k LEFT JOIN CUPTI_ACTIVITY_KIND_RUNTIME r "
                        "ON k.correlationId = r.correlationId ORDER BY r.start, r._id_");
  while (kernels.next()) {
    uint32_t external = 0;
    if (!kernels.is_null(0)) {
      const int64_t call = kernels.integer(0);
      external = around.around(kernels.integer(2), kernels.integer(3));
      if (external != 0 && !seen.insert(call).second)
        database.fail("the runtime call " + std::to_string(call) + " is there twice, or has two kernels");
      if (external != 0 && !is_launch(kernels.integer(1)))
        database.fail("the runtime call " + std::to_string(call) + " has a kernel, and is no launch of one (cbid " +
                      std::to_string(kernels.integer(1)) + ")");
    }
    const int64_t begin = kernels.integer(4), end = kernels.integer(5);
    if (!events.takes(begin, end)) continue;
    const std::string device = "GPU " + std::to_string(kernels.integer(7));
    const uint32_t row = events.pids(device);
    events.devices.label(row, device);
    events.device_owners[row] = events.pids(kPid);
    events.devices.add({.begin = begin,
                        .duration = end - begin,
                        .name = events.names(kernel_name(text(kernels.integer(6)))),
                        .pid = row,
                        .external = external,
                        .blocks_per_sm = 0,
                        .occupancy = 0,
                        .is_kernel = true});
  }
  return events;
}

}  // namespace torchprof::formats
