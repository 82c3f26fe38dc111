#include "formats/read/kineto.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/io/byte_stream.h"
#include "formats/io/json_stream.h"
#include "formats/io/sum.h"
#include "formats/io/text.h"
#include "formats/ranks/calls.h"
#include "formats/read/kineto_event.h"
#include "formats/read/kineto_inputs.h"
#include "formats/read/kineto_keys.h"
#include "formats/read/kineto_times.h"
#include "formats/read/launches.h"
#include "formats/trace/name_role.h"
#include "formats/values/collectives.h"

namespace torchprof::formats {
namespace {

using Key = KinetoKey;

// Takes slices and all else that ReadEvents holds out of a stream of JSON tokens.
class Handler final : public JsonTokens {
 public:
  bool found_events = false;  // a list of them, be it empty
  bool is_no_trace = false;   // what is in the list are no events

  Handler(ReadEvents& into, bool has_inputs) : into_(into), has_inputs_(has_inputs) {}

  // A list needs no end: what is written event by event may be read at any time (the Trace Event Format, JSON Array).
  bool may_be_cut() const { return event_depth_ == kInList && has_event_; }

  void null() override {
    if (depth_ == event_depth_ + 1 && key_ == Key::kEndsWith) event_.is_made_step = true;
  }
  void boolean(bool value) override {
    if (depth_ == event_depth_ + 1 && key_ == Key::kBackward) event_.is_backward = value;
    if (depth_ == event_depth_ + 1 && key_ == Key::kAsync) event_.is_async = value;
  }
  // "torchprof": {"processes": [{"pid": 1, "modules": [{"name": "nn.Module: Linear_0", "path": "out", ...
  static constexpr size_t kProcessDepth = 4, kModuleDepth = 6;
  // "deviceProperties": [{"id": 0, "name": ...
  static constexpr size_t kDeviceDepth = 3;
  bool is_at_device() const { return in_devices_ && depth_ == kDeviceDepth && event_depth_ == kNever; }
  bool is_at_module() const { return in_modules_ && depth_ == kModuleDepth; }

  void number(std::string_view text) override {
    if (key_ == Key::kOther) return;
    const bool is_whole = std::ranges::none_of(text, [](char c) { return c == '.' || c == 'e' || c == 'E'; });
    if (inputs_.is_open()) {
      if (is_whole) return inputs_.number(text);
      return;
    }
    number(value_of(text), text);
  }

  void string(std::string_view v) override {
    if (key_ == Key::kOther) return;
    if (inputs_.is_open()) return inputs_.string(v);
    // "torchprof": {"processes": [{"metadata": {"window": "steps=3..5"
    if (in_torchprof_ && depth_ == kProcessDepth + 1 && key_ == Key::kWindow) into_.has_window = true;
    if (is_at_module() && key_ == Key::kName) module_.first = v;
    if (is_at_module() && key_ == Key::kPath) module_.second = v;
    if (is_at_device() && key_ == Key::kName) device_.second = v;
    if (depth_ == event_depth_) return member(v);
    if (depth_ == event_depth_ + 1) argument(v);
  }

  void start_object() override {
    ++depth_;
    if (event_depth_ == depth_) {
      static const KinetoEvent kNone;
      event_ = kNone;  // its texts keep their memory
      inputs_.clear();
    }
    if (is_at_module()) module_ = {};
    if (is_at_device()) device_ = {};
  }
  void end_object() override {
    if (is_at_module() && !module_.second.empty())
      into_.module_paths.try_emplace(section_pid_ + '\0' + module_.first, module_.second);
    if (is_at_device()) into_.device_names.try_emplace(device_.first, device_.second);
    if (depth_ == event_depth_) {
      has_event_ = has_event_ || !event_.phase.empty();
      is_no_trace = !has_event_;
      finish_event();
    }
    --depth_;
  }
  void start_array() override {
    if (inputs_.is_open())
      inputs_.start_array();
    else if (depth_ == event_depth_ + 1 && key_ >= Key::kInputDims)
      inputs_.begin(static_cast<KinetoInputs::List>(static_cast<size_t>(key_) - static_cast<size_t>(Key::kInputDims)));
    ++depth_;
    // The objects in this list are events: it is that of "traceEvents", or the file is a list as a whole.
    if ((depth_ == 2 && key_ == Key::kTraceEvents) || depth_ == 1) {
      event_depth_ = depth_ + 1;
      found_events = true;
      is_no_trace = depth_ == 1;  // until an event comes
    }
    if (depth_ == kModuleDepth - 1 && event_depth_ == kNever) in_modules_ = in_torchprof_ && key_ == Key::kModules;
  }
  void end_array() override {
    if (depth_ + 1 == event_depth_) event_depth_ = kNever;
    if (depth_ == kModuleDepth - 1) in_modules_ = false;
    if (inputs_.is_open()) inputs_.end_array();
    --depth_;
  }
  void key(std::string_view v) override {
    if (depth_ == 1) {
      in_torchprof_ = v == "torchprof";
      in_devices_ = v == "deviceProperties";
      in_distributed_ = v == "distributedInfo";
      into_.is_ours = into_.is_ours || in_torchprof_;
    }
    if (depth_ <= event_depth_ + 1 || event_depth_ == kNever) key_ = keys_.of(v);
    if (key_ >= Key::kInputDims && !has_inputs_) key_ = Key::kOther;
  }

