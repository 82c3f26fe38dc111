#include "tracer/window_thread.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <utility>

#include "tracer/control_reader.h"
#include "tracer/door_socket.h"
#include "tracer/process/descriptors.h"
#include "tracer/process/diag.h"
#include "tracer/process/own_thread.h"
#include "tracer/process/seal.h"
#include "tracer/session.h"
#include "tracer/spool/clock.h"
#include "tracer/window.h"

namespace torchprof::window {
namespace {

using SpecKind = WindowSpec::Kind;
constexpr int kPatienceMs = 500;     // to wait for a client's line
constexpr int kAloneApartMs = 1000;  // between two looks whether who attached has gone
constexpr int64_t kMs = 1'000'000;   // in nanoseconds
constexpr int kSettingMs = 3000;     // to open or close the window, which may wait for a step to end

struct Shared {
  const WindowSpec* spec = nullptr;
  const char* name = "";  // of the window, as the user wrote it
  const Door* door = nullptr;
  int wake = -1;  // eventfd: the signal has come
  int socket = -1;
  bool (*leave)() noexcept = nullptr;
  bool (*is_alone)() noexcept = nullptr;
  int64_t next_look_at_alone = 0;  // ns, CLOCK_MONOTONIC
  bool was_alone = false;          // at the last look
  bool has_left = false;
  int signal = 0;  // of the window; 0: it has none
  struct sigaction before {};
};
Shared g_shared;

enum class Leaving : uint8_t { kNot, kAsked, kDone, kRefused };
constinit std::atomic<Leaving> g_leaving{Leaving::kNot};  // leave_and_wait()

// Our thread may wait for the GIL: who has that must not wait for it. Relaxed: nothing is published.
constinit std::atomic<bool> g_is_busy{false};

void run() noexcept;
void wake_up() noexcept {
  const uint64_t even = 2;  // an even number means that no signal has come
  [[maybe_unused]] const ssize_t written = write(g_shared.wake, &even, sizeof(even));
}
constinit OwnThread g_thread("torchprof", run, wake_up);

void on_signal(int) {
  const KeepErrno keep;
  const seal::Calls calls;
  if (!calls) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(g_shared.wake, &one, sizeof(one));
}

// ---- by the clock ---------------------------------------------------------------------------------------------------

// Milliseconds until there is something to do; -1: never.
int keep_time() noexcept {
  const uint64_t now = g_shared.door->elapsed();
  const bool wanted = g_shared.spec->holds(now);
  if (wanted != g_shared.door->is_open() && !g_shared.door->set(wanted)) return kRetryMs;
  uint64_t next = g_shared.spec->next_change(now);
  if (now < kSettled) next = std::min(next, kSettled);
  if (next == UINT64_MAX) return -1;
  return static_cast<int>(std::min<uint64_t>((next - now) / 1'000'000 + 1, INT_MAX));
}

// ---- on command -----------------------------------------------------------------------------------------------------

int away(int fd) noexcept { return fd < 0 ? fd : descriptors::move_away(fd); }

bool may_command(int client) noexcept {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(client, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  return peer.uid == geteuid() || peer.uid == 0;
}

bool is_by_hand() noexcept {
  return g_shared.spec->kind == SpecKind::kManual || g_shared.spec->kind == SpecKind::kAuto;
}

// At most as many milliseconds as the thread may sleep then.
int read_control(bool at_once) noexcept {
  return control_reader::look(at_once, g_shared.door->obey) ? control_reader::kApartMs : kRetryMs;
}

void obey(char* command, char* answer, size_t size) noexcept {
  if (char* const space = strchr(command, ' ')) {
    *space = 0;
    session::SpoolName own;
    if (!session::copy_spool_name(own) || strcmp(own, space + 1) != 0) {
      snprintf(answer, size, "error: it is a process of another run");
      return;
    }
  }
  if (strcmp(command, "progress") == 0) {
    const bool is_open = g_shared.door->is_open();
    snprintf(answer, size, "ok: %u %s %llu", number(), is_open ? "open" : "closed",
             static_cast<unsigned long long>(g_shared.door->steps()));
    return;
  }
  if (strcmp(command, "detach") == 0 && g_shared.leave) {
    g_shared.has_left = g_shared.leave();
    snprintf(answer, size, g_shared.has_left ? "ok: detached" : "error: its window cannot be closed now");
    return;
  }
  const bool starts = strcmp(command, "start") == 0, stops = strcmp(command, "stop") == 0;
  const bool states = strcmp(command, "stacks") == 0, reads = strcmp(command, "control") == 0;
  if (!starts && !stops && !states && !reads && strcmp(command, "status") != 0) {
    snprintf(answer, size, "error: start, stop or status");
    return;
  }
  if (states) g_shared.door->state_stacks();
  if (reads && is_by_hand()) read_control(true);
  if ((starts || stops) && !is_by_hand()) {
    snprintf(answer, size, "error: its window is %s; only `manual` and `auto` are opened by hand", g_shared.name);
    return;
  }
  for (int waited = 0; (starts || stops) && !g_shared.door->set(starts) && waited < kSettingMs && !g_thread.must_end();
       waited += kRetryMs)
    poll(nullptr, 0, kRetryMs);
  if ((starts || stops) && g_shared.door->is_open() != starts) {
    snprintf(answer, size, "error: nothing can be recorded any more");
    return;
  }
  const size_t used = static_cast<size_t>(snprintf(answer, size, "ok: "));
  g_shared.door->describe(answer + used, size - used);
}

// Nobody else uses them: wake_thread() is called in the midst of events alone.
void close_door() noexcept {
  Shared& s = g_shared;
  for (int* const fd : {&s.wake, &s.socket})
    if (const int open = std::exchange(*fd, -1); open >= 0) close(open);
  remove_door_file();
  struct sigaction now {};
  if (s.signal != 0 && sigaction(s.signal, nullptr, &now) == 0 && now.sa_handler == on_signal)
    sigaction(s.signal, &s.before, nullptr);
  s.door = nullptr;
  g_is_busy.store(false, std::memory_order_relaxed);  // it wants the GIL no more
  // Pairs with the load in leave_and_wait(): everything is as it was.
  g_leaving.store(Leaving::kDone, std::memory_order_release);
}

// True: the process is left, and the thread has to end.
bool leave_now() noexcept {
  g_is_busy.store(true, std::memory_order_relaxed);
  if (!g_shared.leave || !g_shared.leave()) return false;
  close_door();
  return true;
}

// True: the thread has to end.
bool leave_if_asked() noexcept {
  // Relaxed: what was asked for publishes nothing, and what came of it is published below.
  if (g_leaving.load(std::memory_order_relaxed) != Leaving::kAsked) return false;
  const bool has_left = leave_now();
  if (!has_left) g_leaving.store(Leaving::kRefused, std::memory_order_relaxed);
  return has_left;
}

// True: the thread has to end.
bool leave_if_alone() noexcept {
  Shared& s = g_shared;
  if (!s.is_alone) return false;
  const int64_t now = clock::read_ns(CLOCK_MONOTONIC);
  if (now < s.next_look_at_alone) return false;
  s.next_look_at_alone = now + kAloneApartMs * kMs;
  const bool was_alone = std::exchange(s.was_alone, s.is_alone());
  return was_alone && s.was_alone && leave_now();
}

// Milliseconds; -1: never.
int until_look_at_alone() noexcept {
  if (!g_shared.is_alone) return -1;
  const int64_t left = g_shared.next_look_at_alone - clock::read_ns(CLOCK_MONOTONIC);
  return static_cast<int>(std::max<int64_t>(left, 0) / kMs + 1);
}

// Of two waits; -1: for ever.
int shorter(int a, int b) noexcept { return a < 0 ? b : b < 0 ? a : std::min(a, b); }

void serve(int client) noexcept {
  char line[64 + NAME_MAX] = "";
  size_t length = 0;
  pollfd ready{client, POLLIN, 0};
  while (!memchr(line, '\n', length) && length + 1 < sizeof(line) && !g_thread.must_end() &&
         poll(&ready, 1, kPatienceMs) == 1) {
    const ssize_t n = read(client, line + length, sizeof(line) - 1 - length);
    if (n <= 0) break;
    length += static_cast<size_t>(n);
  }
  char* end = static_cast<char*>(memchr(line, '\n', length));
  if (!end) return;
  *end = 0;
  char answer[512];
  obey(line, answer, sizeof(answer) - 1);
  // Before it is known: who knows it may attach again at once.
  if (g_shared.has_left) close_door();
  strcat(answer, "\n");
  [[maybe_unused]] const ssize_t sent = send(client, answer, strlen(answer), MSG_NOSIGNAL);
}

// ---- the thread -----------------------------------------------------------------------------------------------------

void run() noexcept {
  while (!g_thread.must_end()) {
    if (leave_if_asked() || leave_if_alone()) return;
    const SpecKind kind = g_shared.spec->kind;
    g_is_busy.store(kind == SpecKind::kTime || kind == SpecKind::kAuto, std::memory_order_relaxed);
    int timeout = kind == SpecKind::kTime ? keep_time() : kind == SpecKind::kAuto ? g_shared.door->tick() : -1;
    if (is_by_hand()) timeout = shorter(timeout, read_control(false));
    timeout = shorter(timeout, until_look_at_alone());
    if (door_is_elsewhere()) {
      if (const int before = std::exchange(g_shared.socket, open_door_socket()); before >= 0) close(before);
    }
    pollfd ready[] = {{g_shared.wake, POLLIN, 0}, {g_shared.socket, POLLIN, 0}};
    g_is_busy.store(false, std::memory_order_relaxed);
    if (poll(ready, 2, timeout) <= 0) continue;
    g_is_busy.store(true, std::memory_order_relaxed);
    // The program has closed what it does not know; poll() would come back at once for ever.
    if (ready[0].revents & POLLNVAL) g_shared.wake = -1;
    if (ready[1].revents & POLLNVAL) g_shared.socket = -1;
    uint64_t times = 0;
    if ((ready[0].revents & POLLIN) && read(g_shared.wake, &times, sizeof(times)) > 0 && times % 2 == 1)
      while (!g_shared.door->set(!g_shared.door->is_open()) && !g_thread.must_end()) poll(nullptr, 0, kRetryMs);
    if (!(ready[1].revents & POLLIN)) continue;
    const int client = accept4(g_shared.socket, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) continue;
    if (may_command(client)) serve(client);
    close(client);
    if (std::exchange(g_shared.has_left, false)) return;
  }
}

bool start_own_thread() noexcept {
  Shared& s = g_shared;
  g_thread.end();  // it has left: this is no more than a join
  control_reader::begin_anew();
  g_is_busy.store(false, std::memory_order_relaxed);
  s.wake = away(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  s.socket = open_door_socket();
  if (s.socket < 0) session::note_fact("window.commands", "`torchprof ctl` cannot reach this process: no socket");
  return s.wake >= 0 && g_thread.start();
}

// The inherited descriptors are the parent's.
void thread_after_fork() noexcept {
  const KeepErrno keep;
  g_is_busy.store(false, std::memory_order_relaxed);  // the parent's was
  if (seal::is_sealed() || !g_shared.door) return;
  if (g_shared.wake >= 0) close(g_shared.wake);
  if (g_shared.socket >= 0) close(g_shared.socket);
  forget_door_after_fork();
  start_own_thread();
}

}  // namespace

void follow_forks() noexcept {
  static bool is_following = false;
  if (!is_following) pthread_atfork(nullptr, nullptr, thread_after_fork);
  is_following = true;
}

bool start_thread(const WindowSpec& spec, const char* name, const Door& door) noexcept {
  Shared& s = g_shared;
  if (s.door) return true;
  s.spec = &spec;
  s.name = name;
  s.door = &door;
  if (!start_own_thread()) return false;
  follow_forks();
  s.signal = spec.kind == SpecKind::kSignal ? spec.signal : 0;
  if (s.signal != 0) {
    struct sigaction action {};
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    sigaction(s.signal, &action, &s.before);
  }
  return true;
}

namespace {

bool rest() noexcept {
  constexpr timespec kPause = {.tv_sec = 0, .tv_nsec = 50'000};  // it takes some 100 us
  constexpr int kUntilIdle = 200;
  for (int i = 0; g_is_busy.load(std::memory_order_relaxed); ++i) {
    if (i == kUntilIdle) return false;
    nanosleep(&kPause, nullptr);
  }
  return g_thread.end();  // also where it has left, and was not joined yet
}

}  // namespace

Resting::Resting(bool warns) noexcept : pid_(getpid()), has_ended_(warns && rest()) {}

// A child has started its own (thread_after_fork). What woke the one before to end is no work of this one.
Resting::~Resting() {
  const KeepErrno keep;
  if (!has_ended_ || getpid() != pid_ || !g_shared.door) return;
  g_is_busy.store(false, std::memory_order_relaxed);
  g_thread.start();
}

void when_told_to_leave(bool (*leave)() noexcept, bool (*is_alone)() noexcept) noexcept {
  g_shared.leave = leave;
  g_shared.is_alone = is_alone;
  g_shared.was_alone = false;
}

bool leave_and_wait() noexcept {
  constexpr timespec kPause = {.tv_sec = 0, .tv_nsec = 50'000};
  constexpr int kMostPauses = 100'000;  // each takes some 100 us
  const KeepErrno keep;
  if (seal::is_sealed() || !g_shared.door) return false;
  g_leaving.store(Leaving::kAsked, std::memory_order_relaxed);  // publishes nothing
  wake_up();
  for (int i = 0; i < kMostPauses; ++i) {
    // Pairs with the release in close_door().
    const Leaving now = g_leaving.load(std::memory_order_acquire);
    if (now == Leaving::kDone) g_thread.end();  // the program may count its threads, or fork
    if (now != Leaving::kAsked) return now == Leaving::kDone;
    nanosleep(&kPause, nullptr);
  }
  return false;
}

void wake_thread() noexcept {
  const KeepErrno keep;
  const seal::Calls calls;
  if (calls && g_shared.wake >= 0) wake_up();
}

}  // namespace torchprof::window
