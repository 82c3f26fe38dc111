#include "cupti/nvtx/nvtx.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "cupti/nvtx/nvtx_names.h"
#include "cupti/nvtx/nvtx_ranges.h"
#include "tracer/process/diag.h"
#include "tracer/process/seal.h"
#include "tracer/session.h"
#include "tracer/window.h"

namespace torchprof::nvtx {
namespace {

using session::current_buffer;
using session::now;
using RangeId = uint64_t;

constexpr const char* kUnnamed = "unnamed";
constexpr size_t kMaxWide = 1024;  // bytes of a wide string in UTF-8

// The key of a range has kNvtxKey. After a push it is followed by the thread and a count. For a range with a number,
// the key is that number, and has kShared, the window in which it was recorded, and a count.
constexpr uint64_t kShared = kNvtxKey >> 1;
constexpr int kWindowShift = 40;
constexpr uint64_t kNoWindow = (kShared >> kWindowShift) - 1;
constexpr uint64_t kCount = (uint64_t{1} << kWindowShift) - 1;

uint64_t key_of_push(const ThreadBuffer& buffer, OpenRanges& open) noexcept {
  constexpr uint64_t kThreads = kShared >> 32;
  return kNvtxKey | (buffer.track.value % kThreads) << 32 | open.next_number();
}

uint64_t this_window() noexcept { return window::number() % kNoWindow; }

uint64_t next_shared_key(uint64_t window) noexcept {
  static constinit std::atomic<uint64_t> g_next{0};
  return kNvtxKey | kShared | window << kWindowShift | (g_next.fetch_add(1, std::memory_order_relaxed) & kCount);
}

bool is_of_this_window(uint64_t key) noexcept {
  return is_nvtx_key(key) && (key & kShared) && (key & (kShared - 1)) >> kWindowShift == this_window();
}

Domain& domain_of(Domain* handle) noexcept { return handle ? *handle : default_domain(); }

// ---- the arguments of a call ----------------------------------------------------------------------------------------

// The text of a call, in any of its forms.
class Message {
 public:
  explicit Message(const char* ascii) noexcept : text_(ascii ? ascii : kUnnamed) {}
  explicit Message(const wchar_t* wide) noexcept { from_wide(wide); }
  explicit Message(const EventAttributes* attributes) noexcept {
    if (!attributes) return;
    const auto& message = attributes->message;
    if (attributes->message_type == kMessageAscii && message.ascii) text_ = message.ascii;
    if (attributes->message_type == kMessageUnicode) from_wide(message.unicode);
    if (attributes->message_type == kMessageRegistered && message.registered) {
      registered_ = message.registered;
      text_ = registered_->text;
    }
  }
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;

  const char* text() const noexcept { return text_; }  // NUL-terminated
  StringId id(ThreadBuffer& buffer) const noexcept {
    if (registered_) return id_of(*registered_);
    return is_wide_ ? session::intern(text_) : session::intern_from(buffer, text_);
  }

 private:
  void from_wide(const wchar_t* wide) noexcept {
    if (!wide) return;
    to_utf8(wide, wide_, sizeof(wide_));
    text_ = wide_;
    is_wide_ = true;
  }

