#include "cupti/cupti_source.h"

#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <iterator>
#include <new>

#include "cupti/cupti_abi.h"
#include "cupti/source.h"
#include "tracer/diag.h"
#include "tracer/gpu_tool.h"
#include "tracer/lock.h"
#include "tracer/own_thread.h"
#include "tracer/seal.h"
#include "tracer/session.h"
#include "tracer/window.h"

namespace torchprof::cupti {
namespace {

constexpr uint32_t kAlways[] = {abi::kDevice, abi::kContext};  // a few records in all; contexts come before windows
constexpr uint32_t kInWindow[] = {abi::kConcurrentKernel, abi::kMemcpy,          abi::kMemcpyPeer, abi::kMemset,
                                  abi::kRuntime,          abi::kDriver,          abi::kOverhead,   abi::kCudaEvent,
                                  abi::kMemory2,          abi::kSynchronization, abi::kMemoryPool, abi::kEnvironment};
constexpr time_t kPeriodSeconds = 1;
constexpr int kPeriodsAfterWindow = 3;  // its kernels may still run
// Since this version a refused buffer is safe (Kineto's experience); before, more is handed out.
constexpr uint32_t kMayRefuse = 27;

// Without a destructor: CUPTI's threads outlive ours.
alignas(Source) std::byte g_storage[sizeof(Source)];

// ---- what CUPTI calls, under locks of its own ------------------------------------------------------------

void on_request(uint8_t** buffer, size_t* size, size_t* most_records) {
  std::byte* data = source().buffers.request(source().api.version < kMayRefuse);
  *buffer = reinterpret_cast<uint8_t*>(data);
  *size = data ? ActivityBuffers::kSize : 0;
  *most_records = 0;  // as many as fit
}

// Nobody is left to ask CUPTI what is in it; the spool may still be there to say that it came.
void say_late(size_t bytes) noexcept {
  Source& s = source();
  if (!s.has_ended.load(std::memory_order_relaxed)) return;
  const uint64_t buffers = s.late_buffers.fetch_add(1, std::memory_order_relaxed) + 1;
  const uint64_t all = s.late_bytes.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  char text[64];
  snprintf(text, sizeof(text), "%llu buffers, %llu bytes", static_cast<unsigned long long>(buffers),
           static_cast<unsigned long long>(all));
  session::define_fact("gpu.late", text);
}

void on_completed(void* context, uint32_t stream, uint8_t* buffer, size_t size, size_t valid) {
  if (!buffer) return;
  const KeepErrno keep;
  if (state() == State::kOff) {
    if (valid != 0) say_late(valid);
    valid = 0;
  }
  if (valid > size) valid = size;
  Source& s = source();
  const Completed completed{reinterpret_cast<std::byte*>(buffer), valid, context, stream};
  // One that CUPTI has had from the other client since before we began: it is his, and may hold records of ours.
  if (s.buffers.completed(completed) || (s.other.is_there() && s.buffers.put_foreign(completed))) sem_post(&s.work);
}

// ---- what is enabled -------------------------------------------------------------------------------------

void follow_window(bool opens) noexcept {
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
  write_clock(s.api, s.sharing());  // of this edge: the thread may see it late, or not at all where the window is short
  sem_post(&s.work);
}

// ---- our thread ------------------------------------------------------------------------------------------

void look_after(bool forced) noexcept {
  const Lock lock(source().writing);
  write_all(forced);
}

void flush_for_the_end() noexcept;
void run() noexcept;
constinit OwnThread g_thread("torchprof gpu", run, []() noexcept { sem_post(&source().work); });

void run() noexcept {
  Source& s = source();
  bool was_open = false;
  int periods_left = 0;
  timespec next{};
  clock_gettime(CLOCK_REALTIME, &next);
  for (;;) {
    const bool is_open = s.enabled.load(std::memory_order_relaxed) && state() == State::kOn;
    if (s.was_enabled.exchange(false, std::memory_order_relaxed) || is_open) periods_left = kPeriodsAfterWindow;
    if (periods_left > 0 && sem_timedwait(&s.work, &next) != 0 && errno != ETIMEDOUT) continue;
    if (periods_left == 0 && sem_wait(&s.work) != 0) continue;
    if (state() == State::kOff) return;
    if (g_thread.must_end()) return flush_for_the_end();
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
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    const bool is_time = now.tv_sec > next.tv_sec || (now.tv_sec == next.tv_sec && now.tv_nsec >= next.tv_nsec) ||
                         next.tv_sec > now.tv_sec + 2 * kPeriodSeconds;  // the wall clock was set back
    if (!is_time && is_open == was_open) continue;
    if (state() == State::kOn) look_after(false);
    pour_completed();
    if (!is_open && periods_left > 0) --periods_left;
    was_open = is_open;
    next = {now.tv_sec + kPeriodSeconds, now.tv_nsec};
  }
}

// ---- beginning and end -----------------------------------------------------------------------------------

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

// The lock of writing, unless CUPTI keeps whoever flushes now.
bool lock_for_the_end() noexcept {
  constexpr time_t kPatienceSeconds = 5;
  timespec until{};
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += kPatienceSeconds;
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

void finish() {
  if (seal::is_sealed()) return;
  const KeepErrno keep;
  Source& s = source();
  const State last = state();
  if (last != State::kOn && last != State::kAside) return;
  if (!lock_for_the_end()) return;
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
  // What CUPTI 12 says with the driver's library there and no driver or no GPU behind it.
  const char* likely = result == abi::kNotInitialized ? " (is there a GPU, with a driver for this CUDA?)" : "";
  snprintf(why, sizeof(why), "%s: %s%s%d%s", what, text ? text : "", text ? ", " : "CUPTI error ", result, likely);
  become(State::kOff);
  // 999, CUPTI_ERROR_UNKNOWN, is what CUPTI says of everything where there is no driver.
  constexpr int kUnknown = 999;
  session::note_source("gpu", result == kUnknown ? SourceState::kOff : SourceState::kFailed, why);
  if (result != kUnknown) warn_once(Cause::kGpu, "the GPU is not recorded: %s", why);
}

// Whoever holds a subscription has CUPTI to himself.
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

void note_on() noexcept {
  const Source& s = source();
  char text[session::kNoteSize];
  int used = snprintf(text, sizeof(text), "CUPTI's activity records, version %u", s.api.version);
  for (size_t i = 1; i < std::size(kInWindow); ++i)
    if (s.not_there >> i & 1 && used > 0 && static_cast<size_t>(used) + 24 < sizeof(text))
      used += snprintf(text + used, sizeof(text) - static_cast<size_t>(used), "; not kind %u", kInWindow[i]);
  session::note_source("gpu", SourceState::kOn, text);
}

// CUDA does not survive a fork: what its threads held is held for ever.
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

// One line, where CUDA is used.
void leave_to(const GpuTool& tool) noexcept {
  become(State::kOff);
  note_tool(tool);
  warn_once(Cause::kGpu, "the GPU is not recorded: %s has CUPTI (%s)", tool.name, tool.mark);
}

// Of a program that uses CUDA without torch: its driver calls the tool's library, not ours.
void say_tool_at_exit() {
  const KeepErrno keep;
  if (const GpuTool tool = find_gpu_tool(); state() == State::kWaiting && tool.name && is_cuda_program())
    leave_to(tool);
}

// He registered before we did. With the lock of switching.
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
    return warn_once(Cause::kGpu, "the GPU is not recorded: %s", why);
  }
  note_facts();
  if (is_taken()) return fail(abi::kMultipleSubscribers, "another tool has CUPTI (nsys, ncu, a debugger)");
  {
    const Lock lock(s.switching);
    if (const int result = register_ourselves(); result != abi::kSuccess)
      return fail(result, "cuptiActivityRegisterCallbacks");
    if (const int result = enable_all(); result != abi::kSuccess) {
      leave_to_other();
      return fail(result, "cuptiActivityEnable");
    }
    if (!window::is_open()) disable_all();
    become(State::kOn);
  }
  if (window::is_open() != s.enabled.load(std::memory_order_relaxed)) follow_window(window::is_open());
  if (!g_thread.start()) {
    const Lock lock(s.switching);
    disable_all();
    leave_to_other();
    become(State::kOff);
    session::note_source("gpu", SourceState::kFailed, "no thread could be started");
    return warn_once(Cause::kGpu, "the GPU is not recorded: no thread could be started");
  }
  atexit(finish);
  join_session();
  if (window::is_open())
    write_clock(s.api, s.sharing());  // not left to the thread, which may not run before the program ends
  note_on();
}

}  // namespace

