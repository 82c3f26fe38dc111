#include "tracer/python/site.h"

#include <iterator>

#include "tracer/python/abi.h"
#include "tracer/python/code.h"
#include "tracer/python/frames.h"

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

}  // namespace torchprof::python
