// Who wants which kinds of activity records, and since when: we, and another client of CUPTI (torch.profiler).
//
// CUPTI has only one client. While there are two, a kind is enabled as long as one of them wants it, and each record
// goes to those that wanted its kind at the moment that counts. For work of the processor that is the moment when it
// began; for work of a device, when it was launched, however late it ran. The record of a device does not have that
// time, but it has the correlation of the call that launched it. CUPTI counts correlations up, so the calls that were
// seen in each turn (a time in which nothing changed) tell in which turn the launch was.
//
// Times are on CUPTI's clock. The caller locks. No allocation; the oldest turns are forgotten.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cupti/recorded_calls.h"

namespace torchprof::cupti {

enum Party : uint8_t { kOurs = 1, kTheirs = 2 };

// What is needed of a record of any kind; 0 where its kind does not have that, or is not known.
struct Brief {
  uint32_t kind = 0;
  uint32_t correlation = 0;
  uint64_t start = 0;
  bool is_call = false;      // a call of CUDA, with its start and correlation
  bool is_launched = false;  // by the call with its correlation
  uint32_t cbid = 0;         // of a call
};
Brief brief(const std::byte* record, size_t room) noexcept;
// The same where the record's own number of its kind is not to be read (in_flight.h).
Brief brief_of(const std::byte* record, size_t room, uint32_t kind) noexcept;

constexpr uint64_t kind_bit(uint32_t kind) noexcept { return kind < 64 ? uint64_t{1} << kind : 0; }

class Wishes {
 public:
  // The party wants these kinds from `time` on. Times must not go back.
  void change(Party party, uint64_t kinds, uint64_t time) noexcept;
  uint64_t of(Party party) const noexcept { return count_ == 0 ? 0 : turns_[count_ - 1].kinds[party - 1]; }

  uint64_t ever(Party party) const noexcept { return ever_[party - 1]; }
  bool was_wanted(uint32_t kind) const noexcept { return ((ever_[0] | ever_[1]) & kind_bit(kind)) != 0; }

  // A call was seen. In any order, but before parties() is called for what it launched.
  void saw(const Brief& call) noexcept;
  // Of all calls, we want those of recorded_calls() alone.
  void list_ours(bool is_listed) noexcept { is_listed_ = is_listed; }
  // Of all calls, the other client does not want this one, or wants it again. Holds for earlier ones as well.
  void other_wants(GpuApiKind api, uint32_t cbid, bool wants) noexcept { unwanted_.set(api, cbid, !wants); }
  bool other_wants(GpuApiKind api, uint32_t cbid) const noexcept { return !unwanted_.has(api, cbid); }

  // The other client wants this call by itself, without all of its kind. Holds for earlier ones as well.
  void other_asks(GpuApiKind api, uint32_t cbid, bool asks) noexcept { asked_.set(api, cbid, asks); }
  bool other_asked(GpuApiKind api, uint32_t cbid) const noexcept { return asked_.has(api, cbid); }
  bool other_asked_any(GpuApiKind api) const noexcept { return asked_.has_any(api); }
  void other_asks_none(GpuApiKind api) noexcept { asked_.clear(api); }

  // The parties (bits of Party) that want the record.
  uint8_t parties(const Brief& record) const noexcept;

 private:
  static constexpr size_t kMost = 256;
  struct Turn {
    uint64_t since;
    uint64_t kinds[2];
    uint32_t first, last;  // correlations of the calls that were seen in it
    bool has_calls;
  };

  size_t at(uint64_t time) const noexcept;
  size_t launched_at(const Brief& record) const noexcept;

  size_t count_ = 0;
  uint64_t ever_[2] = {};
  bool is_listed_ = false;
  CallSet unwanted_, asked_;  // by the other client
  Turn turns_[kMost] = {};
};

}  // namespace torchprof::cupti
