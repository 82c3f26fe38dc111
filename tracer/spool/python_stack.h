// The Python stacks of a process's threads, read from its memory by what its spool says of its interpreter
// (InterpreterDef). Used by a thread of ours in that process, and by `torchprof where` from outside.
//
// No thread is stopped, none takes part, and no lock of the interpreter is asked for: a thread that holds the GIL for
// an hour is read like any other. So memory is read by a way that cannot fault (/proc/PID/mem, whose calls no seccomp
// filter forbids), and what was read may be torn: a frame may have ended meanwhile. A stack is therefore read twice,
// and only the frames count that are the same, from the outermost one on. A code object has to be one for CPython, too.
//
// No byte is trusted. Nothing is allocated, nothing throws, errno is kept. One object belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tracer/spool/record.h"

namespace torchprof {

class ProcessMemory {
 public:
  explicit ProcessMemory(int fd) noexcept : fd_(fd) {}  // of /proc/PID/mem, open for reading; it stays the caller's
  // That of the calling process itself, by process_vm_readv: without a descriptor, and in a third of the time for short
  // texts. Not across a fork, where the number is the parent's.
  static ProcessMemory own(int pid) noexcept {
    ProcessMemory memory(-1);
    memory.pid_ = pid;
    return memory;
  }
  // False: not all of it can be read. `to` may then hold a part.
  bool read(uint64_t from, void* to, size_t size) const noexcept;
  template <class T>
  bool get(uint64_t from, T& value) const noexcept {
    return read(from, &value, sizeof(value));
  }

 private:
  int fd_;
  int pid_ = 0;  // with fd_ -1
};

struct PythonThread {
  uint64_t state = 0;  // address of its PyThreadState
  uint32_t tid = 0;    // in its own PID namespace
};

// The threads of the first interpreter, at most `most` of them; how many were found.
size_t find_python_threads(const ProcessMemory& memory, const InterpreterDef& at, PythonThread* out,
                           size_t most) noexcept;

struct PythonPlace {
  uint64_t frame = 0;  // address
  uint64_t code = 0;   // address of its code object
  int64_t offset = 0;  // of the instruction that runs, in bytes from the first one; negative: before it
};

// At most the innermost kMost frames of a stack.
class PythonStack {
 public:
  static constexpr size_t kMost = 512;

  // False: no frame is certain, since the thread has none, or has changed whenever it was read. `also` is called after
  // the first reading with this stack, may look at its code objects, and is called again if that was in vain: what it
  // saw counts for the frames that are left at the end.
  template <class Also>
  bool read(const ProcessMemory& memory, const InterpreterDef& at, PythonThread thread, Also also) noexcept {
    for (int tries = 0; tries < kTries; ++tries) {
      if (!walk(memory, at, thread, *this)) continue;
      also(*this);
      if (keep_what_stays(memory, at, thread) || (count_ != 0 && tries + 1 == kTries)) return count_ != 0;
    }
    return false;
  }

  size_t size() const noexcept { return count_; }
  const PythonPlace& operator[](size_t i) const noexcept { return places_[i]; }  // innermost first
  // How many frames inside of the first one were left out, because the thread went on.
  size_t cut() const noexcept { return cut_; }
  uint32_t beyond() const noexcept { return beyond_; }  // frames further out than those that are held

 private:
  static constexpr int kTries = 5;
  static bool walk(const ProcessMemory& memory, const InterpreterDef& at, PythonThread thread,
                   PythonStack& out) noexcept;
  // Reads once more, and drops the inner frames that are not the same. True: none was dropped.
  bool keep_what_stays(const ProcessMemory& memory, const InterpreterDef& at, PythonThread thread) noexcept;

  PythonPlace places_[kMost];
  size_t count_ = 0;
  size_t cut_ = 0;
  uint32_t beyond_ = 0;
};

// The same in a tenth of the time, for who looks often: read once and by pages, since frames lie side by side, without
// a look at the code objects. So a place is right only where its code says so: PythonCode::Header has its type, and the
// offset lies in its instructions. A frame that was read just after its return is a look that is 1 us old.
class PythonGlimpse {
 public:
  static constexpr size_t kMost = 512;  // the innermost ones
  enum class Seen : uint8_t {
    kWhole,
    kInner,  // a generator's frame that was left meanwhile: who called it is not known
    kIdle,   // the thread has no frame
    kTorn,   // it has changed while it was read
  };
  Seen read(const ProcessMemory& memory, const InterpreterDef& at, PythonThread thread) noexcept;
  // Whether this frame is still on the thread's stack, with its code; of the innermost one, whether it still runs.
  bool still_has(const ProcessMemory& memory, const InterpreterDef& at, PythonThread thread, size_t i) const noexcept;

  size_t size() const noexcept { return count_; }
  const PythonPlace& operator[](size_t i) const noexcept { return places_[i]; }  // innermost first
  uint32_t beyond() const noexcept { return beyond_; }

 private:
  static bool current(const ProcessMemory& memory, const InterpreterDef& at, PythonThread thread,
                      uint64_t& frame) noexcept;

  static constexpr size_t kPage = 4096, kMostFrame = 128;  // bytes
  PythonPlace places_[kMost];
  size_t count_ = 0;
  uint32_t beyond_ = 0;
  char page_[kPage + kMostFrame] = {};
};

// What a code object says of itself.
class PythonCode {
 public:
  struct Header {
    uint64_t type = 0, units = 0, file = 0, name = 0, lines = 0;
    uint32_t line = 0;
    bool operator==(const Header&) const = default;
    // In bytes; whether an instruction at this offset, or none so far, can be in the code.
    bool has(int64_t offset) const noexcept { return offset >= -2 && offset < static_cast<int64_t>(units * 2); }
  };
  // False: there is no code object at this address.
  static bool read_header(const ProcessMemory& memory, const InterpreterDef& at, uint64_t code, Header& out) noexcept;
  static constexpr size_t kMostText = 1024;  // bytes of a file or name, UTF-8; longer ones are cut

  // False: there is no code object at this address.
  bool read(const ProcessMemory& memory, const InterpreterDef& at, uint64_t code) noexcept;
  std::string_view file() const noexcept { return {file_, file_size_}; }
  std::string_view name() const noexcept { return {name_, name_size_}; }  // co_qualname
  uint32_t first_line() const noexcept { return first_line_; }
  // The line of the instruction at this offset; that of the function itself before its first instruction. 0: none.
  uint32_t line(int64_t offset) const noexcept;
  // Whether what was read last still stands there.
  bool is_same(const ProcessMemory& memory, const InterpreterDef& at, uint64_t code) const noexcept;
  const Header& header() const noexcept { return header_; }
  // What was read last was not this code's: no other header is equal to that of nothing.
  void forget() noexcept { header_ = {}; }

 private:
  static constexpr size_t kMostLines = 32 << 10;  // bytes of the table of lines
  Header header_;
  char file_[kMostText] = {};
  char name_[kMostText] = {};
  size_t file_size_ = 0, name_size_ = 0;
  uint32_t first_line_ = 0;
  uint8_t lines_[kMostLines] = {};
  size_t lines_size_ = 0;
};

}  // namespace torchprof
