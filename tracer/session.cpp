#include "tracer/session.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>

#include "tracer/config/run_directory.h"
#include "tracer/process/descriptors.h"
#include "tracer/process/diag.h"
#include "tracer/process/lock.h"
#include "tracer/process/own_thread.h"
#include "tracer/process/seal.h"
#include "tracer/recorder.h"
#include "tracer/spool/fault.h"
#include "tracer/spool/run_files.h"
#include "tracer/spool/uncaptured.h"

namespace torchprof {

thread_local constinit ThreadBuffer* t_buffer = nullptr;

namespace session {

constinit bool g_has_clock = true;     // a clock can be read in the sealed process
constexpr uint32_t kSealedChunks = 4;  // chunks that a thread gets before the seal, for what comes after it

alignas(Recorder) std::byte g_recorder[sizeof(Recorder)];

bool is_our_process() noexcept {
  const seal::Calls calls;
  if (!calls || getpid() == recorder().pid) return true;  // a sealed process was ours when it was sealed
  detail::g_live.store(0, std::memory_order_relaxed);
  return false;
}

void stop(State state) noexcept {
  Recorder& r = recorder();
  detail::g_live.store(0, std::memory_order_relaxed);
  r.state.store(state, std::memory_order_relaxed);
  if (r.spool.is_open()) r.spool.stop(now());
}

namespace {

// Called from a signal handler.
void stop_after_fault() noexcept {
  recorder().spool.lost(LossCause::kDiskFull);
  stop(State::kStopped);
  warn_once(Cause::kDiskFull,
            "the file system has no room for what is written to the spool: capture stops here, "
            "what was recorded is kept (free space, or use --output)");
}

bool open_spool_locked() noexcept {
  Recorder& r = recorder();
  if (r.state.load(std::memory_order_relaxed) != State::kArmed) return r.spool.is_open();
  if (r.is_uncaptured) {
    uncaptured::add(r.directory, r.uncaptured_cause, 0, true);
    stop(State::kFailed);
    return false;
  }
  const MissingDirectory missing =
      r.is_launched || r.inherits ? MissingDirectory::kIsOutOfSight : MissingDirectory::kIsMade;
  const Recycling recycling = r.counts_events                ? Recycling::kWindows
                              : r.config.keep == Keep::kLast ? Recycling::kOldest
                                                             : Recycling::kNone;
  if (!r.spool.open(r.directory, missing, {r.config.max_size, run_size_limit(r.config)}, recycling, detail::g_clock,
                    r.forked_from)) {
    r.parent_file.let_go();
    r.is_uncaptured = true;
    r.uncaptured_cause = LossCause::kDiskFull;
    uncaptured::add(r.directory, r.uncaptured_cause, r.spool.open_error(), false);
    stop(State::kFailed);
    return false;
  }
  uncaptured::reserve(r.directory);
  r.definitions = Definitions{};
  r.state.store(State::kCapturing, std::memory_order_relaxed);
  if (r.earlier.bytes != 0 && !r.inherits && !copy_earlier()) stop(State::kFailed);
  if (r.inherits && !copy_inherited()) {
    warn_once(Cause::kOutput, "process %d cannot read its parent's spool after fork: nothing of it is recorded",
              static_cast<int>(getpid()));
    stop(State::kFailed);
  }
  r.parent_file.let_go();
  r.inherits = false;
  for (size_t i = 0; i < r.note_count; ++i) write_note(r.notes[i]);
  if (r.interpreter.interpreter != 0) define(r.interpreter);
  return r.state.load(std::memory_order_relaxed) == State::kCapturing;
}

void read_thread_name(char (&name)[16]) noexcept {
  if (prctl(PR_GET_NAME, name) != 0) name[0] = 0;
}

void define_thread_locked(ThreadBuffer& buffer) noexcept {
  read_thread_name(buffer.name);
  const StringId name = intern_locked(buffer.name);
  define(ThreadDef{{}, buffer.track, buffer.tid, name, {}});
  if (recorder().config.gpu != GpuMode::kOff)
    define(ThreadHandleDef{{}, buffer.track, static_cast<uint32_t>(pthread_self())});
}

// What it has beside its chunks.
void forget(ThreadBuffer& buffer) noexcept {
  if (buffer.open) seal::unmap(buffer.open, sizeof(OpenSpans));
  buffer.sources.unmap();
}

// pthread runs this when a thread ends, except for the main thread that returns from main, and after _exit.
void on_thread_end(void* value) noexcept {
  auto* buffer = static_cast<ThreadBuffer*>(value);
  const KeepErrno keep;
  // It is left over from the parent of a fork: not ours.
  if (buffer != t_buffer) return;
  const uint32_t live = detail::g_live.load(std::memory_order_relaxed);
  if (live && turn_of(live) == turn_of(buffer->live) && buffer->append<ThreadEnd>(now())) buffer->commit();
  t_buffer = nullptr;  // an event in a later destructor begins a new track
  SpoolWriter& spool = recorder().spool;
  if (turn_of(buffer->live) == turn()) {
    if (buffer->chunk && recorder().counts_events) count_events(*buffer);
    if (buffer->chunk) spool.release(buffer->chunk);
    spool.release(buffer->run);
  }
  forget(*buffer);
  seal::unmap(buffer, sizeof(ThreadBuffer));
}

alignas(Lock) std::byte g_fork_lock[sizeof(Lock)];
void before_fork() noexcept {
  new (g_fork_lock) Lock(recorder().lock);
  descriptors::before_fork();
}
void after_fork_in_parent() noexcept {
  descriptors::after_fork_in_parent();
  reinterpret_cast<Lock*>(g_fork_lock)->~Lock();
}

// Only the forking thread is left. What the parent has mapped is never written, and never unmapped.
void after_fork_in_child() noexcept {
  Recorder& r = recorder();
  r.lock = PTHREAD_MUTEX_INITIALIZER;
  descriptors::after_fork_in_child();
  seal::after_fork_in_child();
  if (seal::is_sealed()) {
    // The child can open no spool; the parent's spool says why.
    detail::g_live.store(0, std::memory_order_relaxed);
    r.state.store(State::kStopped, std::memory_order_relaxed);
    r.spool.abandon();
    t_buffer = nullptr;
    return;
  }
  r.pid = getpid();
  t_buffer = nullptr;
  pthread_setspecific(r.thread_end, nullptr);
  const State of_parent = r.state.load(std::memory_order_relaxed);
  if ((of_parent == State::kStopped || of_parent == State::kFailed) && r.spool.is_open()) {
    r.is_uncaptured = true;
    r.uncaptured_cause = r.spool.stop_cause();
    r.spool.abandon();  // it is the parent's: our end is not the parent's end
  }
  if (r.is_uncaptured) {
    // The child's first event notes it; a child that is about to exec has no event.
    r.state.store(State::kArmed, std::memory_order_relaxed);
    detail::g_live.store(live_of(turn(), 1), std::memory_order_relaxed);
    return;
  }
  if (of_parent != State::kCapturing) return;
  r.inherits = true;
  r.inherited = r.definitions;
  r.definitions = Definitions{};
  r.steps = StepChunks{};
  r.recorded.all.store(0, std::memory_order_relaxed);
  for (auto& window : r.recorded.windows) window.store(0, std::memory_order_relaxed);
  static_assert(sizeof(r.forked_from) == SpoolWriter::kNameSize);
  memcpy(r.forked_from, r.spool.name(), sizeof(r.forked_from));
  r.parent_file.take(r.spool.file());
  r.spool.abandon();
  r.next_track.store(0, std::memory_order_relaxed);
  r.state.store(State::kArmed, std::memory_order_relaxed);
}

// The chunk is full: finds out what is open on the thread, so that the next chunk can begin with it.
void fold_chunk(ThreadBuffer& buffer) noexcept {
  if (!buffer.open) {
    void* memory = seal::map(sizeof(OpenSpans));
    if (!memory) return;
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
  // In a child that is made without our fork handler the buffer is empty, so that the child cannot go on writing to the
  // parent's chunk.
  madvise(memory, sizeof(ThreadBuffer), MADV_WIPEONFORK);
  return memory;
}

}  // namespace

namespace detail {

std::atomic<uint32_t> g_live{0};
ClockSource g_clock = ClockSource::kMonotonic;
StringTable* g_strings = nullptr;

ThreadBuffer* attach() noexcept {
  const KeepErrno keep;
  Recorder& r = recorder();
  const seal::Calls calls;
  if (!calls) {
    if (r.spool.is_open()) r.spool.lost(LossCause::kSeccomp);
    return nullptr;
  }
  // One of an earlier turn stays where it is: its thread may be in the midst of an event.
  ThreadBuffer* const old = t_buffer;
  if (old) forget(*old);
  void* memory = old ? old : new_buffer_memory();
  if (!memory) return nullptr;
  auto* buffer = new (memory) ThreadBuffer;
  buffer->tid = static_cast<uint32_t>(syscall(SYS_gettid));
  {
    const Lock lock(recorder().lock);
    if (!open_spool_locked()) {
      if (!old) munmap(memory, sizeof(ThreadBuffer));
      return nullptr;
    }
    buffer->track = {r.next_track.fetch_add(1, std::memory_order_relaxed) + 1};
    define_thread_locked(*buffer);
  }
  const uint32_t live = g_live.load(std::memory_order_relaxed);
  buffer->live = live ? live : live_of(turn(), kBetweenWindows);
  pthread_setspecific(r.thread_end, buffer);
  t_buffer = buffer;
  return buffer;
}

// The thread has no buffer yet, or its chunk belongs to an earlier window.
ThreadBuffer* first_in_window() noexcept {
  ThreadBuffer* const buffer = t_buffer;
  if (!buffer) return attach();
  const uint32_t live = g_live.load(std::memory_order_relaxed);
  if (!live) return nullptr;
  if (turn_of(buffer->live) != turn_of(live)) return attach();
  buffer->begin_window(live);
  return buffer;
}

}  // namespace detail

void arm(const Config& config, const char* output) noexcept {
  const bool is_first = !detail::g_strings;
  Recorder& r = is_first ? *new (g_recorder) Recorder : recorder();
  const Lock lock(r.lock);
  r.config = config;
  r.pid = getpid();
  snprintf(r.directory, sizeof(r.directory), "%s/spool", output);
  char said[PATH_MAX];
  if (snprintf(said, sizeof(said), "%s/%s", r.directory, kSaidName) < static_cast<int>(sizeof(said)))
    share_lines(said, config.quiet);
  r.is_launched = made_by_launcher(output);
  r.is_armed_alone = wanted_by_environment() && is_armed_by_environment();
  detail::g_clock = clock::choose();
  detail::g_strings = &r.strings;
  if (is_first && (pthread_key_create(&r.thread_end, on_thread_end) != 0 ||
                   pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) != 0)) {
    warn_once(Cause::kThread, "no thread key left: nothing is recorded, the program goes on");
    r.state.store(State::kFailed, std::memory_order_relaxed);
    return;
  }
  spool_fault::at_loss(stop_after_fault);
  r.state.store(State::kArmed, std::memory_order_relaxed);
  // Pairs with the load in current_buffer(): the recorder and the clock are there.
  detail::g_live.store(live_of(turn(), 1), std::memory_order_release);
}

// With the lock, as all that asks for a turn's own things: a child after fork has them from its parent.
void disarm() noexcept {
  const KeepErrno keep;
  Recorder& r = recorder();
  if (state() == State::kOff) return;
  const Lock lock(r.lock);
  detail::g_live.store(0, std::memory_order_relaxed);
  r.state.store(State::kOff, std::memory_order_relaxed);
  r.turn.fetch_add(1, std::memory_order_relaxed);
  if (r.spool.is_open()) {
    r.has_lost_definitions = !keep_definitions() || r.has_lost_definitions;
    r.spool.finish();
    r.spool.close();
  }
  r.definitions = Definitions{};
  r.steps = StepChunks{};
  r.counts_events = false;
  r.recorded.all.store(0, std::memory_order_relaxed);
  for (auto& window : r.recorded.windows) window.store(0, std::memory_order_relaxed);
  r.next_track.store(0, std::memory_order_relaxed);
  r.note_count = 0;
  r.interpreter = {};
  r.inherits = r.is_uncaptured = false;
  r.parent_file.let_go();
  r.forked_from[0] = 0;
}

bool can_arm() noexcept { return !detail::g_strings || (state() == State::kOff && !recorder().has_lost_definitions); }

ThreadBuffer* delivery_buffer() noexcept {
  const State now = state();
  if (now != State::kArmed && now != State::kCapturing) return nullptr;
  if (ThreadBuffer* const buffer = current_buffer()) return buffer;
  return t_buffer && turn_of(t_buffer->live) == turn() ? t_buffer : detail::attach();
}

void pause() noexcept { detail::g_live.store(0, std::memory_order_relaxed); }

void resume(uint16_t window) noexcept {
  const State now = state();
  if (now != State::kArmed && now != State::kCapturing) return;
  // Pairs with the load in current_buffer(): the number of the window is there.
  detail::g_live.store(live_of(turn(), window), std::memory_order_release);
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
  definition.reason = window.reason;
  definition.is_given_up = window.is_given_up;
  definition.step = window.step;
  definition.begin = window.begin.value;
  definition.end = window.end.value;
  return define(definition);
}

// Not in a child between vfork and exec, which shares its parent's memory: what it changes does not change the parent.
void keep_file() noexcept {
  Recorder& r = recorder();
  if (state() == State::kOff || getpid() != r.pid) return;
  const KeepErrno keep;
  if (r.spool.is_open()) r.spool.file().hold();
  if (r.inherits) r.parent_file.hold();
}

bool holds_file() noexcept {
  const KeepErrno keep;
  Recorder& r = recorder();
  return (r.spool.is_open() && r.spool.file().is_held()) || (r.inherits && r.parent_file.is_held());
}

bool is_armed_alone() noexcept { return recorder().is_armed_alone; }

const Config& config() noexcept { return recorder().config; }
uint16_t turn() noexcept { return recorder().turn.load(std::memory_order_relaxed); }
State state() noexcept { return recorder().state.load(std::memory_order_relaxed); }

bool seal(bool has_clock) noexcept {
  const KeepErrno keep;
  Recorder& r = recorder();
  const State now = state();
  if (now == State::kOff || getpid() != r.pid) return false;
  OwnThread::end_all();
  if (now == State::kArmed || now == State::kCapturing) {
    // All of it under the lock, so that no definition is half done. A table grows when it is half full, so after this
    // there is room for a while.
    ThreadBuffer* const buffer = t_buffer ? t_buffer : detail::attach();
    note_source("recording", SourceState::kOff,
                "the program entered seccomp, which kills it for our system calls: what memory had room for is here");
    const Lock lock(r.lock);
    if (r.spool.is_open()) {
      r.spool.map_ahead(r.definitions.run, 1);
      if (buffer) {
        r.spool.map_ahead(buffer->run, kSealedChunks);
        buffer->sources.map_ahead();
      }
      r.strings.prepare();
    }
  }
  seal::seal();
  OwnThread::end_all();  // also those that were started meanwhile
  g_has_clock = has_clock && clock::needs_no_call();
  if (!g_has_clock && r.spool.is_open()) {
    r.spool.lost(LossCause::kSeccomp);
    r.spool.finish();
    stop(State::kStopped);
  }
  // Hooks read the clock before they ask whether anything is recorded.
  if (!g_has_clock) detail::g_clock = clock::kNoClock;
  return true;
}

void unseal() noexcept {
  seal::unseal();
  detail::g_clock = recorder().spool.is_open() ? recorder().spool.clock() : clock::choose();
  note_source("recording", SourceState::kOn, "");
  OwnThread::start_again();
}

void finish() noexcept {
  Recorder& r = recorder();
  if (seal::is_sealed() && !g_has_clock) return;
  if (r.spool.is_open()) r.spool.finish();
}

bool copy_spool_name(SpoolName& name) noexcept {
  const Recorder& r = recorder();
  const Lock lock(recorder().lock);
  static_assert(sizeof(name) == SpoolWriter::kNameSize);
  if (r.spool.is_open()) memcpy(name, r.spool.name(), sizeof(name));
  return r.spool.is_open();
}

}  // namespace session

void ThreadBuffer::begin_window(uint32_t number) noexcept {
  live = number;
  // What is left of the chunk is not written to: the next event finds no room, and takes a chunk of the new window.
  end = next;
  last_line = 0;
}

bool ThreadBuffer::renew(Ticks now) noexcept {
  const KeepErrno keep;
  session::Recorder& r = session::recorder();
  // In a sealed process a buffer without a chunk was wiped: this is a child that was made without our fork handler.
  if (!r.spool.is_open() || (seal::is_sealed() ? !chunk : !session::is_our_process())) return false;
  const uint16_t turn = r.turn.load(std::memory_order_relaxed);
  if (turn_of(live) != turn) return false;  // it was disarmed since
  const uint16_t window = window_of(live);
  if (r.counts_events) {
    if (chunk) session::count_events(*this);
  } else if (r.config.keep == Keep::kLast && chunk) {
    session::fold_chunk(*this);
  }
  ChunkHeader* fresh = r.spool.claim(ChunkKind::kEvents, track, sequence, now, chunk, run,
                                     r.counts_events && window != kBetweenWindows ? window : uint16_t{0});
  if (!fresh) {
    if (r.turn.load(std::memory_order_relaxed) == turn) session::stop(session::State::kStopped);
    return false;
  }
  chunk = fresh;
  ++sequence;
  base = fresh->base.ticks.value;
  last_op = {};
  last_line = 0;
  has_total = false;
  next = reinterpret_cast<std::byte*>(fresh) + sizeof(ChunkHeader);
  end = reinterpret_cast<std::byte*>(fresh) + size_of(*fresh);
  if (open) session::restate(*this);
  const seal::Calls calls;
  if (!calls) return true;
  char current[16];
  session::read_thread_name(current);
  if (strcmp(current, name) != 0) {
    const Lock lock(session::recorder().lock);
    session::define_thread_locked(*this);
  }
  return true;
}

}  // namespace torchprof
