#include "formats/kineto_json.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "formats/collectives.h"
#include "formats/distributed.h"
#include "formats/flops.h"
#include "formats/gpu_index.h"
#include "formats/inputs.h"
#include "formats/kineto_gpu.h"
#include "formats/kineto_stacks.h"
#include "formats/nvtx.h"
#include "formats/object_details.h"
#include "formats/print.h"
#include "formats/process_label.h"
#include "formats/replay.h"
#include "formats/text.h"

namespace torchprof::formats {
namespace {

using nlohmann::ordered_json;

// Times count from the last multiple of three months, as Kineto's: processes that started at different moments share
// it. In the first 51 days of it microseconds with three decimals are exact in a double, then off by up to one.
constexpr int64_t kBaseStep = int64_t{7'889'238} * 1'000'000'000;

// ---- one process -----------------------------------------------------------------------------------------

struct Ids {  // how many were given so far in this file
  uint64_t external = 0;
  uint64_t python = 0;
  uint64_t flow = 0;
  uint64_t event = 0;
  uint64_t correlation = 0;
  uint32_t process = 0;
};

constexpr size_t kMaxNameBytes =
    size_t{32} * 1024;                   // of a name in JSON, so that a slice always fits into one reservation
constexpr size_t kMaxSliceBytes = 1024;  // without its name
constexpr size_t kMaxOverload = 64;      // of kMaxSliceBytes, each byte at most six
constexpr size_t kMaxInputsBytes = size_t{24} * 1024;
constexpr size_t kMaxCallerBytes = 1000;  // of a file's name; \u0000 takes six bytes
constexpr size_t kMaxModuleBytes = 500;   // of each of a module's names; likewise
static_assert(kMaxNameBytes + kMaxSliceBytes + kMaxInputsBytes +
                  std::max(6 * kMaxCallerBytes + 40, 12 * kMaxModuleBytes + 80) <=
              Output::kMaxReserve);              // what has a caller has no module
static_assert(kMaxNvtxBytes < kMaxInputsBytes);  // a range of NVTX has no inputs

std::string json_name(std::string_view name) { return json_string_within(name, kMaxNameBytes); }

class ProcessWriter final : public Sink {
 public:
  ProcessWriter(const Process& process, uint64_t pid, bool merged, int64_t base, Ids& ids, Output& out)
      : process_(process),
        replay_(process),
        pid_(std::to_string(pid)),
        merged_(merged),
        base_(base),
        ids_(ids),
        out_(out) {
    if (process.gpu)
      gpu_.emplace(process, replay_.names(), replay_.rows(),
                   KinetoGpu::Place{pid_, gpu_label(), base, ids.external, ids.correlation,
                                    merged ? std::optional(ids.process) : std::nullopt},
                   out);
  }

  // `names_first`: what is known of the threads then, so that a part of the trace has it.
  void run(bool names_first = false) {
    write_process_rows();
    if (names_first) write_thread_rows();
    const ReplayStats stats = replay_.run(*this);
    write_thread_rows();
    if (gpu_) ids_.correlation = gpu_->finish();
    ++ids_.process;
    ids_.external += stats.external_ids;
    ids_.python += stats.python_ids;
    ids_.flow += stats.flows;
  }

  void slice(const Slice& s) override {
    const std::string& head = head_of(s);
    const std::string_view inputs = inputs_of(s);
    const std::string_view collective = collective_of(s, inputs.size());
    const std::string_view caller = caller_of(s);
    const std::string_view module = module_of(s);
    const std::string nvtx = s.nvtx ? nvtx_json(process_, *s.nvtx) : std::string();
    char* at = out_.reserve(head.size() + kMaxSliceBytes + inputs.size() + collective.size() + caller.size() +
                            module.size() + nvtx.size());
    at = put(at, head);
    at = put(at, uint64_t{replay_.rows()[s.row].tid});
    at = put(at, R"(,"ts":)");
    at = put_us(at, s.begin.value - base_);
    at = put(at, R"(,"dur":)");
    at = put_us(at, s.end - s.begin);
    at = s.kind == SliceKind::kOperator ? put_op_args(at, s) : put_python_args(at, s);
    at = put(at, overload_of(s));
    at = put(at, inputs);
    at = put(at, collective);
    if (s.collective_sequence >= 0) at = put_signed(put(at, R"(,"Seq":)"), s.collective_sequence);
    if (const uint64_t flops = flops_.of(s.name, replay_.names().text(s.name), s.inputs); flops != 0) {
      at = put(at, R"(,"FLOPs":)");
      at = put(at, flops);
    }
    at = put(at, caller);
    at = put(at, module);
    at = put(at, nvtx);
    if (s.is_backward && s.kind == SliceKind::kOperator) at = put(at, R"(,"Backward":true)");
    if (!s.finished) at = put(at, R"(,"finished":false)");
    out_.advance(at);
    end_event(s.native);
    if (gpu_ && s.kind == SliceKind::kOperator && is_annotation(s.scope))
      gpu_->annotation_ended(s.external_id, replay_.names().text(s.name));
  }

