#include "formats/read_kineto.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "formats/error.h"
#include "formats/names.h"
#include "formats/trace_devices.h"

namespace torchprof::formats {
namespace {

// The bytes of a file, decompressed if need be, as the input iterator that the JSON parser takes.
class ByteStream {
 public:
  explicit ByteStream(const std::filesystem::path& path) : path_(path) {
    errno = 0;
    file_.reset(gzopen(path.c_str(), "rb"));
    if (!file_) fail(errno != 0 ? std::strerror(errno) : "out of memory");
    gzbuffer(file_.get(), 256 * 1024);
  }

  int get() {
    if (at_ == size_ && !fill()) return -1;
    return static_cast<unsigned char>(buffer_[at_++]);
  }
  // All that follows the document, which the parser leaves unread: a gzip file that is cut off there is cut off as
  // well.
  void drain() {
    while (fill()) {
    }
  }
  [[noreturn]] void fail(const std::string& why) const {
    throw Error("cannot read the trace " + path_.string() + ": " + why);
  }

 private:
  bool fill() {
    const int n = gzread(file_.get(), buffer_.data(), static_cast<unsigned>(buffer_.size()));
    int code = Z_OK;
    const char* message = gzerror(file_.get(), &code);
    if (n < 0 || code == Z_BUF_ERROR) {
      fail(code == Z_ERRNO ? std::strerror(errno) : code == Z_BUF_ERROR ? "the compressed file is cut off" : message);
    }
    at_ = 0;
    size_ = static_cast<size_t>(n);
    return n > 0;
  }

  struct Close {
    void operator()(gzFile f) const { gzclose(f); }
  };
  std::filesystem::path path_;
  std::unique_ptr<gzFile_s, Close> file_;
  std::array<char, size_t{64} * 1024> buffer_;
  size_t at_ = 0;
  size_t size_ = 0;
};

class ByteIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = char;

  ByteIterator() = default;
  explicit ByteIterator(ByteStream& stream) : stream_(&stream) { ++*this; }
  char operator*() const { return static_cast<char>(byte_); }
  ByteIterator& operator++() {
    byte_ = stream_->get();
    return *this;
  }
  friend bool operator==(const ByteIterator& a, const ByteIterator& b) { return a.byte_ == b.byte_; }

 private:
  ByteStream* stream_ = nullptr;
  int byte_ = -1;  // -1: the end
};

struct Interned {
  uint32_t operator()(const std::string& text) {
    const auto [it, is_new] = ids.try_emplace(text, static_cast<uint32_t>(texts.size()));
    if (is_new) texts.push_back(&it->first);
    return it->second;
  }
  std::unordered_map<std::string, uint32_t> ids;
  std::vector<const std::string*> texts;
};

struct Event {
  int64_t begin;  // ns
  int64_t duration;
  uint32_t name;
  uint32_t row : 29;
  uint32_t is_operator : 1;
  uint32_t is_annotation : 1;
  uint32_t is_backward : 1;
  uint32_t module;    // the name of an operator's, interned, and 1; 0: none
  uint32_t external;  // External id, 0: none
};
static_assert(sizeof(Event) == 32);

struct ModulePlace {
  std::string path;
  std::string root;
};

struct MemoryEvent {
  MemoryChange change;  // owner.place: as the event says, 0 if it does not; numbers are those of names and 1
  uint32_t row = 0;
};

struct MadeStep {  // one that was made here: formats/step_tracker.h
  uint64_t number;
  int64_t begin;  // ns
  int64_t end;
  uint32_t pid;  // interned
  std::string ended_by;
};

struct RowKey {
  uint32_t pid;  // interned
  std::string tid;
};

// Takes slices and process names out of the stream of JSON tokens.
class Handler final : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::string error;
  bool found_events = false;
  Interned names, pids;
  std::vector<Event> events;
  std::vector<MemoryEvent> memory;
  std::unordered_map<uint32_t, ModulePlace> places;  // of modules, by name
  std::vector<RowKey> rows;
  std::vector<MadeStep> steps;
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> flops;  // by pid and name
  bool is_ours = false;
  TraceDevices devices;
  int64_t span_ns = 0;                                        // of the whole capture, if the file says it
  std::unordered_map<std::string, std::string> module_paths;  // by pid, 0 and name
  std::unordered_map<uint32_t, std::string> process_names;    // by pid

