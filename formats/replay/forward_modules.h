// The module of the forward operator with a sequence number, which becomes the module of its backward operator.
//
// As in formats/replay/forward_backward.h the forward operator of one (thread, number) that started last counts. But it
// is asked for when the backward begins, and may be asked for several times (retain_graph, a backward of a backward).
//
// Memory: the latest kMost numbers of a thread. Autograd counts up, so they are neighbours; numbers that are far apart
// overwrite each other, so that gaps take no memory.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tracer/spool/ids.h"

namespace torchprof::formats {

class ForwardModules {
 public:
  static constexpr size_t kMost = size_t{1} << 20;

  // Threads are torch's own numbers. `module` may be none; this operator replaces an earlier one all the same.
  void forward_began(uint64_t thread, int64_t sequence, ObjectId module) {
    Ring& ring = rings_[thread];
    if (ring.entries.empty()) ring.entries.resize(kFirst);
    Entry* entry = &slot(ring.entries, sequence);
    if (entry->sequence != kFree && entry->sequence != sequence && ring.used >= ring.entries.size() / 2 &&
        ring.entries.size() < kMost) {
      grow(ring);
      entry = &slot(ring.entries, sequence);
    }
    if (entry->sequence == kFree) ++ring.used;
    *entry = {sequence, module};
  }

  std::optional<ObjectId> find(uint64_t thread, int64_t sequence) const {
    const auto it = rings_.find(thread);
    if (it == rings_.end()) return std::nullopt;
    const std::vector<Entry>& entries = it->second.entries;
    const Entry& entry = entries[static_cast<uint64_t>(sequence) % entries.size()];
    if (entry.sequence != sequence) return std::nullopt;
    return entry.module;
  }

 private:
  static constexpr size_t kFirst = 256;
  static constexpr int64_t kFree = -1;
  struct Entry {
    int64_t sequence = kFree;
    ObjectId module{};
  };
  struct Ring {
    std::vector<Entry> entries;
    size_t used = 0;
  };

  static Entry& slot(std::vector<Entry>& entries, int64_t sequence) {
    return entries[static_cast<uint64_t>(sequence) % entries.size()];
  }
  static void grow(Ring& ring) {
    std::vector<Entry> larger(ring.entries.size() * 2);
    for (const Entry& entry : ring.entries) {
      // With twice the slots no two entries get the same one.
      if (entry.sequence != kFree) slot(larger, entry.sequence) = entry;
    }
    ring.entries = std::move(larger);
  }

  std::unordered_map<uint64_t, Ring> rings_;
};

}  // namespace torchprof::formats
