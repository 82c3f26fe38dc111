#include "tracer/spool/python_stack.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace torchprof {
namespace {

constexpr uint64_t kTags = 3;
constexpr uint8_t kOfGenerator = 1;  // FRAME_OWNED_BY_GENERATOR, 3.11 to 3.14
constexpr uint64_t kBytesOfUnit = 2;
constexpr size_t kMostWalked = 20'000;  // frames; further out there is nothing to be gained
constexpr int kListTries = 3;

// Some fields of one structure, in one reading.
template <size_t kMost>
class Fields {
 public:
  bool read(const ProcessMemory& memory, uint64_t from, size_t size) noexcept {
    size_ = size;
    return size <= kMost && memory.read(from, bytes_, size);
  }
  template <class T>
  T at(size_t offset) const noexcept {
    T value{};
    if (offset + sizeof(T) <= size_) memcpy(&value, bytes_ + offset, sizeof(T));
    return value;
  }

 private:
  char bytes_[kMost];
  size_t size_ = 0;
};
using ThreadFields = Fields<512>;

size_t size_of_thread(const InterpreterDef& at) noexcept {
  return std::max({at.next, at.of_thread, at.tid, at.current}) + sizeof(uint64_t);
}

bool read_thread(const ProcessMemory& memory, const InterpreterDef& at, uint64_t state, ThreadFields& out) noexcept {
  return out.read(memory, state, size_of_thread(at)) && out.at<uint64_t>(at.of_thread) == at.interpreter;
}

// UTF-8 of a character; the bytes written.
size_t encode(uint32_t c, char* out) noexcept {
  const auto tail = [c](int shift) { return static_cast<char>(0x80 | (c >> shift & 0x3f)); };
  if (c < 0x80) return out[0] = static_cast<char>(c), 1;
  if (c < 0x800) return out[0] = static_cast<char>(0xc0 | c >> 6), out[1] = tail(0), 2;
  if (c < 0x10000) return out[0] = static_cast<char>(0xe0 | c >> 12), out[1] = tail(6), out[2] = tail(0), 3;
  return out[0] = static_cast<char>(0xf0 | (c >> 18 & 7)), out[1] = tail(12), out[2] = tail(6), out[3] = tail(0), 4;
}

// The text of a str, cut at `most` bytes.
bool read_text(const ProcessMemory& memory, const InterpreterDef& at, uint64_t object, char* out, size_t most,
               size_t& size) noexcept {
  constexpr uint64_t kLongest = 1 << 20;
  Fields<128> text;
  if (!text.read(memory, object, std::max<size_t>(at.text_length + size_t{8}, at.text_state + size_t{4}))) return false;
  const auto length = text.at<uint64_t>(at.text_length);
  const auto state = text.at<uint32_t>(at.text_state);
  const uint32_t width = state >> 2 & 7;
  const bool is_compact = state >> 5 & 1, is_ascii = state >> 6 & 1;
  if (length > kLongest || !is_compact || (width != 1 && width != 2 && width != 4)) return false;
  size = 0;
  if (is_ascii) {
    size = std::min<uint64_t>(length, most);
    return memory.read(object + at.text_of_ascii, out, size);
  }
  unsigned char characters[256];
  for (uint64_t from = 0; from < length * width; from += sizeof(characters)) {
    const auto bytes = static_cast<size_t>(std::min<uint64_t>(length * width - from, sizeof(characters)));
    if (!memory.read(object + at.text_of_others + from, characters, bytes)) return false;
    for (size_t i = 0; i < bytes; i += width) {
      uint32_t c = 0;
      memcpy(&c, characters + i, width);
      if (size + 4 > most) return true;
      size += encode(c, out + size);
    }
  }
  return true;
}

}  // namespace

bool ProcessMemory::read(uint64_t from, void* to, size_t size) const noexcept {
  const int saved = errno;
  iovec here = {to, size}, there = {reinterpret_cast<void*>(from), size};
  const ssize_t n =
      fd_ >= 0 ? pread(fd_, to, size, static_cast<off_t>(from)) : process_vm_readv(pid_, &here, 1, &there, 1, 0);
  const bool is_read = n == static_cast<ssize_t>(size);
  errno = saved;
  return is_read;
}

size_t find_python_threads(const ProcessMemory& memory, const InterpreterDef& at, PythonThread* out,
                           size_t most) noexcept {
  size_t count = 0;
  for (int tries = 0; at.interpreter != 0 && tries < kListTries; ++tries) {
    count = 0;
    uint64_t state = 0;
    bool is_whole = memory.get(at.interpreter + at.threads, state);
    while (is_whole && state != 0 && count < most) {
      ThreadFields thread;
      is_whole = read_thread(memory, at, state, thread);
      if (!is_whole) break;
      out[count++] = {state, static_cast<uint32_t>(thread.at<uint64_t>(at.tid))};
      state = thread.at<uint64_t>(at.next);
    }
    if (is_whole) break;
  }
  return count;
}