  void gpu_call(const GpuCall& c) override { gpu_->call(c); }
  void gpu_activity(const GpuActivity& a) override {
    const bool is_placed = a.call != nullptr && a.call->module;
    gpu_->activity(a, is_placed ? module_text(a.call->module, true) : std::string_view{},
                   a.call != nullptr ? collective_text(a.call->collective) : std::string_view{});
  }

  void step(const StepMark& m) override {
    char* at = out_.reserve(kMaxSliceBytes + kMaxNameBytes);
    at = put(at, R"({"ph":"X","cat":"user_annotation","name":"ProfilerStep#)");
    at = put(at, m.number);
    at = put(at, R"(","pid":)");
    at = put(at, pid_);
    at = put(at, R"(,"tid":)");
    at = put(at, uint64_t{replay_.rows()[m.row].tid});
    at = put(at, R"(,"ts":)");
    at = put_us(at, m.begin.value - base_);
    at = put(at, R"(,"dur":)");
    at = put_us(at, m.end - m.begin);
    at = put(at, R"(,"args":{"External id":)");
    at = put(at, ids_.external + m.external_id);
    at = put(at, R"(,"Record function id":0,"Ev Idx":)");
    at = put(at, ids_.event++);
    at = put(at, R"(,"Step ends with":)");
    at = put(at, m.ended_by ? json_name(replay_.names().text(m.ended_by)) : "null");
    at = put(at, "}},\n");
    out_.advance(at);
  }

  void mark(const Mark& m) override {
    const std::string name = json_name(replay_.names().text(m.name));
    const std::string nvtx = nvtx_json(process_, m.attributes);
    char* at = out_.reserve(kMaxSliceBytes + name.size() + nvtx.size());
    at = put(at, R"({"ph":"i","cat":"cpu_instant_event","s":"t","name":)");
    at = put(at, name);
    at = put(at, R"(,"pid":)");
    at = put(at, pid_);
    at = put(at, R"(,"tid":)");
    at = put(at, uint64_t{replay_.rows()[m.row].tid});
    at = put(at, R"(,"ts":)");
    at = put_us(at, m.time.value - base_);
    at = put(at, R"(,"args":{"Ev Idx":)");
    at = put(at, ids_.event++);
    at = put(at, nvtx);
    at = put(at, "}},\n");
    out_.advance(at);
  }

  void memory(const MemoryEvent& m) override {
    const std::string_view place = m.line != 0 ? place_of(m) : std::string_view{};
    char* at = out_.reserve(kMaxSliceBytes + place.size());
    at = put(at, R"({"ph":"i","cat":"cpu_instant_event","s":"t","name":)");
    at = put(at, m.is_out_of_memory ? R"("[OutOfMemory]")" : R"("[memory]")");
    at = put(at, R"(,"pid":)");
    at = put(at, pid_);
    at = put(at, R"(,"tid":)");
    at = put(at, uint64_t{replay_.rows()[m.row].tid});
    at = put(at, R"(,"ts":)");
    at = put_us(at, m.time.value - base_);
    at = put(at, R"(,"args":{"Ev Idx":)");
    at = put(at, ids_.event++);
    at = put(at, R"(,"Device Type":)");
    at = put_signed(at, m.device_type);
    at = put(at, R"(,"Device Id":)");
    at = put_signed(at, m.device_index);
    if (!m.is_out_of_memory) {
      at = put(at, R"(,"Addr":)");
      at = put(at, m.address);
    }
    at = put(at, R"(,"Bytes":)");
    at = put_signed(at, m.bytes);
    at = put(at, R"(,"Total Allocated":)");
    at = put(at, m.allocated);
    at = put(at, R"(,"Total Reserved":)");
    at = put(at, m.reserved);
    if (!place.empty()) {
      at = put(at, R"(,"Python line":)");
      at = put(at, place);
    }
    out_.advance(at);
    end_event(m.native);
  }

  void flow(const Flow& f) override {
    put_flow_end(f, "s", f.from_row, f.from, "");
    put_flow_end(f, "f", f.to_row, f.to, R"(,"bp":"e")");
  }

 private:
  // {"ph":"X","cat":"cpu_op","name":"aten::add","pid":1,"tid":      made once for each name and category
  const std::string& head_of(const Slice& s) {
    const bool is_op = s.kind == SliceKind::kOperator;
    const bool is_annotation = is_op && torchprof::is_annotation(s.scope);
    auto& heads = heads_[is_annotation ? 2 : is_op ? 1 : 0];
    if (s.name.value >= heads.size()) heads.resize(std::max<size_t>(replay_.names().size() + 1, heads.size() * 2));
    std::string& head = heads[s.name.value];
    if (head.empty()) {
      head = R"({"ph":"X","cat":")";
      head.append(is_annotation ? "user_annotation" : is_op ? "cpu_op" : "python_function");
      head.append(R"(","name":)").append(json_name(replay_.names().text(s.name)));
      head.append(R"(,"pid":)").append(pid_).append(R"(,"tid":)");
    }
    return head;
  }

