#include "formats/read/nsys.h"

#include <map>
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
    if (database_.has_table(kCopies)) read_work(kCopies, Kind::GpuCopy);
    if (database_.has_table(kSets)) read_work(kSets, Kind::GpuSet);
    return std::move(events_);
  }

 private:
  static constexpr const char* kKernels = "CUPTI_ACTIVITY_KIND_KERNEL";
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
    while (rows.next()) events_.devices.property(static_cast<uint32_t>(rows.integer(0)), rows.text(1));
  }

  void read_ranges() {
    const std::string table = "NVTX_EVENTS";
    Statement rows(database_, "SELECT start, end, eventType, globalTid, " + column(table, "text") + ", " +
                                  column(table, "textId") + " FROM NVTX_EVENTS WHERE end IS NOT NULL");
    while (rows.next()) {
      const int64_t begin = rows.integer(0), end = rows.integer(1), type = rows.integer(2), thread = rows.integer(3);
      if ((type != kPushPop && type != kStartEnd) || thread < 0 || !events_.takes(begin, end)) continue;
      std::string text = rows.is_null(4) && !rows.is_null(5) ? string(rows.integer(5)) : rows.text(4);
      const uint32_t external = type == kPushPop ? ++last_external_ : 0;
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
                                .module = 0,
                                .external = external});
      if (external != 0) ranges_[thread].push_back({begin, end, external});
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
                                  " FROM CUPTI_ACTIVITY_KIND_RUNTIME ORDER BY globalTid, start");
    int64_t last_thread = -1;
    Ranges around({});
    while (rows.next()) {
      const int64_t thread = rows.integer(2);
      if (thread < 0) continue;
      if (thread != last_thread) around = Ranges(std::move(ranges_[thread]));
      last_thread = thread;
      const uint32_t external = around.around(rows.integer(0), rows.integer(1));
      if (!rows.is_null(4) && events_.takes(rows.integer(0), rows.integer(1)))
        events_.calls.push_back({rows.integer(0), rows.integer(1),
                                 events_.names(without_version(string(rows.integer(4)))),
                                 events_.row(pid_of(thread), std::to_string(thread % kThreads)), 0});
      if (external != 0) launched_by_.emplace(std::pair(thread / kThreads, rows.integer(3)), external);
    }
  }

  void read_work(const std::string& table, Kind kind) {
    const char* name = kind == Kind::GpuKernel ? "demangledName" : kind == Kind::GpuCopy ? "copyKind" : "memKind";
    Statement rows(database_, "SELECT start, end, deviceId, correlationId, " + column(table, "globalPid") + ", " +
                                  column(table, name) + ", " + column(table, "shortName") + ", " +
                                  column(table, "srcKind") + ", " + column(table, "dstKind") + " FROM " + table);
    while (rows.next()) {
      const int64_t begin = rows.integer(0), end = rows.integer(1), process = rows.integer(4);
      if (process < 0 || !events_.takes(begin, end)) continue;
      const std::string device = "GPU " + std::to_string(rows.integer(2)), pid = pid_of(process);
      const uint32_t row = events_.pids(pid + " " + device);
      events_.devices.label(row, device);
      events_.device_owners[row] = events_.pids(pid);
      const auto call = launched_by_.find({process / kThreads, rows.integer(3)});
      events_.devices.add({.begin = begin,
                           .duration = end - begin,
                           .name = events_.names(name_of(kind, rows)),
                           .pid = row,
                           .external = call == launched_by_.end() ? 0 : call->second,
                           .blocks_per_sm = 0,
                           .occupancy = 0,
                           .is_kernel = kind == Kind::GpuKernel});
    }
  }

  std::string name_of(Kind kind, const Statement& rows) const {
    const auto small = [&rows](int column) { return static_cast<uint8_t>(rows.integer(column)); };
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
  std::unordered_map<int64_t, std::vector<Ranges::Range>> ranges_;  // by globalTid
  std::map<std::pair<int64_t, int64_t>, uint32_t> launched_by_;     // by process and correlation
  uint32_t last_external_ = 0;
};

}  // namespace

ReadEvents read_nsys(const Database& database) { return NsysReader(database).read(); }

}  // namespace torchprof::formats
