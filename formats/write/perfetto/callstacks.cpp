#include "formats/write/perfetto/callstacks.h"

#include <algorithm>
#include <protozero/pbf_writer.hpp>

#include "formats/io/perfetto_fields.h"

namespace torchprof::formats::perfetto {

using protozero::pbf_writer;

std::string_view Callstacks::field(NativeFrameId innermost) {
  if (!process_.native || !process_.native->has(innermost)) return {};
  const auto [it, is_new] = fields_.try_emplace(innermost.value);
  if (!is_new) return it->second;
  Ids ids;
  process_.native->each_place(innermost, [&](NativeFrameId, uint32_t place) {
    const Ids& frames = frames_of(place);
    ids.insert(ids.end(), frames.begin(), frames.end());
    return true;
  });
  if (ids.empty()) return {};
  const uint64_t id = fields_.size();
  names_.define(interned::kCallstacks, [&](pbf_writer& stack) {
    stack.add_uint64(interned::kId, id);
    for (auto frame = ids.rbegin(); frame != ids.rend(); ++frame) stack.add_uint64(callstack::kFrame, *frame);
  });
  pbf_writer(it->second).add_uint64(event::kCallstack, id);
  return it->second;
}

// One frame for each function that was inlined at the place.
const Callstacks::Ids& Callstacks::frames_of(uint32_t place) {
  const auto [it, is_new] = frames_.try_emplace(place);
  if (!is_new) return it->second;
  const NativeStacks& stacks = *process_.native;
  const NativeStacks::Where where = stacks.where(place);
  const uint64_t object = where.object != nullptr ? mapping(*where.object) : 0;
  for (const uint32_t text : where.texts) {
    const Symbol& symbol = stacks.symbol(text);
    const uint64_t name = names_.function_name(symbol.function.empty() ? stacks.texts()[text] : symbol.function);
    const uint64_t file = symbol.file.empty() ? 0 : names_.source_path(symbol.file);
    it->second.push_back(++last_frame_);
    names_.define(interned::kFrames, [&](pbf_writer& frame) {
      frame.add_uint64(interned::kId, last_frame_);
      frame.add_uint64(frame::kFunctionName, name);
      if (object != 0) {
        frame.add_uint64(frame::kMapping, object);
        frame.add_uint64(frame::kRelativePc, where.pc - 1 - where.object->bias);  // of the call
      }
      if (file != 0) frame.add_uint64(frame::kSourcePath, file);
      if (symbol.line != 0) frame.add_uint32(frame::kLine, symbol.line);
    });
  }
  return it->second;
}

uint64_t Callstacks::mapping(const NativeObjectDef& object) {
  const auto [it, is_new] = mappings_.try_emplace(object.id.value, mappings_.size() + 1);
  const uint64_t id = it->second;
  if (!is_new) return id;
  const std::string_view build_id = process_.string(object.build_id);
  if (!build_id.empty()) {
    names_.define(interned::kBuildIds, [&](pbf_writer& entry) {
      entry.add_uint64(interned::kId, id);
      entry.add_bytes(interned::kName, build_id.data(), build_id.size());
    });
  }
  Ids parts;  // the parts between slashes
  std::string_view path = process_.string(object.path);
  while (!path.empty()) {
    const size_t end = std::min(path.find('/'), path.size());
    if (end != 0) parts.push_back(names_.mapping_path(path.substr(0, end)));
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  names_.define(interned::kMappings, [&](pbf_writer& mapping) {
    mapping.add_uint64(interned::kId, id);
    if (!build_id.empty()) mapping.add_uint64(mapping::kBuildId, id);
    mapping.add_uint64(mapping::kStart, object.start);
    mapping.add_uint64(mapping::kEnd, object.end);
    for (const uint64_t part : parts) mapping.add_uint64(mapping::kPath, part);
  });
  return id;
}

}  // namespace torchprof::formats::perfetto
