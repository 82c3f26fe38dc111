// Native stacks as the recorder takes them, beside those that the C library and libunwind take of the same place.
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <execinfo.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <stdexcept>
#include <thread>
#include <vector>

#include "formats/symbols/symbols.h"
#include "tests/unit/support/spool_builder.h"
#include "tracer/native/stack.h"
#include "tracer/processor/registers.h"
#include "tracer/session.h"

namespace native_test {

using namespace torchprof;

namespace {

using Stack = std::vector<uintptr_t>;

struct Pair {
  NativeFrameId ours;
  Stack theirs;  // innermost first
  Stack libunwind;
};
std::vector<Pair> g_taken;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kOwnFrames = 2;  // the sanitizer's backtrace() calls the C library's
#else
constexpr int kOwnFrames = 1;
#endif

// libunwind 1.6 for AArch64 goes on behind the outermost frame, and does not know that return addresses may be signed.
constexpr bool kComparesLibunwind = processor::kCallPushes;

// Not linked: its _Unwind_* would take the place of libgcc's.
using Backtrace = int (*)(void**, int);
const auto g_libunwind =
    reinterpret_cast<Backtrace>(dlsym(dlopen("libunwind.so.8", RTLD_NOW | RTLD_LOCAL), "unw_backtrace"));

// All taken in one function: only its own frame has another address, the callers are the same.
[[gnu::noinline]] void take() {
  void* theirs[256];
  const int count = backtrace(theirs, 256);
  Pair& pair = g_taken.emplace_back();
  for (int i = kOwnFrames; i < count; ++i) pair.theirs.push_back(reinterpret_cast<uintptr_t>(theirs[i]));
#if defined(__SANITIZE_THREAD__)  // what libunwind keeps of a thread outlives what the sanitizer keeps of it
  pair.libunwind = pair.theirs;
#else
  const int more = kComparesLibunwind ? g_libunwind(theirs, 256) : 0;
  for (int i = 1; i < more; ++i) pair.libunwind.push_back(reinterpret_cast<uintptr_t>(theirs[i]));
#endif
  if (ThreadBuffer* buffer = session::current_buffer()) pair.ours = native::take_stack(*buffer);
}

[[gnu::noinline]] int deep(int depth, const std::function<void()>& body) {
  volatile int here = depth;  // no tail call
  if (depth == 0)
    body();
  else
    deep(depth - 1, body);
  return here;
}

// Where the stack is realigned, and of a size that is not known beforehand.
[[gnu::noinline]] int odd_frame(int size, const std::function<void()>& body) {
  alignas(64) volatile char aligned[64] = {};
  auto* varying = static_cast<volatile char*>(__builtin_alloca(static_cast<size_t>(size)));
  varying[0] = 1;
  body();
  return aligned[0] + varying[0];
}

// Larger than 16 bits count.
[[gnu::noinline]] int large_frame(const std::function<void()>& body) {
  volatile char large[100'000] = {};
  body();
  return large[sizeof(large) / 2];
}

struct TakesInDestructor {
  ~TakesInDestructor() { take(); }
};

[[gnu::noinline]] void throw_through() {
  const TakesInDestructor guard;
  throw std::runtime_error("in flight");
}

// Runs `body` in a child that records, which checks what it took against its own spool and exits with 0 if all agree.
void in_session(const std::function<void()>& body, size_t stacks) {
  REQUIRE_MESSAGE((g_libunwind || !kComparesLibunwind), "libunwind.so.8 is not installed");
  const test::TemporaryDirectory directory;
  std::filesystem::create_directory(directory / "spool");
  const pid_t child = fork();
  if (child == 0) {
    Config config;
    config.native = true;
    session::arm(config, directory.path().c_str());
    native::start();
    body();
    const auto trace = formats::load(formats::find_spools(directory / "spool"));
    std::map<uint32_t, NativeFrameDef> frames;
    for (const ChunkView& chunk : trace.processes.at(0).spool->chunks()) {
      RecordCursor cursor(chunk.records);
      RecordView record;
      while (cursor.next(record))
        if (record.kind() == Kind::NativeFrameDef)
          frames[record.as<NativeFrameDef>().id.value] = record.as<NativeFrameDef>();
    }
    if (g_taken.size() != stacks) _exit(2);
    for (const Pair& pair : g_taken) {
      Stack ours;
      for (uint32_t i = pair.ours.value; i != 0; i = frames.at(i).caller.value) ours.push_back(frames.at(i).pc);
      // Our first two frames are take_stack() and take().
      if (ours.size() < 2 || pair.theirs.size() < 3) _exit(3);
      if (!std::equal(ours.begin() + 2, ours.end(), pair.theirs.begin(), pair.theirs.end())) _exit(4);
      if (kComparesLibunwind && !std::equal(ours.begin() + 2, ours.end(), pair.libunwind.begin(), pair.libunwind.end()))
        _exit(6);
    }
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

}  // namespace

TEST_CASE("stacks of any depth are those that the C library finds") {
  in_session(
      [] {
        for (const int depth : {0, 1, 5, 40, 39, 40, 100}) deep(depth, take);
      },
      7);
}

TEST_CASE("frames that are realigned, of varying size, and left by an exception") {
  in_session(
      [] {
        for (const int size : {1, 100, 5000}) odd_frame(size, [] { deep(3, take); });
        for (int i = 0; i < 2; ++i) try {
            deep(4, throw_through);
          } catch (const std::runtime_error&) {
            take();
          }
      },
      7);
}

TEST_CASE("frames with large variables") {
  in_session([] { deep(1, [] { large_frame([] { deep(1, take); }); }); }, 1);
}

TEST_CASE("the same stack twice is one id") {
  in_session(
      [] {
        const volatile int times = 2;  // not unrolled: they are called from one place
        for (int i = 0; i < times; ++i) take();
        if (g_taken.size() != 2 || g_taken[0].ours.value != g_taken[1].ours.value) _exit(5);
      },
      2);
}

TEST_CASE("threads begin their stacks") {
  in_session([] { std::thread([] { deep(7, take); }).join(); }, 1);
}

TEST_CASE("a forked child takes stacks of its own") {
  in_session(
      [] {
        deep(2, take);
        const pid_t child = fork();
        if (child == 0) {
          deep(3, take);
          _exit(g_taken.size() == 2 && g_taken.back().ours ? 0 : 1);
        }
        int status = 1;
        waitpid(child, &status, 0);
        if (status != 0) _exit(5);
      },
      1);
}

TEST_CASE("an address of this program is its function, file and line where they are known") {
  Dl_info here{};
  REQUIRE(dladdr(reinterpret_cast<void*>(&backtrace), &here) != 0);
  const auto address = reinterpret_cast<uintptr_t>(here.dli_saddr) - reinterpret_cast<uintptr_t>(here.dli_fbase);
  const std::vector<uint64_t> addresses{address};
  const auto places = formats::find_symbols(here.dli_fname, "", addresses);
  REQUIRE(places.size() == 1);
  REQUIRE_FALSE(places[0].empty());
  CHECK(places[0].back().function.find("backtrace") != std::string::npos);
  CHECK(formats::find_symbols(here.dli_fname, "not its build id", addresses).at(0).empty());
  CHECK(formats::find_symbols("/nowhere/libgone.so", "", addresses).at(0).empty());
}

}  // namespace native_test
