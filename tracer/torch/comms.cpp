#include "tracer/torch/comms.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>

#include "tracer/process/diag.h"
#include "tracer/session.h"
#include "tracer/spool/varint.h"

namespace torchprof::torch {

std::atomic<bool> detail::g_reads_comms{false};

namespace {

using detail::g_reads_comms;

const CommsRow* g_row = nullptr;
const void* (*g_get)(uintptr_t kind) noexcept = nullptr;  // c10::ThreadLocalDebugInfo::get
uintptr_t g_kind = 0;
bool g_has_sequence = false;

constexpr size_t kMaxText = 200;
constexpr int64_t kMaxCount = int64_t{1} << 24;  // of a list's elements

class Encoder {
 public:
  void byte(uint8_t value) noexcept { *at_++ = value; }
  void varint(uint64_t value) noexcept { at_ = put_varint(at_, value); }
  void zigzag(int64_t value) noexcept { varint(zigzag_of(value)); }
  void text(const char* text) noexcept {
    const size_t length = text ? strnlen(text, kMaxText) : 0;
    varint(length);
    if (length) memcpy(at_, text, length);
    at_ += length;
  }
  // std::vector<int64_t>; 0: there is none. False: this is no vector.
  bool list(const void* info, size_t offset) noexcept {
    if (offset == 0) {
      varint(0);
      return true;
    }
    const auto* numbers = field_at<const int64_t*>(info, offset);
    const int64_t count = field_at<const int64_t*>(info, offset + 8) - numbers;
    if (count < 0 || count > kMaxCount || (count > 0 && !numbers)) return false;
    varint(static_cast<uint64_t>(count));
    const auto listed = std::min(static_cast<size_t>(count), kMaxListed);
    for (size_t i = 0; i < listed; ++i) zigzag(numbers[i + 1 == listed ? count - 1 : static_cast<int64_t>(i)]);
    return true;
  }
  std::string_view bytes() const noexcept {
    return {reinterpret_cast<const char*>(bytes_), static_cast<size_t>(at_ - bytes_)};
  }

 private:
  unsigned char bytes_[3 * (kMaxText + kMostVarint) + 3 * (kMaxListed + 1) * kMostVarint + 10 * kMostVarint];
  unsigned char* at_ = bytes_;
};

int64_t number_at(const void* info, size_t offset, bool is_long) noexcept {
  return is_long ? field_at<int64_t>(info, offset) : field_at<int32_t>(info, offset);
}

// -1 where the row has no such member.
int64_t optional_at(const void* info, size_t offset) noexcept { return offset ? field_at<int32_t>(info, offset) : -1; }

bool encode(const CommsRow& row, const void* info, Encoder& out) noexcept {
  out.text(field_at<const char*>(info, row.name));
  char number[24] = "";
  if (row.group_number) snprintf(number, sizeof(number), "%d", field_at<int32_t>(info, row.group_number));
  out.text(row.group ? field_at<const char*>(info, row.group) : number);
  out.text(row.description ? field_at<const char*>(info, row.description) : nullptr);
  out.zigzag(field_at<int32_t>(info, row.rank));
  out.zigzag(optional_at(info, row.size));
  out.byte(field_at<uint8_t>(info, row.type));
  const int64_t in = number_at(info, row.in, row.is_long);
  const int64_t to = number_at(info, row.in + (row.is_long ? 8 : 4), row.is_long);
  if (in < 0 || to < 0) return false;
  out.zigzag(in);
  out.zigzag(to);
  if (!out.list(info, row.in_split) || !out.list(info, row.in_split + kVector)) return false;
  out.zigzag(optional_at(info, row.start));
  out.zigzag(row.start ? field_at<int32_t>(info, row.start + 4) : -1);
  if (!out.list(info, row.start ? row.start + 8 : 0)) return false;
  out.byte(row.is_async ? field_at<uint8_t>(info, row.is_async) & 1 : 2);
  return true;
}

// For programs whose process groups are not seen (--python off): rank and world size, as facts, from the first
// collective of the default group, which has that description since 2.4. Not from send and recv: their rank is that of
// the other side.
std::atomic<bool> g_has_rank{false};

[[gnu::cold]] void note_rank(const CommsRow& row, const void* info) noexcept {
  const auto* description = row.description ? field_at<const char*>(info, row.description) : nullptr;
  const auto* name = field_at<const char*>(info, row.name);
  if (!description || !name || strcmp(description, "default_pg") != 0) return;
  if (strcmp(name, "send") == 0 || strcmp(name, "recv") == 0) return;
  g_has_rank.store(true, std::memory_order_relaxed);
  char number[24];
  const auto define = [&](const char* key, size_t offset) {
    snprintf(number, sizeof(number), "%d", field_at<int32_t>(info, offset));
    session::define_fact(key, number);
  };
  define("collectives.rank", row.rank);
  define("collectives.world_size", row.size);
}

[[gnu::cold]] void stop() noexcept {
  g_reads_comms.store(false, std::memory_order_relaxed);
  session::note_source("collectives", SourceState::kFailed, "their arguments are not as the layout says");
  tell_once_a_run(Cause::kTorch, About::kLoss,
                  "arguments of collectives are no longer recorded: they are not as the layout says");
}

}  // namespace

void find_comms(const Api& api) noexcept {
  void* const library = api.symbols;
  if (!library) return;
  for (const CommsRow& row : comms_rows())
    if (dlsym(library, row.constructor)) g_row = &row;
  // c10 is among the libraries that libtorch_cpu needs.
  g_get = reinterpret_cast<decltype(g_get)>(dlsym(library, "_ZN3c1020ThreadLocalDebugInfo3getENS_13DebugInfoKindE"));
  // Up to then an enumeration, in which it is 4; in 2.14 a class that holds a pointer.
  const void* kind = dlsym(library, "_ZN3c1013DebugInfoKind16PARAM_COMMS_INFOE");
  g_kind = kind ? field_at<uintptr_t>(kind, 0) : 4;
  const bool has_them = dlsym(library, "_ZTIN5torch19ParamCommsDebugInfoE") != nullptr;
  char text[session::kNoteSize] = "none: a torch without torch.distributed";
  if (g_row)
    snprintf(text, sizeof(text), "row %s, because of its constructor", g_row->label);
  else if (has_them)
    snprintf(text, sizeof(text), "no row: its constructor is not known");
  session::note_fact("torch.ParamCommsDebugInfo", text);
  if (!g_row && has_them)
    session::note_source("collectives", SourceState::kFailed, "this torch's ParamCommsDebugInfo is not known");
  g_has_sequence = g_row && g_row->sequence != 0 && api.version == g_row->sequence_version;
  g_reads_comms.store(g_row && g_get && session::config().shapes, std::memory_order_relaxed);
}

void record_collective(ThreadBuffer& buffer, Ticks time) noexcept {
  const void* info = g_get(g_kind);
  if (!info) return;
  Encoder encoder;
  if (!encode(*g_row, info, encoder)) return stop();
  if (!g_has_rank.load(std::memory_order_relaxed)) [[unlikely]]
    note_rank(*g_row, info);
  const StringId encoded = session::intern(encoder.bytes());
  auto* record = buffer.append<Collective>(time);
  if (!record) return;
  record->info = encoded;
  record->pad = 0;
  record->sequence = g_has_sequence ? field_at<int64_t>(info, g_row->sequence) : -1;
  buffer.commit();
}

}  // namespace torchprof::torch
