#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "formats/analysis/call_tree.h"
#include "formats/io/text.h"
#include "formats/replay/process_label.h"
#include "formats/write/stacks.h"

namespace torchprof::formats {
namespace {

class Frames {  // the frames of the whole file
 public:
  size_t number(std::string_view name) {
    const auto [it, is_new] = numbers_.try_emplace(std::string(name), numbers_.size());
    if (is_new) names_.push_back(json_string(name));
    return it->second;
  }
  const std::vector<std::string>& names() const { return names_; }  // as JSON strings

 private:
  std::unordered_map<std::string, size_t> numbers_;
  std::vector<std::string> names_;
};

void write_profile(const CallTree& tree, const CallTree::Thread& thread, const std::string& name,
                   int64_t CallTree::Node::*metric, const std::function<size_t(NameId)>& number, Output& out) {
  std::string weights;
  int64_t sum = 0;
  out.write(R"({"type":"sampled","name":)" + json_string(name) + R"(,"unit":"nanoseconds","samples":[)");
  tree.each_path(thread, [&](const std::vector<NameId>& path, const CallTree::Node& node) {
    if (node.*metric == 0) return;
    std::string sample = weights.empty() ? "\n[" : ",\n[";
    for (const NameId frame : path) sample.append(std::to_string(number(frame))).append(",");
    sample.back() = ']';
    out.write(sample);
    weights.append(weights.empty() ? "" : ",").append(std::to_string(node.*metric));
    sum += node.*metric;
  });
  out.write("\n],\"weights\":[" + weights + "],\"startValue\":0,\"endValue\":" + std::to_string(sum) + "}");
}

// Whether the thread has calls, and work on GPUs.
std::pair<bool, bool> what_is_in(const CallTree& tree, const CallTree::Thread& thread) {
  std::pair found{false, false};
  tree.each_path(thread, [&found](const std::vector<NameId>&, const CallTree::Node& node) {
    found.first |= node.calls != 0;
    found.second |= node.gpu_calls != 0;
  });
  return found;
}

}  // namespace

void write_speedscope(const Trace&, Processes processes, Output& out) {
  out.write(
      R"({"$schema":"https://www.speedscope.app/file-format-schema.json","exporter":"torchprof )" TORCHPROF_VERSION
      "\",\n\"profiles\":[");
  Frames frames;
  const char* comma = "\n";
  for (const Process& process : processes) {
    Replay replay(process);
    CallTree tree(process, replay);
    replay.run();
    std::vector<size_t> numbers(tree.names() + 1);  // frame index plus 1; 0: not made yet
    const auto number = [&](NameId name) {
      size_t& known = numbers[name.value];
      if (known == 0) known = frames.number(tree.text(name)) + 1;
      return known - 1;
    };
    for (const CallTree::Thread& thread : tree.threads()) {
      const std::string name = process_label(process) + ", thread " + thread.label;
      const auto [has_cpu, has_gpu] = what_is_in(tree, thread);
      const auto write = [&](const std::string& text, int64_t CallTree::Node::*metric) {
        out.write(comma);
        comma = ",\n";
        write_profile(tree, thread, text, metric, number, out);
      };
      if (has_cpu || !has_gpu) write(name, &CallTree::Node::own_ns);
      if (has_gpu) write(name + ", on GPUs", &CallTree::Node::gpu_ns);
    }
  }
  out.write("\n],\n\"shared\":{\"frames\":[");
  comma = "\n";
  for (const std::string& name : frames.names()) {
    out.write(comma);
    out.write("{\"name\":" + name + "}");
    comma = ",\n";
  }
  out.write("\n]}}\n");
}

}  // namespace torchprof::formats
