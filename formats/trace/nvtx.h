// What the program told NVTX of a range or a mark besides its name.
//
// In the spool the attributes follow the begin of their range; they are kept here while it is open.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>

#include "formats/trace/trace.h"

namespace torchprof::formats {

class NvtxRanges {
 public:
  void began(uint64_t key, const NvtxAttributes& attributes) { open_[key] = attributes; }
  // The range with this key has ended. All members are empty if nothing was said.
  NvtxAttributes take(uint64_t key);

 private:
  std::unordered_map<uint64_t, NvtxAttributes> open_;  // by the key of the range
};

// ,"NVTX domain":"default","NVTX category":"io","NVTX payload":3,"NVTX color":"#ff00ff00"
//
// The domain always, the others if the program gave them. A category without a name is its number; a payload that JSON
// cannot hold is a string ("nan", "inf", "-inf"). Names are cut.
inline constexpr size_t kMaxNvtxBytes = 6500;
std::string nvtx_json(const Process& process, const NvtxAttributes& attributes);

}  // namespace torchprof::formats