  // Made once for each encoding.
  std::string_view inputs_of(const Slice& s) {
    if (!s.inputs || s.inputs.value >= process_.strings.size()) return {};
    if (s.inputs.value >= inputs_.size()) inputs_.resize(process_.strings.size());
    std::string& text = inputs_[s.inputs.value];
    if (text.empty()) {
      text = inputs_json(process_.string(s.inputs));
      if (text.size() > kMaxInputsBytes) text = inputs_json({});
    }
    return text;
  }

  // What has no room beside `taken` bytes of inputs is left out.
  std::string_view collective_of(const Slice& s, size_t taken) {
    const std::string_view text = collective_text(s.collective);
    return text.size() + taken <= kMaxInputsBytes ? text : std::string_view{};
  }
  std::string_view collective_text(StringId collective) {
    if (!collective) return {};
    std::string& text = collectives_[collective.value];
    if (text.empty()) text = collective_json(process_.string(collective));
    return text.size() <= kMaxInputsBytes ? text : std::string_view{};
  }

  // ,"CallFrom":"train.py:12"      made once for each place
  std::string_view caller_of(const Slice& s) {
    if (!s.site || s.site.value >= process_.call_sites.size()) return {};
    if (s.site.value >= callers_.size()) callers_.resize(process_.call_sites.size());
    std::string& text = callers_[s.site.value];
    const CallSiteDef& site = process_.call_sites[s.site.value];
    if (text.empty() && site.function.value < process_.functions.size()) {
      const FunctionDef& def = process_.functions[site.function.value];
      std::string_view file = process_.string(def.file);
      file.remove_prefix(std::min<size_t>(def.trim, file.size()));
      file = file.substr(0, kMaxCallerBytes);
      text.append(R"(,"CallFrom":)").append(json_string(std::string(file) + ":" + std::to_string(site.line)));
    }
    return text;
  }

  // Made once for each name as it was recorded. Kineto has no argument for it: torch 2.14 writes "aten::add.Tensor" for
  // a name where it is asked to capture overload names.
  std::string_view overload_of(const Slice& s) {
    if (s.kind != SliceKind::kOperator || s.recorded.value >= process_.strings.size()) return {};
    const std::string_view overload = split_operator_name(process_.string(s.recorded)).overload;
    if (overload.empty()) return {};
    if (s.recorded.value >= overloads_.size()) overloads_.resize(process_.strings.size());
    std::string& text = overloads_[s.recorded.value];
    if (text.empty()) text = ",\"Overload name\":" + json_string(overload.substr(0, kMaxOverload));
    return text;
  }

  // ,"stack":["at::add","THPVariable_add"]}}      innermost first
  void end_event(NativeFrameId innermost) {
    if (innermost && process_.native && process_.native->has(innermost))
      native_.write(*process_.native, innermost, out_);
    out_.write("}},\n");
  }

