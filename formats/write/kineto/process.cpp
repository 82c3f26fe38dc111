#include "formats/write/kineto/process.h"

#include <optional>
#include <string>
#include <unordered_set>

#include "formats/io/print.h"
#include "formats/replay/process_label.h"
#include "formats/replay/replay.h"
#include "formats/timeline/critical_track.h"
#include "formats/trace/names.h"
#include "formats/trace/uncaptured.h"
#include "formats/values/flops.h"
#include "formats/write/kineto/gpu.h"
#include "formats/write/kineto/stacks.h"
#include "formats/write/kineto/texts.h"

namespace torchprof::formats::kineto {
namespace {

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
      gpu_.emplace(process, replay_.names(), stacks_, replay_.rows(),
                   GpuWriter::Place{pid_, gpu_label(), base, ids.external, ids.correlation,
                                    merged ? std::optional(ids.process) : std::nullopt},
                   out);
  }

  // `names_first`: see Place.
  void run(bool names_first = false) {
    write_process_rows();
    if (names_first) write_thread_rows();
    const ReplayStats stats = replay_.run(*this);
    write_thread_rows();
    if (process_.selection.has_critical_path) write_critical_path();
    if (gpu_) ids_.correlation = gpu_->finish();
    ++ids_.process;
    ids_.external += stats.external_ids;
    ids_.python += stats.python_ids;
    ids_.flow += stats.flows;
  }

  void slice(const Slice& s) override {
    const std::string& head = texts_.head_of(s);
    const std::string_view inputs = texts_.inputs_of(s);
    const std::string_view collective = texts_.collective_of(s, inputs.size());
    const std::string_view caller = texts_.caller_of(s);
    const std::string_view module = texts_.module_of(s);
    std::string nvtx = s.nvtx ? nvtx_json(process_, *s.nvtx) : std::string();
    if (s.inductor != nullptr) nvtx += inductor_json(*s.inductor);
    char* at = out_.reserve(head.size() + kMaxSliceBytes + inputs.size() + collective.size() + caller.size() +
                            module.size() + nvtx.size());
    at = put(at, head);
    at = put(at, uint64_t{replay_.rows()[s.row].tid});
    at = put(at, R"(,"ts":)");
    at = put_us(at, s.drawn_begin.value - base_);
    at = put(at, R"(,"dur":)");
    at = put_us(at, s.drawn_end - s.drawn_begin);
    at = s.kind == SliceKind::kOperator ? put_op_args(at, s) : put_python_args(at, s);
    at = put(at, texts_.overload_of(s));
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
    if (s.is_recompute && (s.kind == SliceKind::kOperator || (s.object && s.object == s.module)))
      at = put(at, R"(,"Recompute":true)");
    if (s.is_async) at = put(at, R"(,"Asynchronous":true)");
    if (s.drawn_begin > s.begin) at = put_signed(put(at, R"(,"Cut at begin, ns":)"), s.drawn_begin - s.begin);
    if (s.drawn_end < s.end) at = put_signed(put(at, R"(,"Cut at end, ns":)"), s.end - s.drawn_end);
    if (!s.finished) at = put(at, R"(,"finished":false)");
    out_.advance(at);
    end_event(s.native);
    if (gpu_ && s.kind == SliceKind::kOperator && is_annotation(s.scope))
      gpu_->annotation_ended(s.external_id, replay_.names().text(s.name));
  }

  void gpu_call(const GpuCall& c) override { gpu_->call(c); }
  void gpu_activity(const GpuActivity& a) override {
    const bool is_placed = a.call != nullptr && a.call->module;
    gpu_->activity(a, is_placed ? texts_.module_text(a.call->module, true) : std::string_view{},
                   a.call != nullptr ? texts_.collective_text(a.call->collective) : std::string_view{});
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
    const std::string nvtx = m.is_window ? std::string{} : nvtx_json(process_, m.attributes);
    char* at = out_.reserve(kMaxSliceBytes + name.size() + nvtx.size());
    at = put_instant(at, name, m.row, m.time.value);
    at = put(at, nvtx);
    at = put(at, "}},\n");
    out_.advance(at);
  }