 private:
  static constexpr size_t kNever = std::numeric_limits<size_t>::max() - 1;
  static constexpr size_t kInList = 2;  // depth of events in a file that is a list as a whole

  // As text, it may have no double: it is beyond all that a trace has.
  static double value_of(std::string_view text) {
    double value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
  }

  void member(std::string_view v) {
    switch (key_) {
      case Key::kName:
        event_.name = v;
        return;
      case Key::kPhase:
        event_.phase = v;
        return;
      case Key::kCategory:
        event_.category = v;
        event_.has_category = true;
        return;
      case Key::kPid:
        event_.pid = v;
        return;
      case Key::kTid:
        event_.tid = v;
        return;
      case Key::kTime:
      case Key::kDuration:
        return number(value_of(v), v);
      default:
        return;
    }
  }

  void argument(std::string_view v) {
    if (std::string* const text = event_.text_of(key_)) *text = v;
    if (key_ == Key::kEndsWith) event_.is_made_step = true;
  }

  void number(double value, std::string_view text) {
    if (is_at_device() && key_ == Key::kId && value >= 0 && value < 4e9) device_.first = static_cast<uint32_t>(value);
    if (in_torchprof_ && depth_ == kProcessDepth && key_ == Key::kPid) section_pid_ = text;
    // "distributedInfo": {"backend": "nccl", "rank": 0
    if (in_distributed_ && depth_ == 2 && key_ == Key::kRank && value >= 0 && value < 1e9)
      into_.rank = static_cast<int64_t>(value);
    if (depth_ == event_depth_) return member(value, text);
    if (depth_ == event_depth_ + 1) argument(value);
  }

  void member(double value, std::string_view text) {
    switch (key_) {
      case Key::kTime:
        event_.begin_ns = exact_ns(text, value);
        event_.has_begin = true;
        return;
      case Key::kDuration:
        event_.duration_ns = ns_of(value);
        event_.has_duration = true;
        return;
      case Key::kPid:
        event_.pid = text;
        return;
      case Key::kTid:
        event_.tid = text;
        return;
      default:
        return;
    }
  }

  static uint32_t number_or(double value, uint32_t otherwise) {
    return value >= 0 && value < 4e9 ? static_cast<uint32_t>(value) : otherwise;
  }

  static int64_t cut_of(double value) { return value > 0 && value < 1e15 ? static_cast<int64_t>(value) : 0; }

  void argument(double value) {
    switch (key_) {
      case Key::kDeviceType:
      case Key::kDeviceId:
      case Key::kAddress:
      case Key::kBytes:
      case Key::kAllocated:
      case Key::kReserved:
        event_.memory[memory_argument(key_)] = value;
        return;
      case Key::kFlops:
        if (value > 0 && value < 1e19) event_.flops = value;
        return;
      case Key::kCutBegin:
        event_.cut.at_begin = cut_of(value);
        return;
      case Key::kCutEnd:
        event_.cut.at_end = cut_of(value);
        return;
      case Key::kExternalId:
        event_.external = number_or(value, 0);
        return;
      case Key::kSequence:
        event_.sequence = number_or(value + 1, 0);
        return;
      case Key::kCorrelation:
        event_.correlation = number_or(value, 0);
        return;
      case Key::kDevice:
        event_.device = number_or(value, ReadWork::kUnknown);
        return;
      case Key::kStream:
        event_.stream = number_or(value, UINT32_MAX);
        return;
      case Key::kWaitsForRecord:
        event_.waits_for_record = number_or(value, 0);
        return;
      case Key::kWaitsForStream:
        event_.waits_for_stream = number_or(value, UINT32_MAX);
        return;
      case Key::kWorkBytes:
        if (value > 0 && value < 1e15) event_.work_bytes = static_cast<uint64_t>(value);
        return;
      case Key::kInElements:
        event_.in_elements = value;
        return;
      case Key::kOutElements:
        event_.out_elements = value;
        return;
      case Key::kBlocksPerSm:
        event_.blocks_per_sm = static_cast<float>(value);
        return;
      case Key::kOccupancy:
        event_.occupancy = static_cast<float>(value / 100);
        return;
      default:
        return;
    }
  }

