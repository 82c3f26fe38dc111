#include "formats/report/run_facts.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "formats/io/cells.h"
#include "formats/io/text.h"
#include "formats/trace/distributed.h"
#include "formats/trace/endings.h"
#include "formats/trace/gpu_index.h"

namespace torchprof::formats {
namespace {

std::string joined(const std::vector<std::string>& texts) {
  std::string out;
  for (const std::string& text : texts) out.append(out.empty() ? "" : ", ").append(text);
  return out;
}

// Each text once, and how often: "4 x NVIDIA H100".
std::string counted(const std::vector<std::string>& texts) {
  std::map<std::string, size_t> times;
  for (const std::string& text : texts) ++times[text];
  std::vector<std::string> lines;
  for (const auto& [text, n] : times) lines.push_back(n == 1 ? text : std::to_string(n) + " x " + text);
  return joined(lines);
}

// Each text once, in the order in which they come.
class Distinct {
 public:
  void add(std::string_view text) {
    if (!text.empty() && known_.insert(std::string(text)).second) texts_.emplace_back(text);
  }
  // At most a few; of more, their number.
  std::string text() const {
    constexpr size_t kMost = 4;
    if (texts_.size() <= kMost) return joined(texts_);
    return joined({texts_.begin(), texts_.begin() + kMost}) + " and " + std::to_string(texts_.size() - kMost) + " more";
  }

 private:
  std::set<std::string> known_;
  std::vector<std::string> texts_;
};

// "2026-07-31 23:59:59 UTC"
std::string date_text(UnixNs time) {
  std::string text = iso_time(time.value).substr(0, std::string_view("2026-07-31T23:59:59").size());
  std::ranges::replace(text, 'T', ' ');
  return text + " UTC";
}

std::string command_of(const Process& p) {
  std::string text;
  for (const std::string_view argument : p.command) text.append(text.empty() ? "" : " ").append(argument);
  return text;
}

// Behind this a fact says how it is known, or with what it was built.
std::string_view front(std::string_view text, char end) { return text.substr(0, text.find(end)); }

// As CUDA counts: 12040 is 12.4.
std::string cuda_version(std::string_view number) {
  if (number.size() < 4 || number.size() > 6 || number.find_first_not_of("0123456789") != number.npos) return {};
  const int version = std::stoi(std::string(number));
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace

RunFacts facts_of(const Trace& trace) {
  RunFacts facts;
  const auto add = [&facts](const char* label, std::string text) {
    if (!text.empty()) facts.emplace_back(label, std::move(text));
  };
  if (trace.processes.empty()) return facts;
  const Process* root = &trace.processes.front();
  Distinct hosts, torch, python, cuda, backends;
  std::map<std::pair<std::string, uint32_t>, std::string> gpus;  // by host and number
  size_t ranks = 0;
  for (const Process& p : trace.processes) {
    if (p.place < root->place) root = &p;
    hosts.add(p.host);
    torch.add(front(p.meta("torch.version"), ','));
    python.add(front(p.meta("python.version"), ' '));
    cuda.add(cuda_version(p.meta("cuda.runtime")));
    const Distributed distributed = distributed_of(p);
    backends.add(distributed.backend);
    ranks += p.role.starts_with("rank ") && p.role.find(',') == p.role.npos;
    if (!p.gpu) continue;
    for (const auto& [number, device] : p.gpu->devices())
      gpus[{std::string(p.host), number}] = std::string(p.string(device.name));
  }
  add("Command", command_of(*root));
  add("Began", date_text(trace.start));
  add("Took", duration_text(static_cast<double>(trace.end - trace.start)));
  add("Ended", ending_text(*root));
  add("Host", hosts.text());
  if (ranks > 1) add("Ranks", std::to_string(ranks) + (backends.text().empty() ? "" : " (" + backends.text() + ")"));
  std::vector<std::string> names;
  for (const auto& [key, name] : gpus) names.push_back(name.empty() ? "not named" : name);
  add(names.size() > 1 ? "GPUs" : "GPU", counted(names));
  add("torch", torch.text());
  add("Python", python.text());
  add("CUDA", cuda.text());
  return facts;
}

RunFacts facts_of_file(const std::string& name, const Report& report) {
  RunFacts facts{{"File", name}};
  // A file may count its times from elsewhere than 1970.
  constexpr int64_t kYear2010 = 1'262'304'000'000'000'000;
  if (report.start.value > kYear2010) facts.emplace_back("Began", date_text(report.start));
  std::vector<std::string> gpus;
  for (const ReportPart& part : report.parts)
    for (const GpuDeviceUse& device : part.statistics.gpu.devices)
      gpus.push_back(device.name.empty() ? "GPU " + std::to_string(device.device) : device.name);
  if (!gpus.empty()) facts.emplace_back(gpus.size() > 1 ? "GPUs" : "GPU", counted(gpus));
  return facts;
}

}  // namespace torchprof::formats