bool PythonStack::walk(const ProcessMemory& memory, const InterpreterDef& at, PythonThread thread,
                       PythonStack& out) noexcept {
  out.count_ = out.cut_ = 0;
  out.beyond_ = 0;
  ThreadFields state;
  if (!read_thread(memory, at, thread.state, state) || state.at<uint64_t>(at.tid) != thread.tid) return false;
  auto frame = state.at<uint64_t>(at.current);
  if (at.has_cframe && (frame == 0 || !memory.get(frame + at.of_cframe, frame))) return false;
  const size_t size = std::max({at.code, at.instruction, at.previous, at.owner}) + sizeof(uint64_t);
  uint8_t owner = 0;
  for (size_t walked = 0; frame != 0; ++walked) {
    Fields<256> fields;
    if (walked == kMostWalked || !fields.read(memory, frame, size)) return false;
    const uint64_t here = frame;
    frame = fields.at<uint64_t>(at.previous);
    owner = fields.at<uint8_t>(at.owner);
    if (owner >= at.loop) continue;
    const uint64_t code = fields.at<uint64_t>(at.code) & ~kTags;
    Fields<256> head;
    if (code == 0 || !head.read(memory, code, at.code_units + sizeof(uint64_t))) return false;
    constexpr size_t kType = 8;  // PyObject.ob_type
    if (head.at<uint64_t>(kType) != at.code_type) return false;
    const auto offset = static_cast<int64_t>(fields.at<uint64_t>(at.instruction) - code - at.instructions);
    const uint64_t bytes = head.at<uint64_t>(at.code_units) * kBytesOfUnit;
    if (offset < -static_cast<int64_t>(kBytesOfUnit) || offset >= static_cast<int64_t>(bytes)) return false;
    if (out.count_ == kMost)
      ++out.beyond_;
    else
      out.places_[out.count_++] = {here, code, offset};
  }
  // A generator that was left meanwhile: who called it is not known.
  return out.count_ != 0 && owner != kOfGenerator;
}

bool PythonStack::keep_what_stays(const ProcessMemory& memory, const InterpreterDef& at, PythonThread thread) noexcept {
  // On the stack of a thread of ours, which has 8 MiB, or of the launcher.
  PythonStack now;
  if (!walk(memory, at, thread, now) || now.beyond_ != beyond_) {
    count_ = 0;
    return false;
  }
  size_t same = 0;
  while (same < count_ && same < now.count_) {
    const PythonPlace &was = places_[count_ - 1 - same], &is = now.places_[now.count_ - 1 - same];
    if (was.frame != is.frame || was.code != is.code) break;
    ++same;
  }
  cut_ = count_ - same;
  std::move(places_ + cut_, places_ + count_, places_);
  count_ = same;
  return cut_ == 0;
}

bool PythonGlimpse::current(const ProcessMemory& memory, const InterpreterDef& at, PythonThread thread,
                            uint64_t& frame) noexcept {
  ThreadFields state;
  if (!read_thread(memory, at, thread.state, state) || state.at<uint64_t>(at.tid) != thread.tid) return false;
  frame = state.at<uint64_t>(at.current);
  return !at.has_cframe || (frame != 0 && memory.get(frame + at.of_cframe, frame));
}

PythonGlimpse::Seen PythonGlimpse::read(const ProcessMemory& memory, const InterpreterDef& at,
                                        PythonThread thread) noexcept {
  count_ = 0;
  beyond_ = 0;
  uint64_t frame = 0;
  if (!current(memory, at, thread, frame)) return Seen::kTorn;
  const size_t size = std::max({at.code, at.instruction, at.previous, at.owner}) + sizeof(uint64_t);
  if (size > kMostFrame) return Seen::kTorn;
  uint64_t low = 0, held = 0;  // where what `page_` holds begins, and its bytes
  uint8_t owner = 0;
  for (size_t walked = 0; frame != 0; ++walked) {
    if (walked == kMostWalked) return Seen::kTorn;
    // `frame` may be any number, also the largest ones: nothing is added to it.
    if (held == 0 || frame - low > held - size) {
      // The frames that called it mostly lie below it. Its own page is there for sure, the one before may not be.
      low = frame / kPage * kPage, held = frame % kPage + size;
      if (!memory.read(low, page_, held)) return Seen::kTorn;
    }
    const char* const fields = page_ + (frame - low);
    const auto word = [fields](size_t offset) {
      uint64_t value = 0;
      memcpy(&value, fields + offset, sizeof(value));
      return value;
    };
    const uint64_t here = frame;
    frame = word(at.previous);
    owner = static_cast<uint8_t>(fields[at.owner]);
    if (owner >= at.loop) continue;
    const uint64_t code = word(at.code) & ~kTags;
    if (code == 0) return Seen::kTorn;
    if (count_ == kMost)
      ++beyond_;
    else
      places_[count_++] = {here, code, static_cast<int64_t>(word(at.instruction) - code - at.instructions)};
  }
  if (count_ == 0) return Seen::kIdle;
  return owner == kOfGenerator ? Seen::kInner : Seen::kWhole;
}