  void finish_event() {
    if (event_.phase == "M" && event_.name == "process_name")
      into_.process_names[into_.pids(event_.pid)] = event_.argument_name;
    if (event_.phase == "M" && event_.name == "thread_name") into_.row_names[row()] = event_.argument_name;
    if (event_.phase == "M" && event_.name == "process_labels")
      into_.device_labels[into_.pids(event_.pid)] = event_.labels;
    if (event_.phase == "i" && (event_.name == "[memory]" || event_.name == "[OutOfMemory]")) return finish_memory();
    if (event_.phase != "X" || !event_.has_begin || !event_.has_duration) return;
    const std::string& c = event_.category;
    if (is_work_category(c)) return finish_work();
    if (is_call_category(c)) {
      if (into_.takes(event_.begin_ns, event_.end_ns()))
        into_.calls.push_back({event_.begin_ns, event_.end_ns(), into_.names(event_.name), row(), event_.correlation});
      return;
    }
    if (c == "cuda_sync") return finish_wait();
    if (c == "Trace" && is_possible(event_.begin_ns, event_.end_ns())) into_.span_ns = event_.duration_ns;
    const bool is_python = c == "python_function";
    // Files of old profilers have "Operator", those written without Kineto have no category at all.
    const bool is_operator = c == "cpu_op" || c == "user_annotation" || c == "Operator" || !event_.has_category;
    if (!is_python && !is_operator) return count_unread();
    if (!into_.takes(event_.begin_ns, event_.end_ns())) return;
    if (const auto number = event_.is_made_step ? step_number(event_.name) : std::nullopt) {
      into_.steps.push_back({*number, event_.begin_ns, event_.end_ns(), into_.pids(event_.pid), event_.ended_by});
      return;
    }
    const uint32_t name = into_.names(event_.name);
    if (is_python && role_of_name(event_.name) == NameRole::kModule) into_.places.try_emplace(name, event_.place);
    const uint32_t module = is_operator && !event_.module.empty() ? into_.names(event_.module) + 1 : 0;
    if (event_.flops > 0 && is_operator)
      into_.flops[{into_.pids(event_.pid), name}] += static_cast<uint64_t>(event_.flops);
    into_.slices.push_back({event_.begin_ns, event_.duration_ns, name, row(), is_operator, c == "user_annotation",
                            event_.is_backward, is_operator && (event_.is_async || is_work_range(event_.name)), 0,
                            module, is_operator ? event_.external : into_.cut(event_.cut), is_operator ? inputs() : 0,
                            event_.sequence});
    if (is_operator && !event_.collective.empty()) add_collective();
  }

  uint32_t inputs() {
    const std::string text = inputs_.text();
    return text.empty() ? 0 : into_.inputs(text) + 1;
  }

  // Device rows of annotations, what profiling took, and the trace itself are told by other events.
  void count_unread() {
    constexpr std::array<std::string_view, 5> kToldByOthers = {"Trace", "gpu_user_annotation", "overhead",
                                                               "hardware_counters", "cuda_event"};
    if (std::ranges::find(kToldByOthers, event_.category) != kToldByOthers.end()) return;
    if (into_.unread++ == 0) into_.unread_category = event_.category;
  }