  void memory(const MemoryEvent& m) override {
    const std::string_view place = m.line != 0 ? texts_.place_of(m) : std::string_view{};
    char* at = out_.reserve(kMaxSliceBytes + place.size());
    at = put_instant(at, m.is_out_of_memory ? R"("[OutOfMemory]")" : R"("[memory]")", m.row, m.time.value);
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
  // ,"stack":["at::add","THPVariable_add"]}}      innermost first
  void end_event(NativeFrameId innermost) {
    if (stacks_.has(innermost)) stacks_.write(innermost, out_);
    out_.write("}},\n");
  }

  // Puts an instant up to its first argument; `name` is JSON.
  char* put_instant(char* at, std::string_view name, uint32_t row, int64_t time) {
    at = put(at, R"({"ph":"i","cat":"cpu_instant_event","s":"t","name":)");
    at = put(at, name);
    at = put(at, R"(,"pid":)");
    at = put(at, pid_);
    at = put(at, R"(,"tid":)");
    at = put(at, uint64_t{replay_.rows()[row].tid});
    at = put(at, R"(,"ts":)");
    at = put_us(at, time - base_);
    at = put(at, R"(,"args":{"Ev Idx":)");
    at = put(at, ids_.event++);
    return at;
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

  // Of a trace with processes of several hosts.
  std::string host_label() const {
    return merged_ && !process_.told_host.empty() ? ", on " + std::string(process_.told_host) : std::string();
  }
  // Comes behind "GPU 0" to tell the devices of several processes apart.
  std::string gpu_label() const {
    if (!merged_) return {};
    return (process_.role.empty() ? " of " + pid_ : ", " + process_.role) + host_label();
  }

  void write_process_rows() {
    const std::string program(program_name(process_)), role = merged_ ? process_.role : "";
    put_metadata("process_name", "0", "name", json_name(role.empty() ? program : role + " (" + program + ")"));
    put_metadata("process_labels", "0", "labels",
                 json_name((role.empty() ? "CPU" : "CPU, " + role) + host_label() + cut_label(process_)));
    put_metadata("process_sort_index", "0", "sort_index", merged_ ? std::to_string(process_.place) : pid_);
  }

  // A thread can't have this number (kernel/pid.c: PID_MAX_LIMIT is 4 million).
  static constexpr std::string_view kCriticalRow = "999999999";
  void write_critical_path() {
    put_metadata("thread_name", kCriticalRow, "name", "\"critical path\"");
    put_metadata("thread_sort_index", kCriticalRow, "sort_index", kCriticalRow);
    for (const CriticalSlice& s : critical_track_of(process_)) {
      const std::string name = json_name(s.name), place = json_name(s.place);
      char* at = out_.reserve(kMaxSliceBytes + name.size() + place.size());
      at = put(at, R"({"ph":"X","cat":"critical_path","name":)");
      at = put(put(put(at, name), R"(,"pid":)"), pid_);
      at = put(put(put(at, R"(,"tid":)"), kCriticalRow), R"(,"ts":)");
      at = put(put_us(at, s.begin - base_), R"(,"dur":)");
      at = put(put_us(at, s.end - s.begin), R"(,"args":{"Python line":)");
      out_.advance(put(put(at, place), "}},\n"));
    }
  }

  void write_thread_rows() {
    std::unordered_set<uint32_t> written;
    const auto& rows = replay_.rows();
    // From the end: of two threads that had the same id, the later one gives the name.
    for (size_t i = rows.size(); i-- > 0;) {
      const Row& row = rows[i];
      if (!written.insert(row.tid).second) continue;
      std::string name = "thread " + thread_label(row);
      if (row.is_overflow) name.append(", ").append(kOverlapping);
      put_metadata("thread_name", std::to_string(row.tid), "name", json_name(name));
      put_metadata("thread_sort_index", std::to_string(row.tid), "sort_index", std::to_string(row.sort_tid));
    }
  }

  const Process& process_;
  Replay replay_;
  const std::string pid_;
  Texts texts_{process_, replay_.names(), pid_};
  const bool merged_;  // other processes are in the file, too
  const int64_t base_;
  Ids& ids_;
  Output& out_;
  Stacks stacks_{process_.native.get()};
  std::optional<GpuWriter> gpu_;  // none: no GPU records
  Flops flops_{process_};
};

}  // namespace

void write_process(const Process& process, Place place, Ids& ids, Output& out) {
  ProcessWriter(process, place.pid, place.is_merged, place.base, ids, out).run(place.names_first);
}

}  // namespace torchprof::formats::kineto
