#include "tracer/python/site.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "tracer/python/abi.h"
#include "tracer/python/code.h"
#include "tracer/python/frames.h"
#include "tracer/spool/varint.h"

namespace torchprof::python {

namespace {

// The places that the thread has asked for lately, by function and instruction.
struct KnownLines {
  static constexpr Mapping kMapping = Mapping::kPythonLines;
  struct Line {
    uint64_t key;
    uint32_t line;
  };
  Line lines[64];
};

}  // namespace

Site current_site(ThreadBuffer& buffer) noexcept {
  const Position here = current_position();
  if (!here.code || here.offset < 0) return {};
  const Function function = known_function(here.code);
  if (!function.bits) return {};
  const uint64_t key = uint64_t{function.id().value} << 32 | static_cast<uint32_t>(here.offset);
  KnownLines::Line without_memory{};
  auto* const memory = buffer.sources.map<KnownLines>();
  KnownLines::Line& known =
      memory ? memory->lines[(key ^ key >> 32) / kCodeUnit % std::size(memory->lines)] : without_memory;
  if (known.key != key) [[unlikely]] {
    const int line = api().code_line(here.code, here.offset);
    if (line <= 0) return {};
    known = {key, static_cast<uint32_t>(line)};
  }
  return {function.id(), known.line};
}

void put_allocation_site(ThreadBuffer& buffer, Ticks now) noexcept {
  const Site site = current_site(buffer);
  if (site.line == 0) return;
  auto* record = buffer.append<AllocationSite>(now);
  if (!record) return;
  record->function = site.function;
  record->line = site.line;
  buffer.commit();
}

// ---- where in the program a thread is ------------------------------------------------------------------------------

bool g_takes_lines = false;

namespace {

// PyCodeObject.co_linetable, the end excluded. 3.10: Objects/lnotab_notes.txt; since 3.11: Objects/locations.md and
// Objects/codeobject.c (PyCode_Addr2Line), the same up to 3.15.
struct Table {
  const unsigned char* at;
  const unsigned char* end;
};

// take(number of instructions, line) for each row; line 0: they have none.
template <class Take>
void each_row_of_310(Table table, int64_t line, Take take) noexcept {
  constexpr int8_t kNoLine = -128;
  for (; table.end - table.at >= 2; table.at += 2) {
    const auto more = static_cast<int8_t>(table.at[1]);
    if (more != kNoLine) line += more;
    take(table.at[0] / static_cast<uint32_t>(kCodeUnit), more == kNoLine ? 0 : line);
  }
}

// A number with a sign in pieces of six bits, the lowest first.
int64_t read_signed(Table table) noexcept {
  uint64_t value = 0;
  for (unsigned shift = 0; table.at != table.end && shift < 60; shift += 6) {
    const unsigned char byte = *table.at++;
    value |= uint64_t{byte & 0x3fu} << shift;
    if (!(byte & 0x40)) break;
  }
  const auto size = static_cast<int64_t>(value >> 1);
  return value & 1 ? -size : size;
}

template <class Take>
void each_row_since_311(Table table, int64_t line, Take take) noexcept {
  constexpr unsigned kBegins = 0x80;  // set in the first byte of a row alone
  constexpr unsigned kOneLine0 = 10, kNoColumns = 13, kLong = 14, kNone = 15;
  while (table.at != table.end) {
    const unsigned head = *table.at++;
    const unsigned form = head >> 3 & 15;
    if (form == kLong || form == kNoColumns)
      line += read_signed(table);
    else if (form >= kOneLine0 && form < kNoColumns)
      line += form - kOneLine0;
    take((head & 7) + 1, form == kNone ? 0 : line);
    while (table.at != table.end && !(*table.at & kBegins)) ++table.at;
  }
}

// False: it has no table.
template <class Take>
bool each_row(Object* code, Take take) noexcept {
  const Ref bytes(api().get_attr(code, "co_linetable"));
  const Ref first(api().get_attr(code, "co_firstlineno"));
  const char* data = bytes ? api().bytes_data(bytes.get()) : nullptr;
  const long line = first ? api().as_long(first.get()) : -1;
  const Size size = data ? api().bytes_size(bytes.get()) : -1;
  api().error_clear();
  if (size < 0 || line < 0) return false;
  const auto* at = reinterpret_cast<const unsigned char*>(data);
  if (api().minor >= 11)
    each_row_since_311({at, at + size}, line, take);
  else
    each_row_of_310({at, at + size}, line, take);
  return true;
}

// The line of an instruction by our own reading; 0: it has none.
int64_t line_at(Object* code, int offset) noexcept {
  int64_t found = 0;
  uint32_t instruction = 0;
  each_row(code, [&](uint32_t instructions, int64_t line) {
    const uint32_t asked = static_cast<uint32_t>(offset / kCodeUnit);
    if (asked >= instruction && asked - instruction < instructions) found = line;
    instruction += instructions;
  });
  return found;
}

// Writes rows as LinesDef; neighbours of one line are one pair.
class LinesWriter {
 public:
  LinesWriter(FunctionId function, int64_t first_line) noexcept : written_(first_line), line_(first_line) {
    begin(function, 0);
  }