  void add_collective() {
    constexpr double kMostBytes = 1e15;
    const double elements = std::max(event_.in_elements, event_.out_elements);
    const auto bytes = static_cast<uint64_t>(std::clamp(elements * element_size_of(event_.type), 0.0, kMostBytes));
    into_.collectives.push_back({.begin = event_.begin_ns,
                                 .end = event_.end_ns(),
                                 .row = row(),
                                 .name = into_.names(event_.collective),
                                 .group = into_.names(event_.group),
                                 .description = into_.names(event_.group_description),
                                 .ranks = into_.names(event_.group_ranks),
                                 .bytes = bytes});
  }

  void finish_wait() {
    if (!is_possible(event_.begin_ns, event_.end_ns())) return;
    into_.waits.push_back({.begin = event_.begin_ns,
                           .end = event_.end_ns(),
                           .pid = into_.pids(event_.pid),
                           .kind = into_.names(event_.sync_kind.empty() ? event_.name : event_.sync_kind),
                           .device = event_.device == ReadWork::kUnknown ? 0 : event_.device,
                           .stream = event_.stream,
                           .correlation = event_.correlation,
                           .recorded = event_.waits_for_record,
                           .of_stream = event_.waits_for_stream});
  }

  void finish_work() {
    if (!into_.takes(event_.begin_ns, event_.end_ns())) return;
    into_.work.push_back({.begin = event_.begin_ns,
                          .duration = event_.duration_ns,
                          .name = into_.names(event_.name),
                          .pid = into_.pids(event_.pid),
                          .correlation = event_.correlation,
                          .external = event_.external,
                          .device = event_.device,
                          .stream = event_.stream,
                          .blocks_per_sm = event_.blocks_per_sm,
                          .occupancy = event_.occupancy,
                          .is_kernel = event_.category == "kernel" || event_.category == "Kernel",
                          .is_set = event_.category == "gpu_memset" || event_.category == "Memset",
                          .bytes = event_.work_bytes,
                          .calls_before = static_cast<uint32_t>(into_.calls.size()),
                          .slices_before = static_cast<uint32_t>(into_.slices.size())});
  }

  void finish_memory() {
    if (!event_.has_begin || !into_.takes(event_.begin_ns, event_.begin_ns)) return;
    const auto number = [this](Key key) {
      constexpr double kMost = 4e18;
      return std::llround(std::clamp(event_.memory[memory_argument(key)], -kMost, kMost));
    };
    const auto small = [&number](Key i) { return static_cast<int8_t>(std::clamp<int64_t>(number(i), -1, 127)); };
    ReadMemory& e = into_.memory.emplace_back();
    e.row = row();
    e.change = {.is_out_of_memory = event_.name != "[memory]",
                .is_mapped = number(Key::kReserved) != 0,
                .device_type = small(Key::kDeviceType),
                .device_index = small(Key::kDeviceId),
                .time = {event_.begin_ns},
                .address = static_cast<uint64_t>(number(Key::kAddress)),
                .bytes = number(Key::kBytes),
                .allocated = static_cast<uint64_t>(std::max<int64_t>(0, number(Key::kAllocated))),
                .owner = {.place = event_.line.empty() ? 0 : into_.names(event_.line) + 1}};
    e.change.is_mapped = e.change.is_mapped && e.change.device_type == 0;
  }

  static size_t memory_argument(Key key) { return static_cast<size_t>(key) - static_cast<size_t>(Key::kDeviceType); }
  uint32_t row() { return into_.row(event_.pid, event_.tid); }

  ReadEvents& into_;
  const bool has_inputs_;
  KinetoEvent event_;
  KinetoInputs inputs_;
  const KinetoKeys keys_;
  Key key_ = Key::kOther;
  size_t depth_ = 0;
  size_t event_depth_ = kNever;
  bool has_event_ = false;
  bool in_torchprof_ = false;
  bool in_modules_ = false;
  bool in_devices_ = false;
  bool in_distributed_ = false;
  std::pair<uint32_t, std::string> device_;  // id, name
  std::string section_pid_;
  std::pair<std::string, std::string> module_;  // name, path
};

}  // namespace

ReadEvents read_kineto(ByteStream& stream, bool has_inputs) {
  ReadEvents events;
  Handler handler(events, has_inputs);
  events.is_unfinished = !read_json(stream, handler, [&handler] { return handler.may_be_cut(); });
  stream.drain();
  if (!handler.found_events) stream.fail("it has no traceEvents");
  if (handler.is_no_trace) stream.fail("it is JSON, but no trace: it has no events");
  return events;
}

}  // namespace torchprof::formats
