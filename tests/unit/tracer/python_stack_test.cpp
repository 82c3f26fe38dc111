// Stacks of threads that go on while they are read: whatever the memory holds, no byte of it is trusted.
#include "tracer/spool/python_stack.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <vector>

namespace python_stack_test {

using namespace torchprof;

namespace {

constexpr uint64_t kInterpreter = 0x1234;
constexpr uint32_t kTid = 77;

struct State {  // a PyThreadState
  uint64_t next = 0, interpreter = kInterpreter, tid = kTid, current = 0;
};
struct Frame {
  uint64_t code = 0, instruction = 0, previous = 0;
  uint8_t owner = 0;
};

InterpreterDef layout() {
  InterpreterDef at{};
  at.interpreter = kInterpreter;
  at.next = offsetof(State, next), at.of_thread = offsetof(State, interpreter), at.tid = offsetof(State, tid);
  at.current = offsetof(State, current);
  at.code = offsetof(Frame, code), at.instruction = offsetof(Frame, instruction);
  at.previous = offsetof(Frame, previous), at.owner = offsetof(Frame, owner);
  at.loop = 3;
  at.instructions = 200;
  return at;
}

uint64_t address(const void* at) { return reinterpret_cast<uintptr_t>(at); }

}  // namespace

TEST_CASE("a glimpse finds the frames that are there, wherever they lie") {
  std::mt19937_64 random(3);
  const auto memory = ProcessMemory::own(getpid());
  for (const size_t depth : {size_t{1}, size_t{2}, size_t{100}, PythonGlimpse::kMost, PythonGlimpse::kMost + 9}) {
    std::vector<Frame> frames(3000);
    std::vector<size_t> order;  // innermost first
    while (order.size() < depth) {
      const size_t i = random() % frames.size();
      if (frames[i].code == 0) order.push_back(i), frames[i].code = 0x1000 * i + 0x8000 + random() % 4;
    }
    std::vector<uint64_t> codes;
    for (size_t k = 0; k < depth; ++k) {
      Frame& f = frames[order[k]];
      f.owner = random() % 4 == 0 ? 3 : 0;
      f.instruction = (f.code & ~uint64_t{3}) + 200 + 2 * k;
      f.previous = k + 1 < depth ? address(&frames[order[k + 1]]) : 0;
      if (f.owner != 3) codes.push_back(f.code & ~uint64_t{3});
    }
    State state;
    state.current = address(&frames[order[0]]);
    PythonGlimpse glimpse;
    const auto seen = glimpse.read(memory, layout(), {address(&state), kTid});
    CHECK(seen == (codes.empty() ? PythonGlimpse::Seen::kIdle : PythonGlimpse::Seen::kWhole));
    REQUIRE(glimpse.size() == std::min(codes.size(), PythonGlimpse::kMost));
    CHECK(glimpse.beyond() == codes.size() - glimpse.size());
    for (size_t i = 0; i < glimpse.size(); ++i) CHECK(glimpse[i].code == codes[i]);
    CHECK(glimpse.read(memory, layout(), {address(&state), kTid + 1}) == PythonGlimpse::Seen::kTorn);
  }
}

TEST_CASE("a glimpse of anything ends, and holds no more than there is room for") {
  std::mt19937_64 random(5);
  const auto memory = ProcessMemory::own(getpid());
  PythonGlimpse glimpse;
  std::vector<uint64_t> words(2048);
  for (int round = 0; round < 3000; ++round) {
    const auto any = [&]() -> uint64_t {
      switch (random() % 6) {
        case 0:
          return random() % 3 * 8;
        case 1:
          return ~uint64_t{0} - random() % (random() % 2 ? 200 : 5000);
        case 2:
          return random();
        default:
          return address(words.data()) + random() % (words.size() * 8);
      }
    };
    for (uint64_t& word : words) word = any();
    State state;
    state.current = any();
    glimpse.read(memory, layout(), {address(&state), kTid});
    CHECK(glimpse.size() <= PythonGlimpse::kMost);
    if (glimpse.size() > 0) glimpse.still_has(memory, layout(), {address(&state), kTid}, glimpse.size() - 1);
    PythonCode code;
    CHECK_FALSE(code.read(memory, layout(), any()));
  }
}

}  // namespace python_stack_test