  bool null() override {
    if (depth_ == event_depth_ + 1 && key_ == kEndsWith) event_.is_made_step = true;
    return true;
  }
  bool boolean(bool value) override {
    if (depth_ == event_depth_ + 1 && key_ == "Backward") event_.is_backward = value;
    return true;
  }
  // "torchprof": {"processes": [{"pid": 1, "modules": [{"name": "nn.Module: Linear_0", "path": "out", ...
  static constexpr size_t kProcessDepth = 4, kModuleDepth = 6;
  // "deviceProperties": [{"id": 0, "name": ...
  static constexpr size_t kDeviceDepth = 3;
  bool is_at_device() const { return in_devices_ && depth_ == kDeviceDepth && event_depth_ == kNever; }
  bool is_at_module() const { return in_modules_ && depth_ == kModuleDepth; }

  bool number_integer(number_integer_t v) override { return number(static_cast<double>(v), std::to_string(v)); }
  bool number_unsigned(number_unsigned_t v) override { return number(static_cast<double>(v), std::to_string(v)); }
  bool number_float(number_float_t v, const string_t& text) override { return number(v, text); }
  bool binary(binary_t&) override { return true; }

  bool string(string_t& v) override {
    if (is_at_module() && key_ == "name") module_.first = v;
    if (is_at_module() && key_ == "path") module_.second = v;
    if (is_at_device() && key_ == "name") device_.second = v;
    if (depth_ == event_depth_) {
      if (key_ == "name") event_.name = v;
      if (key_ == "ph") event_.phase = v;
      if (key_ == "cat") event_.category = v, event_.has_category = true;
      if (key_ == "pid") event_.pid = v;
      if (key_ == "tid") event_.tid = v;
      if (key_ == "ts" || key_ == "dur") number(std::strtod(v.c_str(), nullptr), v);
    } else if (depth_ == event_depth_ + 1) {
      if (key_ == "name") event_.argument_name = v;
      if (key_ == "labels") event_.labels = v;
      if (key_ == "Python line") event_.line = v;
      if (key_ == "Module") event_.module = v;
      if (key_ == "Module path") event_.place.path = v;
      if (key_ == "Module root") event_.place.root = v;
      if (key_ == kEndsWith) {
        event_.is_made_step = true;
        event_.ended_by = v;
      }
    }
    return true;
  }

