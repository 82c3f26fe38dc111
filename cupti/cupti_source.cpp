#include "cupti/cupti_source.h"

#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <iterator>
#include <new>
#include <utility>

#include "cupti/cupti_abi.h"
#include "cupti/source.h"
#include "cupti/watched_calls.h"
#include "tracer/gpu_tool.h"
#include "tracer/process/diag.h"
#include "tracer/process/lock.h"
#include "tracer/process/own_thread.h"
#include "tracer/process/seal.h"
#include "tracer/session.h"
#include "tracer/window.h"

namespace torchprof::cupti {
namespace {

// How often complete buffers are asked for: what a killed program loses at most. Longer if it would take more than a
// five hundredth of a processor; that is where CUPTI holds many full buffers behind work that does not end.
constexpr uint64_t kPeriod = 100'000'000;  // ns
constexpr uint64_t kLongestPeriod = 4'000'000'000;
constexpr uint64_t kShare = 500;
constexpr uint64_t kClockPeriod = 1'000'000'000;  // how often CUPTI's clock is sampled
constexpr uint64_t kAfterWindow = 5'000'000'000;  // kernels of the window may still run
static_assert(kAfterWindow > kLongestPeriod, "or our thread sleeps for good after a flush that took long");
// Never destroyed, as CUPTI's threads outlive ours; and not made at the start of each process, which would touch all of
// its pages.
union Storage {
  constexpr Storage() noexcept : source() {}
  ~Storage() {}
  Source source;
};
constinit Storage g_storage;

// ---- what is enabled ------------------------------------------------------------------------------------------------

void switch_kinds(bool opens) noexcept {
  if (state() != State::kOn || seal::is_sealed()) return;
  const KeepErrno keep;
  Source& s = source();
  {
    const Lock lock(s.switching);
    if (opens == s.enabled.load(std::memory_order_relaxed)) return;
    if (opens)
      enable_all();
    else
      disable_all();
  }
  write_clock(s.api, s.sharing());  // here, since our thread may see a short window late or not at all
  s.work.wake();
}

// ---- our thread -----------------------------------------------------------------------------------------------------

uint64_t read_ns(clockid_t clock) noexcept {
  timespec t{};
  clock_gettime(clock, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(t.tv_nsec);
}

void flush_for_the_end() noexcept;
void run() noexcept;
constinit OwnThread g_thread("torchprof gpu", run, []() noexcept { source().work.wake(); });

void run() noexcept {
  Source& s = source();
  bool was_open = false;
  uint64_t next = read_ns(CLOCK_MONOTONIC), next_clock = next, last = 0;
  for (;;) {
    const bool is_open = s.enabled.load(std::memory_order_relaxed) && state() == State::kOn;
    // After the window also as long as work of it has not ended: it may end, and until then it is stuck.
    if (s.was_enabled.exchange(false, std::memory_order_relaxed) || is_open ||
        s.has_open_work.load(std::memory_order_relaxed))
      last = read_ns(CLOCK_MONOTONIC) + kAfterWindow;
    s.work.sleep(next < last ? next : Wakeup::kNever);
    if (state() == State::kOff) return;
    if (g_thread.must_end()) return flush_for_the_end();
    // Pairs with the store in process_exits_now(): records that came before it are written.
    if (s.must_flush.exchange(false, std::memory_order_acquire)) {
      flush_for_the_end();
      sem_post(&s.flushed);
    }
    if (s.end_waits.load(std::memory_order_relaxed)) {  // a lock that is taken again at once goes to nobody else
      constexpr timespec kMoment = {0, 1'000'000};
      nanosleep(&kMoment, nullptr);
    }
    {
      const Lock lock(s.writing);
      write_completed();
    }
    pour_completed();
    if (s.must_forget.exchange(false, std::memory_order_relaxed)) forget_our_calls();
    const uint64_t now = read_ns(CLOCK_MONOTONIC);
    if (now < next && is_open == was_open) continue;
    const uint64_t began = read_ns(CLOCK_THREAD_CPUTIME_ID);
    if (state() == State::kOn) {
      const bool has_clock = now >= next_clock || is_open != was_open;
      if (has_clock) next_clock = now + kClockPeriod;
      const Lock lock(s.writing);
      write_all(false, has_clock);
    }
    check_watched_calls();
    pour_completed();
    was_open = is_open;
    next = now + std::clamp((read_ns(CLOCK_THREAD_CPUTIME_ID) - began) * kShare, kPeriod, kLongestPeriod);
  }
}

// ---- beginning and end ----------------------------------------------------------------------------------------------

void note_tally() noexcept {
  const Source& s = source();
  const Tally& t = s.tally;
  char text[session::kNoteSize];
  const auto number = [](uint64_t n) { return static_cast<unsigned long long>(n); };
  snprintf(text, sizeof(text),
           "%llu written, %llu dropped by CUPTI, %llu of unknown kinds, %llu malformed, %llu lost; "
           "%llu buffers, %zu at most at once, %zu refused",
           number(t.written), number(t.dropped), number(t.unknown), number(t.malformed), number(t.lost),
           number(t.buffers), s.buffers.most(), s.buffers.refused());
  session::define_fact("gpu.records", text);
}

// As pthread_mutex_timedlock() and sem_timedwait() want it.
timespec after_seconds(time_t seconds) noexcept {
  timespec until{};
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += seconds;
  return until;
}

// Takes the lock `writing`. False: the thread that has it does not come back from CUPTI.
bool lock_for_the_end() noexcept {
  constexpr time_t kPatienceSeconds = 5;
  const timespec until = after_seconds(kPatienceSeconds);
  Source& s = source();
  s.end_waits.store(true, std::memory_order_relaxed);
  const bool has_lock = pthread_mutex_timedlock(&s.writing, &until) == 0;
  s.end_waits.store(false, std::memory_order_relaxed);
  return has_lock;
}

void flush_for_the_end() noexcept {
  if (state() != State::kOn || !lock_for_the_end()) return;
  write_all(true);
  note_tally();
  pthread_mutex_unlock(&source().writing);
}

// CUPTI has what it did not deliver, and these buffers wait for a lock that our thread has in a call of CUPTI.
void say_unwritten() noexcept {
  char text[64];
  Source& s = source();
  snprintf(text, sizeof(text), "%zu buffers were delivered",
           s.buffers.queued() + s.unwritten.load(std::memory_order_relaxed));
  session::define_fact("gpu.unwritten", text);
}

void finish() {
  if (seal::is_sealed()) return;
  const KeepErrno keep;
  Source& s = source();
  const State last = state();
  if (last != State::kOn && last != State::kAside) return;
  if (!lock_for_the_end()) return say_unwritten();
  if (last == State::kOn)
    write_all(true);
  else
    write_completed();
  note_tally();
  s.has_ended.store(true, std::memory_order_relaxed);
  become(State::kOff);
  pthread_mutex_unlock(&s.writing);
}

void fail(int result, const char* what) noexcept {
  Source& s = source();
  const char* text = nullptr;
  if (s.api.result_string) s.api.result_string(result, &text);
  char why[session::kNoteSize];
  // CUPTI 12 returns this where the driver's library is there, but no driver or no GPU.
  const char* likely = result == abi::kNotInitialized ? " (is there a GPU, with a driver for this CUDA?)" : "";
  snprintf(why, sizeof(why), "%s: %s%s%d%s", what, text ? text : "", text ? ", " : "CUPTI error ", result, likely);
  become(State::kOff);
  // 999, CUPTI_ERROR_UNKNOWN, is CUPTI's result of every call where there is no driver.
  constexpr int kUnknown = 999;
  session::note_source("gpu", result == kUnknown ? SourceState::kOff : SourceState::kFailed, why);
  if (result != kUnknown) tell_once_a_run(Cause::kGpu, About::kLoss, "the GPU is not recorded: %s", why);
}

// Whether another tool has CUPTI: it serves only the one that holds a subscription.
bool is_taken() noexcept {
  Source& s = source();
  if (s.expects_subscriber.load(std::memory_order_relaxed)) return false;
  void* subscriber = nullptr;
  const auto callback = [](void*, int, uint32_t, const void*) {};
  const int result = s.api.subscribe(&subscriber, reinterpret_cast<void*>(+callback), nullptr);
  if (result == abi::kSuccess) s.api.unsubscribe(subscriber);
  return result == abi::kMultipleSubscribers;
}

void note_facts() noexcept {
  Source& s = source();
  char text[32];
  const auto note = [&text](const char* key, unsigned value) {
    snprintf(text, sizeof(text), "%u", value);
    session::note_fact(key, text);
  };
  note("cupti.version", s.api.version);
  session::note_fact("cupti.library", s.api.library);
  int version = 0;
  if (s.api.driver_version && s.api.driver_version(&version) == 0) note("cuda.driver", static_cast<unsigned>(version));
  if (s.api.runtime_version && s.api.runtime_version(&version) == 0)
    note("cuda.runtime", static_cast<unsigned>(version));
  uint32_t type = 0;
  if (s.api.thread_id_type) s.api.thread_id_type(&type);
  session::note_fact("cupti.thread", type == 0 ? "pthread" : "system");
}

// CUDA cannot be used after a fork: locks that its threads held stay locked for ever.
void after_fork_in_child() noexcept {
  Source& s = source();
  s.switching = PTHREAD_MUTEX_INITIALIZER;  // another client may have been about to call CUPTI, in any state
  s.wishing = PTHREAD_MUTEX_INITIALIZER;
  if (state() == State::kWaiting || state() == State::kOff) return;
  become(State::kOff);
  session::note_source("gpu", SourceState::kOff, "forked after CUDA was initialised: it cannot be used here");
}

void note_tool(const GpuTool& tool) noexcept {
  char why[session::kNoteSize];
  snprintf(why, sizeof(why), "%s has CUPTI (%s)", tool.name, tool.mark);
  session::note_source("gpu", SourceState::kOff, why);
}

// Gives up in favour of the tool, with one line on stderr.
void leave_to(const GpuTool& tool) noexcept {
  become(State::kOff);
  note_tool(tool);
  tell_once_a_run(Cause::kGpu, About::kLoss, "the GPU is not recorded: %s has CUPTI (%s)", tool.name, tool.mark);
}

// For a program that uses CUDA without torch: the driver calls the tool's library, not ours, so we are never started.
void say_tool_at_exit() {
  const KeepErrno keep;
  if (const GpuTool tool = find_gpu_tool(); state() == State::kWaiting && tool.name && is_cuda_program())
    leave_to(tool);
}

// Gives CUPTI back to the other client, if one had registered before we did. With the lock `switching`.
void leave_to_other() noexcept {
  Source& s = source();
  s.is_registered = false;
  if (s.other.is_there()) s.api.register_callbacks(s.other.request(), s.other.completed());
}

void start_now() noexcept {
  Source& s = source();
  const char* why = nullptr;
  if (const GpuTool tool = find_gpu_tool(); tool.name) return leave_to(tool);
  if (!find(s.api, &why)) {
    become(State::kOff);
    session::note_source("gpu", SourceState::kFailed, why);
    return tell_once_a_run(Cause::kGpu, About::kLoss, "the GPU is not recorded: %s", why);
  }
  note_facts();
  if (is_taken()) return fail(abi::kMultipleSubscribers, "another tool has CUPTI (nsys, ncu, a debugger)");
  {
    const Lock lock(s.switching);
    if (const int result = register_ourselves(); result != abi::kSuccess)
      return fail(result, "cuptiActivityRegisterCallbacks");
    const bool is_open = window::is_open();
    if (const int result = enable_all(is_open); result != abi::kSuccess) {
      leave_to_other();
      return fail(result, "cuptiActivityEnable");
    }
    if (!is_open) disable_all();
    become(State::kOn);
  }
  if (window::is_open() != s.enabled.load(std::memory_order_relaxed)) switch_kinds(window::is_open());
  if (!g_thread.start()) {
    const Lock lock(s.switching);
    disable_all();
    leave_to_other();
    become(State::kOff);
    session::note_source("gpu", SourceState::kFailed, "no thread could be started");
    return tell_once_a_run(Cause::kGpu, About::kLoss, "the GPU is not recorded: no thread could be started");
  }
  atexit(finish);
  join_session();
  write_clock(s.api, s.sharing());  // here, since our thread may not run before the program ends
  note_on();
}

// In a later turn of the session.
void rejoin() noexcept {
  Source& s = source();
  if (state() != State::kOn) return;
  write_clock(s.api, s.sharing());
  note_on();
}

}  // namespace

Source& source() noexcept { return g_storage.source; }

uint64_t cupti_now() noexcept {
  Source& s = source();
  if (s.has_own_clock) return own_clock();
  uint64_t now = 0;
  return s.api.get_timestamp && s.api.get_timestamp(&now) == abi::kSuccess ? now : 0;
}

void follow_window() noexcept {
  // Work that was launched in the window ends and is flushed within a few periods, if it ends soon.
  window::add_source({[]() noexcept { switch_kinds(true); }, []() noexcept { switch_kinds(false); },
                      []() noexcept { return state() == State::kOn ? static_cast<int64_t>(3 * kPeriod) : 0; }});
}

void prepare(const char* library) noexcept {
  Source& s = source();
  if (session::config().gpu == GpuMode::kOff)
    return session::note_source("gpu", SourceState::kOff, "switched off (--gpu off)");
  if (static bool is_prepared = false; std::exchange(is_prepared, true)) return rejoin();
  prepare_own_clock();
  sem_init(&s.flushed, 0, 0);
  become(State::kWaiting);
  if (access("/dev/nvidiactl", F_OK) == 0)
    session::note_source("gpu", SourceState::kOff, "the program has not initialised CUDA");
  pthread_atfork(nullptr, nullptr, after_fork_in_child);
  if (const GpuTool tool = find_gpu_tool(); tool.name) {
    note_tool(tool);
    atexit(say_tool_at_exit);
  } else if (library && !ask_cuda_to_call(library)) {
    session::note_source("gpu", SourceState::kOff,
                         "CUDA_INJECTION64_PATH names another tool: not before the first use of torch.cuda");
  }
}

void start() noexcept {
  if (seal::is_sealed()) return;
  State waiting = State::kWaiting;
  // Pairs with become(kWaiting) in prepare(): its semaphore and its clock are there.
  if (!source().state.compare_exchange_strong(waiting, State::kStarting, std::memory_order_acquire)) return;
  const KeepErrno keep;
  start_now();
}

void interpreter_ended() noexcept {
  if (seal::is_sealed()) return;
  const KeepErrno keep;
  flush_for_the_end();
}

void process_exits_now() noexcept {
  if (state() != State::kOn || seal::is_sealed()) return;
  const KeepErrno keep;
  Source& s = source();
  s.must_flush.store(true, std::memory_order_release);  // pairs with the exchange in run()
  s.work.wake();
  // A program may exit like this because CUDA hangs: our thread, too, then neither writes nor runs. A thread that runs
  // and writes nothing is on a busy machine, or in a call of CUPTI that waits by running.
  constexpr time_t kPatienceSeconds = 1;
  constexpr int kMostWithoutWriting = 5;
  const auto work_left = [&s] {
    return s.buffers.queued() + s.unseen.load(std::memory_order_relaxed) + s.unwritten.load(std::memory_order_relaxed);
  };
  size_t left = SIZE_MAX;
  int64_t ran = g_thread.processor_time();
  for (int without_writing = 0; without_writing < kMostWithoutWriting;) {
    const int64_t ran_before = std::exchange(ran, g_thread.processor_time());
    const size_t left_before = std::exchange(left, work_left());
    if (left != left_before)
      without_writing = 0;
    else if (++without_writing; ran == ran_before)
      break;
    const timespec until = after_seconds(kPatienceSeconds);
    int result = 0;
    while ((result = sem_timedwait(&s.flushed, &until)) != 0 && errno == EINTR) continue;
    if (result == 0) return;
  }
  say_unwritten();
}

void expect_subscriber() noexcept { source().expects_subscriber.store(true, std::memory_order_relaxed); }

}  // namespace torchprof::cupti
