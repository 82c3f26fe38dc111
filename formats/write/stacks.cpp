#include "formats/write/stacks.h"

#include <algorithm>
#include <string>
#include <vector>

#include "formats/analysis/call_tree.h"
#include "formats/io/text.h"
#include "formats/replay/process_label.h"

namespace torchprof::formats {
namespace {

std::string frame(std::string_view text) {
  std::string line = printable(text);
  std::ranges::replace_if(
      line, [](char c) { return c == ' ' || c == ';'; }, '_');
  return line;
}

void write(Processes processes, int64_t CallTree::Node::*metric, Output& out) {
  for (const Process& process : processes) {
    Replay replay(process);
    CallTree tree(process, replay);
    replay.run();
    std::vector<std::string> frames(tree.names() + 1);
    for (const CallTree::Thread& thread : tree.threads()) {
      const std::string head = frame(process_label(process)).append(";").append(frame(thread.label));
      int64_t left_over = 0;  // ns
      tree.each_path(thread, [&](const std::vector<NameId>& path, const CallTree::Node& node) {
        left_over += node.*metric;
        const int64_t us = left_over / 1000;
        left_over %= 1000;
        if (us == 0) return;
        out.write(head);
        for (const NameId name : path) {
          std::string& text = frames[name.value];
          if (text.empty()) text.append(";").append(frame(tree.text(name)));
          out.write(text);
        }
        out.write(std::string(" ").append(std::to_string(us)).append("\n"));
      });
    }
  }
}

}  // namespace

void write_stacks(const Trace&, Processes processes, Output& out) { write(processes, &CallTree::Node::own_ns, out); }
void write_cuda_stacks(const Trace&, Processes processes, Output& out) {
  write(processes, &CallTree::Node::gpu_ns, out);
}

}  // namespace torchprof::formats
