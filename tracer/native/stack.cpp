#include "tracer/native/stack.h"

#include <pthread.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

#include "tracer/native/frame.h"
#include "tracer/native/objects.h"
#include "tracer/native/script.h"
#include "tracer/native/tree.h"
#include "tracer/processor/registers.h"
#include "tracer/python/code.h"
#include "tracer/python/frames.h"
#include "tracer/session.h"

namespace torchprof::native {

constinit std::atomic<bool> detail::g_wanted{false};

namespace {

// What one thread keeps; about 90 KiB, of which only used pages are ever touched.
struct ThreadStacks {
  static constexpr Mapping kMapping = Mapping::kNative;
  static constexpr uint32_t kMost = 1024;       // frames of a stack; of a deeper one the innermost are kept
  static constexpr uint32_t kRoom = kMost + 2;  // the loop's frame, too, and the one that stands for unknown frames
  uint32_t unloads = 0;                         // g_unloads when all of this was learned
  uintptr_t top = 0;                            // above the thread's stack; 0: not known
  FrameRule rules[4096];
  // The stack that was taken before, outermost first.
  uint32_t depth = 0;
  uintptr_t last[kRoom];
  NativeFrameId ids[kRoom];
  struct Line {
    uint64_t key;  // function and instruction
    uint32_t line;
  };
  Line lines[512];
  // The stack that is being taken, innermost first.
  uintptr_t found[kRoom];
};

std::atomic<uint32_t> g_unloads{0};
constinit FrameTree g_tree;

// A thread's stack ends at pthread's own data, that of the main thread at what the kernel has put above it. The end of
// a stack elsewhere (a coroutine's) is not known.
uintptr_t find_top(uint32_t tid) noexcept {
  const auto here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  const uintptr_t top = tid == static_cast<uint32_t>(getpid()) ? getauxval(AT_EXECFN) : uintptr_t{pthread_self()};
  constexpr uintptr_t kLargest = uintptr_t{1} << 30;
  return here < top && top - here < kLargest ? top : 0;
}

ThreadStacks* make_thread(ThreadBuffer& buffer) noexcept {
  auto* stacks = buffer.sources.map<ThreadStacks>();
  if (!stacks) return nullptr;
  stacks->top = find_top(buffer.tid);
  // Pairs with the releases in before_unload() and after_unload(): what is learned from here on is newer.
  stacks->unloads = g_unloads.load(std::memory_order_acquire);
  return stacks;
}

[[gnu::noinline]] void forget(ThreadStacks& stacks, uint32_t unloads) noexcept {
  std::ranges::fill(stacks.rules, FrameRule{});
  stacks.depth = 0;
  stacks.unloads = unloads;
}

// What stands for the function in the tree; 0: it has no id. Most operators are called without the GIL, so that no
// function can be defined here.
uintptr_t python_frame(ThreadStacks& stacks, const python::Position& at) noexcept {
  if (!at.code || at.offset < 0) return 0;
  const python::Function function = python::known_function(at.code);
  if (!function.bits) return 0;
  const uint64_t key = uint64_t{function.id().value} << 32 | static_cast<uint32_t>(at.offset);
  ThreadStacks::Line& known = stacks.lines[(key ^ key >> 32 ^ key >> 9) % std::size(stacks.lines)];
  if (known.key != key) [[unlikely]]
    known = {key, static_cast<uint32_t>(std::max(0, python::api().code_line(at.code, at.offset)))};
  return FrameTree::python_frame(function.id(), known.line);
}

// Adds the functions of the next run of the interpreter's loop.
void put_run(ThreadStacks& stacks, python::FrameWalk& python, uint32_t& count) noexcept {
  for (python::Position at; python.next(at);)
    if (const uintptr_t frame = python_frame(stacks, at); frame != 0 && count < ThreadStacks::kMost)
      stacks.found[count++] = frame;
}

// The frame that was found last lies below `end`. If it is the interpreter's loop, adds the functions that it runs,
// before it.
void put_python(ThreadStacks& stacks, python::FrameWalk& python, uintptr_t begin, uintptr_t end,
                uint32_t& count) noexcept {
  while (python.loop() >= begin && python.loop() < end) {
    const uintptr_t loop = stacks.found[--count];
    put_run(stacks, python, count);
    stacks.found[count++] = loop;
  }
}

// The frame that was found last runs an interpreter of TorchScript: adds the functions that this runs, before its
// frames.
[[gnu::noinline]] void put_script(ThreadStacks& stacks, uint32_t& count) noexcept {
  constexpr size_t kMostLines = 64;
  torch::ScriptLine lines[kMostLines];
  const size_t room = std::min<size_t>(kMostLines, ThreadStacks::kMost - count);
  const auto added = static_cast<uint32_t>(torch::script_lines(lines, room));
  const uintptr_t run = stacks.found[count - 1], inner = count > 1 ? stacks.found[count - 2] : 0;
  uintptr_t* const loop = stacks.found + count - (torch::is_script_loop(run, inner) ? 2 : 1);
  std::copy_backward(loop, stacks.found + count, stacks.found + count + added);
  for (uint32_t i = 0; i < added; ++i) loop[i] = FrameTree::python_frame(lines[i].function, lines[i].line);
  count += added;
}

// Walks the stack, beginning with this function's caller. Returns the number of frames in `found`.
[[gnu::noinline]] uint32_t walk(ThreadStacks& stacks) noexcept {
  Registers registers{};
  processor::read_registers(registers.pc, registers.sp, registers.bp);
  const auto here = registers.sp;
  const uintptr_t top = here < stacks.top ? stacks.top : 0;
  uint32_t count = 0;
  python::FrameWalk python;
  CodeRange script = torch::script_run();
  FrameRule::Cfa ended_by = FrameRule::kUnknown;
  for (;;) {
    FrameRule& rule = stacks.rules[(registers.pc ^ registers.pc >> 12) % std::size(stacks.rules)];
    if (rule.pc != registers.pc) [[unlikely]]
      rule = find_rule(registers.pc);
    ended_by = rule.cfa_is;
    if (processor::kFrameRegisterEnds && ended_by == FrameRule::kUnknown && registers.bp == 0)
      ended_by = FrameRule::kEnd;
    if (!step(rule, top, registers)) break;
    if (count > 0) put_python(stacks, python, here, registers.sp, count);
    if (count >= ThreadStacks::kMost) {
      ended_by = FrameRule::kUnknown;
      break;
    }
    stacks.found[count++] = registers.pc;
    if (script.has(registers.pc)) [[unlikely]] {
      put_script(stacks, count);
      script = {};  // torch tells only about the innermost interpreter
    }
  }
  // The frames further out are not known: a frame without an address stands for them.
  if (ended_by == FrameRule::kEnd) return count;
  stacks.found[count++] = 0;
  // The Python functions among them are known all the same.
  while (python.loop() >= here) put_run(stacks, python, count);
  return count;
}

}  // namespace

NativeFrameId take_stack(ThreadBuffer& buffer) noexcept {
  auto* known = buffer.sources.mapped<ThreadStacks>();
  if (!known) [[unlikely]]
    known = make_thread(buffer);
  if (!known) return {};
  ThreadStacks& stacks = *known;
  // Pairs with the releases in before_unload() and after_unload(): the tree's new age is seen with the new number.
  const uint32_t unloads = g_unloads.load(std::memory_order_acquire);
  if (stacks.unloads != unloads) [[unlikely]]
    forget(stacks, unloads);
  const uint32_t count = walk(stacks);
  NativeFrameId frame{};
  uint32_t i = 0;
  for (; i < std::min(count, stacks.depth) && stacks.last[i] == stacks.found[count - 1 - i]; ++i) frame = stacks.ids[i];
  for (; i < count; ++i) {
    const uintptr_t pc = stacks.found[count - 1 - i];
    frame = g_tree.frame(frame, pc);
    stacks.depth = frame ? i + 1 : 0;
    if (!frame) return {};
    stacks.last[i] = pc;
    stacks.ids[i] = frame;
  }
  stacks.depth = count;
  return frame;
}

void start() noexcept {
  if (!session::config().native) return;
  find_registered_frames();
  session::note_source("native", SourceState::kOn, "call frame information of the mapped objects");
  detail::g_wanted.store(true, std::memory_order_relaxed);
}

void stop() noexcept { detail::g_wanted.store(false, std::memory_order_relaxed); }

void before_unload() noexcept {
  // Pairs with the acquire in take_stack(), as does after_unload(): what a thread learned before is dropped.
  if (wanted()) g_unloads.fetch_add(1, std::memory_order_release);
}

void after_unload() noexcept {
  if (!wanted()) return;
  session::DefinitionLock lock;
  if (!forget_unmapped(lock)) return;
  g_tree.begin_anew(lock);
  g_unloads.fetch_add(1, std::memory_order_release);  // pairs with the acquire in take_stack(): the tree's age is new
}

}  // namespace torchprof::native
