// Where a thread stands: its frames, as nodes of the tree that the spool has.
#include <algorithm>

#include "tracer/python/threads.h"
#include "tracer/sampler/seen.h"
#include "tracer/session.h"

namespace torchprof::sampler {
namespace {

constexpr int kMostTries = 4;
constexpr uint32_t kLooksAtAll = 16;  // each such look trusts nothing that it remembers

// Whether what `g_looks.code` holds is of the code that this frame runs: the frame is there after the reading, and then
// the header is still the same. A code object that is freed keeps its fields, until another one lies at its address.
bool is_of_frame(const ProcessMemory& memory, const InterpreterDef& at, PythonThread thread, size_t i) noexcept {
  return g_looks.stack.still_has(memory, at, thread, i) && g_looks.code.is_same(memory, at, g_looks.stack[i].code);
}

// Reads and defines a code object that was not seen before, or is another one at an old address. Its texts are read
// twice: the program may make others at their addresses meanwhile.
bool learn(const ProcessMemory& memory, const InterpreterDef& at, PythonThread thread, size_t i,
           KnownCode& place) noexcept {
  const uint64_t code = g_looks.stack[i].code;
  if (place.code == 0) ++g_looks.codes.used;
  place = {};
  place.code = code;
  const bool is_read = g_looks.code.read(memory, at, code) && g_looks.again.read(memory, at, code) &&
                       g_looks.code.header() == g_looks.again.header() && g_looks.code.file() == g_looks.again.file() &&
                       g_looks.code.name() == g_looks.again.name();
  const FunctionId marked = python::marked_function(memory, code);
  if (!is_read || !is_of_frame(memory, at, thread, i)) {
    g_looks.code.forget();
    return false;
  }
  place.function = python::define_code(code, g_looks.code, marked);
  place.header = g_looks.code.header();
  return bool{place.function};
}

// False: it cannot be read any more. The table of lines is the code's only if the code still runs after it was read.
bool line_of(const ProcessMemory& memory, const InterpreterDef& at, PythonThread thread, size_t i,
             const KnownCode& known, uint32_t& line) noexcept {
  const int64_t offset = g_looks.stack[i].offset;
  const uint64_t key = uint64_t{known.function.value} << 32 | static_cast<uint32_t>(offset + 2) | 1;
  KnownLine& place = g_looks.lines.find(key, [key](const KnownLine& l) { return l.key == key; });
  if (place.key == 0) {
    if (g_looks.code.header() != known.header &&
        (!g_looks.code.read(memory, at, known.code) || g_looks.code.header() != known.header ||
         !is_of_frame(memory, at, thread, i))) {
      g_looks.code.forget();
      return false;
    }
    ++g_looks.lines.used;
    place = {key, g_looks.code.line(offset)};
  }
  line = place.line;
  return true;
}

// 0: nothing can be recorded.
uint32_t node_of(uint32_t caller, FunctionId function, uint32_t line, Ticks now) noexcept {
  const uint64_t hash = (uint64_t{caller} << 40) ^ (uint64_t{function.value} << 20) ^ line;
  KnownNode& place = g_looks.nodes.find(
      hash, [&](const KnownNode& n) { return n.caller == caller && n.function == function && n.line == line; });
  if (place.id != 0) return place.id;
  StackNode node{};
  node.id = g_sampling.nodes + 1;
  node.caller = caller;
  node.function = function;
  node.line = line;
  if (!session::record_stack_node(node, now)) return 0;
  g_sampling.nodes = node.id;
  g_sampling.written += sizeof(node);
  ++g_looks.nodes.used;
  place = {caller, line, function, node.id};
  return node.id;
}

// Once. False: something has changed meanwhile.
bool look_once(const ProcessMemory& memory, const InterpreterDef& at, Seen& seen, bool is_last_try) noexcept {
  seen.node = 0;
  seen.is_inner = false;
  const PythonGlimpse::Seen is = g_looks.stack.read(memory, at, seen.thread);
  if (is == PythonGlimpse::Seen::kIdle) return true;
  if (is == PythonGlimpse::Seen::kTorn || (is == PythonGlimpse::Seen::kInner && !is_last_try)) return false;
  StackFrame frames[PythonGlimpse::kMost];  // ours is a stack of 8 MiB
  const size_t size = g_looks.stack.size();
  const bool is_whole = is == PythonGlimpse::Seen::kWhole && g_looks.stack.beyond() == 0;
  const size_t before = is_whole && ++seen.looks % kLooksAtAll != 0 ? seen.remembered : 0;
  seen.remembered = 0;
  const uint64_t look = ++g_sampling.looks;
  bool is_same = true;
  size_t first = 0;  // the innermost one that is known
  for (size_t k = 0; k < size; ++k) {
    const size_t i = size - 1 - k;
    const PythonPlace& here = g_looks.stack[i];
    const uint64_t both = here.frame * 0x9e3779b97f4a7c15u ^ here.code;
    is_same = is_same && k < before && seen.frames[k] == both;
    if (k < kRemembered) seen.frames[k] = both;
    KnownCode& known = g_looks.codes.find(here.code >> 4, [&here](const KnownCode& c) { return c.code == here.code; });
    PythonCode::Header header = known.header;
    const auto is_known = [&] {
      // In a recursion each frame has the same code.
      if (i == 0 || !known.function || (!is_same && known.again != look))
        if (!PythonCode::read_header(memory, at, here.code, header)) return false;
      if (!header.has(here.offset)) return false;
      if (!known.function || header != known.header)
        if (!learn(memory, at, seen.thread, i, known) || known.header != header) return false;
      known.again = look;
      frames[i].function = known.function;
      return line_of(memory, at, seen.thread, i, known, frames[i].line);
    };
    if (is_known()) continue;
    // The frames that were found first have called what cannot be learned in time.
    if (!is_last_try || k == 0) return false;
    first = i + 1;
    break;
  }
  const Ticks now = session::now();
  uint32_t node = 0;
  for (size_t i = size; i-- > first;) {
    node = node_of(node, frames[i].function, frames[i].line, now);
    if (node == 0) return false;
  }
  if (is_whole && first == 0) seen.remembered = std::min(size, kRemembered);
  seen.node = node;
  seen.is_inner = is == PythonGlimpse::Seen::kInner || g_looks.stack.beyond() != 0;
  return true;
}

}  // namespace

void look_at_stack(const ProcessMemory& memory, const InterpreterDef& at, Seen& seen) noexcept {
  bool is_there = false;
  for (int tries = 1; !is_there && tries <= kMostTries; ++tries)
    is_there = look_once(memory, at, seen, tries == kMostTries);
  if (!is_there) seen.node = 0;
}

}  // namespace torchprof::sampler
