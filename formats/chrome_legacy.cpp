#include "formats/chrome_legacy.h"

#include <string>
#include <vector>

#include "formats/print.h"
#include "formats/process_label.h"
#include "formats/replay.h"
#include "formats/text.h"

namespace torchprof::formats {
namespace {

constexpr size_t kMaxNameBytes = size_t{32} * 1024;  // in JSON
constexpr size_t kMaxNumbers = 128;                  // of the other bytes of an event those that are no name

class LegacyWriter final : public Sink {
 public:
  LegacyWriter(const Process& process, const std::string& pid, UnixNs start, bool& is_first, Output& out)
      : replay_(process),
        pid_(std::string(R"(, "pid": )").append(json_string(pid)).append(R"(, "args": {}})")),
        start_(start),
        is_first_(is_first),
        out_(out) {}
  void run() { replay_.run(*this); }

  void slice(const Slice& s) override {
    if (s.kind == SliceKind::kOperator) write(name(s.name), s.row, s.begin, s.end);
  }
  void step(const StepMark& m) override {
    write(head("ProfilerStep#" + std::to_string(m.number)), m.row, m.begin, m.end);
  }

 private:
  static std::string head(std::string_view name) {
    std::string json = json_string(name);
    if (json.size() > kMaxNameBytes)
      json = json_string(name.substr(0, kMaxNameBytes / 6 - 2));  // \u0000 takes the most
    return R"({"name": )" + json + R"(, "ph": "X", "ts": )";
  }
  const std::string& name(NameId id) {  // made once for each name
    if (id.value >= heads_.size()) heads_.resize(std::max<size_t>(replay_.names().size() + 1, heads_.size() * 2));
    std::string& text = heads_[id.value];
    if (text.empty()) text = head(replay_.names().text(id));
    return text;
  }
  void write(const std::string& head, uint32_t row, UnixNs begin, UnixNs end) {
    char* at = out_.reserve(head.size() + pid_.size() + kMaxNumbers);
    at = put(at, is_first_ ? "[" : ",\n");
    is_first_ = false;
    at = put(at, head);
    at = put_us(at, begin - start_);
    at = put(at, R"(, "dur": )");
    at = put_us(at, end - begin);
    at = put(at, R"(, "tid": )");
    at = put(at, uint64_t{replay_.rows()[row].tid});
    out_.advance(put(at, pid_));
  }

  Replay replay_;
  const std::string pid_;
  const UnixNs start_;
  bool& is_first_;
  Output& out_;
  std::vector<std::string> heads_;
};

}  // namespace

void write_chrome_legacy(const Trace& trace, Processes processes, Output& out) {
  bool is_first = true;
  for (const Process& p : processes) {
    std::string pid = "CPU functions";
    if (processes.size() > 1) pid += ", " + process_label(p).substr(0, 1000);
    LegacyWriter(p, pid, trace.start, is_first, out).run();
  }
  out.write(is_first ? "[]\n" : "]\n");
}

}  // namespace torchprof::formats