  bool start_object(std::size_t) override {
    ++depth_;
    if (event_depth_ == depth_) event_ = {};
    if (is_at_module()) module_ = {};
    if (is_at_device()) device_ = {};
    return true;
  }
  bool end_object() override {
    if (is_at_module() && !module_.second.empty())
      module_paths.try_emplace(section_pid_ + '\0' + module_.first, module_.second);
    if (is_at_device()) devices.property(device_.first, device_.second);
    if (depth_ == event_depth_) finish_event();
    --depth_;
    return true;
  }
  bool start_array(std::size_t) override {
    ++depth_;
    // An object inside this list is an event: the list of "traceEvents", or the file as a whole.
    if ((depth_ == 2 && key_ == "traceEvents") || depth_ == 1) {
      event_depth_ = depth_ + 1;
      found_events = true;
    }
    if (depth_ == kModuleDepth - 1 && event_depth_ == kNever) in_modules_ = in_torchprof_ && key_ == "modules";
    return true;
  }
  bool end_array() override {
    if (depth_ + 1 == event_depth_) event_depth_ = kNever;
    if (depth_ == kModuleDepth - 1) in_modules_ = false;
    --depth_;
    return true;
  }
  bool key(string_t& v) override {
    if (depth_ == 1) {
      in_torchprof_ = v == "torchprof";
      in_devices_ = v == "deviceProperties";
      is_ours = is_ours || in_torchprof_;
    }
    if (depth_ <= event_depth_ + 1 || event_depth_ == kNever) key_ = v;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& e) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 1: syntax error while parsing ..."
    std::string_view what = e.what();
    const bool is_cut = what.find("unexpected end of input") != std::string_view::npos;
    if (const size_t colon = what.find(": "); colon != std::string_view::npos) what.remove_prefix(colon + 2);
    if (is_cut && position <= 1)
      error = "it is empty";
    else if (is_cut)
      error = "it is cut off after " + std::to_string(position - 1) + " bytes";
    else
      error.assign("it is not JSON at byte ").append(std::to_string(position)).append(": ").append(what);
    return false;
  }

 private:
  static constexpr double kLongest = 4e15;  // microseconds: a century
  enum : uint8_t { kDeviceType, kDeviceId, kAddress, kBytes, kAllocated, kReserved };
  static constexpr std::array<const char*, 6> kMemoryArguments = {"Device Type", "Device Id",       "Addr",
                                                                  "Bytes",       "Total Allocated", "Total Reserved"};
  static constexpr std::string_view kEndsWith = "Step ends with";
  static constexpr size_t kNever = std::numeric_limits<size_t>::max() - 1;

  bool number(double value, const std::string& text) {
    if (depth_ == event_depth_ + 1 && key_ == "FLOPs" && value > 0 && value < 1e19) event_.flops = value;
    if (depth_ == event_depth_ + 1) {
      for (size_t i = 0; i < kMemoryArguments.size(); ++i)
        if (key_ == kMemoryArguments[i]) event_.memory[i] = value;
    }
    if (depth_ == event_depth_ + 1 && key_ == "External id" && value > 0 && value < 4e9)
      event_.external = static_cast<uint32_t>(value);
    if (depth_ == event_depth_ + 1 && key_ == "blocks per SM") event_.blocks_per_sm = static_cast<float>(value);
    if (depth_ == event_depth_ + 1 && key_ == "est. achieved occupancy %")
      event_.occupancy = static_cast<float>(value / 100);
    if (is_at_device() && key_ == "id" && value >= 0 && value < 4e9) device_.first = static_cast<uint32_t>(value);
    if (in_torchprof_ && depth_ == kProcessDepth && key_ == "pid") section_pid_ = text;
    if (depth_ != event_depth_) return true;
    if (key_ == "ts") event_.begin = value, event_.has_begin = true;
    if (key_ == "dur") event_.duration = value, event_.has_duration = true;
    if (key_ == "pid") event_.pid = text;
    if (key_ == "tid") event_.tid = text;
    return true;
  }

  void finish_event() {
    if (event_.phase == "M" && event_.name == "process_name") process_names[pids(event_.pid)] = event_.argument_name;
    if (event_.phase == "M" && event_.name == "process_labels") devices.label(pids(event_.pid), event_.labels);
    if (event_.phase == "i" && (event_.name == "[memory]" || event_.name == "[OutOfMemory]")) return finish_memory();
    if (event_.phase != "X" || !event_.has_begin || !event_.has_duration) return;
    const std::string& c = event_.category;
    if (TraceDevices::is_category(c)) return finish_work();
    if (c == "Trace" && event_.duration < kLongest) span_ns = std::llround(event_.duration * 1e3);
    const bool is_python = c == "python_function";
    // Files of old profilers have "Operator", those without Kineto no category at all.
    const bool is_operator = c == "cpu_op" || c == "user_annotation" || c == "Operator" || !event_.has_category;
    if (!is_python && !is_operator) return;
    if (!(std::abs(event_.begin) < kLongest && event_.duration >= 0 && event_.duration < kLongest)) return;
    if (const auto number = event_.is_made_step ? step_number(event_.name) : std::nullopt) {
      const auto begin = std::llround(event_.begin * 1e3);
      steps.push_back({*number, begin, begin + std::llround(event_.duration * 1e3), pids(event_.pid), event_.ended_by});
      return;
    }
    const uint32_t name = names(event_.name);
    if (is_python && event_.name.starts_with(kModulePrefix)) places.try_emplace(name, event_.place);
    const uint32_t module = is_operator && !event_.module.empty() ? names(event_.module) + 1 : 0;
    if (event_.flops > 0 && is_operator) flops[{pids(event_.pid), name}] += static_cast<uint64_t>(event_.flops);
    events.push_back({std::llround(event_.begin * 1e3), std::llround(event_.duration * 1e3), name, row(), is_operator,
                      c == "user_annotation", event_.is_backward, module, is_operator ? event_.external : 0});
  }

  void finish_work() {
    if (!(std::abs(event_.begin) < kLongest && event_.duration >= 0 && event_.duration < kLongest)) return;
    devices.add({.begin = std::llround(event_.begin * 1e3),
                 .duration = std::llround(event_.duration * 1e3),
                 .name = names(event_.name),
                 .pid = pids(event_.pid),
                 .external = event_.external,
                 .blocks_per_sm = event_.blocks_per_sm,
                 .occupancy = event_.occupancy,
                 .is_kernel = event_.category == "kernel"});
  }

  void finish_memory() {
    if (!event_.has_begin || !(std::abs(event_.begin) < kLongest)) return;
    const auto number = [this](size_t i) {
      constexpr double kMost = 4e18;
      return std::llround(std::clamp(event_.memory[i], -kMost, kMost));
    };
    const auto small = [&number](size_t i) { return static_cast<int8_t>(std::clamp<int64_t>(number(i), -1, 127)); };
    MemoryEvent& e = memory.emplace_back();
    e.row = row();
    e.change = {.is_out_of_memory = event_.name != "[memory]",
                .is_mapped = number(kReserved) != 0,
                .device_type = small(kDeviceType),
                .device_index = small(kDeviceId),
                .time = {std::llround(event_.begin * 1e3)},
                .address = static_cast<uint64_t>(number(kAddress)),
                .bytes = number(kBytes),
                .allocated = static_cast<uint64_t>(std::max<int64_t>(0, number(kAllocated))),
                .owner = {.place = event_.line.empty() ? 0 : names(event_.line) + 1}};
    e.change.is_mapped = e.change.is_mapped && e.change.device_type == 0;
  }

  uint32_t row() {
    if (last_row_ < rows.size() && last_pid_ == event_.pid && rows[last_row_].tid == event_.tid) return last_row_;
    const auto [it, is_new] = row_ids_.try_emplace(event_.pid + '\0' + event_.tid, static_cast<uint32_t>(rows.size()));
    if (is_new) rows.push_back({pids(event_.pid), event_.tid});
    last_pid_ = event_.pid;
    return last_row_ = it->second;
  }

  struct Current {
    std::string name, phase, category, pid, tid, argument_name, labels, line, ended_by, module;
    ModulePlace place;
    std::array<double, kMemoryArguments.size()> memory{};
    double begin = 0, duration = 0, flops = 0;
    uint32_t external = 0;
    float blocks_per_sm = 0, occupancy = 0;
    bool is_made_step = false, has_begin = false, has_duration = false, has_category = false, is_backward = false;
  };
  Current event_;
  std::string key_;
  size_t depth_ = 0;
  size_t event_depth_ = kNever;
  bool in_torchprof_ = false;
  bool in_modules_ = false;
  bool in_devices_ = false;
  std::pair<uint32_t, std::string> device_;  // id, name
  std::string section_pid_;
  std::pair<std::string, std::string> module_;  // name, path
  std::unordered_map<std::string, uint32_t> row_ids_;
  std::string last_pid_;
  uint32_t last_row_ = std::numeric_limits<uint32_t>::max();
};