bool PythonGlimpse::still_has(const ProcessMemory& memory, const InterpreterDef& at, PythonThread thread,
                              size_t i) const noexcept {
  // What a frame that was left had stays in its place: only a frame that is found from the one that runs is there.
  const auto has = [&](size_t k) {
    uint64_t code = 0;
    return memory.get(places_[k].frame + at.code, code) && (code & ~kTags) == places_[k].code;
  };
  uint64_t frame = 0;
  if (!has(i) || !current(memory, at, thread, frame)) return false;
  // The same frame runs the same code: it has the same callers.
  if (frame == places_[0].frame && has(0)) return true;
  if (i == 0) return false;
  for (size_t walked = 0; frame != 0 && frame != places_[i].frame; ++walked)
    if (walked == kMostWalked || !memory.get(frame + at.previous, frame)) return false;
  return frame != 0;
}

bool PythonCode::read_header(const ProcessMemory& memory, const InterpreterDef& at, uint64_t code,
                             Header& out) noexcept {
  Fields<256> fields;
  const size_t size = std::max({at.code_units, at.line, at.file, at.name, at.lines}) + sizeof(uint64_t);
  if (!fields.read(memory, code, size)) return false;
  constexpr size_t kType = 8;
  out = {fields.at<uint64_t>(kType),   fields.at<uint64_t>(at.code_units), fields.at<uint64_t>(at.file),
         fields.at<uint64_t>(at.name), fields.at<uint64_t>(at.lines),      fields.at<uint32_t>(at.line)};
  return out.type == at.code_type;
}

bool PythonCode::read(const ProcessMemory& memory, const InterpreterDef& at, uint64_t code) noexcept {
  if (!read_header(memory, at, code, header_) || !read_text(memory, at, header_.file, file_, kMostText, file_size_) ||
      !read_text(memory, at, header_.name, name_, kMostText, name_size_))
    return false;
  first_line_ = header_.line;
  uint64_t size = 0;
  lines_size_ = 0;
  if (memory.get(header_.lines + at.bytes_length, size) && size <= kMostLines &&
      memory.read(header_.lines + at.bytes_data, lines_, static_cast<size_t>(size)))
    lines_size_ = static_cast<size_t>(size);
  return is_same(memory, at, code);
}

bool PythonCode::is_same(const ProcessMemory& memory, const InterpreterDef& at, uint64_t code) const noexcept {
  Header now;
  return read_header(memory, at, code, now) && now == header_;
}

// The table of PEP 626 in its form since 3.11: Objects/locations.md. Each entry begins with a byte 1 | 4 bits kind | 3
// bits code units less one.
uint32_t PythonCode::line(int64_t offset) const noexcept {
  if (offset < 0) return first_line_;
  const uint8_t* p = lines_;
  const uint8_t* const end = lines_ + lines_size_;
  const auto varint = [&p, end] {
    uint32_t value = 0;
    for (unsigned shift = 0; p != end && shift < 32; shift += 6) {
      const uint8_t byte = *p++;
      value |= uint32_t{byte & 63u} << shift;
      if (!(byte & 64)) break;
    }
    return value;
  };
  const auto signed_varint = [&varint] {
    const uint32_t value = varint();
    return value & 1 ? -static_cast<int64_t>(value >> 1) : static_cast<int64_t>(value >> 1);
  };
  enum : uint8_t { kOneLineFirst = 10, kNoColumns = 13, kLong = 14, kNone = 15 };
  int64_t line = first_line_, at = 0, last = first_line_;
  while (p != end) {
    const uint8_t head = *p++;
    const uint8_t kind = head >> 3 & 15;
    if (kind == kLong) {
      line += signed_varint();
      varint(), varint(), varint();
    } else if (kind == kNoColumns) {
      line += signed_varint();
    } else if (kind != kNone) {
      if (kind >= kOneLineFirst) line += kind - kOneLineFirst;
      p += std::min<ptrdiff_t>(kind >= kOneLineFirst ? 2 : 1, end - p);
    }
    // Code without a line cleans up after the line before it.
    if (kind != kNone) last = line;
    at += ((head & 7) + 1) * static_cast<int64_t>(kBytesOfUnit);
    if (offset < at) return last > 0 && last <= INT32_MAX ? static_cast<uint32_t>(last) : 0;
  }
  return 0;
}

}  // namespace torchprof
