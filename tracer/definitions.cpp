#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "tracer/process/diag.h"
#include "tracer/process/lock.h"
#include "tracer/recorder.h"

namespace torchprof::session {
namespace {

bool next_definition_chunk() noexcept {
  Recorder& r = recorder();
  Definitions& d = r.definitions;
  ChunkHeader* fresh = r.spool.claim(ChunkKind::kDefinitions, TrackId{}, d.sequence, now(), d.chunk, d.run);
  if (!fresh) return false;
  d = {fresh, d.sequence + 1, 0, fresh->offset, d.run};
  return true;
}

void keep_note(const char* key, bool is_source, SourceState state, const char* text) noexcept {
  Recorder& r = recorder();
  const KeepErrno keep;
  const Lock lock(recorder().lock);
  Note* note = nullptr;
  for (size_t i = 0; i < r.note_count; ++i)
    if (r.notes[i].is_source == is_source && strcmp(r.notes[i].key, key) == 0) note = &r.notes[i];
  if (!note) {
    if (r.note_count == kNotes * 2) return;
    note = &r.notes[r.note_count++];
  }
  note->key = key;
  note->is_source = is_source;
  note->state = state;
  snprintf(note->text, sizeof(note->text), "%s", text);
  if (r.spool.is_open()) write_note(*note);
}

template <class R>
bool define_alone(const R& definition) noexcept {
  const KeepErrno keep;
  const Lock lock(recorder().lock);
  return define(definition);
}

}  // namespace

std::byte* begin_definition(uint64_t bytes) noexcept {
  Recorder& r = recorder();
  Definitions& d = r.definitions;
  if (!r.spool.is_open() || !is_our_process()) return nullptr;
  if ((!d.chunk || d.used + bytes > kChunkCapacity) && !next_definition_chunk()) {
    stop(State::kStopped);
    return nullptr;
  }
  return reinterpret_cast<std::byte*>(d.chunk) + sizeof(ChunkHeader) + d.used;
}

void commit_definition(uint64_t bytes) noexcept {
  Definitions& d = recorder().definitions;
  d.used += static_cast<uint32_t>(bytes);
  // Pairs with the load in SpoolReader::collect_chunk(): the definition is written.
  d.chunk->committed.store(d.used, std::memory_order_release);
}

const StringTable::Entry* intern_locked(std::string_view text, uint64_t hash) noexcept {
  Recorder& r = recorder();
  if (const StringTable::Entry* known = r.strings.find(text, hash)) return known;
  const StringId id{r.next_string + 1};
  if (!define_with(StringDef{{}, id, static_cast<uint32_t>(text.size())}, text.data(), text.size())) return nullptr;
  r.next_string = id.value;
  return r.strings.add(text, hash, id);
}

void write_note(const Note& note) noexcept {
  const StringId key = intern_locked(note.key);
  const StringId text = intern_locked(note.text);
  if (note.is_source)
    define(SourceDef{{}, key, text, note.state, {}});
  else
    define(MetaDef{{}, key, text});
}

bool copy_inherited() noexcept {
  Recorder& r = recorder();
  const Definitions from = r.inherited;
  // From the newest chunk backwards, as they are linked; the newest stays open for what the child adds. The copies are
  // linked in the same way, for the child's own children.
  uint64_t offset = from.offset;
  ChunkHeader* newer = nullptr;
  for (uint32_t sequence = from.sequence; sequence-- > 0;) {
    ChunkHeader header;
    if (!r.parent_file.read(offset, &header, sizeof(header)) || header.magic != kChunkMagic ||
        header.kind != ChunkKind::kDefinitions || header.sequence != sequence)
      return false;
    ChunkHeader* copy = r.spool.claim(ChunkKind::kDefinitions, TrackId{}, sequence, now(), nullptr, r.definitions.run);
    if (!copy) return false;
    if (newer) newer->previous = copy->offset;
    // The parent has gone on since the fork: its newest chunk counts as far as it was filled then.
    const uint32_t bytes =
        newer ? std::min(header.committed.load(std::memory_order_relaxed), kChunkCapacity) : from.used;
    auto* records = reinterpret_cast<std::byte*>(copy) + sizeof(ChunkHeader);
    if (!r.parent_file.read(offset + sizeof(header), records, bytes)) return false;
    // Pairs with the load in SpoolReader::collect_chunk(): the records are copied.
    copy->committed.store(bytes, std::memory_order_release);
    if (!newer)
      r.definitions = {copy, from.sequence, bytes, copy->offset, {}};
    else if (newer != r.definitions.chunk)
      r.spool.release(newer);
    newer = copy;
    offset = header.previous;
  }
  if (newer != r.definitions.chunk) r.spool.release(newer);
  return true;
}

namespace {

// Of the others each belongs to a turn: threads, windows, facts.
bool outlives_turn(Kind kind) noexcept {
  switch (kind) {
    case Kind::StringDef:
    case Kind::FunctionDef:
    case Kind::LinesDef:
    case Kind::CallSiteDef:
    case Kind::ObjectDef:
    case Kind::ObjectDetailDef:
    case Kind::GpuDeviceDef:
    case Kind::GpuContextDef:
    case Kind::NativeObjectDef:
    case Kind::NativeFrameDef:
      return true;
    default:
      return false;
  }
}

// Calls use(record, bytes) for each of them, until it is false.
template <class Use>
bool each_record(const std::byte* records, size_t bytes, Use use) noexcept {
  for (size_t at = 0; at + sizeof(RecordHeader) <= bytes;) {
    RecordHeader header;
    memcpy(&header, records + at, sizeof(header));
    if (header.words() == 0 || at + header.bytes() > bytes) return false;
    if (outlives_turn(header.kind()) && !use(records + at, header.bytes())) return false;
    at += header.bytes();
  }
  return true;
}

std::byte* map_memory(size_t bytes) noexcept {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

}  // namespace

bool keep_definitions() noexcept {
  Recorder& r = recorder();
  const Definitions& d = r.definitions;
  if (d.sequence == 0) return true;
  // They are found from the newest chunk backwards.
  const size_t room = size_t{d.sequence} * kChunkCapacity;
  std::byte* const all = map_memory(room);
  if (!all) return false;
  size_t begin = room;
  uint64_t offset = d.offset;
  bool is_whole = true;
  if (d.chunk) {  // it is mapped, and needs no file: that may have been removed
    begin -= d.used;
    memcpy(all + begin, reinterpret_cast<const std::byte*>(d.chunk) + sizeof(ChunkHeader), d.used);
    offset = d.chunk->previous;
  }
  for (uint32_t sequence = d.sequence - (d.chunk ? 1 : 0); is_whole && sequence-- > 0;) {
    ChunkHeader header;
    is_whole = r.spool.file().read(offset, &header, sizeof(header)) && header.sequence == sequence;
    const uint32_t bytes = std::min(header.committed.load(std::memory_order_relaxed), kChunkCapacity);
    begin -= is_whole ? bytes : 0;
    is_whole = is_whole && r.spool.file().read(offset + sizeof(header), all + begin, bytes);
    offset = header.previous;
  }
  size_t kept = 0;
  is_whole = is_whole && each_record(all + begin, room - begin, [&kept](const std::byte*, size_t bytes) noexcept {
               kept += bytes;
               return true;
             });
  std::byte* const records = is_whole && kept > 0 ? map_memory(kept) : nullptr;
  if (records) {
    if (r.earlier.records) munmap(r.earlier.records, r.earlier.bytes);
    r.earlier = {records, 0};
    each_record(all + begin, room - begin, [&r](const std::byte* record, size_t bytes) noexcept {
      memcpy(r.earlier.records + r.earlier.bytes, record, bytes);
      r.earlier.bytes += bytes;
      return true;
    });
  }
  munmap(all, room);
  return is_whole && (records || kept == 0);
}

bool copy_earlier() noexcept {
  const EarlierDefinitions& from = recorder().earlier;
  return each_record(from.records, from.bytes, [](const std::byte* record, size_t bytes) noexcept {
    std::byte* const at = begin_definition(bytes);
    if (!at) return false;
    memcpy(at, record, bytes);
    commit_definition(bytes);
    return true;
  });
}

namespace detail {

const StringTable::Entry* intern_slow(std::string_view text, uint64_t hash) noexcept {
  const KeepErrno keep;
  const Lock lock(recorder().lock);
  return intern_locked(text, hash);
}

}  // namespace detail

StringId intern_overload_into(KnownNames::Name& slot, const char* name, const char* overload) noexcept {
  char text[512];
  const size_t length = strnlen(name, sizeof(text) / 2 - 1), more = strnlen(overload, sizeof(text) / 2 - 1);
  memcpy(text, name, length);
  text[length] = 0;
  memcpy(text + length + 1, overload, more);
  const StringTable::Entry* entry = detail::intern_entry({text, more ? length + 1 + more : length});
  if (!entry) return {};
  slot = {name, entry->text, more ? entry->text + length + 1 : entry->text + length, entry->id};
  return entry->id;
}

FunctionId define_function(FunctionDef function) noexcept {
  const KeepErrno keep;
  const Lock lock(recorder().lock);
  const bool is_new = !function.id;
  if (is_new) function.id = {recorder().next_function + 1};
  if (!define(function)) return {};
  if (is_new) ++recorder().next_function;
  return function.id;
}

ObjectId define_object(ObjectDef object) noexcept {
  const KeepErrno keep;
  const Lock lock(recorder().lock);
  const bool is_new = !object.id;
  if (is_new) object.id = {recorder().next_object + 1};
  if (!define(object)) return {};
  if (is_new) ++recorder().next_object;
  return object.id;
}

bool define_detail(const ObjectDetailDef& detail, const unsigned char* bytes) noexcept {
  const KeepErrno keep;
  const Lock lock(recorder().lock);
  return define_with(detail, bytes, detail.length);
}

bool define_lines(const LinesDef& lines, const unsigned char* pairs) noexcept {
  const KeepErrno keep;
  const Lock lock(recorder().lock);
  return define_with(lines, pairs, lines.length);
}

CallSiteId define_call_site(StringId name, FunctionId function, uint32_t line) noexcept {
  const KeepErrno keep;
  const Lock lock(recorder().lock);
  if (!define(CallSiteDef{{}, CallSiteId{recorder().next_call_site + 1}, name, function, line})) return {};
  return CallSiteId{++recorder().next_call_site};
}

void define_thread_name(TrackId track, uint32_t tid, StringId name) noexcept {
  define_alone(ThreadDef{{}, track, tid, {}, name});
}
void define_torch_thread(TrackId track, uint64_t torch_thread) noexcept {
  define_alone(TorchThreadDef{{}, track, 0, torch_thread});
}
bool define_gpu(const GpuDeviceDef& device) noexcept { return define_alone(device); }
bool define_gpu(const GpuContextDef& context) noexcept { return define_alone(context); }
bool define_gpu(const GpuStuckDef& stuck) noexcept { return define_alone(stuck); }

DefinitionLock::DefinitionLock() noexcept : lock_(recorder().lock) {}
const StringTable::Entry* DefinitionLock::intern(std::string_view text) noexcept {
  text = text.substr(0, kMaxString);
  return intern_locked(text, StringTable::hash(text));
}
bool DefinitionLock::define(const NativeObjectDef& object) noexcept { return session::define(object); }
bool DefinitionLock::define(const NativeFrameDef& frame) noexcept { return session::define(frame); }

void define_fact(std::string_view key, std::string_view value) noexcept {
  const KeepErrno keep;
  const Lock lock(recorder().lock);
  if (!recorder().spool.is_open()) return;
  const StringId key_id = intern_locked(key), value_id = intern_locked(value.substr(0, kMaxString));
  define(MetaDef{{}, key_id, value_id});
}

void note_fact(const char* key, const char* value) noexcept { keep_note(key, false, SourceState::kOn, value); }
void note_source(const char* name, SourceState state, const char* text) noexcept { keep_note(name, true, state, text); }

void note_interpreter(const InterpreterDef& interpreter) noexcept {
  Recorder& r = recorder();
  const KeepErrno keep;
  const Lock lock(r.lock);
  r.interpreter = interpreter;
  if (r.spool.is_open()) define(interpreter);
}

}  // namespace torchprof::session
