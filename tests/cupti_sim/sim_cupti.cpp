// CUPTI's side of the simulation: buffers, kinds, callbacks, with libcupti's names and types. As the real one, it asks
// for buffers and gives them back on whatever thread it is on, with a lock of its own held while it asks.
//
// What goes wrong is set in CUPTI_SIM, a list of NAME=NUMBER:
//     drop=N       each Nth record is dropped, and said to be
//     unknown=N    each Nth record is followed by one of a kind that nobody asked for
//     cut=1        a buffer that is flushed ends within its last record
//     late=1       a buffer comes back after the exit handlers of those who were loaded later
//     slowflush=N  a flush takes N ms of processor time
//     slow=N       who reads a full buffer takes N ms longer
//     withhold=1   what is in buffers is kept until a forced flush
//     drift=N      its clock runs N millionths too fast
//     deaf=1       calls that are enabled one by one have no records
//     noclock=1    it takes no other clock, as before 11.6
//     taken=1      another client holds the subscription
//     finalize=1   another client may call cuptiFinalize
//     cuptiActivityEnable=15 and the like: that function fails with this number
// What torchprof must not do ends the program: a call of CUPTI from its buffer callbacks, where the real one may hold
// its locks, and cuptiFinalize. Other clients take the records out there.
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/cupti_sim/cupti_sim.h"

#define SIM_API extern "C" __attribute__((visibility("default")))

namespace cupti_sim {
namespace {

using RequestBuffer = void (*)(uint8_t**, size_t*, size_t*);
using Completed = void (*)(void*, uint32_t, uint8_t*, size_t, size_t);

constexpr int kInvalid = 1, kMaxLimitReached = 12, kNotSupported = 27, kTaken = 39;
constexpr uint32_t kOpen = uint32_t{1} << 31;  // of the kind in a record of work that has not ended
constexpr int kLanes = 1024;

struct Buffer {
  uint8_t* data = nullptr;
  size_t size = 0;
  size_t used = 0;
  uint32_t last = 0;                                      // bytes of its last record
  std::shared_ptr<std::atomic<int>> open = make_count();  // records of work that has not ended

