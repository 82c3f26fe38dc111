// Encodings of Apache Parquet, each appended to `out` (format 2.10: Encodings.md, thrift/compact-protocol of Apache
// Thrift). Pure functions; errors: none but std::bad_alloc.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace torchprof::formats::parquet {

void put_uleb(std::string& out, uint64_t value);

// The bits that the largest of them takes.
int width_of(uint64_t largest);

// RLE / bit-packing hybrid, values of `width` bits (0 to 32): levels and indexes into a dictionary.
void put_hybrid(std::string& out, std::span<const uint32_t> values, int width);

// DELTA_BINARY_PACKED with blocks of 128 and miniblocks of 32.
void put_deltas(std::string& out, std::span<const int64_t> values);

// PLAIN booleans: a bit each, the first one lowest.
void put_bits(std::string& out, const std::vector<bool>& values);

// Structures of Thrift's compact protocol. Fields are given in the order of their ids; begin() and end() around the
// fields of a structure that is an element of a list, or the outermost one.
class Thrift {
 public:
  void i32(int id, int32_t value) { number(id, 5, value); }
  void i64(int id, int64_t value) { number(id, 6, value); }
  void text(int id, std::string_view value);
  void is(int id, bool value);
  void structure(int id);  // then its fields, and end()
  enum class Element : uint8_t { kI32 = 5, kText = 8, kStructure = 12 };
  void list(int id, Element type, size_t size);  // then its elements
  void element(int32_t value);
  void element(std::string_view value);
  void begin();  // an element that is a structure
  void end();

  std::string out;

 private:
  void field(int id, int type);
  void number(int id, int type, int64_t value);

  std::vector<int> last_ids_{0};  // of the structures that are open
};

}  // namespace torchprof::formats::parquet