  // Made once for each line.
  std::string_view place_of(const MemoryEvent& m) {
    std::string& text = places_[replay_.names().place(m.function, m.line).value];
    if (text.empty()) text = json_name(replay_.names().text(replay_.names().place(m.function, m.line)));
    return text;
  }

  // Made once for each module. Of operators: ,"Module":"nn.Module: Linear_0","Module path":"head.0"
  // Of its calls: ,"Module path":"head.0","Module root":"nn.Module: Net_0"
  std::string_view module_of(const Slice& s) {
    const bool is_op = s.kind == SliceKind::kOperator;
    if (!s.module || (!is_op && (s.kind != SliceKind::kPython || s.object != s.module))) return {};
    return module_text(s.module, is_op);
  }
  std::string_view module_text(ObjectId module, bool is_op) {
    auto& modules = modules_[is_op];
    if (module.value >= process_.objects.size()) return {};
    if (module.value >= modules.size()) modules.resize(process_.objects.size());
    std::string& text = modules[module.value];
    if (!text.empty()) return text;
    const ObjectId root = process_.root(module);
    if (is_op) text.append(R"(,"Module":)").append(module_name(module));
    if (!root) return text;
    text.append(R"(,"Module path":)").append(json_string(process_.path(module).substr(0, kMaxModuleBytes)));
    if (!is_op) text.append(R"(,"Module root":)").append(module_name(root));
    return text;
  }
  std::string module_name(ObjectId module) {
    return json_string(replay_.names().text(replay_.names().function({}, module)).substr(0, kMaxModuleBytes));
  }

  char* put_op_args(char* at, const Slice& s) {
    at = put(at, R"(,"args":{"External id":)");
    at = put(at, ids_.external + s.external_id);
    at = put(at, R"(,"Record function id":)");
    at = put(at, s.handle);
    if (s.sequence >= 0) {
      at = put(at, R"(,"Sequence number":)");
      at = put_signed(at, s.sequence);
      at = put(at, R"(,"Fwd thread id":)");
      at = put(at, s.fwd_thread);
    }
    at = put(at, R"(,"Ev Idx":)");
    return put(at, ids_.event++);
  }

  char* put_python_args(char* at, const Slice& s) {
    at = put(at, R"(,"args":{"Ev Idx":)");
    at = put(at, ids_.event++);
    at = put(at, R"(,"Python id":)");
    at = put(at, ids_.python + s.python_id);
    at = put(at, R"(,"Python parent id":)");
    at = s.python_parent != 0 ? put(at, ids_.python + s.python_parent) : put(at, "null");
    if (const ObjectDef* object = s.object ? replay_.names().object(s.object) : nullptr;
        object != nullptr && object->kind == ObjectKind::kModule) {
      at = put(at, R"(,"Python module id":)");
      at = put(at, uint64_t{replay_.names().number(s.object)});
    }
    if (s.kind == SliceKind::kGc) {
      at = put(at, R"(,"generation":)");
      at = put(at, uint64_t{s.generation});
      if (s.finished) {
        at = put(at, R"(,"collected":)");
        at = put_signed(at, s.collected);
        at = put(at, R"(,"uncollectable":)");
        at = put_signed(at, s.uncollectable);
      }
    }
    return s.preexisting ? put(at, R"(,"preexisting":true)") : at;
  }

  void put_flow_end(const Flow& f, std::string_view phase, uint32_t row, UnixNs ts, std::string_view more) {
    char* at = out_.reserve(kMaxSliceBytes);
    at = put(at, R"({"ph":")");
    at = put(at, phase);
    at = put(at, R"(","id":)");
    at = put(at, ids_.flow + f.id);
    at = put(at, R"(,"pid":)");
    at = put(at, pid_);
    at = put(at, R"(,"tid":)");
    at = put(at, uint64_t{replay_.rows()[row].tid});
    at = put(at, R"(,"ts":)");
    at = put_us(at, ts.value - base_);
    at = put(at, R"(,"cat":"fwdbwd","name":"fwdbwd")");
    at = put(at, more);
    at = put(at, "},\n");
    out_.advance(at);
  }

  void put_metadata(std::string_view name, std::string_view tid, std::string_view key, std::string_view json_value) {
    char ts[32];
    const std::string_view time(ts, static_cast<size_t>(put_us(ts, process_.start.value - base_) - ts));
    std::string line;
    line.append(R"({"name":")").append(name).append(R"(","ph":"M","ts":)").append(time);
    line.append(R"(,"pid":)").append(pid_).append(R"(,"tid":)").append(tid);
    line.append(R"(,"args":{")").append(key).append("\":").append(json_value).append("}},\n");
    out_.write(line);
  }