// Slices of one row, by begin and the longer first -> nesting, self times, recursion; what was open at memory events.
class RowSweep {
 public:
  RowSweep(Collector& collector, const Interned& names, const std::unordered_map<uint32_t, ModulePlace>& places,
           const TraceDevices& devices)
      : collector_(collector), names_(names), places_(places), devices_(devices) {}

  // `memory` by time.
  void run(std::span<const Event> events, std::span<MemoryEvent> memory) {
    for (const Event& e : events) {
      for (; !memory.empty() && memory.front().change.time.value < e.begin; memory = memory.subspan(1))
        name_owner(memory.front());
      while (!open_.empty() && open_.back().end <= e.begin) close();
      auto& count = counts_[{e.name, e.is_operator}];
      open_.push_back({&e, e.begin + e.duration, 0, 0, 0, count++ == 0});
    }
    for (; !memory.empty(); memory = memory.subspan(1)) name_owner(memory.front());
    while (!open_.empty()) close();
  }

 private:
  struct Open {
    const Event* event;
    int64_t end;
    int64_t child_ns;
    int64_t module_child_ns;
    int64_t gpu_child_ns;  // work that the operators inside it launched
    bool outermost;
  };
  struct KeyHash {
    size_t operator()(const std::pair<uint32_t, bool>& k) const { return k.first * 2 + k.second; }
  };

