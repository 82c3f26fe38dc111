// The inside of the session: for tracer/session.cpp, which opens, forks and ends it, and tracer/definitions.cpp, which
// writes what events refer to. Nobody else includes this.
//
// Threads: everything needs the recorder's lock, except for `state` and `next_track`. Fork: the lock is held across it,
// so that the child's copy is consistent.
#pragma once

#include <pthread.h>

#include <atomic>
#include <climits>
#include <cstddef>
#include <cstring>
#include <string_view>

#include "tracer/session.h"
#include "tracer/spool/writer.h"

namespace torchprof::session {

struct Note {
  const char* key = nullptr;  // a literal
  char text[kNoteSize] = "";
  SourceState state = SourceState::kOff;
  bool is_source = false;
};

// Definitions share one stream of chunks: they are rare, and their order matters.
struct Definitions {
  ChunkHeader* chunk = nullptr;
  uint32_t sequence = 0;
  uint32_t used = 0;    // bytes of records in `chunk`
  uint64_t offset = 0;  // of `chunk` in the file
  ChunkRun run;         // what seal() has mapped ahead
};

// The chunks of steps (spool/layout.h, kSteps).
struct StepChunks {
  ChunkHeader* chunk = nullptr;
  uint32_t sequence = 0;
  uint32_t used = 0;  // bytes of records in `chunk`
  ChunkRun run;
  uint64_t last_step = 0;  // of the last StepEnd in `chunk`; 0: there is none
};

// Events that were recorded; only with -w auto. Atomic, since threads count without the lock; each stands for itself.
struct RecordedCounts {
  // Later ones take the places of the first, of which nobody asks any more.
  static constexpr size_t kWindows = 1024;
  std::atomic<uint64_t> all{0};
  std::atomic<uint64_t> windows[kWindows] = {};  // 32 bits number of the window | 32 bits events
  std::atomic<uint64_t> limit{UINT64_MAX};
  std::atomic<void (*)() noexcept> reached{nullptr};
};

// The definitions of the turns before this one that ids refer to; memory of our own.
struct EarlierDefinitions {
  std::byte* records = nullptr;
  size_t bytes = 0;
};

struct Recorder {
  std::atomic<State> state{State::kOff};
  std::atomic<uint16_t> turn{0};
  pid_t pid = 0;
  Config config;
  char directory[PATH_MAX] = "";  // RUN/spool
  bool is_armed_alone = false;    // the environment asks for it, and no launcher has set it
  bool is_launched = false;       // the launcher made the run directory before the program started
  SpoolWriter spool;
  StringTable strings;
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  pthread_key_t thread_end{};
  Definitions definitions;
  StepChunks steps;
  bool counts_events = false;
  RecordedCounts recorded;
  uint32_t next_string = 0;
  uint32_t next_function = 0;
  uint32_t next_object = 0;
  uint32_t next_call_site = 0;
  std::atomic<uint32_t> next_track{0};
  Note notes[kNotes * 2];
  size_t note_count = 0;
  InterpreterDef interpreter{};  // `interpreter` 0: none is known
  // Set in a forked child until its spool is open: the parent's definitions, which are to be copied.
  bool inherits = false;
  Definitions inherited;
  SpoolFile parent_file;
  char forked_from[SpoolWriter::kNameSize] = "";
  EarlierDefinitions earlier;
  bool has_lost_definitions = false;  // of an earlier turn
  // Set in a forked child whose parent had stopped or could not begin: it records nothing, and its first event is noted
  // in the file `uncaptured`.
  bool is_uncaptured = false;
  LossCause uncaptured_cause{};
};

// In static storage, and never destroyed: other libraries' exit handlers may still record.
alignas(Recorder) extern std::byte g_recorder[sizeof(Recorder)];
inline Recorder& recorder() noexcept { return *reinterpret_cast<Recorder*>(g_recorder); }

// False in a child that was made by a bare clone(), without our fork handlers: it shares the parent's spool and must
// not write to it.
bool is_our_process() noexcept;
void stop(State state) noexcept;

// The chunk of this buffer is complete: counts what is in it.
void count_events(const ThreadBuffer& buffer) noexcept;

// Room for one definition, zeroed. nullptr: the spool is full, and capture has stopped.
std::byte* begin_definition(uint64_t bytes) noexcept;
void commit_definition(uint64_t bytes) noexcept;

// `more`: `length` bytes that follow the fixed part.
template <class R>
bool define_with(R definition, const void* more, size_t length) noexcept {
  const uint64_t bytes = (sizeof(R) + length + 7) & ~uint64_t{7};
  std::byte* at = begin_definition(bytes);
  if (!at) return false;
  definition.header = RecordHeader::make(kKindOf<R>, bytes / 8, 0);
  memcpy(at, &definition, sizeof(R));
  if (length) memcpy(at + sizeof(R), more, length);
  commit_definition(bytes);
  return true;
}

template <class R>
bool define(R definition) noexcept {
  return define_with(definition, nullptr, 0);
}

const StringTable::Entry* intern_locked(std::string_view text, uint64_t hash) noexcept;
inline StringId intern_locked(std::string_view text) noexcept {
  const StringTable::Entry* entry = intern_locked(text, StringTable::hash(text));
  return entry ? entry->id : StringId{};
}
void write_note(const Note& note) noexcept;

// At the end of a turn: keeps what ids refer to. False: the spool cannot be read, or there is no memory.
bool keep_definitions() noexcept;
// In a later turn, once its spool is open. False: the spool is full.
bool copy_earlier() noexcept;

// In a forked child, once its spool is open: its definitions begin as a copy of the parent's, so that ids which are
// kept in the program (of a code object, an nn.Module) and in the table of names still mean the same.
bool copy_inherited() noexcept;

}  // namespace torchprof::session