  // Behind "GPU 0", to tell the rows of several processes apart.
  std::string gpu_label() const {
    if (!merged_) return {};
    return process_.role.empty() ? " of " + pid_ : ", " + process_.role;
  }

  void write_process_rows() {
    const std::string program(program_name(process_)), role = merged_ ? process_.role : "";
    put_metadata("process_name", "0", "name", json_name(role.empty() ? program : role + " (" + program + ")"));
    put_metadata("process_labels", "0", "labels", json_name(role.empty() ? "CPU" : "CPU, " + role));
    put_metadata("process_sort_index", "0", "sort_index", merged_ ? std::to_string(process_.place) : pid_);
  }

  void write_thread_rows() {
    std::unordered_set<uint32_t> written;
    const auto& rows = replay_.rows();
    for (size_t i = rows.size();
         i-- > 0;) {  // of two threads that had the same id one after the other the later gives the name
      const Row& row = rows[i];
      if (!written.insert(row.tid).second) continue;
      std::string name = "thread " + thread_label(row);
      if (row.is_overflow) name.append(", what crosses other annotations");
      put_metadata("thread_name", std::to_string(row.tid), "name", json_name(name));
      put_metadata("thread_sort_index", std::to_string(row.tid), "sort_index", std::to_string(row.sort_tid));
    }
  }