Source& source() noexcept { return *reinterpret_cast<Source*>(g_storage); }

uint64_t cupti_now() noexcept {
  Source& s = source();
  {
    const Lock lock(s.wishing);
    if (s.clock.is_given()) return s.clock.now();
  }
  uint64_t now = 0;
  return s.api.get_timestamp && s.api.get_timestamp(&now) == abi::kSuccess ? now : 0;
}

// ---- what is enabled -------------------------------------------------------------------------------------

namespace {

void wish(uint64_t kinds) noexcept {
  Source& s = source();
  const uint64_t now = cupti_now();
  const Lock lock(s.wishing);
  s.wishes.change(kOurs, kinds, now);
}

uint64_t theirs() noexcept {
  const Lock lock(source().wishing);
  return source().wishes.of(kTheirs);
}

uint64_t always() noexcept {
  uint64_t kinds = 0;
  for (const uint32_t kind : kAlways) kinds |= kind_bit(kind);
  return kinds;
}

}  // namespace

int register_ourselves() noexcept {
  Source& s = source();
  const int result = s.api.register_callbacks(on_request, on_completed);
  if (result != abi::kSuccess) return result;
  if (s.has_foreign_clock) {
    const BothClocks now = s.clocks_now();
    const Lock lock(s.wishing);
    if (now.is_read) s.clock.gets(now.realtime, now.other, 0);
  }
  s.is_registered = true;
  for (const uint32_t kind : kAlways) s.api.enable(kind);
  wish(always());
  return abi::kSuccess;
}

