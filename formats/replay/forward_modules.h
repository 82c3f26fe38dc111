// Whose forward operator had a sequence number: what gives a backward operator its module.
//
// As in formats/replay/forward_backward.h the latest-starting forward operator of one (thread, number) stands, but it is asked
// for when the backward begins, and may be asked for again (a graph that is kept, backward of backward).
//
// Memory: at most kMost numbers a thread, the latest. Autograd gives them one after the other; numbers that lie far
// apart push each other out rather than take memory for what is between them.
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

  // Threads by torch's own number. `module` may be none: then this one stands as well.
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
      if (entry.sequence != kFree) slot(larger, entry.sequence) = entry;  // twice the slots: none meet here
    }
    ring.entries = std::move(larger);
  }

  std::unordered_map<uint64_t, Ring> rings_;
};

}  // namespace torchprof::formats