  const Process& process_;
  Replay replay_;
  const std::string pid_;
  const bool merged_;  // with other processes: it says which it is
  const int64_t base_;
  Ids& ids_;
  Output& out_;
  std::optional<KinetoGpu> gpu_;  // none: there is no GPU
  Flops flops_{process_};
  std::vector<std::string> heads_[3];                      // by name: Python, cpu_op, user_annotation
  std::vector<std::string> modules_[2];                    // args, by module: of its calls, of operators
  std::vector<std::string> inputs_;                        // by their encoding
  std::unordered_map<uint32_t, std::string> collectives_;  // likewise
  KinetoStacks native_;
  std::vector<std::string> callers_;                  // by call site
  std::vector<std::string> overloads_;                // by OpBegin::name
  std::unordered_map<uint32_t, std::string> places_;  // by name
};

// ---- the file --------------------------------------------------------------------------------------------

ordered_json describe(const Process& p) {
  auto text = [](std::string_view s) { return std::string(s); };
  ordered_json j{{"pid", p.pid}, {"ppid", p.parent_pid}, {"host", text(p.host)}};
  j["command"] = ordered_json::array();
  for (const auto argument : p.command) j["command"].push_back(text(argument));
  if (!p.role.empty()) j["role"] = p.role;
  j["clean_exit"] = p.clean_exit;
  j["events"] = p.counts.records;
  constexpr const char* kStates[] = {"off", "on", "failed"};
  for (const Source& s : p.sources) {
    j["sources"][text(s.name)] = {{"state", kStates[static_cast<size_t>(s.state)]}, {"detail", text(s.detail)}};
  }
  for (const Meta& m : p.metadata) j["metadata"][text(m.key)] = text(m.value);
  for (size_t i = 0; i < p.lost.size(); ++i) {
    if (p.lost[i] != 0) j["lost"][loss_text(static_cast<LossCause>(i))] = p.lost[i];
  }
  for (const Blind& blind : p.blind) {
    j["blind"].push_back(
        {{"by", text(blind.by)}, {"times", blind.times}, {"seconds", static_cast<double>(blind.ns) / 1e9}});
  }
  if (p.damage) {
    j["damage"] = {{"chunks", p.damage.chunks}, {"bytes", p.damage.bytes}, {"records", p.damage.records}};
  }
  if (p.gpu) j["gpu"] = describe_gpu(p);
  Names names(p);
  const ordered_json objects = objects_json(p, names);
  if (!objects.empty()) j.update(objects);
  return j;
}

std::string trace_id(Processes processes) {
  uint64_t a = 0xcbf29ce484222325u, b = 0x84222325cbf29ce4u;  // FNV-1a
  auto mix = [&a, &b](uint64_t value) {
    a = (a ^ value) * 0x100000001b3u;
    b = (b ^ a) * 0x100000001b3u;
  };
  for (const Process& p : processes) {
    for (const char c : p.host) mix(static_cast<unsigned char>(c));
    mix(p.pid);
    mix(static_cast<uint64_t>(p.start.value));
  }
  char text[33];
  std::snprintf(text, sizeof(text), "%016llX%016llX", static_cast<unsigned long long>(a),
                static_cast<unsigned long long>(b));
  return text;
}

std::string header(Processes processes, int64_t base) {
  ordered_json about{{"version", TORCHPROF_VERSION}, {"processes", ordered_json::array()}};
  bool python = false, flops = false;
  for (const Process& p : processes) {
    about["processes"].push_back(describe(p));
    python = python || p.counts.python != 0;
    const auto has_inputs = [](const Source& s) { return s.name == "inputs" && s.state == SourceState::kOn; };
    flops = flops || (std::ranges::any_of(p.sources, has_inputs) && Flops(p).is_on());
  }
  ordered_json top{{"schemaVersion", 1}, {"deviceProperties", device_properties(processes)}};
  top["host_name"] = std::string(processes.empty() ? std::string_view{} : processes.front().host);
  if (python) top["with_stack"] = 1;
  if (flops) top["with_flops"] = 1;
  top.update(gpu_versions(processes));
  top["trace_id"] = trace_id(processes);
  top["torchprof"] = std::move(about);
  top["displayTimeUnit"] = "ms";
  top["baseTimeNanoseconds"] = base;
  std::string text = top.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  text.pop_back();
  // Ranks of several processes are in their own traces.
  const std::string distributed = processes.size() == 1 ? distributed_json(distributed_of(processes[0])) : "";
  if (!distributed.empty()) text += ",\n\"distributedInfo\": " + distributed;
  return text + ",\n\"traceEvents\":[\n";
}

// The four events that torch's own tests look for at the end.
void write_tail(UnixNs start, UnixNs end, int64_t base, Output& out) {
  auto us = [](int64_t ns) {
    char text[32];
    return std::string(text, put_us(text, ns));
  };
  const std::string begin = us(start.value - base);
  std::string text = R"({"ph":"X","cat":"Trace","ts":)" + begin + R"(,"dur":)" + us(end - start);
  text += R"json(,"pid":"Spans","tid":"PyTorch Profiler","name":"PyTorch Profiler (0)","args":{"Op count":0}},)json";
  text += "\n";
  text += R"({"name":"process_sort_index","ph":"M","ts":)" + begin;
  text += R"(,"pid":"Spans","tid":0,"args":{"sort_index":536870912}},)";
  text += "\n";
  text += R"({"name":"Iteration Start: PyTorch Profiler","ph":"i","s":"g","pid":"Traces",)";
  text += R"("tid":"Trace PyTorch Profiler","ts":)" + begin + "},\n";
  text += R"({"name":"Record Window End","ph":"i","s":"g","pid":"","tid":"","ts":)" + us(end.value - base) + "}\n],\n";
  out.write(text);
}

int64_t base_of(const Trace& trace) { return std::max<int64_t>(0, trace.start.value) / kBaseStep * kBaseStep; }

void write_events(const Trace& trace, Processes processes, bool names_first, Output& out) {
  const bool merged = processes.size() > 1;
  Ids ids;
  const std::vector<uint64_t> pids = distinct_pids(processes);
  for (size_t i = 0; i < processes.size(); ++i)
    ProcessWriter(processes[i], pids[i], merged, base_of(trace), ids, out).run(names_first);
}

}  // namespace

void write_kineto(const Trace& trace, Processes processes, Output& out) {
  UnixNs start = processes.empty() ? trace.start : UnixNs{std::numeric_limits<int64_t>::max()};
  UnixNs end = processes.empty() ? trace.end : UnixNs{0};
  for (const Process& p : processes) {
    start = std::min(start, UnixNs{std::max(p.start.value, p.selection.begin)});
    end = std::max(end, UnixNs{std::min(p.end.value, p.selection.end)});
  }
  const int64_t base = base_of(trace);
  out.write(header(processes, base));
  write_events(trace, processes, false, out);
  write_tail(start, end, base, out);
  out.write("\"traceName\":" + json_name(out.file().string()) + "\n}\n");
}

void write_json_stream(const Trace& trace, Processes processes, Output& out) {
  out.write("[\n");
  write_events(trace, processes, true, out);
}

}  // namespace torchprof::formats
