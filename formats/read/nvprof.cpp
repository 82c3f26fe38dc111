#include "formats/read/nvprof.h"

#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "formats/gpu/names.h"
#include "formats/read/ranges.h"

namespace torchprof::formats {
namespace {

constexpr int64_t kLaunches[] = {211, 214, 13};  // cudaLaunchKernel, its _ptsz, the old cudaLaunch
constexpr const char* kPid = "nvprof";
constexpr const char* kTid = "0";  // one for all: torch does not tell threads apart either

bool is_launch(int64_t cbid) {
  for (const int64_t launch : kLaunches)
    if (cbid == launch) return true;
  return false;
}

class Reader {
 public:
  explicit Reader(const Database& database) : database_(database) {}

  ReadEvents read() {
    read_strings();
    Ranges ranges = read_ranges();
    read_kernels(ranges);
    return std::move(events_);
  }

 private:
  void read_strings() {
    Statement rows(database_, "SELECT _id_, value FROM StringTable");
    while (rows.next()) strings_[rows.integer(0)] = rows.text(1);
  }
  std::string text(int64_t id) const {
    const auto it = strings_.find(id);
    return it == strings_.end() ? std::string("unknown") : it->second;
  }

  Ranges read_ranges() {
    std::vector<Ranges::Range> ranges;
    std::optional<int64_t> last;
    Statement markers(
        database_,
        "SELECT s.id, s.name, s.timestamp, e.timestamp FROM CUPTI_ACTIVITY_KIND_MARKER s "
        "JOIN CUPTI_ACTIVITY_KIND_MARKER e ON s.id = e.id WHERE s.name != 0 AND e.name = 0 ORDER BY s.id");
    while (markers.next()) {
      const int64_t id = markers.integer(0), begin = markers.integer(2), end = markers.integer(3);
      if (last == id) database_.fail("the marker " + std::to_string(id) + " is there twice");
      last = id;
      if (!events_.takes(begin, end)) continue;
      const auto external = static_cast<uint32_t>(ranges.size() + 1);
      ranges.push_back({begin, end, external});
      events_.slices.push_back({.begin = begin,
                                .duration = end - begin,
                                .name = events_.names(range_name(text(markers.integer(1)))),
                                .row = events_.row(kPid, kTid),
                                .is_operator = 1,
                                .is_annotation = 0,
                                .is_backward = 0,
                                .is_async = 0,
                                .is_apart = 0,
                                .module = 0,
                                .external = external});
    }
    return Ranges(std::move(ranges));
  }

  void read_kernels(Ranges& ranges) {
    const bool has_device = database_.has_column("CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL", "deviceId");
    Statement kernels(database_,
                      std::string("SELECT r._id_, r.cbid, r.start, r.end, k.start, k.end, k.name, ") +
                          (has_device ? "k.deviceId" : "0") +
                          " FROM CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL k LEFT JOIN CUPTI_ACTIVITY_KIND_RUNTIME r "
                          "ON k.correlationId = r.correlationId ORDER BY r.start, r._id_");
    while (kernels.next()) {
      const uint32_t external = kernels.is_null(0) ? 0 : launched_in(ranges, kernels);
      const int64_t begin = kernels.integer(4), end = kernels.integer(5);
      if (!events_.takes(begin, end)) continue;
      const std::string device = "GPU " + std::to_string(kernels.integer(7));
      const uint32_t row = events_.pids(device);
      events_.device_labels[row] = device;
      events_.work.push_back({.begin = begin,
                              .duration = end - begin,
                              .name = events_.names(kernel_name(text(kernels.integer(6)))),
                              .pid = row,
                              .process = events_.pids(kPid),
                              .external = external});
    }
  }

  // The range with the call of this kernel; 0: the call is in none.
  uint32_t launched_in(Ranges& ranges, const Statement& kernel) {
    const int64_t call = kernel.integer(0), cbid = kernel.integer(1);
    const uint32_t external = ranges.around(kernel.integer(2), kernel.integer(3));
    if (external != 0 && !calls_.insert(call).second)
      database_.fail("the runtime call " + std::to_string(call) + " is there twice, or has two kernels");
    if (external != 0 && !is_launch(cbid))
      database_.fail("the runtime call " + std::to_string(call) + " has a kernel, and is no launch of one (cbid " +
                     std::to_string(cbid) + ")");
    return external;
  }

  const Database& database_;
  ReadEvents events_;
  std::unordered_map<int64_t, std::string> strings_;
  std::unordered_set<int64_t> calls_;  // those in ranges that have come
};

}  // namespace

ReadEvents read_nvprof(const Database& database) { return Reader(database).read(); }

}  // namespace torchprof::formats
