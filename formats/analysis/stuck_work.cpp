#include "formats/analysis/stuck_work.h"

#include <map>

#include "formats/gpu/activity.h"
#include "formats/gpu/names.h"
#include "formats/io/text.h"
#include "formats/replay/replay.h"
#include "formats/replay/thread_stack.h"
#include "formats/trace/gpu_index.h"
#include "formats/values/collectives.h"

namespace torchprof::formats {
namespace {

// Finds the calls that launched what is stuck.
class StuckLaunches : public Sink {
 public:
  StuckLaunches(const Process& process, Replay& replay, std::multimap<uint32_t, StuckWork*> wanted)
      : process_(process), replay_(replay), wanted_(std::move(wanted)) {}

  void slice(const Slice&) override {}
  void gpu_call(const GpuCall& call) override {
    // The nodes of a graph have one call, and may be on several streams.
    const auto [first, last] = wanted_.equal_range(call.api->correlation);
    for (auto found = first; found != last; ++found) tell(call, *found->second);
  }

 private:
  void tell(const GpuCall& call, StuckWork& out) const {
    out.tid = replay_.rows()[call.row].tid;
    out.collective.clear();
    out.spans.clear();
    for (const Span& span : call.stack->spans()) {
      std::string text = printable(replay_.names().text(span.name));
      if (const std::string_view path = process_.path(span.object); !path.empty())
        text.append(" (").append(printable(path)).append(")");
      out.spans.push_back(std::move(text));
      if (span.collective) out.collective = collective_text(span);
    }
  }

  std::string collective_text(const Span& span) const {
    Collective c;
    if (!decode_collective(process_.string(span.collective), c)) return {};
    std::string text = c.name;
    if (span.collective_sequence >= 0) text += ", number " + std::to_string(span.collective_sequence);
    if (!c.group.empty()) text += " of group " + c.group;
    if (!c.description.empty()) text += " (" + c.description + ")";
    return printable(text);
  }

  const Process& process_;
  Replay& replay_;
  std::multimap<uint32_t, StuckWork*> wanted_;
};

}  // namespace

std::vector<StuckWork> stuck_work(const Process& process) {
  std::vector<StuckWork> out;
  if (!process.gpu) return out;
  std::vector<uint32_t> correlations;
  for (const auto& [stream, def] : process.gpu->stuck()) {
    StuckWork& work = out.emplace_back();
    work.device = def.device;
    work.context = def.context;
    work.stream = def.stream;
    work.launched = def.launched;
    work.since = process.clock.to_unix(Ticks{def.since});
    if (def.name) work.name = printable(kernel_name(process.string(def.name)));
    correlations.push_back(def.correlation);
  }
  if (out.empty()) return out;
  std::multimap<uint32_t, StuckWork*> wanted;
  for (size_t i = 0; i < out.size(); ++i) wanted.emplace(correlations[i], &out[i]);
  Replay replay(process);
  StuckLaunches launches(process, replay, std::move(wanted));
  replay.run(launches);
  return out;
}

}  // namespace torchprof::formats
