#include "formats/write/kineto/gpu.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "formats/gpu/counters.h"
#include "formats/gpu/names.h"
#include "formats/gpu/occupancy.h"
#include "formats/io/print.h"
#include "formats/io/text.h"
#include "formats/replay/process_label.h"
#include "formats/replay/thread_stack.h"
#include "formats/trace/gpu_index.h"

namespace torchprof::formats::kineto {
namespace {

constexpr size_t kMaxGpuNameBytes = size_t{16} * 1024;
constexpr size_t kMaxBytes = 4096;           // bytes of a slice and its flow, without the name
constexpr uint64_t kSyncRow = 1'000'000;     // Kineto's kSyncStreamTidOffset; one less for no stream
constexpr uint64_t kMergedPid = 1u << 29;    // above every process id of Linux (at most 2^22)
constexpr uint64_t kOverheadPid = 1u << 30;  // also above
constexpr uint64_t kDevicesOfProcess = 256;  // in a merged trace
constexpr uint64_t kDeviceSortIndex = 5'000'000;
constexpr uint64_t kOverheadSortIndex = 0x100000A;

constexpr std::array<std::string_view, GpuWriter::kCategories> kCategoryNames = {
    "cuda_runtime", "cuda_driver", "kernel", "gpu_memcpy", "gpu_memset", "cuda_sync", "cuda_event"};

GpuWriter::Category category_of(Kind kind) {
  return kind == Kind::GpuKernel ? GpuWriter::kKernel
         : kind == Kind::GpuCopy ? GpuWriter::kCopy
         : kind == Kind::GpuSet  ? GpuWriter::kSet
         : kind == Kind::GpuSync ? GpuWriter::kSync
                                 : GpuWriter::kEvent;
}

char* put_number(char* at, std::string_view key, uint64_t value) { return put(put(at, key), value); }

char* put_triple(char* at, const uint32_t (&size)[3]) {
  *at++ = '[';
  for (int i = 0; i < 3; ++i) {
    if (i > 0) *at++ = ',';
    at = put(at, uint64_t{size[i]});
  }
  *at++ = ']';
  return at;
}

// -1 for none, as in Kineto.
char* put_stream(char* at, uint32_t stream) { return put_signed(at, static_cast<int32_t>(stream)); }

char* put_bandwidth(char* at, uint64_t bytes, int64_t ns) {
  at = put_number(at, R"(,"bytes":)", bytes);
  if (ns == 0) return at;
  return put_float(put(at, R"j(,"memory bandwidth (GB/s)":)j"), static_cast<double>(bytes) / static_cast<double>(ns));
}

std::string limits_text(const Occupancy& o) {
  std::string text;
  const auto add = [&](int64_t limit, const char* name) {
    if (limit == o.active_blocks) text.append(text.empty() ? "" : "|").append(name);
  };
  add(o.by_warps, "WARPS");
  add(o.by_registers, "REGS");
  add(o.by_shared, "SMEM");
  add(o.by_blocks, "BLOCKS");
  return text;
}

}  // namespace

GpuWriter::GpuWriter(const Process& process, Names& names, Stacks& stacks, const std::vector<Row>& rows, Place place,
                     Output& out)
    : process_(process),
      index_(*process.gpu),
      names_(names),
      stacks_(stacks),
      rows_(rows),
      place_(std::move(place)),
      out_(out),
      has_graphs_(std::atol(std::string(process.meta("cupti.version")).c_str()) >= 19),
      last_correlation_(place_.correlation) {}

uint64_t GpuWriter::device_pid(uint32_t device) {
  devices_.insert(device);
  return place_.process ? kMergedPid + *place_.process * kDevicesOfProcess + device % kDevicesOfProcess : device;
}

uint64_t GpuWriter::stream_tid(const GpuActivity& a) {
  const bool is_none = a.stream == kNoGpuNumber;
  uint64_t tid = is_none ? 0 : a.stream;
  if (a.kind == Kind::GpuSync || is_none) tid = is_none ? kSyncRow - 1 : kSyncRow + a.stream;
  streams_.emplace(a.device, tid);
  return tid;
}

// {"ph":"X","cat":"kernel","name":"...","pid":      made once for each category and name
const std::string& GpuWriter::head_of(Category category, NameId name) {
  std::string& head = heads_[category][name.value];
  if (head.empty()) {
    head.append(category == kEvent ? R"({"ph":"i","s":"t","cat":")" : R"({"ph":"X","cat":")");
    head.append(kCategoryNames[category]).append(R"(","name":)");
    head.append(json_string_within(names_.text(name), kMaxGpuNameBytes)).append(R"(,"pid":)");
  }
  return head;
}

char* GpuWriter::put_correlation(char* at, uint32_t correlation) {
  const uint64_t number = correlation == 0 ? 0 : place_.correlation + correlation;
  last_correlation_ = std::max(last_correlation_, number);
  return put_number(at, R"(,"correlation":)", number);
}

void GpuWriter::call(const GpuCall& c) {
  const bool is_driver = c.api->api == GpuApiKind::kDriver;
  const std::string& head = head_of(is_driver ? kCudaDriver : kCudaRuntime, c.name);
  const uint64_t tid = rows_[c.row].tid;
  char* at = put(put(out_.reserve(head.size() + kMaxBytes), head), place_.pid);
  at = put_number(at, R"(,"tid":)", tid);
  at = put_us(put(at, R"(,"ts":)"), c.begin.value - place_.base);
  at = put_us(put(at, R"(,"dur":)"), c.end - c.begin);
  at = put(at, R"(,"args":{)");
  if (c.external_id != 0) at = put(put_number(at, R"("External id":)", place_.external + c.external_id), ",");
  at = put_number(at, R"("cbid":)", c.api->cbid);
  at = put_correlation(at, c.api->correlation);
  if (c.api->result != 0) at = put_number(at, R"(,"result":)", c.api->result);
  if (stacks_.has(c.native)) {
    out_.advance(at);
    stacks_.write(c.native, out_);
    at = out_.reserve(kMaxBytes);
  }
  at = put(at, "}},\n");
  if (c.has_work) at = put_flow(at, "s", c.api->correlation, place_.pid, tid, c.begin);
  out_.advance(at);
}

void GpuWriter::activity(const GpuActivity& a, std::string_view module, std::string_view collective) {
  const std::string& head = head_of(category_of(a.kind), a.name);
  const std::string pid = std::to_string(device_pid(a.device));
  const uint64_t tid = stream_tid(a);
  const int64_t ns = a.end - a.begin;
  char* at = put(put(out_.reserve(head.size() + kMaxBytes + module.size() + collective.size()), head), pid);
  at = put_number(at, R"(,"tid":)", tid);
  at = put_us(put(at, R"(,"ts":)"), a.begin.value - place_.base);
  if (a.kind != Kind::GpuEvent) at = put_us(put(at, R"(,"dur":)"), ns);
  at = put(at, R"(,"args":{)");
  if (a.call != nullptr && a.call->external_id != 0)
    at = put(put_number(at, R"("External id":)", place_.external + a.call->external_id), ",");
  if (a.kind == Kind::GpuKernel) {
    at = put(put_kernel(at, a.as<GpuKernel>()), collective);
    if (!collective.empty() && a.call != nullptr && a.call->collective_sequence >= 0)
      at = put_signed(put(at, R"(,"Seq":)"), a.call->collective_sequence);
  } else if (a.kind == Kind::GpuCopy) {
    at = put_copy(at, a.as<GpuCopy>(), ns);
  } else if (a.kind == Kind::GpuSet) {
    at = put_set(at, a.as<GpuSet>(), ns);
  } else if (a.kind == Kind::GpuSync) {
    at = put_sync(at, a.as<GpuSync>());
  } else {
    at = put_event(at, a.as<GpuEvent>());
  }
  if (a.call != nullptr && runs_on_device(a.kind)) {
    at = put_us(put(at, R"j(,"queue time (us)":)j"), a.queue_ns);
    if (a.begin < a.call->begin) at = put_us(put(at, R"j(,"before launch (us)":)j"), a.call->begin - a.begin);
    at = put(at, module);
    if (a.call->is_backward) at = put(at, R"(,"Backward":true)");
    annotations_.extend(a);
  }
  at = put(at, "}},\n");
  if (a.call != nullptr && a.kind != Kind::GpuEvent) at = put_flow(at, "f", a.correlation, pid, tid, a.begin);
  out_.advance(at);
}

char* GpuWriter::put_flow(char* at, std::string_view phase, uint32_t correlation, std::string_view pid, uint64_t tid,
                          UnixNs ts) {
  at = put(put(put(at, R"({"ph":")"), phase), R"(","id":)");
  at = put(at, place_.correlation + correlation);
  at = put(put(at, R"(,"pid":)"), pid);
  at = put_number(at, R"(,"tid":)", tid);
  at = put_us(put(at, R"(,"ts":)"), ts.value - place_.base);
  at = put(at, R"(,"cat":"ac2g","name":"ac2g")");
  return put(at, phase == "f" ? ",\"bp\":\"e\"},\n" : "},\n");
}

// ---- arguments -------------------------------------------------------------------------------------------

char* GpuWriter::put_kernel(char* at, const GpuKernel& k) {
  const auto device = index_.devices().find(k.device);
  const Occupancy o = occupancy_of(k, device == index_.devices().end() ? nullptr : &device->second);
  at = put_number(at, R"("queued":)", k.queued);
  at = put_number(at, R"(,"device":)", k.device);
  at = put_number(at, R"(,"context":)", k.context);
  at = put_stream(put(at, R"(,"stream":)"), k.stream);
  at = put_correlation(at, k.correlation);
  at = put_number(at, R"(,"registers per thread":)", k.registers);
  at = put_signed(put(at, R"(,"shared memory":)"), int64_t{k.static_shared} + k.dynamic_shared);
  at = put_float(put(at, R"(,"blocks per SM":)"), o.blocks_per_sm);
  at = put_float(put(at, R"(,"warps per SM":)"), o.warps_per_sm);
  at = put_triple(put(at, R"(,"grid":)"), k.grid);
  at = put_triple(put(at, R"(,"block":)"), k.block);
  at = put_signed(put(at, R"(,"est. achieved occupancy %":)"), std::lround(o.achieved * 100));
  if (device != index_.devices().end()) {
    at = put_signed(put(at, R"(,"occupancy":{"activeBlocksPerMultiprocessor":)"), o.active_blocks);
    at = put(put(put(at, R"(,"limitingFactors":")"), limits_text(o)), "\"");
    at = put_signed(put(at, R"(,"blockLimitRegs":)"), o.by_registers);
    at = put_signed(put(at, R"(,"blockLimitSharedMem":)"), o.by_shared);
    at = put_signed(put(at, R"(,"blockLimitWarps":)"), o.by_warps);
    at = put_signed(put(at, R"(,"blockLimitBlocks":)"), o.by_blocks);
    at = put_signed(put(at, R"(,"blockLimitBarriers":)"), Occupancy::kNoLimit);
    at = put_signed(put(at, R"(,"allocatedRegistersPerBlock":)"), o.registers_per_block);
    at = put(put_signed(put(at, R"(,"allocatedSharedMemPerBlock":)"), o.shared_per_block), "}");
  }
  at = put_graph(at, k.graph, k.graph_node);
  if (k.has_priority != 0) at = put_signed(put(at, R"(,"priority":)"), k.priority);
  return put_channel(at, k.channel, k.channel_type);
}

char* GpuWriter::put_copy(char* at, const GpuCopy& c, int64_t ns) {
  if (c.is_peer != 0) {
    at = put_number(at, R"("fromDevice":)", c.src_device);
    at = put_number(at, R"(,"inDevice":)", c.device);
    at = put_number(at, R"(,"toDevice":)", c.dst_device);
    at = put_number(at, R"(,"fromContext":)", c.src_context);
    at = put_number(at, R"(,"inContext":)", c.context);
    at = put_number(at, R"(,"toContext":)", c.dst_context);
  } else {
    at = put_number(at, R"("device":)", c.device);
    at = put_number(at, R"(,"context":)", c.context);
  }
  at = put_stream(put(at, R"(,"stream":)"), c.stream);
  at = put_bandwidth(put_correlation(at, c.correlation), c.bytes, ns);
  return put_channel(put_graph(at, c.graph, c.graph_node), c.channel, c.channel_type);
}

char* GpuWriter::put_set(char* at, const GpuSet& s, int64_t ns) {
  at = put_number(at, R"("device":)", s.device);
  at = put_number(at, R"(,"context":)", s.context);
  at = put_stream(put(at, R"(,"stream":)"), s.stream);
  at = put_bandwidth(put_correlation(at, s.correlation), s.bytes, ns);
  return put_channel(put_graph(at, s.graph, s.graph_node), s.channel, s.channel_type);
}

char* GpuWriter::put_sync(char* at, const GpuSync& s) {
  at = put(put(put(at, R"("cuda_sync_kind":")"), sync_name(s)), "\"");
  if (s.type == 1 || s.type == 2) {  // waits for an event
    const auto recorded = index_.recorded(s.context, s.event, s.correlation);
    at = put_stream(put(at, R"(,"wait_on_stream":)"), recorded ? recorded->stream : kNoGpuNumber);
    const int64_t by = recorded ? static_cast<int64_t>(place_.correlation + recorded->correlation) : -1;
    at = put_signed(put(at, R"(,"wait_on_cuda_event_record_corr_id":)"), by);
    at = put_number(at, R"(,"wait_on_cuda_event_id":)", s.event);
  }
  at = put_stream(put(at, R"(,"stream":)"), s.stream);
  at = put_correlation(at, s.correlation);
  at = put_number(at, R"(,"device":)", index_.device_of(s.context));
  return put_number(at, R"(,"context":)", s.context);
}

char* GpuWriter::put_event(char* at, const GpuEvent& e) {
  at = put_number(at, R"("event_id":)", e.event);
  at = put_stream(put(at, R"(,"stream":)"), e.stream);
  at = put_correlation(at, e.correlation);
  at = put_number(at, R"(,"device":)", index_.device_of(e.context));
  return put_number(at, R"(,"context":)", e.context);
}

char* GpuWriter::put_graph(char* at, uint32_t graph, uint64_t node) const {
  if (!has_graphs_ && graph == 0 && node == 0) return at;
  return put_number(put_number(at, R"(,"graph id":)", graph), R"(,"graph node id":)", node);
}

char* GpuWriter::put_channel(char* at, uint32_t channel, uint8_t type) const {
  if (!has_graphs_) return at;
  return put_number(put_number(at, R"(,"channel":)", channel), R"(,"channel_type":)", type);
}

// ---- annotations -----------------------------------------------------------------------------------------

void GpuWriter::annotation_ended(uint64_t external_id, std::string_view name) {
  const std::vector<GpuAnnotations::Span> spans = annotations_.take(external_id);
  if (spans.empty()) return;
  const std::string json = json_string_within(name, kMaxGpuNameBytes);
  for (const GpuAnnotations::Span& s : spans) {
    char* at = out_.reserve(json.size() + kMaxBytes);
    at = put(put(at, R"({"ph":"X","cat":"gpu_user_annotation","name":)"), json);
    at = put_number(at, R"(,"pid":)", device_pid(s.device));
    at = put_number(at, R"(,"tid":)", s.stream);
    // Kineto's margin; without it Chrome draws the annotation inside the first kernel.
    const int64_t begin = std::max(process_.start.value, s.begin - 1), end = std::min(process_.end.value, s.end + 1);
    at = put_us(put(at, R"(,"ts":)"), begin - place_.base);
    at = put_us(put(at, R"(,"dur":)"), end - begin);
    at = put_number(at, R"(,"args":{"External id":)", place_.external + external_id);
    out_.advance(put(at, "}},\n"));
  }
}

// ---- rows ------------------------------------------------------------------------------------------------

void GpuWriter::write_overheads() {
  const uint64_t pid = kOverheadPid + place_.process.value_or(0);
  RecordRoom room;
  for (const GpuIndex::Call& place : index_.overheads()) {
    const auto& o = index_.record<GpuOverhead>(place, room);
    if (o.start == 0) continue;
    const int64_t begin = std::clamp(index_.time().to_unix(o.start), process_.start.value, process_.end.value);
    const int64_t end = GpuSpan{o.start, o.end}.end_after({begin}, process_.end).value;
    char* at = out_.reserve(kMaxBytes);
    at = put(put(at, R"({"ph":"X","cat":"overhead","name":")"), overhead_name(o));
    at = put_number(at, R"(","pid":)", pid);
    at = put_us(put(at, R"(,"tid":0,"ts":)"), begin - place_.base);
    at = put_us(put(at, R"(,"dur":)"), end - begin);
    out_.advance(put(at, ",\"args\":{}},\n"));
    has_overheads_ = true;
  }
}

// In the form of Kineto's own counters, but on the device's row.
void GpuWriter::write_counters() {
  for (const GpuCounter& counter : gpu_counters(index_)) {
    const std::string name = json_string(counter.name), pid = std::to_string(device_pid(counter.device));
    for (const auto& [time, value] : counter.values) {
      const int64_t at_ns = std::clamp(time.value, process_.start.value, process_.end.value);
      char* at = put(out_.reserve(kMaxBytes), R"({"ph":"C","cat":"hardware_counters","name":)");
      at = put(put(put(at, name), R"(,"pid":)"), pid);
      at = put_us(put(at, R"(,"tid":0,"ts":)"), at_ns - place_.base);
      out_.advance(put(put_signed(put(at, R"(,"args":{"":)"), value), "}},\n"));
    }
  }
}

void GpuWriter::put_metadata(std::string_view name, uint64_t pid, uint64_t tid, std::string_view key,
                             std::string_view value) {
  char* at = out_.reserve(value.size() + kMaxBytes);
  at = put(put(put(at, R"({"name":")"), name), R"(","ph":"M","ts":)");
  at = put_number(put_us(at, process_.start.value - place_.base), R"(,"pid":)", pid);
  at = put_number(at, R"(,"tid":)", tid);
  at = put(put(put(at, R"(,"args":{")"), key), R"(":)");
  out_.advance(put(put(at, value), "}},\n"));
}

void GpuWriter::write_rows() {
  const std::string program = json_string_within(program_name(process_), kMaxGpuNameBytes);
  for (const auto& [number, device] : index_.devices()) devices_.insert(number);
  for (const uint32_t device : std::set<uint32_t>(devices_)) {
    const uint64_t pid = device_pid(device);
    // Alone it has the program's name, as Kineto has it; viewers show the label beside it.
    const std::string gpu = process_.role + " GPU " + std::to_string(device);
    const bool is_named = place_.process && !process_.role.empty();
    put_metadata("process_name", pid, 0, "name", is_named ? json_string_within(gpu, kMaxGpuNameBytes) : program);
    put_metadata("process_labels", pid, 0, "labels", json_string("GPU " + std::to_string(device) + place_.label));
    const uint64_t before = place_.process ? process_.place * uint64_t{kDevicesOfProcess} : 0;
    put_metadata("process_sort_index", pid, 0, "sort_index", std::to_string(kDeviceSortIndex + before + device));
  }
  for (const auto& [device, tid] : streams_) {
    std::string text = "stream " + std::to_string(tid) + " ";
    if (tid >= kSyncRow) text = "stream " + std::to_string(tid - kSyncRow) + " (sync)";
    if (tid == kSyncRow - 1) text = "events and contexts (sync)";
    const uint64_t order = tid >= kSyncRow ? tid - kSyncRow : tid;
    put_metadata("thread_name", device_pid(device), tid, "name", "\"" + text + "\"");
    put_metadata("thread_sort_index", device_pid(device), tid, "sort_index", std::to_string(order));
  }
  if (!has_overheads_) return;
  const uint64_t pid = kOverheadPid + place_.process.value_or(0);
  put_metadata("process_name", pid, 0, "name", "\"CUPTI Overhead\"");
  put_metadata("process_sort_index", pid, 0, "sort_index", std::to_string(kOverheadSortIndex));
}

uint64_t GpuWriter::finish() {
  write_overheads();
  write_counters();
  write_rows();
  return last_correlation_;
}

}  // namespace torchprof::formats::kineto
