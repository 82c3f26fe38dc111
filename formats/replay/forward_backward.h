// Finds the forward operator of a backward operator by Kineto's own rule, so that the flows are the same.
//
// Source: generateForwardBackwardLinks and TorchOpStorage::materialize in pytorch/torch/csrc/profiler/collection.cpp
// (2022 to 2026). Operators with a sequence number are taken in the order in which they end. Of the forward operators
// with one (thread, number) the one that started last counts, and the first backward operator that ends takes it.
// `autograd::engine::evaluate_function: X` has the number and the forward thread of the backward operator that begins
// next on its thread. That operator ends first, so it gets the flow, and `evaluate_function` gets none.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "formats/trace/names.h"

namespace torchprof::formats {

class ForwardBackward {
 public:
  struct Forward {
    int64_t begin;
    uint32_t row;
  };

  // Threads are torch's own numbers; 0: the thread has none.
  void forward_ended(uint64_t thread, int64_t sequence, Forward forward) {
    if (thread == 0) return;
    const auto [it, is_new] = waiting_.try_emplace({thread, sequence}, forward);
    if (!is_new && forward.begin >= it->second.begin) it->second = forward;
  }

  std::optional<Forward> backward_ended(uint64_t forward_thread, int64_t sequence) {
    const auto it = waiting_.find({forward_thread, sequence});
    if (it == waiting_.end()) return std::nullopt;
    const Forward forward = it->second;
    waiting_.erase(it);
    return forward;
  }

 private:
  struct Key {
    uint64_t thread;
    int64_t sequence;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct Hash {
    size_t operator()(const Key& k) const noexcept {
      return std::hash<uint64_t>()(k.thread * 0x9e3779b97f4a7c15u ^ static_cast<uint64_t>(k.sequence));
    }
  };
  std::unordered_map<Key, Forward, Hash> waiting_;
};

}  // namespace torchprof::formats
