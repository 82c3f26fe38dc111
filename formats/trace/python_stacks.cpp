#include "formats/trace/python_stacks.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <memory>

#include "tracer/spool/python_stack.h"

namespace torchprof::formats {
namespace {

constexpr size_t kMostThreads = 4096;

std::string first_line_of(const std::string& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

std::string directory_of(uint32_t pid) { return "/proc/" + std::to_string(pid); }

int open_memory(uint32_t pid) { return open((directory_of(pid) + "/mem").c_str(), O_RDONLY | O_CLOEXEC); }

}  // namespace

bool may_read(uint32_t pid) {
  const int fd = open_memory(pid);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

std::vector<ThreadLines> stated_stacks(const Process& process) {
  std::vector<ThreadLines> out;
  for (const StatedStack& stack : process.stacks) {
    ThreadLines& thread = out.emplace_back();
    thread.tid = stack.tid;
    thread.at = stack.at;
    thread.beyond = stack.beyond;
    for (auto frame = stack.frames.rbegin(); frame != stack.frames.rend(); ++frame) {
      if (frame->function.value >= process.functions.size()) continue;
      const FunctionDef& def = process.functions[frame->function.value];
      thread.lines.push_back({.file = std::string(process.string(def.file)),
                              .name = std::string(process.string(def.qualname ? def.qualname : def.name)),
                              .first_line = def.line,
                              .line = frame->line});
    }
  }
  return out;
}

std::vector<ThreadLines> read_stacks(const Process& process, uint32_t pid, UnixNs now) {
  std::vector<ThreadLines> out;
  if (process.interpreter.interpreter == 0) return out;
  const int fd = open_memory(pid);
  if (fd < 0) return out;
  const ProcessMemory memory(fd);
  std::vector<PythonThread> threads(kMostThreads);
  threads.resize(find_python_threads(memory, process.interpreter, threads.data(), threads.size()));
  const auto stack = std::make_unique<PythonStack>();
  const auto code = std::make_unique<PythonCode>();
  for (const PythonThread& of : threads) {
    std::vector<StackLine> lines;
    const auto look = [&](const PythonStack& seen) {
      lines.assign(seen.size(), {});
      for (size_t i = 0; i < seen.size(); ++i)
        if (code->read(memory, process.interpreter, seen[i].code))
          lines[i] = {.file = std::string(code->file()),
                      .name = std::string(code->name()),
                      .first_line = code->first_line(),
                      .line = code->line(seen[i].offset)};
    };
    if (!stack->read(memory, process.interpreter, of, look)) continue;
    ThreadLines& thread = out.emplace_back();
    thread.tid = of.tid;
    // The kernel's directory has numbers of our PID namespace.
    if (pid == process.pid)
      thread.name = first_line_of(directory_of(pid) + "/task/" + std::to_string(of.tid) + "/comm");
    thread.at = now;
    thread.beyond = stack->beyond();
    thread.lines.assign(lines.rbegin(), lines.rend() - static_cast<std::ptrdiff_t>(stack->cut()));
    std::erase_if(thread.lines, [](const StackLine& line) { return line.name.empty(); });
  }
  close(fd);
  std::ranges::reverse(out);  // the interpreter's list begins with the latest thread
  return out;
}

}  // namespace torchprof::formats