  const char* text_ = kUnnamed;
  const Text* registered_ = nullptr;
  bool is_wide_ = false;
  char wide_[kMaxWide];  // only touched for wide strings
};

// nullptr: the struct is shorter than what we read.
const EventAttributes* checked(const EventAttributes* attributes) noexcept {
  return attributes && attributes->size >= sizeof(EventAttributes) ? attributes : nullptr;
}

// False: there is nothing in them to record.
bool read(const Domain& domain, const EventAttributes* a, NvtxAttributes& out) noexcept {
  out = {};
  if (&domain != &default_domain()) out.domain = id_of(domain.name);
  if (a) {
    out.category = a->category;
    if (const Text* name = a->category ? category_name(domain, a->category) : nullptr) out.category_name = id_of(*name);
    out.has_color = a->color_type == kColorArgb;
    out.color = out.has_color ? a->color : 0;
    if (a->payload_type >= kPayloadUint64 && a->payload_type <= kPayloadFloat) {
      out.payload_type = static_cast<NvtxPayload>(a->payload_type);
      out.payload = a->payload;
    }
  }
  return out.domain || out.category || out.has_color || out.payload_type != NvtxPayload::kNone;
}

// ---- records --------------------------------------------------------------------------------------------------------

void put_begin(ThreadBuffer& buffer, StringId name, uint64_t key, bool is_async, Ticks time) noexcept {
  constexpr auto kScope = static_cast<uint8_t>(OpScope::kNvtx);
  if (is_async || !buffer.put_short(kShortOp, name.value, time, key << 8 | kScope)) {
    auto* record = buffer.append<OpBegin>(time);
    if (!record) return;
    OpBegin event{};
    event.header = record->header;
    event.name = name;
    event.scope = OpScope::kNvtx;
    event.is_async = is_async;
    event.sequence = -1;
    event.handle = event.key = key;
    *record = event;
    buffer.commit();
  }
  buffer.last_op = {key, -1};
}

void put_begin(ThreadBuffer& buffer, const Domain& domain, const Message& message, const EventAttributes* attributes,
               uint64_t key, bool is_async) noexcept {
  NvtxAttributes said;
  const bool says_something = read(domain, attributes, said);
  const StringId name = message.id(buffer);
  const Ticks time = now();  // last, so that our own work is not part of the range
  put_begin(buffer, name, key, is_async, time);
  if (!says_something) return;
  if (auto* record = buffer.append<NvtxInfo>(time)) {
    record->attributes = said;
    buffer.commit();
  }
}

void put_end(ThreadBuffer& buffer, uint64_t key, Ticks time) noexcept {
  if (auto* record = buffer.append<OpEnd>(time)) {
    record->key = key;
    buffer.commit();
  }
}

// ---- push and pop ----------------------------------------------------------------------------------------

// Outside of a window that ranges open: the key of this range, which may open it now. Otherwise 0.
uint64_t knock(const Message& message) noexcept {
  if (!window::sees_ranges() || window::is_open()) [[likely]]
    return 0;
  const uint64_t key = next_shared_key(kNoWindow);
  window::annotation_begins(message.text(), key);
  return key;
}

void left(uint64_t key) noexcept {
  if (window::sees_ranges()) [[unlikely]]
    window::annotation_ended("", key);
}

int push(Domain& domain, const Message& message, const EventAttributes* attributes) noexcept {
  const uint64_t knocked = knock(message);
  ThreadBuffer* buffer = current_buffer();
  auto* const open = buffer ? buffer->sources.map<OpenRanges>() : nullptr;
  if (!open) return kNoTracking;
  open->begin_window(window::number());
  if (!open->has_room(domain)) [[unlikely]]
    return static_cast<int>(open->push_deeper(domain));
  const uint32_t level = open->level(domain);
  const uint64_t key = knocked ? knocked : key_of_push(*buffer, *open);
  open->push(domain, key, level);
  put_begin(*buffer, domain, message, attributes, key, false);
  return static_cast<int>(level);
}

int pop(const Domain& domain) noexcept {
  const Ticks time = now();
  ThreadBuffer* buffer = current_buffer();
  auto* const open = buffer ? buffer->sources.mapped<OpenRanges>() : nullptr;
  if (!open) return kNoTracking;  // the thread has pushed none
  open->begin_window(window::number());
  const OpenRanges::Popped popped = open->pop(domain);  // none: it was pushed before the window
  if (popped.key == 0) return popped.level;
  put_end(*buffer, popped.key, time);
  left(popped.key);
  return popped.level;
}

// ---- start and end, marks -------------------------------------------------------------------------------------------

RangeId start(Domain& domain, const Message& message, const EventAttributes* attributes) noexcept {
  const uint64_t knocked = knock(message);
  ThreadBuffer* buffer = current_buffer();
  if (!buffer) return next_shared_key(kNoWindow);
  const uint64_t key = knocked ? knocked : next_shared_key(this_window());
  put_begin(*buffer, domain, message, attributes, key, true);
  return key;
}

void end(RangeId id) noexcept {
  const Ticks time = now();
  ThreadBuffer* buffer = current_buffer();
  // The range that opened the window has kNoWindow in its key.
  const bool may_have_opened = window::sees_ranges() && is_nvtx_key(id);
  if (!buffer || (!is_of_this_window(id) && !may_have_opened)) return;
  put_end(*buffer, id, time);
  left(id);
}

void mark(Domain& domain, const Message& message, const EventAttributes* attributes) noexcept {
  ThreadBuffer* buffer = current_buffer();
  if (!buffer) return;
  NvtxAttributes said;
  read(domain, attributes, said);
  const StringId name = message.id(*buffer);
  if (auto* record = buffer->append<NvtxMark>(now())) {
    record->name = name;
    record->pad = 0;
    record->attributes = said;
    buffer->commit();
  }
}

// ---- names ----------------------------------------------------------------------------------------------------------

class Utf8 {
 public:
  explicit Utf8(const wchar_t* wide) noexcept { length_ = wide ? to_utf8(wide, text_, sizeof(text_)) : 0; }
  std::string_view view() const noexcept { return {text_, length_}; }

