// User annotations on GPUs: on each stream from the first to the last work that was launched while the annotation was
// open on the launching thread. Of all that were open then; Kineto takes the innermost only.
//
// Memory: of the annotations that are open, and those that end later than their thread's slices are handed out.
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
    int64_t begin;  // ns, UnixNs
    int64_t end;
  };
  // Of work that has a call.
  void extend(const GpuActivity& activity);
  // Once the annotation has ended.
  std::vector<Span> take(uint64_t external_id);

 private:
  std::unordered_map<uint64_t, std::vector<Span>> open_;  // by external id
};

}  // namespace torchprof::formats