  void add(uint32_t instructions, int64_t line) noexcept {
    if (line > 0 && line != line_) {  // those without a line are clean-up of what stands before them
      put();
      line_ = line;
    }
    count_ += instructions;
  }

  // Whether all could be defined.
  bool finish() noexcept {
    put();
    write();
    return is_whole_;
  }

 private:
  void begin(FunctionId function, uint32_t instruction) noexcept {
    lines_ = {};
    lines_.function = function;
    lines_.instruction = instruction;
    lines_.line = static_cast<uint32_t>(written_);
    end_ = pairs_;
  }

  void put() noexcept {
    if (count_ == 0) return;
    if (end_ + 2 * kMostVarint > pairs_ + sizeof(pairs_)) {
      write();
      begin(lines_.function, instruction_);
    }
    end_ = put_varint(put_varint(end_, count_), zigzag_of(line_ - written_));
    written_ = line_;
    instruction_ += count_;
    count_ = 0;
  }

  void write() noexcept {
    lines_.length = static_cast<uint32_t>(end_ - pairs_);
    is_whole_ = is_whole_ && (lines_.length == 0 || session::define_lines(lines_, pairs_));
  }

  LinesDef lines_{};
  unsigned char pairs_[kMaxLines];
  unsigned char* end_ = pairs_;
  int64_t written_;           // line of the last pair
  int64_t line_;              // of the next pair,
  uint32_t count_ = 0;        // which has so many instructions up to now
  uint32_t instruction_ = 0;  // with which it begins
  bool is_whole_ = true;
};

[[gnu::noinline, gnu::cold]] void put_long(ThreadBuffer& buffer, FunctionId function, uint32_t instruction, bool fits,
                                           Ticks time) noexcept {
  auto* record = buffer.append<PythonLine>(time);
  if (!record) return;
  record->function = function;
  record->instruction = instruction;
  buffer.commit();
  // append() may have begun a new chunk.
  buffer.last_line = fits ? ShortLine::make(function, instruction).bits : 0;
}

}  // namespace

void start_lines() noexcept {
  if (g_level == PythonLevel::kOff || g_level == PythonLevel::kModules || !api().code_line) return;
  const Position here = current_position();
  const int line = here.code && here.offset >= 0 ? api().code_line(here.code, here.offset) : 0;
  g_takes_lines = line > 0 && line_at(here.code, here.offset) == line;
}

bool define_lines(FunctionId function, Object* code) noexcept {
  if (!g_takes_lines) return false;
  const Ref first(api().get_attr(code, "co_firstlineno"));
  const long line = first ? api().as_long(first.get()) : -1;
  api().error_clear();
  if (line < 0) return false;
  LinesWriter writer(function, line);
  return each_row(code, [&](uint32_t instructions, int64_t at) { writer.add(instructions, at); }) && writer.finish();
}

void put_position(ThreadBuffer& buffer, const Position& position, Ticks time) noexcept {
  const Function known = position.code ? known_function(position.code) : Function{};
  // A place that is not known takes back the one before; one in a library leaves it, and no one asks for it there.
  if (known.bits && !known.is_of_program()) return;
  const FunctionId function = known.id();
  const auto instruction = static_cast<uint32_t>(std::max(position.offset, 0) / kCodeUnit);
  const uint64_t word = ShortLine::make(function, instruction).bits;
  const bool fits = instruction <= ShortLine::kMostInstruction;
  if (word == buffer.last_line && fits) return;
  if (fits && buffer.put_word(word)) [[likely]]
    buffer.last_line = word;
  else
    put_long(buffer, function, instruction, fits, time.value ? time : session::now());
}

void detail::put_line(ThreadBuffer& buffer) noexcept { put_position(buffer, current_position()); }
void detail::put_caller_line(ThreadBuffer& buffer, Object* code, const Frame* frame) noexcept {
  put_position(buffer, caller_position(code, frame));
}

}  // namespace torchprof::python
