// User annotations on GPUs: on each stream, from the first to the last work that was launched while the annotation was
// open on the launching thread. All open annotations get one; Kineto takes only the innermost.
//
// Memory: the annotations that are open, or have ended but are not handed out yet.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "formats/gpu/activity.h"

namespace torchprof::formats {

class GpuAnnotations {
 public:
  struct Span {
    uint32_t device;
    uint32_t stream;
    int64_t begin;  // as in UnixNs
    int64_t end;
  };
  // Adds work that has a call.
  void extend(const GpuActivity& activity);
  // After the annotation has ended.
  std::vector<Span> take(uint64_t external_id);

 private:
  std::unordered_map<uint64_t, std::vector<Span>> open_;  // by external id
};

}  // namespace torchprof::formats
