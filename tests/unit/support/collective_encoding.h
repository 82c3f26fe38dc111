// Collectives as the recorder writes them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tests/unit/support/spool_builder.h"

namespace torchprof::test {

// As tracer/torch/comms.cpp writes it: small numbers only.
class Encoding {
 public:
  Encoding& text(std::string_view text) {
    bytes_.push_back(static_cast<char>(text.size()));
    bytes_ += text;
    return *this;
  }
  Encoding& byte(int value) {
    bytes_.push_back(static_cast<char>(value));
    return *this;
  }
  Encoding& number(int value) { return byte(value < 0 ? -2 * value - 1 : 2 * value); }
  Encoding& list(const std::vector<int>& numbers, int count = -1) {
    byte(count < 0 ? static_cast<int>(numbers.size()) : count);
    for (const int n : numbers) number(n);
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

struct CollectiveOf {
  std::string name = "allreduce";
  std::string group{};
  std::string description{};
  std::vector<int> ranks{};
  int elements = 40;  // of float
};

inline std::string encoded(const CollectiveOf& c) {
  return Encoding()
      .text(c.name)
      .text(c.group)
      .text(c.description)
      .number(0)
      .number(static_cast<int>(c.ranks.size()))
      .byte(6)
      .number(c.elements)
      .number(c.elements)
      .list({})
      .list({})
      .number(-1)
      .number(-1)
      .list(c.ranks)
      .byte(0)
      .bytes();
}

// Of the operator that has just begun, record_param_comms.
inline void collective(SpoolBuilder& b, const CollectiveOf& c, uint64_t sequence = 0) {
  b.raw(static_cast<uint8_t>(Kind::Collective), {b.string(encoded(c)).value, sequence});
}

}  // namespace torchprof::test
