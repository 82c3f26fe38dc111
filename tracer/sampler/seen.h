// What the sampler knows of the threads that it looks at. Its thread alone uses it (sampler.h); nobody else includes
// this.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tracer/spool/python_stack.h"
#include "tracer/spool/record.h"

namespace torchprof::sampler {

inline constexpr int64_t kUs = 1000, kSecond = 1'000'000'000;
inline constexpr size_t kMostSampled = 512;
inline constexpr size_t kRemembered = 128;  // frames
inline constexpr size_t kMostKept = 200;    // descriptors

// A thread that has become a row of the list.
struct Seen {
  PythonThread thread;
  bool is_listed;       // in the list that was read last
  bool has_queue;       // `queued` is known
  bool is_waiting;      // it has not run since the last look: what follows holds
  int64_t from;         // what it did until then is recorded; ns, CLOCK_MONOTONIC
  int64_t until;        // it was seen then
  int64_t since;        // when it was first seen to wait
  int64_t state_again;  // the wait is recorded then, although it goes on
  uint64_t ran;         // totals at `until`, ns
  uint64_t queued;
  uint64_t queued_left;  // of what the kernel has counted, more than there was time since the look before
  int schedstat;         // a descriptor of our own table; -1: none
  uint32_t node;
  bool is_inner;
  SampledWait wait;
  uint32_t what;
  StringId name;
  // The outer frames at the last look, outermost first, frame and code as one number: those that are the same still
  // have the code that was looked at then.
  uint64_t frames[kRemembered];
  size_t remembered;
  uint32_t looks;  // since all codes were looked at
};

// A code object that was seen, and the line of one of its instructions.
struct KnownCode {
  uint64_t code;   // 0: the place is free
  uint64_t again;  // the look at which its header was read last
  PythonCode::Header header;
  FunctionId function;
};
struct KnownLine {
  uint64_t key;  // function and offset; 0: free
  uint32_t line;
};
struct KnownNode {
  uint32_t caller, line;
  FunctionId function;
  uint32_t id;  // 0: free
};
// A table with open addressing that is emptied when it is three quarters full. The index of where `is_it`, or of a free
// place.
template <class T, size_t kSize>
struct Table {
  T places[kSize];
  size_t used;
  static bool is_free(const KnownCode& c) noexcept { return c.code == 0; }
  static bool is_free(const KnownLine& l) noexcept { return l.key == 0; }
  static bool is_free(const KnownNode& n) noexcept { return n.id == 0; }
  void clear() noexcept {
    if (used != 0) memset(static_cast<void*>(places), 0, sizeof(places));
    used = 0;
  }
  template <class IsIt>
  T& find(uint64_t hash, IsIt is_it) noexcept {
    if (used >= kSize / 4 * 3) clear();
    for (size_t i = (hash * 0x9e3779b97f4a7c15u) >> 40;; ++i)
      if (T& place = places[i % kSize]; is_free(place) || is_it(place)) return place;
  }
};

// What the thread alone uses; only the pages that are touched take memory.
struct Memory {
  Table<KnownCode, 4096> codes;
  Table<KnownLine, 8192> lines;
  Table<KnownNode, 16384> nodes;
  Seen threads[kMostSampled];
  size_t count;
  PythonThread list[kMostSampled];
  PythonGlimpse stack;
  PythonCode code, again;
};
extern Memory g_looks;

struct Sampling {
  uint32_t hz = 0;
  uint64_t looks = 0;    // at stacks, so far
  uint64_t gil = 0;      // address; 0: not known
  uint32_t nodes = 0;    // stated so far
  uint32_t names = 0;    // likewise, of what is waited for
  uint32_t sockets = 0;  // that were looked up
  uint64_t written = 0;  // bytes
  int64_t last_list = 0;
  int64_t last_others = 0;  // when only_ours_are_left() was asked
  uint64_t random = 0x2545f4914f6cdd1d;
  pid_t pid = 0;      // of the process that this is about
  int64_t since = 0;  // it is sampled; each fork of it ends the thread and starts it again
  bool has_own_table = false;
  bool opens_spool = false;  // somebody has asked for it: of a process without events, too
  size_t kept = 0;           // descriptors
};
extern Sampling g_sampling;

class ProcPath {
 public:
  ProcPath(const char* before, uint32_t number, const char* after) noexcept {
    put(before);
    char digits[10];
    size_t count = 0;
    do digits[count++] = static_cast<char>('0' + number % 10);
    while (number /= 10);
    while (count > 0) text_[size_++] = digits[--count];
    put(after);
  }
  const char* get() const noexcept { return text_; }

 private:
  void put(const char* text) noexcept {
    while (*text) text_[size_++] = *text++;
  }
  char text_[64] = {};
  size_t size_ = 0;
};

// What is waited for. None: it is not known, or there were too many.
// "/data/log", "pipe", "socket 10.0.0.7:443", "socket listening at 127.0.0.1:80", "unix socket /run/x".
StringId name_of_descriptor(uint32_t fd) noexcept;
StringId name_of_child(uint32_t pid) noexcept;  // its command
void forget_names() noexcept;                   // in a forked child, whose spool has none

// Looks for where the thread stands, a few times if need be. What is not known stays 0.
void look_at_stack(const ProcessMemory& memory, const InterpreterDef& at, Seen& seen) noexcept;
// Totals of a thread, in ns. False: it has ended, or the kernel does not say.
bool read_ran(uint32_t tid, uint64_t& ran) noexcept;
bool read_queued(Seen& seen, uint64_t& queued) noexcept;
// Whether all threads of the program have ended, so that only ours keep the process alive.
bool only_ours_are_left() noexcept;
void ask_what_it_waits_for(const ProcessMemory& memory, Seen& seen) noexcept;

}  // namespace torchprof::sampler
