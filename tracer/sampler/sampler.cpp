#include "tracer/sampler/sampler.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "tracer/process/diag.h"
#include "tracer/process/lock.h"
#include "tracer/process/own_thread.h"
#include "tracer/process/seal.h"
#include "tracer/process/wakeup.h"
#include "tracer/python/threads.h"
#include "tracer/sampler/look_budget.h"
#include "tracer/sampler/seen.h"
#include "tracer/session.h"
#include "tracer/spool/clock.h"

namespace torchprof::sampler {

constinit Memory g_looks{};
constinit Sampling g_sampling{};

namespace {

constexpr int64_t kListApart = kSecond / 10;  // the list of many threads is read so often
constexpr size_t kFewThreads = 16;
constexpr int64_t kPartOfProcessor = 100, kUsualHz = 50;  // who wants more looks gets them
constexpr uint64_t kBytesAtFullRate = uint64_t{2} << 20;
constexpr int64_t kLongestWait = 64 * kSecond;
constexpr int64_t kUntilSpool = kSecond / 5;  // a process without events that lives shorter has no spool because of us

void run() noexcept;
constinit Wakeup g_wakeup;
constinit OwnThread g_thread("torchprof stack", run, []() noexcept { g_wakeup.wake(); });
thread_local constinit int t_forking = 0;

// A number below `end`.
uint64_t random_below(uint64_t end) noexcept {
  uint64_t& x = g_sampling.random;
  x ^= x << 13, x ^= x >> 7, x ^= x << 17;
  return x % end;
}

// ---- a round --------------------------------------------------------------------------------------------------------

void record(Seen& seen, int64_t until, uint64_t ran, uint64_t queued) noexcept {
  Sample sample{};
  sample.tid = seen.thread.tid;
  sample.node = seen.node;
  const auto us = [](uint64_t ns) { return static_cast<uint32_t>(std::min<uint64_t>(ns / kUs, UINT32_MAX)); };
  const auto period = static_cast<uint64_t>(std::max<int64_t>(0, until - seen.from));
  sample.period_us = us(period);
  sample.ran_us = std::min(us(ran), sample.period_us);
  sample.queued_us = std::min(us(queued), sample.period_us - sample.ran_us);
  sample.what = seen.what;
  sample.name = seen.name;
  sample.wait = seen.wait;
  sample.is_inner = seen.is_inner;
  // A wait is recorded when it has ended: a little later than it says.
  const int64_t late = clock::read_ns(CLOCK_MONOTONIC) - until;
  seen.from = until;
  if (sample.period_us == 0) return;
  if (session::record_sample(sample, session::now(), late)) g_sampling.written += sizeof(sample);
}

void look_at(const ProcessMemory& memory, const InterpreterDef& at, Seen& seen) noexcept {
  uint64_t ran = 0;
  if (!read_ran(seen.thread.tid, ran)) {
    seen.is_listed = false;
    return;
  }
  const int64_t now = clock::read_ns(CLOCK_MONOTONIC);
  if (ran == seen.ran && seen.is_waiting) {
    seen.until = now;
    if (now < seen.state_again) return;
    record(seen, now, 0, 0);
    seen.state_again = now + std::min(kLongestWait, now - seen.since);
    return;
  }
  if (seen.is_waiting && seen.until > seen.from) record(seen, seen.until, 0, 0);
  const uint64_t did = ran - seen.ran;
  const int64_t gone = now - seen.from;
  uint64_t queued = seen.queued_left;
  const bool has_rest = static_cast<int64_t>(did) < gone - gone / 20;
  if (!seen.has_queue || has_rest) {
    uint64_t total = 0;
    const bool is_known = read_queued(seen, total);
    if (is_known && seen.has_queue && total > seen.queued) queued += total - seen.queued;
    seen.queued = total;
    seen.has_queue = is_known;
  }
  // The kernel counts a time in the queue when it has ended, also of a thread that was in it at the look before: what
  // was missing there is too much here.
  const uint64_t most = gone > static_cast<int64_t>(did) ? static_cast<uint64_t>(gone) - did : 0;
  seen.queued_left = queued > most ? queued - most : 0;
  queued -= seen.queued_left;
  look_at_stack(memory, at, seen);
  seen.wait = SampledWait::kUnknown;
  seen.what = 0;
  seen.name = {};
  const int64_t rest = gone - static_cast<int64_t>(did) - static_cast<int64_t>(queued);
  if (rest > gone / 20) ask_what_it_waits_for(memory, seen);
  record(seen, now, did, queued);
  // A thread that waits now has the same line and the same wait until its clock moves.
  seen.is_waiting = seen.wait != SampledWait::kUnknown;
  seen.since = now;
  seen.ran = ran;
  seen.until = now;
  seen.state_again = now + kSecond;
}

// Begins to look at it.
void add(PythonThread thread) noexcept {
  Seen& seen = g_looks.threads[g_looks.count];
  seen = {};
  seen.thread = thread;
  seen.schedstat = -1;
  if (!read_ran(thread.tid, seen.ran)) return;
  seen.from = seen.until = clock::read_ns(CLOCK_MONOTONIC);
  seen.has_queue = read_queued(seen, seen.queued);
  seen.is_listed = true;
  ++g_looks.count;
}

void forget(size_t i) noexcept {
  Seen& seen = g_looks.threads[i];
  if (seen.is_waiting && seen.until > seen.from) record(seen, seen.until, 0, 0);
  if (seen.schedstat >= 0) {
    close(seen.schedstat);
    --g_sampling.kept;
  }
  g_looks.threads[i] = g_looks.threads[--g_looks.count];
}

void read_list(const ProcessMemory& memory, const InterpreterDef& at, uint32_t self) noexcept {
  for (size_t i = 0; i < g_looks.count; ++i) g_looks.threads[i].is_listed = false;
  const size_t count = find_python_threads(memory, at, g_looks.list, kMostSampled);
  for (size_t k = 0; k < count; ++k) {
    const PythonThread& thread = g_looks.list[k];
    if (thread.tid == 0 || thread.tid == self) continue;
    // Mostly both have the same order.
    size_t i = 0;
    while (i < g_looks.count && g_looks.threads[i].thread.tid != thread.tid) ++i;
    if (i == g_looks.count && g_looks.count < kMostSampled) add(thread);
    if (i >= g_looks.count) continue;
    g_looks.threads[i].thread = thread;
    g_looks.threads[i].is_listed = true;
  }
}

void look_around(const ProcessMemory& memory, const InterpreterDef& at, uint32_t self) noexcept {
  const int64_t now = clock::read_ns(CLOCK_MONOTONIC);
  if (g_looks.count <= kFewThreads || now - g_sampling.last_list >= kListApart) {
    read_list(memory, at, self);
    g_sampling.last_list = now;
  }
  for (size_t i = 0; i < g_looks.count; ++i) look_at(memory, at, g_looks.threads[i]);
  for (size_t i = g_looks.count; i-- > 0;)
    if (!g_looks.threads[i].is_listed) forget(i);
}

int64_t own_clock() noexcept { return clock::read_ns(CLOCK_THREAD_CPUTIME_ID); }

constinit LookBudget g_budget;

void begin_anew() noexcept {
  g_budget = {};
  Sampling& s = g_sampling;
  s.pid = getpid();
  s.since = clock::read_ns(CLOCK_MONOTONIC);
  g_looks.codes.clear(), g_looks.lines.clear(), g_looks.nodes.clear();
  g_looks.count = 0;
  forget_names();
  s.nodes = 0;
  s.written = 0;
}

bool is_over() noexcept {
  const session::State state = session::state();
  return g_thread.must_end() || state == session::State::kStopped || state == session::State::kFailed ||
         python::is_ending();
}

void run() noexcept {
  Sampling& s = g_sampling;
  // Each start of this thread: what it kept open is in a table that is gone.
  s.kept = 0;
  for (size_t i = 0; i < g_looks.count; ++i) {
    g_looks.threads[i].schedstat = -1;
    // What it did while we did not look is nobody's.
    g_looks.threads[i].is_waiting = g_looks.threads[i].is_listed = false;
  }
  g_looks.count = 0;
  s.last_list = 0;
  constexpr unsigned kUnshare = 1u << 1;  // CLOSE_RANGE_UNSHARE
  s.has_own_table = !session::holds_file() && syscall(__NR_close_range, 0u, ~0u, kUnshare) == 0;
  if (s.has_own_table) borrow_stderr();
  if (s.pid != getpid()) begin_anew();
  const auto self = static_cast<uint32_t>(syscall(SYS_gettid));
  const ProcessMemory memory = ProcessMemory::own(s.pid);
  const InterpreterDef at = python::described_stacks();
  const int64_t period = kSecond / s.hz;
  const int64_t part = std::clamp<int64_t>(kPartOfProcessor * kUsualHz / s.hz, 1, kPartOfProcessor);
  g_budget.begin(clock::read_ns(CLOCK_MONOTONIC), own_clock());
  while (!is_over()) {
    const int64_t usual = period << std::min<uint64_t>(s.written / kBytesAtFullRate, 12);
    const int64_t wanted = g_budget.pause_after_round(clock::read_ns(CLOCK_MONOTONIC), own_clock(), usual, part);
    const int64_t pause = wanted * 3 / 4 + static_cast<int64_t>(random_below(static_cast<uint64_t>(wanted / 2) + 1));
    g_wakeup.sleep(static_cast<uint64_t>(clock::read_ns(CLOCK_MONOTONIC) + pause));
    if (is_over()) break;
    if (const int64_t now = clock::read_ns(CLOCK_MONOTONIC); now - s.last_others >= kSecond) {
      s.last_others = now;
      // libc ends a process when its last thread ends: that must not wait for us. (This waits a second for ourselves.)
      if (only_ours_are_left()) {
        OwnThread::end_all();
        break;
      }
    }
    if (s.opens_spool && session::state() == session::State::kArmed &&
        clock::read_ns(CLOCK_MONOTONIC) - s.since >= kUntilSpool)
      session::open_spool();
    if (session::state() != session::State::kCapturing) continue;
    look_around(memory, at, self);
  }
  for (size_t i = g_looks.count; i-- > 0;) forget(i);
}

// ---- forks ---------------------------------------------------------------------------------------------------------

// Two threads may fork at the same time: both end the thread, one starts it again. Not held across a fork.
constinit pthread_mutex_t g_lock_of_forks = PTHREAD_MUTEX_INITIALIZER;
bool g_is_sampling = false;  // with the lock, as the next
bool g_was_running = false;  // until a fork that nobody has started it again after
// Whether the thread that forks is the program's first one. Of another the child ends with that thread, if it does no
// more than to return from its function: with a thread of ours it would not.
thread_local constinit bool t_is_first = false;

// Before the session's own handler takes its lock: handlers are called in the reverse order of their registration.
void end_before_fork() noexcept {
  const KeepErrno keep;
  t_is_first = syscall(SYS_gettid) == getpid();
  const seal::Calls calls;
  if (!calls) return;
  const Lock lock(g_lock_of_forks);
  if (!g_is_sampling || !g_thread.end()) return;
  g_is_sampling = false;
  g_was_running = true;
}
void resume_after_fork() noexcept {
  if (t_forking != 0) return;
  const KeepErrno keep;
  const Lock lock(g_lock_of_forks);
  if (!g_was_running || g_is_sampling) return;
  g_was_running = false;
  g_is_sampling = g_thread.start();
}
// What C code forks mostly execs, and may call little until then.
void stay_ended_in_child() noexcept {
  g_lock_of_forks = PTHREAD_MUTEX_INITIALIZER;
  g_was_running = t_forking != 0 && t_is_first && (g_was_running || g_is_sampling);
  g_is_sampling = false;
}

}  // namespace

Forking::Forking() noexcept { ++t_forking; }
Forking::~Forking() {
  --t_forking;
  resume_after_fork();
}

void end() noexcept {
  const seal::Calls calls;
  if (!calls) return;  // our threads have ended before
  const Lock lock(g_lock_of_forks);
  g_is_sampling = false;
  // It has been told already where it is itself the process's last thread.
  if (!g_thread.must_end()) g_thread.end();
}

void start(const Config& config) noexcept {
  const uint32_t hz = sample_rate(config);
  if (hz == 0) return;
  Sampling& s = g_sampling;
  const InterpreterDef at = python::described_stacks();
  const seal::Calls calls;
  uint64_t word = 0;
  const char* why = nullptr;
  if (at.interpreter == 0)
    why = "this interpreter's threads cannot be read";
  else if (!calls || !ProcessMemory::own(getpid()).get(at.interpreter, word))
    why = "the process may not read its own memory (process_vm_readv)";
  s.hz = hz;
  s.pid = 0;  // each turn of the session states its nodes anew
  s.opens_spool = config.sample != kSampleOfWindow;
  s.random ^= static_cast<uint64_t>(clock::read_ns(CLOCK_MONOTONIC));
  if (!why) {
    s.gil = python::find_gil();
    static bool follows_forks = false;
    if (!follows_forks) follows_forks = pthread_atfork(end_before_fork, resume_after_fork, stay_ended_in_child) == 0;
    g_is_sampling = follows_forks && g_thread.start();
    if (!g_is_sampling) why = "no thread could be started";
  }
  // Where nobody has asked for it, it is no failure that this interpreter has none.
  const bool is_said = config.sample != kSampleOfWindow;
  if (why && (is_said || at.interpreter != 0))
    session::note_source("samples", is_said ? SourceState::kFailed : SourceState::kOff, why);
  if (why) return;
  session::note_source("samples", SourceState::kOn, "of the Python stacks of all threads");
}

}  // namespace torchprof::sampler
