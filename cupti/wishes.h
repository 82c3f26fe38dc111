// Who wants which kinds of activity records, and since when: ours, and those of another client of CUPTI
// (torch.profiler).
//
// CUPTI knows one client. While there are two, a kind is enabled as long as one of them wants it, and each record goes
// to those who wanted its kind when it came about: what the processor does at the time at which it began; what a device
// does when it was launched, however late it ran. That time is not in its record. Its correlation is, which is that of
// the launching call; CUPTI counts correlations up, so the calls that were seen of a turn tell where it lies.
//
// Times are of CUPTI's clock. Not locked: the caller sees to it. No allocation; the oldest turns are forgotten.
#pragma once

#include <cstddef>
#include <cstdint>

namespace torchprof::cupti {

enum Party : uint8_t { kOurs = 1, kTheirs = 2 };

// What is needed of a record, of any kind; 0 where its kind does not have it or is not known.
struct Brief {
  uint32_t kind = 0;
  uint32_t correlation = 0;
  uint64_t start = 0;
  bool is_call = false;      // the start and the correlation of a call of CUDA
  bool is_launched = false;  // by the call with its correlation
};
Brief brief(const std::byte* record, size_t room) noexcept;

constexpr uint64_t kind_bit(uint32_t kind) noexcept { return kind < 64 ? uint64_t{1} << kind : 0; }

class Wishes {
 public:
  // From `time` on; times do not run back.
  void change(Party party, uint64_t kinds, uint64_t time) noexcept;
  uint64_t of(Party party) const noexcept { return count_ == 0 ? 0 : turns_[count_ - 1].kinds[party - 1]; }

  bool was_wanted(uint32_t kind) const noexcept { return ((ever_[0] | ever_[1]) & kind_bit(kind)) != 0; }

  // Calls, in any order; before what they launched is asked for.
  void saw(const Brief& call) noexcept;
  // The parties (Party) that want it.
  uint8_t parties(const Brief& record) const noexcept;

 private:
  static constexpr size_t kMost = 256;
  struct Turn {
    uint64_t since;
    uint64_t kinds[2];
    uint32_t first, last;  // correlations of the calls that were seen of it
    bool has_calls;
  };

  size_t at(uint64_t time) const noexcept;
  size_t launched_at(const Brief& record) const noexcept;

  size_t count_ = 0;
  uint64_t ever_[2] = {};
  Turn turns_[kMost] = {};
};

}  // namespace torchprof::cupti
