#include "tracer/session.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <new>

#include "tracer/diag.h"
#include "tracer/lock.h"
#include "tracer/native_stack.h"
#include "tracer/spool_writer.h"

namespace torchprof {

thread_local constinit ThreadBuffer* t_buffer = nullptr;

namespace session {
namespace {

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
  ChunkRun run;         // always one chunk
};

struct Recorder {
  std::atomic<State> state{State::kOff};
  pid_t pid = 0;
  Config config;
  char directory[PATH_MAX] = "";  // of the spools: the run directory's
  SpoolWriter spool;
  StringTable strings;
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  pthread_key_t thread_end{};
  Definitions definitions;
  uint32_t next_string = 0;
  uint32_t next_function = 0;
  uint32_t next_object = 0;
  uint32_t next_call_site = 0;
  std::atomic<uint32_t> next_track{0};
  Note notes[kNotes * 2];
  size_t note_count = 0;
  // Set in a forked child until its spool is open: what of the parent's definitions to copy.
  bool inherits = false;
  Definitions inherited;
  char forked_from[SpoolWriter::kNameSize] = "";
};

// In static storage without a constructor or destructor that does anything: other libraries' exit handlers may still
// record.
alignas(Recorder) std::byte g_storage[sizeof(Recorder)];
Recorder& recorder() noexcept { return *reinterpret_cast<Recorder*>(g_storage); }

// False in a child that a bare clone() made behind the fork handlers' back: it shares the parent's spool and must not
// write to it.
bool is_our_process() noexcept {
  if (getpid() == recorder().pid) return true;
  detail::g_live.store(false, std::memory_order_relaxed);
  return false;
}

void stop(State state) noexcept {
  Recorder& r = recorder();
  detail::g_live.store(false, std::memory_order_relaxed);
  r.state.store(state, std::memory_order_relaxed);
  if (r.spool.is_open()) r.spool.stop(now());
}

// ---- definitions, all under the lock
// --------------------------------------------------------------------------------------

bool next_definition_chunk() noexcept {
  Recorder& r = recorder();
  Definitions& d = r.definitions;
  ChunkHeader* fresh = r.spool.claim(ChunkKind::kDefinitions, TrackId{}, d.sequence, now(), d.chunk, d.run);
  if (!fresh) return false;
  d = {fresh, d.sequence + 1, 0, fresh->offset, {}};
  return true;
}

// Room for one definition, zeroed. nullptr: the spool is full, capture has stopped.
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
  d.chunk->committed.store(d.used, std::memory_order_release);  // pairs with the reader's load
}

// `length` bytes follow the fixed part.
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

const StringTable::Entry* intern_locked(std::string_view text, uint64_t hash) noexcept {
  Recorder& r = recorder();
  if (const StringTable::Entry* known = r.strings.find(text, hash)) return known;
  const StringId id{r.next_string + 1};
  if (!define_with(StringDef{{}, id, static_cast<uint32_t>(text.size())}, text.data(), text.size())) return nullptr;
  r.next_string = id.value;
  return r.strings.add(text, hash, id);
}

StringId intern_locked(std::string_view text) noexcept {
  const StringTable::Entry* entry = intern_locked(text, StringTable::hash(text));
  return entry ? entry->id : StringId{};
}

void write_note(const Note& note) noexcept {
  const StringId key = intern_locked(note.key);
  const StringId text = intern_locked(note.text);
  if (note.is_source)
    define(SourceDef{{}, key, text, note.state, {}});
  else
    define(MetaDef{{}, key, text});
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

// ---- opening
// ----------------------------------------------------------------------------------------------------------

// The child's definitions begin as a copy of the parent's, so that ids which live in the program (a code object's, an
// nn.Module's) and in the table of names still mean the same.
bool copy_inherited(int parent_file) noexcept {
  Recorder& r = recorder();
  const Definitions from = r.inherited;
  // From the newest backwards, as the chunks are linked; the newest stays open for what the child adds.
  uint64_t offset = from.offset;
  for (uint32_t sequence = from.sequence; sequence-- > 0;) {
    ChunkHeader header;
    if (pread(parent_file, static_cast<void*>(&header), sizeof(header), static_cast<off_t>(offset)) != sizeof(header))
      return false;
    ChunkHeader* copy = r.spool.claim(ChunkKind::kDefinitions, TrackId{}, sequence, now(), nullptr, r.definitions.run);
    if (!copy) return false;
    const bool is_newest = sequence + 1 == from.sequence;
    // The parent has gone on since the fork: its newest chunk counts as far as it was filled then.
    const uint32_t bytes = is_newest ? from.used : std::min(header.committed.load(), kChunkCapacity);
    auto* records = reinterpret_cast<std::byte*>(copy) + sizeof(ChunkHeader);
    if (pread(parent_file, records, bytes, static_cast<off_t>(offset + sizeof(header))) != static_cast<ssize_t>(bytes))
      return false;
    copy->committed.store(bytes, std::memory_order_release);  // pairs with the reader's load
    if (is_newest)
      r.definitions = {copy, from.sequence, bytes, copy->offset, {}};
    else
      r.spool.release(copy);
    offset = header.previous;
  }
  return true;
}

bool open_spool_locked() noexcept {
  Recorder& r = recorder();
  if (r.state.load(std::memory_order_relaxed) != State::kArmed) return r.spool.is_open();
  const int parent_file = r.inherits ? r.spool.file() : -1;  // the child's own descriptor of the parent's file
  const bool opened = r.spool.open(r.directory, {r.config.max_size, r.config.max_run_size}, r.config.keep,
                                   detail::g_clock, r.forked_from);
  if (!opened) {
    if (parent_file >= 0) close(parent_file);
    stop(State::kFailed);
    return false;
  }
  r.definitions = Definitions{};
  r.state.store(State::kCapturing, std::memory_order_relaxed);
  if (r.inherits && !copy_inherited(parent_file)) {
    warn_once(Cause::kOutput, "process %d cannot read its parent's spool after fork: nothing of it is recorded",
              static_cast<int>(getpid()));
    stop(State::kFailed);
  }
  if (parent_file >= 0) close(parent_file);
  r.inherits = false;
  for (size_t i = 0; i < r.note_count; ++i) write_note(r.notes[i]);
  return r.state.load(std::memory_order_relaxed) == State::kCapturing;
}

void read_thread_name(char (&name)[16]) noexcept {
  if (prctl(PR_GET_NAME, name) != 0) name[0] = 0;
}

void define_thread_locked(ThreadBuffer& buffer) noexcept {
  read_thread_name(buffer.name);
  const StringId name = intern_locked(buffer.name);
  define(ThreadDef{{}, buffer.track, buffer.tid, name, {}});
  if (recorder().config.gpu) define(ThreadHandleDef{{}, buffer.track, static_cast<uint32_t>(pthread_self())});
}

// pthread runs this when a thread ends; not for the main thread that returns from main, nor after _exit.
void on_thread_end(void* value) noexcept {
  auto* buffer = static_cast<ThreadBuffer*>(value);
  const KeepErrno keep;
  // Left over from the parent of a fork: nothing of it is ours.
  if (buffer != t_buffer) return;
  if (detail::g_live.load(std::memory_order_relaxed) && buffer->append<ThreadEnd>(now())) buffer->commit();
  t_buffer = nullptr;  // an event in a later destructor begins a new track
  SpoolWriter& spool = recorder().spool;
  if (buffer->chunk) spool.release(buffer->chunk);
  spool.release(buffer->run);
  if (buffer->open) munmap(buffer->open, sizeof(OpenSpans));
  native::free_thread(buffer->native);
  munmap(buffer, sizeof(ThreadBuffer));
}

void before_fork() noexcept { pthread_mutex_lock(&recorder().lock); }
void after_fork_in_parent() noexcept { pthread_mutex_unlock(&recorder().lock); }

// Only the forking thread is left. What the parent mapped is leaked, never written or destroyed.
void after_fork_in_child() noexcept {
  Recorder& r = recorder();
  r.lock = PTHREAD_MUTEX_INITIALIZER;
  r.pid = getpid();
  t_buffer = nullptr;
  pthread_setspecific(r.thread_end, nullptr);
  if (r.state.load(std::memory_order_relaxed) != State::kCapturing) return;
  r.inherits = true;
  r.inherited = r.definitions;
  r.definitions = Definitions{};
  static_assert(sizeof(r.forked_from) == SpoolWriter::kNameSize);
  memcpy(r.forked_from, r.spool.name(), sizeof(r.forked_from));
  r.spool.abandon();
  r.next_track.store(0, std::memory_order_relaxed);
  r.state.store(State::kArmed, std::memory_order_relaxed);
}

// What is open on the thread once its chunk is full, so that the next one can begin with it.
void fold_chunk(ThreadBuffer& buffer) noexcept {
  if (!buffer.open) {
    void* memory = mmap(nullptr, sizeof(OpenSpans), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return;
    buffer.open = new (memory) OpenSpans;
  }
  const std::byte* records = reinterpret_cast<std::byte*>(buffer.chunk) + sizeof(ChunkHeader);
  buffer.open->fold({records, buffer.next}, buffer.chunk->base, true);
}

void restate(ThreadBuffer& buffer) noexcept {
  const auto spans = buffer.open->spans();
  const Restate head{RecordHeader::make(Kind::Restate, sizeof(Restate) / 8 + spans.size(), 0),
                     static_cast<uint32_t>(spans.size()), 0};
  memcpy(buffer.next, &head, sizeof(head));
  buffer.next += sizeof(head);
  for (const OpenSpans::Span& span : spans) {
    memcpy(buffer.next, &span.begin.value, sizeof(uint64_t));
    buffer.next += sizeof(uint64_t);
  }
  for (const OpenSpans::Span& span : spans) {
    buffer.next += OpenSpans::write(span, buffer.next);
    if (span.kind == Kind::OpBegin) buffer.last_op = {span.op.handle, span.op.sequence};
  }
  buffer.pending = 0;
  buffer.commit();
}
static_assert(sizeof(Restate) + OpenSpans::kMost * (sizeof(uint64_t) + kMaxExpanded) < kChunkCapacity / 2);
static_assert(sizeof(Restate) / 8 + OpenSpans::kMost <= RecordHeader::kMaxWords);

void* new_buffer_memory() noexcept {
  void* memory = mmap(nullptr, sizeof(ThreadBuffer), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  // In a child that comes to life without our fork handler the buffer is empty, so that it cannot go on writing into
  // the parent's chunk.
  madvise(memory, sizeof(ThreadBuffer), MADV_WIPEONFORK);
  return memory;
}

}  // namespace

namespace detail {

std::atomic<bool> g_live{false};
ClockSource g_clock = ClockSource::kMonotonic;
StringTable* g_strings = nullptr;

ThreadBuffer* attach() noexcept {
  const KeepErrno keep;
  Recorder& r = recorder();
  void* memory = new_buffer_memory();
  if (!memory) return nullptr;
  auto* buffer = new (memory) ThreadBuffer;
  buffer->tid = static_cast<uint32_t>(syscall(SYS_gettid));
  {
    const Lock lock(recorder().lock);
    if (!open_spool_locked()) {
      munmap(memory, sizeof(ThreadBuffer));
      return nullptr;
    }
    buffer->track = {r.next_track.fetch_add(1, std::memory_order_relaxed) + 1};
    define_thread_locked(*buffer);
  }
  pthread_setspecific(r.thread_end, buffer);
  t_buffer = buffer;
  return buffer;
}

const StringTable::Entry* intern_slow(std::string_view text, uint64_t hash) noexcept {
  const KeepErrno keep;
  const Lock lock(recorder().lock);
  return intern_locked(text, hash);
}

}  // namespace detail

void arm(const Config& config, const char* output) noexcept {
  Recorder& r = *new (g_storage) Recorder;
  r.config = config;
  r.pid = getpid();
  snprintf(r.directory, sizeof(r.directory), "%s/spool", output);
  detail::g_clock = clock::choose();
  detail::g_strings = &r.strings;
  if (pthread_key_create(&r.thread_end, on_thread_end) != 0 ||
      pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) != 0) {
    warn_once(Cause::kThread, "no thread key left: nothing is recorded, the program goes on");
    r.state.store(State::kFailed, std::memory_order_relaxed);
    return;
  }
  r.state.store(State::kArmed, std::memory_order_relaxed);
  detail::g_live.store(true, std::memory_order_release);
}

ThreadBuffer* delivery_buffer() noexcept {
  const State now = state();
  if (now != State::kArmed && now != State::kCapturing) return nullptr;
  return t_buffer ? t_buffer : detail::attach();
}

void pause() noexcept { detail::g_live.store(false, std::memory_order_relaxed); }

void resume() noexcept {
  const State now = state();
  if (now == State::kArmed || now == State::kCapturing) detail::g_live.store(true, std::memory_order_release);
}

bool open_spool() noexcept {
  const KeepErrno keep;
  const Lock lock(recorder().lock);
  return open_spool_locked();
}

bool define_window(const WindowEdges& window) noexcept {
  const KeepErrno keep;
  const Lock lock(recorder().lock);
  if (!open_spool_locked()) return false;
  WindowDef definition{};
  definition.number = window.number;
  definition.step = window.step;
  definition.begin = window.begin.value;
  definition.end = window.end.value;
  return define(definition);
}

const Config& config() noexcept { return recorder().config; }
State state() noexcept { return recorder().state.load(std::memory_order_relaxed); }

void finish() noexcept {
  Recorder& r = recorder();
  if (r.spool.is_open()) r.spool.finish();
}

StringId intern_overload_into(ThreadBuffer::Name& slot, const char* name, const char* overload) noexcept {
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

FunctionId define_function(StringId name, StringId qualname, StringId file, uint32_t line, uint16_t trim,
                           FunctionKind kind) noexcept {
  const KeepErrno keep;
  const Lock lock(recorder().lock);
  FunctionDef definition{};
  definition.id = {recorder().next_function + 1};
  definition.name = name;
  definition.qualname = qualname;
  definition.file = file;
  definition.line = line;
  definition.trim = trim;
  definition.kind = kind;
  if (!define(definition)) return {};
  return FunctionId{++recorder().next_function};
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

CallSiteId define_call_site(StringId name, FunctionId function, uint32_t line) noexcept {
  const KeepErrno keep;
  const Lock lock(recorder().lock);
  if (!define(CallSiteDef{{}, CallSiteId{recorder().next_call_site + 1}, name, function, line})) return {};
  return CallSiteId{++recorder().next_call_site};
}

void define_thread_name(TrackId track, uint32_t tid, StringId name) noexcept {
  const KeepErrno keep;
  const Lock lock(recorder().lock);
  define(ThreadDef{{}, track, tid, {}, name});
}

bool define_gpu(const GpuDeviceDef& device) noexcept {
  const KeepErrno keep;
  const Lock lock(recorder().lock);
  return define(device);
}

bool define_gpu(const GpuContextDef& context) noexcept {
  const KeepErrno keep;
  const Lock lock(recorder().lock);
  return define(context);
}

void define_torch_thread(TrackId track, uint64_t torch_thread) noexcept {
  const KeepErrno keep;
  const Lock lock(recorder().lock);
  define(TorchThreadDef{{}, track, 0, torch_thread});
}

DefinitionLock::DefinitionLock() noexcept : errno_(errno) { pthread_mutex_lock(&recorder().lock); }
DefinitionLock::~DefinitionLock() {
  pthread_mutex_unlock(&recorder().lock);
  errno = errno_;
}
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

}  // namespace session

bool ThreadBuffer::renew(Ticks now) noexcept {
  const KeepErrno keep;
  session::Recorder& r = session::recorder();
  if (!r.spool.is_open() || !session::is_our_process()) return false;
  if (r.config.keep == Keep::kLast && chunk) session::fold_chunk(*this);
  ChunkHeader* fresh = r.spool.claim(ChunkKind::kEvents, track, sequence, now, chunk, run);
  if (!fresh) {
    session::stop(session::State::kStopped);
    return false;
  }
  chunk = fresh;
  ++sequence;
  base = fresh->base.ticks.value;
  last_op = {};
  has_total = false;
  next = reinterpret_cast<std::byte*>(fresh) + sizeof(ChunkHeader);
  end = reinterpret_cast<std::byte*>(fresh) + kChunkSize;
  if (open) session::restate(*this);
  char current[16];
  session::read_thread_name(current);
  if (strcmp(current, name) != 0) {
    const Lock lock(session::recorder().lock);
    session::define_thread_locked(*this);
  }
  return true;
}

}  // namespace torchprof
