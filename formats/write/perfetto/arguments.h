// The arguments of slices in a Perfetto trace; perfetto.h says which ones. Those that come again are encoded once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/replay/replay.h"
#include "formats/values/flops.h"
#include "formats/write/perfetto/interning.h"

namespace torchprof::formats::perfetto {

class SliceArguments {
 public:
  SliceArguments(const Process& process, Replay& replay, Interning& names)
      : process_(process), replay_(replay), names_(names), flops_(process) {}

  // Encoded fields of a TrackEvent with the slice's arguments; valid until the next call.
  const std::string& of(const Slice& s);
  // Likewise, for work that an operator of this module launched.
  const std::string& of_launch(ObjectId module, bool is_backward);
  std::string of_nvtx(const NvtxAttributes& attributes);

 private:
  using Cache = std::vector<std::optional<std::string>>;

  void operator_arguments(const Slice& s);
  void python_arguments(const Slice& s);
  void place(ObjectId module, bool is_backward);
  std::string module(ObjectId id);
  std::string_view module_name(ObjectId id);
  std::string caller(const CallSiteDef& site);
  std::string of_json(std::string_view members);
  void number(std::optional<uint64_t>& key, std::string_view name, int64_t value);
  template <class Make>
  void add(Cache& cache, size_t index, Make make);

  const Process& process_;
  Replay& replay_;
  Interning& names_;
  Flops flops_;
  std::optional<uint64_t> sequence_key_, thread_key_, flops_key_;  // ids of interned names
  Cache overloads_, inputs_, collectives_, modules_, paths_, callers_, flags_;
  std::string out_;
};

}  // namespace torchprof::formats::perfetto
