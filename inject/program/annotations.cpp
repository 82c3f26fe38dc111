#include "inject/program/annotations.h"

#include <atomic>

#include "tracer/python/calls.h"
#include "tracer/python/site.h"

namespace torchprof::inject::annotations {
namespace {

// torch's handles count from 1, and never come so far; as a number in JSON it is exact.
constexpr uint64_t kAnnotationKey = uint64_t{1} << 52;

uint64_t next_key() noexcept {
  static constinit std::atomic<uint64_t> g_next{0};
  return kAnnotationKey | (g_next.fetch_add(1, std::memory_order_relaxed) & (kAnnotationKey - 1));
}

void put_begin(ThreadBuffer& buffer, StringId name, uint64_t key, Ticks time) noexcept {
  constexpr auto kScope = OpScope::kUserScope;
  if (!buffer.put_short(kShortOp, name.value, time, key << 8 | static_cast<uint8_t>(kScope))) {
    auto* record = buffer.append<OpBegin>(time);
    if (!record) return;
    OpBegin event{};
    event.header = record->header;
    event.name = name;
    event.scope = kScope;
    event.sequence = -1;
    event.handle = event.key = key;
    *record = event;
    buffer.commit();
  }
  buffer.last_op = {key, -1};
}

void put_end(ThreadBuffer& buffer, uint64_t key, Ticks time) noexcept {
  if (auto* record = buffer.append<OpEnd>(time)) {
    record->key = key;
    buffer.commit();
  }
}

// The name, once all is recorded that comes before it.
StringId prepare(ThreadBuffer& buffer, const char* name) noexcept {
  python::cover_this_thread();
  const StringId id = session::intern_from(buffer, name);
  python::put_line(buffer);
  return id;
}

}  // namespace

uint64_t begin(const char* name) noexcept {
  const uint64_t key = next_key();
  window::annotation_begins(name, key);
  if (ThreadBuffer* const buffer = session::current_buffer()) {
    const StringId id = prepare(*buffer, name);
    put_begin(*buffer, id, key, session::now());  // the clock is read last
  }
  return key;
}

void end(const char* name, uint64_t key) noexcept {
  if (ThreadBuffer* const buffer = session::current_buffer()) put_end(*buffer, key, session::now());
  window::annotation_ended(name, key);
}

void mark(const char* name) noexcept {
  const uint64_t key = next_key();
  window::annotation_begins(name, key);
  if (ThreadBuffer* const buffer = session::current_buffer()) {
    const StringId id = prepare(*buffer, name);
    const Ticks time = session::now();
    put_begin(*buffer, id, key, time);
    put_end(*buffer, key, time);
  }
  window::annotation_ended(name, key);
}

}  // namespace torchprof::inject::annotations
