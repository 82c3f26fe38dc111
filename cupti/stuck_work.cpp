#include "cupti/stuck_work.h"

#include <ctime>

#include "tracer/session.h"

namespace torchprof::cupti {
namespace {

constexpr uint64_t kLong = 1'000'000'000;  // ns

uint64_t monotonic_ns() noexcept {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(t.tv_nsec);
}

void write(const OpenWork& work, uint64_t since, uint32_t correlation) noexcept {
  ThreadBuffer* const to = session::delivery_buffer();
  if (!to) return;
  const StringId name = work.name && correlation != 0 ? session::intern_from(*to, work.name) : StringId{};
  session::define_gpu(
      GpuStuckDef{{}, since, name, correlation, work.device, work.context, work.stream, work.launched, {}});
}

}  // namespace

StuckWork::Head* StuckWork::find(const OpenWork& work) noexcept {
  for (size_t i = 0; i < count_; ++i)
    if (heads_[i].work.context == work.context && heads_[i].work.stream == work.stream) return &heads_[i];
  return count_ < OpenStreams::kMost ? &(heads_[count_++] = Head{}) : nullptr;
}

void StuckWork::look(const OpenStreams& open) noexcept {
  const uint64_t now = monotonic_ns();
  for (size_t i = 0; i < count_; ++i) heads_[i].is_there = false;
  for (size_t i = 0; i < open.size(); ++i) {
    Head* const head = find(open[i]);
    if (!head) break;
    if (head->work.correlation != open[i].correlation)
      *head = {open[i], session::now().value, now, head->said != 0 ? UINT32_MAX : 0, false};
    head->is_there = true;
    head->work.launched = open[i].launched;
    const bool is_stuck = now - head->since_ns >= kLong;
    // Again when twice as much waits behind it, so that the number is not far off.
    if (is_stuck && (head->said == 0 || head->said == UINT32_MAX || open[i].launched / 2 >= head->said)) {
      write(head->work, head->since, head->work.correlation);
      head->said = open[i].launched;
    }
  }
  size_t kept = 0;
  for (size_t i = 0; i < count_; ++i) {
    Head& head = heads_[i];
    // UINT32_MAX: an earlier one of this stream was stuck and has ended.
    if (head.said != 0 && (!head.is_there || head.said == UINT32_MAX)) {
      write(head.work, 0, 0);
      head.said = 0;
    }
    if (head.is_there) heads_[kept++] = head;
  }
  count_ = kept;
}

}  // namespace torchprof::cupti
