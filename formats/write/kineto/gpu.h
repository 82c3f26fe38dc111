// The GPU events of one process in a Kineto trace (process.cpp writes the rest).
//
//   rows         a process for each device (with the device's number, as in Kineto; in a merged trace with a number of
//                its own), and in it a thread for each stream. Waits are in rows "stream N (sync)" beside them, where
//                Kineto puts waits for a stream. Overhead of CUPTI is in a process of its own; in Kineto that is -1,
//                which Perfetto takes for device 0
//   calls        cuda_runtime and cuda_driver slices on the rows of threads
//   flows        ac2g, from a call to each piece of work that it started. Kineto also writes ends without a begin
//   events       recorded ones are instants, as they take no time. In Kineto, which torch does not ask for them, they
//                are slices of 1 ns; HTA counts these as computation, and -1 us each
//   annotations  gpu_user_annotation (formats/replay/gpu_annotations.h)
//
// Arguments come in Kineto's order. After them come ours: "queue time (us)" from the end of the call to the begin of
// the work, "before launch (us)" if the work would begin before its call, "Module", "Module path", "Backward". Source:
// libkineto/src/CuptiActivity.h and output_json.cpp, 2026-08.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "formats/io/output.h"
#include "formats/replay/gpu_annotations.h"
#include "formats/replay/replay.h"
#include "formats/trace/trace.h"
#include "formats/write/kineto/stacks.h"

namespace torchprof::formats::kineto {

class GpuWriter {
 public:
  enum Category : uint8_t { kCudaRuntime, kCudaDriver, kKernel, kCopy, kSet, kSync, kEvent, kCategories };

  struct Place {
    std::string pid;                  // the process's
    std::string label;                // behind "GPU 0" in the names of devices
    int64_t base;                     // Unix time from which times count, ns
    uint64_t external;                // added to external ids
    uint64_t correlation;             // added to correlations
    std::optional<uint32_t> process;  // its number in a merged trace
  };
  // `process.gpu` must not be null. All arguments must outlive this.
  GpuWriter(const Process& process, Names& names, Stacks& stacks, const std::vector<Row>& rows, Place place,
            Output& out);

  void call(const GpuCall& call);
  // `module` and `collective`: more arguments, like those of an operator; at most 24 KiB together.
  void activity(const GpuActivity& activity, std::string_view module, std::string_view collective);
  // After the slice of the annotation is written.
  void annotation_ended(uint64_t external_id, std::string_view name);
  // Writes overheads, counters and the names of rows. Returns the largest correlation.
  uint64_t finish();

 private:
  uint64_t device_pid(uint32_t device);
  uint64_t stream_tid(const GpuActivity& activity);
  const std::string& head_of(Category category, NameId name);
  char* put_correlation(char* at, uint32_t correlation);
  char* put_kernel(char* at, const GpuKernel& kernel);
  char* put_copy(char* at, const GpuCopy& copy, int64_t ns);
  char* put_set(char* at, const GpuSet& set, int64_t ns);
  char* put_sync(char* at, const GpuSync& sync);
  char* put_event(char* at, const GpuEvent& event);
  char* put_graph(char* at, uint32_t graph, uint64_t node) const;
  char* put_channel(char* at, uint32_t channel, uint8_t type) const;
  char* put_flow(char* at, std::string_view phase, uint32_t correlation, std::string_view pid, uint64_t tid, UnixNs ts);
  void write_overheads();
  void write_counters();
  void write_rows();
  void put_metadata(std::string_view name, uint64_t pid, uint64_t tid, std::string_view key, std::string_view value);

  const Process& process_;
  const GpuIndex& index_;
  Names& names_;
  Stacks& stacks_;
  const std::vector<Row>& rows_;
  const Place place_;
  Output& out_;
  bool has_graphs_;  // CUPTI 12 and later, with which Kineto writes graphs and channels
  bool has_overheads_ = false;
  uint64_t last_correlation_;
  std::set<uint32_t> devices_;                                                // those that have come
  std::set<std::pair<uint32_t, uint64_t>> streams_;                           // device and tid
  std::array<std::unordered_map<uint32_t, std::string>, kCategories> heads_;  // of each category by name id
  GpuAnnotations annotations_;
};

// For the part before the events.
nlohmann::ordered_json device_properties(Processes processes);
nlohmann::ordered_json gpu_versions(Processes processes);  // cupti_version, cuda_runtime_version, cuda_driver_version
nlohmann::ordered_json describe_gpu(const Process& process);  // what was lost or is in doubt

}  // namespace torchprof::formats::kineto