  void name_owner(MemoryEvent& m) {
    while (!open_.empty() && open_.back().end <= m.change.time.value) close();
    MemoryOwner& owner = m.change.owner;
    bool looks_for_place = owner.place == 0, looks_for_module = true;
    for (auto it = open_.rbegin(); it != open_.rend(); ++it) {
      const Event& e = *it->event;
      if (e.is_operator) {
        if (owner.op == 0) owner.op = e.name + 1;
        if (!e.is_annotation) owner.outer_op = e.name + 1;
        if (looks_for_module && (e.is_backward || e.module != 0)) {
          looks_for_module = false;  // a backward operator may have none, also in a module's call
          owner.module = e.module;
        }
        continue;
      }
      const std::string& name = *names_.texts[e.name];
      const bool is_module = name.starts_with(kModulePrefix);
      if (is_module && looks_for_module) {
        looks_for_module = false;
        owner.module = e.name + 1;
      }
      if (!looks_for_place || name.starts_with("<built-in ")) continue;
      looks_for_place = false;
      if (!is_module && !name.starts_with(kOptimizerPrefix)) owner.place = e.name + 1;
    }
    if (owner.op != 0 && !m.change.is_out_of_memory)
      collector_.add_memory(owner.op - 1, m.change.bytes, m.change.device_type == 0);
  }

  void close() {
    const Open o = open_.back();
    open_.pop_back();
    --counts_[{o.event->name, o.event->is_operator}];
    const auto parent = std::find_if(open_.rbegin(), open_.rend(),
                                     [&o](const Open& p) { return p.event->is_operator == o.event->is_operator; });
    if (parent != open_.rend()) parent->child_ns += o.event->duration;
    const int64_t launched = devices_.launched_by(o.event->external);
    if (const int64_t gpu_ns = launched + o.gpu_child_ns; gpu_ns != 0) {
      if (parent != open_.rend()) parent->gpu_child_ns += gpu_ns;
      collector_.add_gpu_self(o.event->name, launched);
      if (o.outermost) collector_.add_gpu_total(o.event->name, gpu_ns);
    }
    add_module(o, std::max<int64_t>(0, o.event->duration - o.child_ns));
    collector_.add(o.event->is_operator, o.event->name, *names_.texts[o.event->name], o.event->begin, o.end,
                   std::max<int64_t>(0, o.event->duration - o.child_ns), o.outermost);
  }

  bool is_module_call(const Event& e) const { return !e.is_operator && places_.contains(e.name); }

  // Modules have the numbers of their names and one.
  uint32_t module(uint32_t name) {
    if (!collector_.modules.is_defined(name + 1)) {
      const auto place = places_.find(name);
      const ModulePlace& known = place == places_.end() ? ModulePlace{} : place->second;
      collector_.modules.define(name + 1, *names_.texts[name], known.path, known.root);
    }
    return name + 1;
  }

  void add_module(const Open& o, int64_t self_ns) {
    const Event& e = *o.event;
    if (e.is_operator) {
      if (e.is_backward && e.module != 0) collector_.modules.backward(module(e.module - 1), self_ns);
    } else if (is_module_call(e)) {
      const auto caller =
          std::find_if(open_.rbegin(), open_.rend(), [this](const Open& p) { return is_module_call(*p.event); });
      if (caller != open_.rend()) caller->module_child_ns += e.duration;
      collector_.modules.call(module(e.name), caller != open_.rend() ? module(caller->event->name) : 0, e.duration,
                              std::max<int64_t>(0, e.duration - o.module_child_ns), o.outermost);
    }
  }

  Collector& collector_;
  const Interned& names_;
  const std::unordered_map<uint32_t, ModulePlace>& places_;
  const TraceDevices& devices_;
  std::vector<Open> open_;
  std::unordered_map<std::pair<uint32_t, bool>, uint32_t, KeyHash> counts_;
};

// By process, over all of its rows.
std::vector<MemoryCollector> collect_memory(Handler& handler) {
  std::vector<MemoryCollector> collectors(handler.pids.texts.size());
  std::vector<std::unordered_set<uint64_t>> mapped(collectors.size());
  std::ranges::stable_sort(handler.memory, {}, [](const MemoryEvent& m) { return m.change.time; });
  for (MemoryEvent& m : handler.memory) {
    const uint32_t pid = handler.rows[m.row].pid;
    // Files that are mapped say so when they come, not when they go.
    if (m.change.is_mapped)
      mapped[pid].insert(m.change.address);
    else if (m.change.bytes < 0 && m.change.device_type == 0)
      m.change.is_mapped = mapped[pid].erase(m.change.address) != 0;
    collectors[pid].add(m.change);
  }
  return collectors;
}

