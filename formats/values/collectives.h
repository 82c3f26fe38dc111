// The arguments of a collective: from the recorder's encoding (tracer/torch/comms.h) to the arguments that Kineto gives
// record_param_comms. Keys and values are those of torch/csrc/profiler/util.cpp (saveNcclMeta), 2.6 to 2.14; lists of
// more than 30 numbers are cut as 2.14 does it. A hostile encoding gives fewer arguments, and is never read past its
// end.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace torchprof::formats {

inline constexpr size_t kMaxListedRanks = 30;

struct NumberList {
  uint64_t count = 0;             // length of the whole list
  std::vector<int64_t> listed{};  // all, or the first and the very last
};

struct Collective {
  std::string name{};  // "allreduce", "send" ...
  std::string group{}, description{};
  int64_t rank = -1;  // within the group; for send and recv that of the other side
  int64_t size = -1;  // of the group; -1 here and below: not known
  uint8_t type = 0;   // c10::ScalarType
  int64_t in_elements = 0, out_elements = 0;
  NumberList in_split{}, out_split{};
  int64_t first_rank = -1, stride = -1;
  NumberList ranks{};  // of the group
  int is_async = 2;    // 0, 1, or 2: not known
};

// False: it is cut off, or not such an encoding.
bool decode_collective(std::string_view encoded, Collective& collective);

// The name of a c10::ScalarType that Kineto's `dtype` has ("Float"); empty: this build does not know it.
std::string_view dtype_of(uint8_t type);
// Bytes of an element of a type by the name that Kineto's `dtype` has; 0: this build does not know it.
unsigned element_size_of(std::string_view type);

// "0, 1, ..., 40"
std::string text_of(const NumberList& list);

// `,"Collective name":"allreduce","dtype":"Float",...`; empty if it cannot be decoded.
std::string collective_json(std::string_view encoded);

}  // namespace torchprof::formats
