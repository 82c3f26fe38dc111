#include "formats/trace/python_stacks.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "formats/io/process_files.h"
#include "formats/trace/track_cursor.h"
#include "tracer/spool/python_stack.h"

namespace torchprof::formats {
namespace {

constexpr size_t kMostThreads = 4096;

int open_memory(uint32_t pid) { return open(process_path(pid, "mem").c_str(), O_RDONLY | O_CLOEXEC); }

struct OwnFrames {  // what a thread says first of its Python stack
  UnixNs at;
  std::vector<StatedFrame> frames;  // outermost first; empty: it does not begin by stating it
};

// From that time on; none: it has no events of Python.
std::optional<OwnFrames> first_own_frames(const Process& process, const Track& track, UnixNs since) {
  std::optional<OwnFrames> own;
  for (size_t i = 0; i < track.chunks.size(); ++i) {
    const auto& chunks = process.spool->chunks();
    if (i + 1 < track.chunks.size() && process.clock.to_unix(chunks[track.chunks[i + 1]].base.ticks) < since) continue;
    const ChunkView& chunk = chunks[track.chunks[i]];
    bool is_whole = false;
    visit_records(chunk, [&](const RecordView& record) {
      const UnixNs at = process.clock.to_unix(record.time(chunk.base));
      if (own) {
        is_whole = record.kind() != Kind::PythonFrame;
        if (!is_whole) own->frames.push_back({record.as<PythonFrame>().function, record.as<PythonFrame>().object});
      } else if (at >= since && is_of_python_frames(record.kind())) {
        own.emplace(OwnFrames{at, {}});
        is_whole = record.kind() != Kind::PythonSync;
      }
      return !is_whole;
    });
    process.spool->release(chunk);
    if (is_whole) break;
  }
  return own;
}

StackLine line_of(const Process& process, const StackFrame& frame) {
  const FunctionDef& def = process.functions[frame.function.value];
  return {.file = std::string(process.string(def.file)),
          .name = std::string(process.string(def.qualname ? def.qualname : def.name)),
          .first_line = def.line,
          .line = frame.line};
}

}  // namespace

ImportPrefixes::ImportPrefixes(const Process& process) {
  for (const FunctionDef& def : process.functions)
    if (const std::string_view file = process.string(def.file); def.trim != 0 && def.trim < file.size())
      prefixes_.insert(file.substr(0, def.trim));
}

size_t ImportPrefixes::length(std::string_view file) const {
  size_t longest = 0;
  for (const std::string_view prefix : prefixes_)
    if (prefix.size() > longest && prefix.size() < file.size() && file.starts_with(prefix)) longest = prefix.size();
  return longest;
}

bool is_of(const Process& process, const StackLine& line, FunctionId function) {
  const FunctionDef& def = process.functions[function.value];
  if (line.first_line != def.line || !process.string(def.file).starts_with(line.file)) return false;
  const std::string_view name = process.string(def.qualname ? def.qualname : def.name);
  return name.starts_with(line.name);
}

void trim_stated(Process& process) {
  if (process.stacks.empty()) return;
  const ImportPrefixes prefixes(process);
  for (const StatedStack& stack : process.stacks)
    for (const StackFrame& frame : stack.frames)
      if (frame.function.value < process.functions.size())
        if (FunctionDef& def = process.functions[frame.function.value]; def.trim == 0)
          def.trim = static_cast<uint16_t>(prefixes.length(process.string(def.file)));
}

std::vector<StatedFrames> stated_in_last_window(const Process& process) {
  std::vector<StatedFrames> out;
  if (process.windows.empty() || process.windows.back().closed) return out;
  const UnixNs since = process.windows.back().begin;
  const auto is_known = [&process](FunctionId id) {
    return id.value < process.functions.size() && process.functions[id.value].id;
  };
  for (const StatedStack& stack : process.stacks) {
    if (stack.at < since) continue;
    const auto track = std::ranges::find(process.tracks.rbegin(), process.tracks.rend(), stack.tid, &Track::tid);
    std::optional<OwnFrames> own;
    if (track != process.tracks.rend()) own = first_own_frames(process, *track, since);
    if (own && (own->at < stack.at || own->frames.empty())) continue;
    StatedFrames& stated = out.emplace_back();
    stated.tid = stack.tid;
    for (auto frame = stack.frames.rbegin(); frame != stack.frames.rend(); ++frame)
      if (is_known(frame->function)) stated.frames.push_back({frame->function, {}});
    for (size_t i = 0; own && i < std::min(own->frames.size(), stated.frames.size()); ++i) {
      if (!is_known(own->frames[i].function) ||
          !is_of(process, line_of(process, {stated.frames[i].function, 0}), own->frames[i].function))
        break;
      stated.frames[i] = own->frames[i];
    }
    if (stated.frames.empty()) out.pop_back();
  }
  return out;
}

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
    for (auto frame = stack.frames.rbegin(); frame != stack.frames.rend(); ++frame)
      if (frame->function.value < process.functions.size()) thread.lines.push_back(line_of(process, *frame));
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
    // The kernel's directory has numbers of our PID namespace.
    const std::string name = pid == process.pid ? read_thread_file(pid, of.tid, "comm") : "";
    if (name.starts_with("torchprof")) continue;  // a thread of ours takes the GIL to attach
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
    thread.name = name;
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
