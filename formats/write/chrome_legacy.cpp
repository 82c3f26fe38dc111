#include "formats/write/chrome_legacy.h"

#include <string>
#include <vector>

#include "formats/io/print.h"
#include "formats/io/text.h"
#include "formats/replay/process_label.h"
#include "formats/replay/replay.h"
#include "formats/trace/gpu_index.h"

namespace torchprof::formats {
namespace {

constexpr size_t kMaxNameBytes = size_t{32} * 1024;  // of a name in JSON
constexpr size_t kMaxNumbers = 128;                  // bytes of an event's other variable parts

class LegacyWriter final : public Sink {
 public:
  LegacyWriter(const Process& process, const std::string& pid, UnixNs start, bool& is_first, uint64_t& flow,
               Output& out)
      : replay_(process),
        pid_(pid_field("CPU functions" + pid)),
        gpu_pid_(pid_field("CUDA functions" + pid)),
        start_(start),
        is_first_(is_first),
        flow_(flow),
        out_(out) {}
  void run() { replay_.run(*this); }

  void slice(const Slice& s) override {
    if (s.kind == SliceKind::kOperator) write(name(s.name), s.row, s.drawn_begin, s.drawn_end);
  }
  // The rest after the last step would look like a step: there is nothing here to tell it by.
  void step(const StepMark& m) override {
    if (!m.ended_by) return;
    write(head("ProfilerStep#" + std::to_string(m.number)), m.row, m.begin, m.end);
  }
  void gpu_activity(const GpuActivity& a) override {
    if (!runs_on_device(a.kind)) return;
    write(name(a.name), a.device, gpu_pid_, a.begin, a.end);
    if (a.call == nullptr) return;
    ++flow_;
    write_flow(R"({"name": "launch", "ph": "s", "ts": )", replay_.rows()[a.call->row].tid, pid_, a.call->begin);
    write_flow(R"({"name": "launch", "ph": "f", "ts": )", a.device, gpu_pid_, a.begin);
  }

 private:
  static std::string head(std::string_view name) {
    std::string json = json_string(name);
    if (json.size() > kMaxNameBytes)
      json = json_string(name.substr(0, kMaxNameBytes / 6 - 2));  // a byte becomes six at most: \u0000
    return R"({"name": )" + json + R"(, "ph": "X", "ts": )";
  }
  const std::string& name(NameId id) {  // made once for each name
    if (id.value >= heads_.size()) heads_.resize(std::max<size_t>(replay_.names().size() + 1, heads_.size() * 2));
    std::string& text = heads_[id.value];
    if (text.empty()) text = head(replay_.names().text(id));
    return text;
  }
  static std::string pid_field(const std::string& pid) {
    return std::string(R"(, "pid": )").append(json_string(pid)).append(R"(, "args": {}})");
  }
  void write(const std::string& head, uint32_t row, UnixNs begin, UnixNs end) {
    write(head, replay_.rows()[row].tid, pid_, begin, end);
  }
  void write_flow(std::string_view head, uint32_t tid, const std::string& pid, UnixNs time) {
    char* at = out_.reserve(head.size() + pid.size() + kMaxNumbers);
    at = put(put(at, ",\n"), head);
    at = put_us(at, time - start_);
    at = put(put(at, R"(, "tid": )"), uint64_t{tid});
    at = put(put(at, R"(, "cat": "cpu_to_cuda", "id": )"), flow_);
    out_.advance(put(at, pid));
  }
  void write(const std::string& head, uint32_t tid, const std::string& pid, UnixNs begin, UnixNs end) {
    char* at = out_.reserve(head.size() + pid.size() + kMaxNumbers);
    at = put(at, is_first_ ? "[" : ",\n");
    is_first_ = false;
    at = put(at, head);
    at = put_us(at, begin - start_);
    at = put(at, R"(, "dur": )");
    at = put_us(at, end - begin);
    at = put(at, R"(, "tid": )");
    at = put(at, uint64_t{tid});
    out_.advance(put(at, pid));
  }

  Replay replay_;
  const std::string pid_, gpu_pid_;
  const UnixNs start_;
  bool& is_first_;
  uint64_t& flow_;  // the last flow id of the file
  Output& out_;
  std::vector<std::string> heads_;
};

}  // namespace

void write_chrome_legacy(const Trace& trace, Processes processes, Output& out) {
  bool is_first = true;
  uint64_t flow = 0;
  for (const Process& p : processes) {
    const std::string pid = processes.size() > 1 ? ", " + process_label(p).substr(0, 1000) : std::string{};
    LegacyWriter(p, pid, trace.start, is_first, flow, out).run();
  }
  out.write(is_first ? "[]\n" : "]\n");
}

}  // namespace torchprof::formats
