#include "formats/read/nsys.h"

#include <algorithm>
#include <unordered_map>

#include "formats/gpu/names.h"
#include "formats/read/ranges.h"

namespace torchprof::formats {
namespace {

constexpr int64_t kPushPop = 59, kStartEnd = 60;  // eventType
constexpr int64_t kThreads = int64_t{1} << 24;

std::string pid_of(int64_t global) { return std::to_string((global / kThreads) % kThreads); }

class NsysReader {
 public:
  explicit NsysReader(const Database& database) : database_(database) {}

  ReadEvents read() {
    if (database_.has_table("StringIds")) read_strings();
    if (database_.has_table("PROCESSES")) read_processes();
    if (database_.has_table("TARGET_INFO_GPU")) read_devices();
    if (database_.has_table("NVTX_EVENTS")) read_ranges();
    if (database_.has_table("CUPTI_ACTIVITY_KIND_RUNTIME")) read_calls();
    if (database_.has_table(kKernels)) read_work(kKernels, Kind::GpuKernel);
    if (database_.has_table(kGraphs)) read_work(kGraphs, Kind::GpuKernel);
    if (database_.has_table(kCopies)) read_work(kCopies, Kind::GpuCopy);
    if (database_.has_table(kSets)) read_work(kSets, Kind::GpuSet);
    return std::move(events_);
  }

 private:
  static constexpr const char* kKernels = "CUPTI_ACTIVITY_KIND_KERNEL";
  static constexpr const char* kGraphs = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE";
  static constexpr const char* kCopies = "CUPTI_ACTIVITY_KIND_MEMCPY";
  static constexpr const char* kSets = "CUPTI_ACTIVITY_KIND_MEMSET";

  // Versions differ in their columns: a column that a table does not have is NULL.
  std::string column(const std::string& table, const std::string& name) const {
    return database_.has_column(table, name) ? "\"" + name + "\"" : std::string("NULL");
  }

  void read_strings() {
    Statement rows(database_, "SELECT id, value FROM StringIds");
    while (rows.next()) strings_[rows.integer(0)] = rows.text(1);
  }
  std::string string(int64_t id) const {
    const auto it = strings_.find(id);
    return it == strings_.end() ? std::string("unknown") : it->second;
  }

  void read_processes() {
    if (!database_.has_column("PROCESSES", "globalPid") || !database_.has_column("PROCESSES", "name")) return;
    Statement rows(database_, "SELECT globalPid, name FROM PROCESSES");
    while (rows.next()) events_.process_names[events_.pids(pid_of(rows.integer(0)))] = rows.text(1);
  }

  void read_devices() {
    if (!database_.has_column("TARGET_INFO_GPU", "id") || !database_.has_column("TARGET_INFO_GPU", "name")) return;
    Statement rows(database_, "SELECT id, name FROM TARGET_INFO_GPU");
    while (rows.next()) events_.device_names.try_emplace(static_cast<uint32_t>(rows.integer(0)), rows.text(1));
  }

  void read_ranges() {
    const std::string table = "NVTX_EVENTS";
    Statement rows(database_, "SELECT start, end, eventType, globalTid, " + column(table, "text") + ", " +
                                  column(table, "textId") + " FROM NVTX_EVENTS WHERE end IS NOT NULL");
    while (rows.next()) {
      const int64_t begin = rows.integer(0), end = rows.integer(1), type = rows.integer(2), thread = rows.integer(3);
      if ((type != kPushPop && type != kStartEnd) || thread < 0 || !events_.takes(begin, end)) continue;
      std::string text = rows.is_null(4) && !rows.is_null(5) ? string(rows.integer(5)) : rows.text(4);
      // A range that is ended by its number may cross others, so it gets a row of its own.
      const std::string tid = type == kPushPop ? std::to_string(thread % kThreads) : "started by number";
      events_.slices.push_back({.begin = begin,
                                .duration = end - begin,
                                .name = events_.names(range_name(std::move(text))),
                                .row = events_.row(pid_of(thread), tid),
                                .is_operator = 1,
                                .is_annotation = 0,
                                .is_backward = 0,
                                .is_async = type == kStartEnd,
                                .is_apart = 0,
                                .module = 0,
                                .external = 0});
    }
  }