int enable_all() noexcept {
  Source& s = source();
  if (const int result = s.api.enable(kInWindow[0]); result != abi::kSuccess) return result;
  uint64_t kinds = always() | kind_bit(kInWindow[0]);
  for (size_t i = 1; i < std::size(kInWindow); ++i) {
    if (s.api.enable(kInWindow[i]) == abi::kSuccess)
      kinds |= kind_bit(kInWindow[i]);
    else
      s.not_there |= 1u << i;
  }
  wish(kinds);
  s.enabled.store(true, std::memory_order_relaxed);
  s.was_enabled.store(true, std::memory_order_relaxed);
  return abi::kSuccess;
}

void disable_all() noexcept {
  Source& s = source();
  wish(always());
  for (const uint32_t kind : kInWindow)
    if ((theirs() & kind_bit(kind)) == 0) s.api.disable(kind);
  s.enabled.store(false, std::memory_order_relaxed);
}

// ---- what comes back -------------------------------------------------------------------------------------

void write_completed() noexcept {
  Source& s = source();
  Completed buffer;
  if (!s.other.is_there()) {
    // Those that are there now: a thread that launches without a pause may fill them faster than they are written, and
    // who waited for the last would keep the program from its end.
    for (size_t left = s.buffers.queued(); left > 0 && s.buffers.take(buffer); --left) {
      see_calls(s.api, buffer, s.sharing());  // what they launched may run when there is another client
      write_buffer(s.api, buffer, s.tally, s.devices);
      s.buffers.give_back(buffer.data);
    }
    return;
  }
  const Sharing sharing = s.sharing();
  const size_t from = s.count_to_pour;
  const auto slot = [&s](size_t i) -> Completed& {
    return s.to_pour[(s.first_to_pour + i) % ActivityBuffers::kMostForced];
  };
  while (s.count_to_pour < ActivityBuffers::kMostForced && s.buffers.take(buffer)) slot(s.count_to_pour++) = buffer;
  if (const BothClocks now = s.clocks_now(); now.is_read) {
    const Lock lock(s.wishing);
    s.clock.reads(now.realtime, now.other);
  }
  for (size_t i = from; i < s.count_to_pour; ++i) see_calls(s.api, slot(i), sharing);
  for (size_t i = from; i < s.count_to_pour; ++i) write_buffer(s.api, slot(i), s.tally, s.devices, &sharing);
}