 private:
  char text_[kMaxWide];
  size_t length_;
};

std::string_view view_of(const char* text) noexcept { return text ? text : ""; }

// Only a thread that names itself can be named here.
void name_thread(uint32_t tid, std::string_view name) noexcept {
  if (seal::is_sealed() || static_cast<uint32_t>(syscall(SYS_gettid)) != tid) return;
  if (ThreadBuffer* buffer = current_buffer()) session::define_thread_name(buffer->track, tid, session::intern(name));
}

// ---- what clients call ----------------------------------------------------------------------------------------------

template <class Char>
void on_mark(const Char* text) noexcept {
  mark(default_domain(), Message(text), nullptr);
}
void on_mark_ex(const EventAttributes* a) noexcept { mark(default_domain(), Message(checked(a)), checked(a)); }
void on_domain_mark(Domain* d, const EventAttributes* a) noexcept {
  mark(domain_of(d), Message(checked(a)), checked(a));
}

template <class Char>
RangeId on_range_start(const Char* text) noexcept {
  return start(default_domain(), Message(text), nullptr);
}
RangeId on_start_ex(const EventAttributes* a) noexcept {
  return start(default_domain(), Message(checked(a)), checked(a));
}
RangeId on_domain_start(Domain* d, const EventAttributes* a) noexcept {
  return start(domain_of(d), Message(checked(a)), checked(a));
}
void on_range_end(RangeId id) noexcept { end(id); }
void on_domain_end(Domain*, RangeId id) noexcept { end(id); }

template <class Char>
int on_push(const Char* text) noexcept {
  return push(default_domain(), Message(text), nullptr);
}
int on_push_ex(const EventAttributes* a) noexcept { return push(default_domain(), Message(checked(a)), checked(a)); }
int on_domain_push(Domain* d, const EventAttributes* a) noexcept {
  return push(domain_of(d), Message(checked(a)), checked(a));
}
int on_pop() noexcept { return pop(default_domain()); }
int on_domain_pop(Domain* d) noexcept { return pop(domain_of(d)); }

void on_category(uint32_t n, const char* name) noexcept { name_category(default_domain(), n, view_of(name)); }
void on_category_wide(uint32_t n, const wchar_t* name) noexcept {
  name_category(default_domain(), n, Utf8(name).view());
}
void on_domain_category(Domain* d, uint32_t n, const char* name) noexcept {
  name_category(domain_of(d), n, view_of(name));
}
void on_domain_category_wide(Domain* d, uint32_t n, const wchar_t* name) noexcept {
  name_category(domain_of(d), n, Utf8(name).view());
}
void on_thread(uint32_t tid, const char* name) noexcept { name_thread(tid, view_of(name)); }
void on_thread_wide(uint32_t tid, const wchar_t* name) noexcept { name_thread(tid, Utf8(name).view()); }

const Text* on_register(Domain*, const char* text) noexcept { return register_string(view_of(text)); }
const Text* on_register_wide(Domain*, const wchar_t* text) noexcept { return register_string(Utf8(text).view()); }
Domain* on_domain(const char* name) noexcept { return domain_named(view_of(name)); }
Domain* on_domain_wide(const wchar_t* name) noexcept { return domain_named(Utf8(name).view()); }

// ---- the tables -----------------------------------------------------------------------------------------------------

struct Slot {
  unsigned number;
  Function function;
};

template <class F>
Slot slot(unsigned number, F* function) noexcept {
  return {number, reinterpret_cast<Function>(function)};
}

template <size_t N>
bool fill(const Callbacks& callbacks, Module module, const Slot (&slots)[N]) noexcept {
  FunctionTable table = nullptr;
  unsigned count = 0;
  if (callbacks.module_table(module, &table, &count) == 0 || !table) return false;
  for (const Slot& s : slots)
    if (s.number < count && table[s.number]) *table[s.number] = s.function;
  return true;
}

}  // namespace

bool attach(GetExportTable get) noexcept {
  const auto* callbacks = static_cast<const Callbacks*>(get ? get(kCallbacks) : nullptr);
  if (!callbacks || callbacks->size < sizeof(Callbacks) || !callbacks->module_table) return false;
  const Slot core[] = {
      slot(kMarkEx, on_mark_ex),
      slot(kMarkA, on_mark<char>),
      slot(kMarkW, on_mark<wchar_t>),
      slot(kRangeStartEx, on_start_ex),
      slot(kRangeStartA, on_range_start<char>),
      slot(kRangeStartW, on_range_start<wchar_t>),
      slot(kRangeEnd, on_range_end),
      slot(kRangePushEx, on_push_ex),
      slot(kRangePushA, on_push<char>),
      slot(kRangePushW, on_push<wchar_t>),
      slot(kRangePop, on_pop),
      slot(kNameCategoryA, on_category),
      slot(kNameCategoryW, on_category_wide),
      slot(kNameOsThreadA, on_thread),
      slot(kNameOsThreadW, on_thread_wide),
  };
  const Slot core2[] = {
      slot(kDomainMarkEx, on_domain_mark),
      slot(kDomainRangeStartEx, on_domain_start),
      slot(kDomainRangeEnd, on_domain_end),
      slot(kDomainRangePushEx, on_domain_push),
      slot(kDomainRangePop, on_domain_pop),
      slot(kDomainNameCategoryA, on_domain_category),
      slot(kDomainNameCategoryW, on_domain_category_wide),
      slot(kDomainRegisterStringA, on_register),
      slot(kDomainRegisterStringW, on_register_wide),
      slot(kDomainCreateA, on_domain),
      slot(kDomainCreateW, on_domain_wide),
  };
  SourceMemory::map_before_seal<OpenRanges>();
  const bool has_core = fill(*callbacks, kCore, core);
  return fill(*callbacks, kCore2, core2) || has_core;  // a client of NVTX 1 has no domains
}

}  // namespace torchprof::nvtx