  // "cudaLaunchKernel" of "cudaLaunchKernel_v7000", as others name it.
  static std::string without_version(std::string name) {
    const size_t digits = name.find_last_not_of("0123456789") + 1;
    if (digits < name.size() && std::string_view(name).substr(0, digits).ends_with("_v")) name.resize(digits - 2);
    return name;
  }

  void read_calls() {
    Statement rows(database_, "SELECT start, end, globalTid, correlationId, " +
                                  column("CUPTI_ACTIVITY_KIND_RUNTIME", "nameId") +
                                  " FROM CUPTI_ACTIVITY_KIND_RUNTIME");
    while (rows.next()) {
      const int64_t begin = rows.integer(0), end = rows.integer(1), thread = rows.integer(2);
      if (thread < 0 || !events_.takes(begin, end)) continue;
      const std::string name = rows.is_null(4) ? std::string("unknown call") : without_version(string(rows.integer(4)));
      events_.calls.push_back({begin, end, events_.names(name),
                               events_.row(pid_of(thread), std::to_string(thread % kThreads)),
                               number(rows.integer(3))});
    }
  }

  static uint32_t number(int64_t value) {
    return value > 0 && value < ReadWork::kUnknown ? static_cast<uint32_t>(value) : 0;
  }

  void read_work(const std::string& table, Kind kind) {
    const char* name = kind == Kind::GpuKernel ? "demangledName" : kind == Kind::GpuCopy ? "copyKind" : "memKind";
    Statement rows(database_, "SELECT start, end, deviceId, correlationId, " + column(table, "globalPid") + ", " +
                                  column(table, name) + ", " + column(table, "shortName") + ", " +
                                  column(table, "srcKind") + ", " + column(table, "dstKind") + ", " +
                                  column(table, "streamId") + ", " + column(table, "bytes") + " FROM " + table);
    while (rows.next()) {
      const int64_t begin = rows.integer(0), end = rows.integer(1), process = rows.integer(4);
      if (process < 0 || !events_.takes(begin, end)) continue;
      const std::string device = "GPU " + std::to_string(rows.integer(2)), pid = pid_of(process);
      const uint32_t row = events_.pids(pid + " " + device);
      events_.device_labels[row] = device;
      events_.work.push_back({.begin = begin,
                              .duration = end - begin,
                              .name = events_.names(name_of(kind, table, rows)),
                              .pid = row,
                              .process = events_.pids(pid),
                              .correlation = number(rows.integer(3)),
                              .device = number(rows.integer(2)),
                              .stream = number(rows.integer(9)),
                              .is_kernel = kind == Kind::GpuKernel,
                              .is_set = kind == Kind::GpuSet,
                              .bytes = static_cast<uint64_t>(std::max<int64_t>(0, rows.integer(10)))});
    }
  }

  std::string name_of(Kind kind, const std::string& table, const Statement& rows) const {
    const auto small = [&rows](int column) { return static_cast<uint8_t>(rows.integer(column)); };
    if (table == kGraphs) return "CUDA graph";
    if (kind == Kind::GpuKernel) return string(rows.is_null(5) ? rows.integer(6) : rows.integer(5));
    if (kind == Kind::GpuCopy) {
      GpuCopy copy{};
      copy.copy_kind = small(5);
      copy.src_kind = small(7);
      copy.dst_kind = small(8);
      return copy_name(copy);
    }
    GpuSet set{};
    set.memory_kind = small(5);
    return set_name(set);
  }

  const Database& database_;
  ReadEvents events_;
  std::unordered_map<int64_t, std::string> strings_;
};

}  // namespace

ReadEvents read_nsys(const Database& database) { return NsysReader(database).read(); }

}  // namespace torchprof::formats
