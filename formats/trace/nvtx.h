// What the program said to NVTX of a range or a mark, beside its name.
//
// Attributes follow the begin of their range in the spool; here they are kept while it is open.
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
  // The range with this key has ended: all of it none where nothing was said.
  NvtxAttributes take(uint64_t key);

 private:
  std::unordered_map<uint64_t, NvtxAttributes> open_;  // by the key of the range
};

// ,"NVTX domain":"default","NVTX category":"io","NVTX payload":3,"NVTX color":"#ff00ff00"
//
// The domain always, the others as far as they were said; a category without a name is its number, a payload that is no
// number a string ("nan", "inf", "-inf"). Names are cut.
inline constexpr size_t kMaxNvtxBytes = 6500;
std::string nvtx_json(const Process& process, const NvtxAttributes& attributes);

}  // namespace torchprof::formats
