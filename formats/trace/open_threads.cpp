#include "formats/trace/open_threads.h"

#include <algorithm>
#include <memory>

#include "formats/io/text.h"
#include "formats/trace/names.h"
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

}  // namespace

std::vector<OpenThread> open_threads(const Process& process) {
  std::vector<OpenThread> out;
  if (!process.windows.empty() && process.windows.back().closed) return out;
  // Spans that were open in an earlier window have ended since.
  const UnixNs since = process.windows.empty() ? process.start : process.windows.back().begin;
  Names names(process);
  const auto open = std::make_unique<OpenSpans>();
  for (const Track& track : process.tracks) {
    *open = OpenSpans{};
    uint32_t next = 0;
    for (const uint32_t index : track.chunks) {
      const ChunkView& chunk = process.spool->chunks()[index];
      open->fold(chunk.records, chunk.base, chunk.sequence == next);
      next = chunk.sequence + 1;
      process.spool->release(chunk);
    }
    if (open->has_ended() || track.chunks.empty()) continue;
    OpenThread& thread = out.emplace_back();
    thread.tid = track.tid;
    thread.name = printable(track.python_name.empty() ? track.name : track.python_name);
    thread.deeper = open->deeper();
    thread.last = process.clock.to_unix(open->last());
    for (const OpenSpans::Span& span : open->spans()) {
      if (process.clock.to_unix(span.begin) < since) continue;
      std::string text = printable(names.text(name_of(process, names, span)));
      if (const std::string_view path = process.path(span.object); !path.empty())
        text.append(" (").append(printable(path)).append(")");
      thread.spans.push_back({std::move(text), process.clock.to_unix(span.begin)});
    }
  }
  return out;
}

}  // namespace torchprof::formats