  static std::shared_ptr<std::atomic<int>> make_count() { return std::make_shared<std::atomic<int>>(0); }
};

struct Lane {
  std::mutex lock;
  Buffer buffer;
};

// Calls that are enabled one by one. As on an H100 with CUDA 13.0: whether CUPTI sees any is decided when the first
// context is made, and after all of a kind were disabled it never does again.
struct Calls {
  static constexpr uint32_t kSizes[] = {523, 807};  // of the runtime and the driver, in 13.0
  std::atomic<bool> is_on[2][1024]{};
  std::atomic<bool> is_alive[2]{};
};

struct Cupti {
  std::atomic<uint64_t> enabled{0};
  Calls calls;
  std::atomic<RequestBuffer> request{nullptr};
  std::atomic<Completed> completed{nullptr};
  std::atomic<bool> is_torchprof{false};  // whose they are
  std::atomic<uint64_t (*)()> clock{nullptr};
  uint64_t own_at_clock = 0, clock_at_clock = 0;  // readings when it was registered
  std::atomic<int> registrations{0};              // of torchprof
  std::mutex subscription;
  bool is_subscribed = false;
  Lane lanes[kLanes];
  std::atomic<int> threads{16};  // lanes of threads; those below are the devices'
  std::mutex lock;               // of what follows
  std::condition_variable wake;
  std::condition_variable handed_over;
  std::deque<Buffer> full;
  bool has_worker = false, is_handing_over = false;
  std::atomic<uint64_t> made[64]{}, delivered[64]{};
  std::atomic<uint64_t> dropped{0}, dropped_told{0}, count{0}, junk{0}, cut{0};
};
Cupti& cupti() {
  static auto* the = new Cupti;  // outlives everything
  return *the;
}

thread_local bool t_in_callback = false;
thread_local std::vector<uint64_t> t_external;       // identifiers that the program pushed
std::atomic<bool> g_hangs{false}, g_is_hung{false};  // from now on; and who flushes does not come back
std::atomic<uint64_t> g_flushes{0};                  // that have begun

[[noreturn]] void forbidden(const char* function, const char* why) {
  std::fprintf(stderr, "simulated CUPTI: %s: %s\n", function, why);
  std::abort();
}

template <class Callback, class... Arguments>
void call_back(Callback callback, Arguments... arguments) {
  t_in_callback = cupti().is_torchprof;
  callback(arguments...);
  t_in_callback = false;
}

int failure(const char* function) { return static_cast<int>(setting(function, 0)); }

void hand_over(const Buffer& buffer) {
  Cupti& c = cupti();
  const Completed completed = c.completed.load();
  if (!completed || !buffer.data) return;
  size_t valid = buffer.used;
  if (setting("cut", 0) != 0 && buffer.last > 8) {
    valid -= buffer.last - 8;
    ++c.cut;
  }
  call_back(completed, nullptr, 0u, buffer.data, buffer.size, valid);
}

void work() {
  Cupti& c = cupti();
  pthread_setname_np(pthread_self(), "cupti");
  for (;;) {
    std::unique_lock lock(c.lock);
    std::deque<Buffer>::iterator next;
    c.wake.wait(lock, [&] {
      next = std::find_if(c.full.begin(), c.full.end(), [](const Buffer& b) { return *b.open == 0; });
      return next != c.full.end();
    });
    const Buffer buffer = *next;
    c.full.erase(next);
    c.is_handing_over = true;
    lock.unlock();
    hand_over(buffer);
    lock.lock();
    c.is_handing_over = false;
    c.handed_over.notify_all();
  }
}

// A record is seen by whoever looks into the buffer once its kind is there.
void write_record(uint8_t* at, const void* record, uint32_t bytes, uint32_t flag) {
  uint32_t kind = 0;
  std::memcpy(&kind, record, sizeof(kind));
  std::memcpy(at + sizeof(kind), static_cast<const uint8_t*>(record) + sizeof(kind), bytes - sizeof(kind));
  __atomic_store_n(reinterpret_cast<uint32_t*>(at), kind | flag, __ATOMIC_RELEASE);
}

// With the lane's lock. False: there is no room, and none was given.
bool make_room(Lane& lane, uint32_t bytes) {
  Cupti& c = cupti();
  if (lane.buffer.data && lane.buffer.used + bytes <= lane.buffer.size) return true;
  if (lane.buffer.data) {
    const std::lock_guard lock(c.lock);
    c.full.push_back(lane.buffer);
    if (!c.has_worker) std::thread(work).detach();
    c.has_worker = true;
    c.wake.notify_one();
  }
  lane.buffer = {};
  size_t most = 0;
  if (const RequestBuffer request = c.request.load()) call_back(request, &lane.buffer.data, &lane.buffer.size, &most);
  return lane.buffer.data && lane.buffer.size >= bytes;
}

bool put(Lane& lane, const void* record, uint32_t bytes, uint32_t flag = 0) {
  if (!make_room(lane, bytes)) return false;
  write_record(lane.buffer.data + lane.buffer.used, record, bytes, flag);
  lane.buffer.used += bytes;
  lane.buffer.last = bytes;
  return true;
}

// Returns when all that was full has been handed over, as the real one says that it does. Not the buffers with records
// of work that has not ended.
void flush() {
  Cupti& c = cupti();
  std::vector<Buffer> buffers;
  for (Lane& lane : c.lanes) {
    const std::lock_guard lock(lane.lock);
    if (lane.buffer.used == 0 || *lane.buffer.open != 0) continue;
    buffers.push_back(lane.buffer);
    lane.buffer = {};
  }
  std::unique_lock lock(c.lock);
  const auto closed = std::stable_partition(c.full.begin(), c.full.end(), [](const Buffer& b) { return *b.open == 0; });
  buffers.insert(buffers.begin(), c.full.begin(), closed);
  c.full.erase(c.full.begin(), closed);
  lock.unlock();
  for (const Buffer& buffer : buffers) hand_over(buffer);
  lock.lock();
  c.handed_over.wait(lock, [&c] { return !c.is_handing_over; });
}

// What it had of buffers is nobody's: neither given back nor written any more.
void forget_buffers() {
  Cupti& c = cupti();
  constexpr int kNever = -1'000'000;
  for (Lane& lane : c.lanes) {
    const std::lock_guard lock(lane.lock);
    *lane.buffer.open = kNever;
    lane.buffer = {};
  }
  const std::lock_guard lock(c.lock);
  for (const Buffer& buffer : c.full) *buffer.open = kNever;
  c.full.clear();
}

// Run after the exit handlers of whoever came later.
void at_exit() {
  Cupti& c = cupti();
  if (setting("late", 0) != 0) {
    const ApiRecord record;
    deliver(-1, record);
    flush();
  }
  const char* path = std::getenv("CUPTI_SIM_REPORT");
  if (!path) return;
  FILE* file = std::fopen((std::string(path) + "." + std::to_string(getpid())).c_str(), "w");
  if (!file) return;
  std::fprintf(file, "{\"dropped\": %lu, \"unknown\": %lu, \"cut\": %lu", c.dropped.load(), c.junk.load(),
               c.cut.load());
  for (int kind = 0; kind < 64; ++kind)
    if (c.made[kind] != 0)
      std::fprintf(file, ", \"%d\": [%lu, %lu]", kind, c.made[kind].load(), c.delivered[kind].load());
  if (c.registrations > 1) std::fprintf(file, ", \"registrations\": %d", c.registrations.load());
  std::fprintf(file, "}\n");
  std::fclose(file);
}

__attribute__((constructor)) void loaded() { std::atexit(at_exit); }

}  // namespace

void check_caller(const char* function) {
  if (t_in_callback) forbidden(function, "called from a buffer callback");
}

uint32_t version() {
  static const uint32_t chosen = [] {
    const char* text = std::getenv("CUPTI_SIM_VERSION");
    const std::string name = text ? text : "12.4";
    return name == "11.8" ? 18u : name == "12.4" ? 22u : name == "13.0" ? 130000u : name == "13.1" ? 130100u : 990000u;
  }();
  return chosen;
}

long setting(const char* name, long otherwise) {
  const char* list = std::getenv("CUPTI_SIM");
  const std::string wanted = std::string(name) + "=";
  for (const char* at = list; at && *at; at = std::strchr(at, ',') ? std::strchr(at, ',') + 1 : nullptr)
    if (std::strncmp(at, wanted.c_str(), wanted.size()) == 0) return std::atol(at + wanted.size());
  return otherwise;
}

uint64_t drifted(uint64_t ns, long drift) {
  static const uint64_t begin = ns;
  return ns + static_cast<uint64_t>(static_cast<double>(ns - begin) * static_cast<double>(drift) / 1e6);
}

void say_external(uint32_t correlation) {
  if (t_external.empty() || !is_enabled(39)) return;
  ExternalRecord record;
  record.external_id = t_external.back();
  record.correlation_id = correlation;
  deliver(-1, record);
}

std::atomic<int64_t>& set_clock() {
  static std::atomic<int64_t> by{0};
  return by;
}

uint64_t host_now() {
  const auto clock = cupti().clock.load();
  return clock ? clock() : now_ns() + static_cast<uint64_t>(set_clock().load());
}

bool is_enabled(uint32_t kind) { return cupti().enabled.load(std::memory_order_relaxed) >> kind & 1; }

bool is_call_enabled(uint32_t kind, uint32_t cbid) {
  const Calls& calls = cupti().calls;
  const int api = kind == 5 ? 0 : 1;
  return calls.is_on[api][cbid] && (is_enabled(kind) || calls.is_alive[api]);
}

void context_made() {
  static std::once_flag once;
  if (setting("deaf", 0) != 0) return;
  std::call_once(once, [] {
    Calls& calls = cupti().calls;
    for (int api = 0; api < 2; ++api)
      for (const auto& is_on : calls.is_on[api])
        if (is_on) calls.is_alive[api] = true;
  });
}

namespace {

struct Reading {
  uint64_t own, given;
};

// Both clocks at one moment: of a few tries the one that nothing came between.
Reading read_clocks(uint64_t (*clock)()) {
  Reading best{};
  uint64_t shortest = UINT64_MAX;
  for (int i = 0; i < 8 && shortest > 500; ++i) {
    const uint64_t before = now_ns(), given = clock(), took = now_ns() - before;
    if (took < shortest) shortest = took, best = {before + took / 2, given};
  }
  return best;
}

// What CUPTI's own clock was ahead of the devices' when it last read both.
Reading read_own_clock() {
  static std::mutex lock;
  static uint64_t read_at = 0, ahead = 0;
  const std::lock_guard guard(lock);
  const uint64_t now = now_ns();
  if (now - read_at > 1'000'000'000) read_at = now, ahead = static_cast<uint64_t>(set_clock().load());
  return {now, now + ahead};
}

// How a device's times become CUPTI's.
struct Conversion {
  Reading at;
  double rate = 1;

  uint64_t of(uint64_t time) const {
    const auto since = static_cast<double>(static_cast<int64_t>(time - at.own));
    return at.given + static_cast<uint64_t>(static_cast<int64_t>(since * rate));
  }
};

Conversion read_conversion(uint64_t (*clock)()) {
  const Cupti& c = cupti();
  const Reading now = read_clocks(clock);
  if (now.own <= c.own_at_clock) return {now};
  return {now, static_cast<double>(now.given - c.clock_at_clock) / static_cast<double>(now.own - c.own_at_clock)};
}

// By the clock that CUPTI was given. It stays the same unless it is wrong by more than a reading is: otherwise work
// that ran one behind the other would overlap.
Conversion given_conversion(uint64_t (*clock)()) {
  constexpr int64_t kWrong = 2000;  // ns, or what the clock counts
  static std::mutex lock;
  static Conversion known;
  static uint64_t (*known_clock)() = nullptr;
  const std::lock_guard guard(lock);
  const Conversion now = read_conversion(clock);
  const auto wrong = static_cast<int64_t>(known.of(now.at.own) - now.at.given);
  if (known_clock != clock || wrong > kWrong || wrong < -kWrong) known = now;
  known_clock = clock;
  return known;
}

// A device's times: as the real one, it converts them when it hands over, by readings of both clocks.
void convert(uint8_t* record, uint32_t kind) {
  const auto clock = cupti().clock.load();
  if (kind != 1 && kind != 2 && kind != 10 && kind != 22) return;
  const Conversion conversion = clock ? given_conversion(clock) : Conversion{read_own_clock()};
  for (const size_t offset : {16, 24}) {
    uint64_t time = 0;
    std::memcpy(&time, record + offset, sizeof(time));
    if (time == 0) continue;
    time = conversion.of(time);
    std::memcpy(record + offset, &time, sizeof(time));
  }
}

void deliver(int number, const void* record, uint32_t kind, Slot* slot) {
  static const long drop = setting("drop", 0), unknown = setting("unknown", 0);
  thread_local const int own = cupti().threads++ % (kLanes - 16) + 16;
  Cupti& c = cupti();
  Lane& lane = c.lanes[number < 0 ? own : number];
  const std::lock_guard lock(lane.lock);
  ++c.made[kind];
  const uint64_t n = drop != 0 || unknown != 0 ? ++c.count : 0;
  const uint32_t bytes = size_of(kind, version());
  if ((drop != 0 && n % static_cast<uint64_t>(drop) == 0) || !put(lane, record, bytes, slot ? kOpen : 0)) {
    ++c.dropped;
    return;
  }
  ++c.delivered[kind];
  uint8_t* const at = lane.buffer.data + lane.buffer.used - lane.buffer.last;
  if (slot) {
    ++*lane.buffer.open;
    *slot = {at, bytes, lane.buffer.open};
  }
  const UnknownRecord junk;
  if (unknown != 0 && n % static_cast<uint64_t>(unknown) == 0 && put(lane, &junk, sizeof(junk))) ++c.junk;
}

}  // namespace

void deliver(int number, const void* record, uint32_t kind) { deliver(number, record, kind, nullptr); }

Slot open_record(const void* record, uint32_t kind) {
  Slot slot;
  deliver(-1, record, kind, &slot);
  return slot;
}

void close_record(const Slot& slot, const void* record) {
  if (!slot.at || *slot.open < 0) return;
  uint32_t kind = 0;
  std::memcpy(&kind, record, sizeof(kind));
  std::vector<uint8_t> whole(static_cast<const uint8_t*>(record), static_cast<const uint8_t*>(record) + slot.bytes);
  convert(whole.data(), kind);
  write_record(slot.at, whole.data(), slot.bytes, 0);
  if (--*slot.open == 0) {
    const std::lock_guard lock(cupti().lock);
    cupti().wake.notify_one();
  }
}

}  // namespace cupti_sim

using namespace cupti_sim;

#define FAIL_IF_SET       \
  check_caller(__func__); \
  if (const int result = failure(__func__); result != 0) return result

SIM_API int cuptiGetVersion(uint32_t* out) {
  FAIL_IF_SET;
  // CUPTI 13.2.86, which torch 2.15 brings, crashes where no driver is: whoever asks waits for cuInit.
  if (!is_initialized()) abort();
  *out = version();
  return 0;
}
SIM_API int cuptiGetTimestamp(uint64_t* out) {
  FAIL_IF_SET;
  *out = host_now();
  // As where the thread loses the processor just then; every fourth time it does not.
  static const long held_up = setting("held_up", 0);
  static std::atomic<uint64_t> readings{0};
  if (held_up != 0 && ++readings % 4 != 0) std::this_thread::sleep_for(std::chrono::milliseconds(held_up));
  return 0;
}
SIM_API int cuptiActivityRegisterTimestampCallback(uint64_t (*clock)()) {
  FAIL_IF_SET;
  if (!clock) return kInvalid;
  Cupti& c = cupti();
  if (setting("noclock", 0) != 0) return kNotSupported;
  const Reading now = read_clocks(clock);
  c.own_at_clock = now.own, c.clock_at_clock = now.given;
  c.clock = clock;
  return 0;
}
SIM_API int cuptiFinalize() {
  check_caller(__func__);
  if (setting("finalize", 0) == 0) forbidden(__func__, "it is never to be called");
  cupti().enabled = 0;
  for (auto& of_api : cupti().calls.is_on)
    for (auto& is_on : of_api) is_on = false;
  cupti().request = nullptr;
  cupti().completed = nullptr;
  forget_buffers();
  forget_names();
  return 0;
}
SIM_API int cuptiActivityPushExternalCorrelationId(uint32_t, uint64_t id) {
  FAIL_IF_SET;
  t_external.push_back(id);
  return 0;
}
SIM_API int cuptiActivityPopExternalCorrelationId(uint32_t, uint64_t*) {
  FAIL_IF_SET;
  if (t_external.empty()) return 20;  // CUPTI_ERROR_QUEUE_EMPTY
  t_external.pop_back();
  return 0;
}
SIM_API int cuptiGetThreadIdType(uint32_t* out) {
  check_caller(__func__);
  *out = 0;
  return 0;
}
SIM_API int cuptiGetResultString(int result, const char** text) {
  check_caller(__func__);
  *text = result == 15 ? "CUPTI_ERROR_NOT_INITIALIZED" : "CUPTI_ERROR_SIMULATED";
  return 0;
}
SIM_API int cuptiSubscribe(void** subscriber, void*, void*) {
  FAIL_IF_SET;
  const std::lock_guard lock(cupti().subscription);
  if (setting("taken", 0) != 0 || cupti().is_subscribed) return kTaken;
  cupti().is_subscribed = true;
  *subscriber = &cupti();
  return 0;
}
SIM_API int cuptiUnsubscribe(void*) {
  check_caller(__func__);
  const std::lock_guard lock(cupti().subscription);
  cupti().is_subscribed = false;
  return 0;
}
SIM_API int cuptiActivityRegisterCallbacks(RequestBuffer request, Completed completed) {
  FAIL_IF_SET;
  if (!request || !completed) return kInvalid;
  Dl_info client{};
  cupti().is_torchprof = dladdr(reinterpret_cast<void*>(completed), &client) != 0 && client.dli_fname &&
                         std::strstr(client.dli_fname, "/libtorchprof.so") != nullptr;
  cupti().registrations += cupti().is_torchprof;
  cupti().request = request;
  cupti().completed = completed;
  return 0;
}
SIM_API int cuptiActivityEnable(uint32_t kind) {
  FAIL_IF_SET;
  if (kind == static_cast<uint32_t>(setting("nokind", 0))) return 21;
  cupti().enabled |= uint64_t{1} << kind;
  if (kind == 4 || kind == 5)
    for (auto& is_on : cupti().calls.is_on[kind == 5 ? 0 : 1]) is_on = true;
  if (kind == 8) say_devices();
  return 0;
}
SIM_API int cuptiActivityDisable(uint32_t kind) {
  FAIL_IF_SET;
  cupti().enabled &= ~(uint64_t{1} << kind);
  if (kind == 4 || kind == 5) {
    for (auto& is_on : cupti().calls.is_on[kind == 5 ? 0 : 1]) is_on = false;
    cupti().calls.is_alive[kind == 5 ? 0 : 1] = false;
  }
  return 0;
}
// Since 12.5; before, the real one does not have them.
static int switch_call(int api, uint32_t cbid, uint8_t on) {
  if (version() < 130000) return kNotSupported;
  if (cbid == 0 || cbid >= Calls::kSizes[api]) return kInvalid;
  cupti().calls.is_on[api][cbid] = on != 0;
  return 0;
}
SIM_API int cuptiActivityEnableRuntimeApi(uint32_t cbid, uint8_t on) {
  FAIL_IF_SET;
  return switch_call(0, cbid, on);
}
SIM_API int cuptiActivityEnableDriverApi(uint32_t cbid, uint8_t on) {
  FAIL_IF_SET;
  return switch_call(1, cbid, on);
}
SIM_API int cuptiActivityFlushAll(uint32_t flag) {
  FAIL_IF_SET;
  g_flushes.fetch_add(1, std::memory_order_relaxed);
  const std::clock_t end = std::clock() + setting("slowflush", 0) * CLOCKS_PER_SEC / 1000;
  while (std::clock() < end) continue;
  while (g_hangs) {
    g_is_hung = true;
    pause();
  }
  if (flag == 1)
    give_up_pending();
  else
    complete_pending();
  if (flag == 1 || setting("withhold", 0) == 0) flush();
  return 0;
}
SIM_API int cuptiActivityGetNumDroppedRecords(void*, uint32_t, size_t* out) {
  FAIL_IF_SET;
  const uint64_t all = cupti().dropped.load();
  *out = all - cupti().dropped_told.exchange(all);
  return 0;
}
SIM_API int cuptiActivityGetNextRecord(uint8_t* buffer, size_t valid, uint8_t** record) {
  FAIL_IF_SET;
  uint8_t* next = buffer;
  // Where reading a buffer takes long; not of a copy of one record. A buffer is read twice.
  static const long slow_ms = setting("slow", 0);
  if (constexpr size_t kFull = 1 << 20; !*record && slow_ms > 0 && valid > kFull)
    usleep(static_cast<useconds_t>(slow_ms * 500));
  if (*record) {
    uint32_t kind = 0;
    std::memcpy(&kind, *record, sizeof(kind));
    const uint32_t size = size_of(kind, version());
    if (size == 0) return 21;
    next = *record + size;
  }
  if (next + sizeof(uint32_t) > buffer + valid) {
    static const bool is_endless = setting("endless", 0) != 0;
    static std::atomic<uint64_t> ends{0};
    if (is_endless &&
        ends++ % 2 == 1) {  // as where a thread launches faster than anybody writes; a buffer is read twice
      const ApiRecord another;
      deliver(-1, another);
      flush();
    }
    return kMaxLimitReached;
  }
  *record = next;
  return 0;
}
// Returns when a client that flushes from time to time, on one thread, has written what there is by now: the first
// flush from here on delivers it, and when the second one begins it has been dealt with. False: there is no client, or
// 20 seconds have passed without a flush.
SIM_API bool simUntilWritten() {
  constexpr int kMs = 20'000;
  for (int flush = 0; flush < 2; ++flush) {
    const uint64_t before = g_flushes.load(std::memory_order_relaxed);
    for (int ms = 0; g_flushes.load(std::memory_order_relaxed) == before; ++ms) {
      if (!cupti().completed || ms == kMs) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  return true;
}
// From now on cuptiActivityFlushAll() does not return.
SIM_API void simHang() { g_hangs = true; }
// Returns when a client that flushes from time to time hangs there.
SIM_API void simUntilHung() {
  while (!g_is_hung) usleep(1000);
}
// A client that enables what torchprof does, and throws away what it gets.
SIM_API void simUseIdleClient() {
  static std::atomic<uint8_t*> kept{nullptr};
  cuptiActivityRegisterCallbacks(
      [](uint8_t** buffer, size_t* size, size_t*) {
        *size = size_t{2} << 20;
        *buffer = kept.exchange(nullptr);
        if (!*buffer) *buffer = static_cast<uint8_t*>(std::malloc(*size));
      },
      [](void*, uint32_t, uint8_t* buffer, size_t, size_t) { std::free(kept.exchange(buffer)); });
  for (const uint32_t kind : {1u, 2u, 4u, 5u, 10u, 17u, 20u, 22u, 36u, 38u, 49u, 50u}) cuptiActivityEnable(kind);
}
