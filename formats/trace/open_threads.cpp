#include "formats/trace/open_threads.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>

#include "formats/io/text.h"
#include "formats/trace/names.h"
#include "formats/trace/track_cursor.h"
#include "tracer/spool/open_spans.h"

namespace torchprof::formats {
namespace {

NameId name_of(const Process& process, Names& names, const OpenSpans::Span& span) {
  switch (span.kind) {
    case Kind::PythonFrame:
      return names.function(span.function, span.object);
    case Kind::CCallBegin:
      return names.string(span.call);
    case Kind::CCallBeginAt:
      return names.string(span.site.value < process.call_sites.size() ? process.call_sites[span.site.value].name
                                                                      : StringId{});
    default:
      return names.operator_name(span.op.name);
  }
}

struct Recorded {  // what a thread's records leave open
  OpenSpan span;
  FunctionId function;  // of a Python function with a frame of its own; none: of anything else
};

// Both, outermost first; nothing where they contradict each other.
std::optional<std::vector<OpenSpan>> merged(const Process& process, const ImportPrefixes& prefixes,
                                            const std::vector<Recorded>& recorded, const ThreadLines& stack) {
  std::vector<OpenSpan> out;
  size_t next = 0;
  const auto add_frames = [&](size_t until) {
    for (; next < until; ++next) {
      const StackLine& line = stack.lines[next];
      const std::string_view name = std::string_view(line.name).substr(line.name.rfind('.') + 1);
      FunctionDef def{};
      def.line = line.first_line;
      out.push_back({printable(place_text(def, 0, prefixes.cut(line.file), name)), UnixNs{}, line.line});
    }
  };
  for (const Recorded& r : recorded) {
    if (r.function) {
      size_t at = next;
      while (at < stack.lines.size() && !is_of(process, stack.lines[at], r.function)) ++at;
      if (at == stack.lines.size()) return std::nullopt;
      add_frames(at);
      ++next;
    }
    out.push_back(r.span);
    if (r.function) out.back().line = stack.lines[next - 1].line;
  }
  add_frames(stack.lines.size());
  return out;
}

// Whether a Python frame of the thread has begun, ended or been stated since then. Operators leave the stack as it was.
bool has_python_since(const Process& process, const Track& track, UnixNs since) {
  for (auto index = track.chunks.rbegin(); index != track.chunks.rend(); ++index) {
    const ChunkView& chunk = process.spool->chunks()[*index];
    bool is_there = false;
    visit_records(chunk, [&](const RecordView& record) {
      is_there = is_of_python_frames(record.kind()) && process.clock.to_unix(record.time(chunk.base)) >= since;
      return !is_there;
    });
    if (is_there) return true;
    process.spool->release(chunk);
    if (process.clock.to_unix(chunk.base.ticks) < since) break;
  }
  return false;
}

// Adds what the stack says to `thread`, whose spans are the recorded ones.
void add_stack(const Process& process, const ImportPrefixes& prefixes, const std::vector<Recorded>& recorded,
               const ThreadLines& stack, OpenThread& thread) {
  constexpr int64_t kJustNow = 1'000'000'000;
  auto spans = merged(process, prefixes, recorded, stack);
  // A thread that runs has left what was recorded a moment before.
  if (!spans && stack.at - thread.last < kJustNow) return;
  thread.spans = spans ? std::move(*spans) : *merged(process, prefixes, {}, stack);
  thread.deeper = 0;
  thread.stack_at = stack.at;
}

}  // namespace

std::vector<OpenThread> open_threads(const Process& process, std::span<const ThreadLines> stacks) {
  std::vector<OpenThread> out;
  const bool is_open = process.windows.empty() || !process.windows.back().closed;
  if (!is_open && stacks.empty()) return out;
  // Spans that were open in an earlier window have ended since.
  const UnixNs since = process.windows.empty() ? process.start : process.windows.back().begin;
  Names names(process);
  const ImportPrefixes prefixes(process);
  const auto open = std::make_unique<OpenSpans>();
  std::set<uint32_t> ended;
  for (const Track& track : process.tracks) {
    *open = OpenSpans{};
    uint32_t next = 0;
    for (const uint32_t index : track.chunks) {
      const ChunkView& chunk = process.spool->chunks()[index];
      open->fold(chunk.records, chunk.base, chunk.sequence == next);
      next = chunk.sequence + 1;
      process.spool->release(chunk);
    }
    if (open->has_ended()) ended.insert(track.tid);
    if (open->has_ended() || track.chunks.empty()) continue;
    ended.erase(track.tid);  // the kernel has given the number again
    OpenThread& thread = out.emplace_back();
    thread.tid = track.tid;
    thread.name = printable(track.python_name.empty() ? track.name : track.python_name);
    thread.last = process.clock.to_unix(open->last());
    std::vector<Recorded> recorded;
    if (is_open) {
      thread.deeper = open->deeper();
      for (const OpenSpans::Span& span : open->spans()) {
        if (process.clock.to_unix(span.begin) < since) continue;
        std::string text = printable(names.text(name_of(process, names, span)));
        if (const std::string_view path = process.path(span.object); !path.empty())
          text.append(" (").append(printable(path)).append(")");
        thread.spans.push_back({std::move(text), process.clock.to_unix(span.begin)});
        const bool has_frame = span.kind == Kind::PythonFrame && span.function.value < process.functions.size() &&
                               process.functions[span.function.value].kind != FunctionKind::kImport &&
                               process.functions[span.function.value].kind != FunctionKind::kCompile;
        recorded.push_back({thread.spans.back(), has_frame ? span.function : FunctionId{}});
      }
    }
    const auto stack = std::ranges::find(stacks, thread.tid, &ThreadLines::tid);
    if (stack != stacks.end() && (stack->at >= thread.last || !has_python_since(process, track, stack->at)))
      add_stack(process, prefixes, recorded, *stack, thread);
  }
  for (const ThreadLines& stack : stacks) {
    const bool is_known = std::ranges::find(out, stack.tid, &OpenThread::tid) != out.end();
    if (is_known || ended.contains(stack.tid)) continue;
    OpenThread& thread = out.emplace_back();
    thread.tid = stack.tid;
    thread.name = printable(stack.name);
    add_stack(process, prefixes, {}, stack, thread);
  }
  if (!is_open) std::erase_if(out, [](const OpenThread& thread) { return thread.spans.empty(); });
  return out;
}

}  // namespace torchprof::formats