void write_all(bool forced) noexcept {
  Source& s = source();
  s.api.flush_all(0);
  if (forced) s.api.flush_all(1);
  write_completed();
  write_devices(s.api, s.devices, s.tally, forced);
  write_dropped(s.api, nullptr, 0, s.tally);
  write_clock(s.api, s.sharing());
}

void pour_completed() noexcept {
  Source& s = source();
  if (!s.other.is_there() || !s.other.begin()) return;
  size_t left = 0;  // those that are there now: see write_completed()
  {
    const Lock lock(s.writing);
    left = s.count_to_pour;
  }
  for (; left > 0 && state() == State::kOn; --left) {  // not at the end, where the other client may be gone
    Completed buffer;
    {
      const Lock lock(s.writing);
      if (s.count_to_pour == 0) break;
      buffer = s.to_pour[s.first_to_pour];
      s.first_to_pour = (s.first_to_pour + 1) % ActivityBuffers::kMostForced;
      --s.count_to_pour;
    }
    if (buffer.is_foreign) {
      s.other.completed()(buffer.context, buffer.stream, reinterpret_cast<uint8_t*>(buffer.data), buffer.valid,
                          buffer.valid);
      continue;
    }
    s.other.pour(s.api, s.sharing(), buffer);
    s.buffers.give_back(buffer.data);
  }
  s.other.end();
}

void prepare(const char* library) noexcept {
  Source& s = *new (g_storage) Source;
  if (!session::config().gpu) return session::note_source("gpu", SourceState::kOff, "switched off (--gpu off)");
  become(State::kWaiting);
  if (access("/dev/nvidiactl", F_OK) == 0)
    session::note_source("gpu", SourceState::kOff, "the program has not initialised CUDA");
  sem_init(&s.work, 0, 0);
  sem_init(&s.flushed, 0, 0);
  pthread_atfork(nullptr, nullptr, after_fork_in_child);
  window::set_listener(follow_window);
  if (const GpuTool tool = find_gpu_tool(); tool.name) {
    note_tool(tool);
    atexit(say_tool_at_exit);
  } else if (!ask_cuda_to_call(library)) {
    session::note_source("gpu", SourceState::kOff,
                         "CUDA_INJECTION64_PATH names another tool; not before torch.cuda is used");
  }
}

void start() noexcept {
  if (seal::is_sealed()) return;
  State waiting = State::kWaiting;
  if (!source().state.compare_exchange_strong(waiting, State::kStarting)) return;
  const KeepErrno keep;
  start_now();
}

void interpreter_ended() noexcept {
  if (seal::is_sealed()) return;  // to wake our thread up is a system call
  const KeepErrno keep;
  flush_for_the_end();
}

void process_exits_now() noexcept {
  if (state() != State::kOn || seal::is_sealed()) return;
  const KeepErrno keep;
  Source& s = source();
  s.must_flush.store(true, std::memory_order_release);  // pairs with the exchange in run()
  sem_post(&s.work);
  constexpr time_t kPatienceSeconds = 1;  // whoever leaves like this may do so because CUDA hangs
  timespec until{};
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += kPatienceSeconds;
  while (sem_timedwait(&s.flushed, &until) != 0 && errno == EINTR) continue;
}

void expect_subscriber() noexcept { source().expects_subscriber.store(true, std::memory_order_relaxed); }

}  // namespace torchprof::cupti