// By process. `order`: the processes that have slices.
std::map<uint32_t, GpuStatistics> collect_gpu(const Handler& handler, const std::vector<uint32_t>& order, int64_t ns) {
  if (handler.devices.empty() || order.empty()) return {};
  std::unordered_map<uint32_t, uint32_t> owner;
  const auto wanted = handler.devices.owner_wanted();
  for (const Event& e : handler.events) {
    const auto device = e.external == 0 ? wanted.end() : wanted.find(e.external);
    if (device != wanted.end()) owner.emplace(device->second, handler.rows[e.row].pid);
  }
  return handler.devices.finish(owner, order.front(), handler.span_ns != 0 ? handler.span_ns : ns, handler.pids.texts,
                                [&handler](uint32_t name) { return std::string_view(*handler.names.texts[name]); });
}

}  // namespace

TraceFile read_kineto(const std::filesystem::path& file) {
  ByteStream stream(file);
  Handler handler;
  if (!nlohmann::json::sax_parse(ByteIterator(stream), ByteIterator(), &handler)) {
    stream.fail(handler.error.empty() ? "it is not JSON" : handler.error);
  }
  stream.drain();
  if (!handler.found_events) stream.fail("it has no traceEvents");

  TraceFile result;
  auto& events = handler.events;
  std::ranges::sort(events, {}, [](const Event& e) { return std::tuple(uint32_t{e.row}, e.begin, -e.duration); });
  auto& memory = handler.memory;
  std::ranges::stable_sort(memory, {}, [](const MemoryEvent& m) { return std::pair(m.row, m.change.time); });
  int64_t first = std::numeric_limits<int64_t>::max(), last = std::numeric_limits<int64_t>::min();
  std::vector<uint32_t> order;  // interned pids, as they come
  std::vector<Collector> collectors(handler.pids.texts.size());
  for (size_t i = 0; i < events.size();) {
    size_t end = i;
    for (; end < events.size() && events[end].row == events[i].row; ++end) {
      first = std::min(first, events[end].begin);
      last = std::max(last, events[end].begin + events[end].duration);
    }
    const uint32_t pid = handler.rows[events[i].row].pid;
    if (std::ranges::find(order, pid) == order.end()) order.push_back(pid);
    // Not std::ranges::equal_range: clang 14 cannot compile libstdc++ 12's subrange.
    const auto row_begin = std::ranges::lower_bound(memory, uint32_t{events[i].row}, {}, &MemoryEvent::row);
    const auto row_end = std::ranges::upper_bound(memory, uint32_t{events[i].row}, {}, &MemoryEvent::row);
    const std::span<MemoryEvent> of_row(row_begin, row_end);
    RowSweep(collectors[pid], handler.names, handler.places, handler.devices).run({events.data() + i, end - i}, of_row);
    i = end;
  }
  std::vector<MemoryCollector> devices = collect_memory(handler);
  std::map<uint32_t, GpuStatistics> gpu = collect_gpu(handler, order, events.empty() ? 0 : last - first);
  for (const auto& [of, flops] : handler.flops) collectors[of.first].add_flops(of.second, flops);
  for (const MadeStep& s : handler.steps) collectors[s.pid].step(s.number, s.begin, s.end, s.ended_by);
  for (const uint32_t pid : order) {
    const auto name = handler.process_names.find(pid);
    std::vector<DeviceMemory> memory_of = devices[pid].finish([&handler, pid](uint32_t id) {
      const std::string& text = *handler.names.texts[id - 1];
      const auto path = text.starts_with(kModulePrefix)
                            ? handler.module_paths.find(*handler.pids.texts[pid] + '\0' + text)
                            : handler.module_paths.end();
      return path == handler.module_paths.end() ? text : module_text(text, path->second);
    });
    result.processes.push_back({*handler.pids.texts[pid], name == handler.process_names.end() ? "" : name->second,
                                collectors[pid].finish(handler.is_ours, std::move(memory_of))});
    result.processes.back().statistics.gpu = std::move(gpu[pid]);
  }
  if (first <= last) {
    result.start = {first};
    result.wall_ns = last - first;
  }
  return result;
}

}  // namespace torchprof::formats
