// Encodings of Parquet, read again by a reader that follows the format's description (Encodings.md of parquet-format).
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "formats/write/parquet/encodings.h"

namespace parquet_test {

using namespace torchprof::formats::parquet;

namespace {

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  uint64_t uleb() {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const uint64_t byte = next();
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  }
  int64_t zigzag() {
    const uint64_t value = uleb();
    return static_cast<int64_t>(value >> 1 ^ (~(value & 1) + 1));
  }
  uint8_t next() {
    REQUIRE(at_ < bytes_.size());
    return static_cast<uint8_t>(bytes_[at_++]);
  }
  // `count` values of `width` bits, from a byte on and to the end of one.
  std::vector<uint64_t> packed(size_t count, int width) {
    std::vector<uint64_t> values(count);
    size_t bit = 0;
    for (uint64_t& value : values)
      for (int i = 0; i < width; ++i, ++bit) {
        REQUIRE(at_ + bit / 8 < bytes_.size());
        value |= static_cast<uint64_t>(static_cast<uint8_t>(bytes_[at_ + bit / 8]) >> bit % 8 & 1) << i;
      }
    at_ += (bit + 7) / 8;
    return values;
  }
  bool is_done() const { return at_ == bytes_.size(); }

 private:
  std::string_view bytes_;
  size_t at_ = 0;
};

std::vector<uint32_t> hybrid(Reader& in, size_t count, int width) {
  std::vector<uint32_t> values;
  while (values.size() < count) {
    const uint64_t head = in.uleb();
    if (head & 1) {
      for (const uint64_t value : in.packed((head >> 1) * 8, width)) values.push_back(static_cast<uint32_t>(value));
      continue;
    }
    uint32_t value = 0;
    for (int bits = 0; bits < width; bits += 8) value |= static_cast<uint32_t>(in.next()) << bits;
    values.insert(values.end(), head >> 1, value);
  }
  // Only the last group may hold more, and these are zeros.
  REQUIRE(values.size() < count + 8);
  for (size_t i = count; i < values.size(); ++i) CHECK(values[i] == 0);
  values.resize(count);
  return values;
}

std::vector<int64_t> deltas(Reader& in) {
  const uint64_t block = in.uleb(), miniblocks = in.uleb(), count = in.uleb();
  REQUIRE(block % 128 == 0);
  REQUIRE(block / miniblocks % 32 == 0);
  std::vector<int64_t> values = {in.zigzag()};
  while (values.size() < count) {
    const auto least = static_cast<uint64_t>(in.zigzag());
    std::vector<int> widths;
    for (uint64_t i = 0; i < miniblocks; ++i) widths.push_back(in.next());
    for (const int width : widths) {
      if (values.size() >= count) break;
      for (const uint64_t above : in.packed(block / miniblocks, width))
        if (values.size() < count)
          values.push_back(static_cast<int64_t>(static_cast<uint64_t>(values.back()) + least + above));
    }
  }
  values.resize(count);
  return values;
}

}  // namespace

TEST_CASE("levels and indexes of any widths and runs are read as they were written") {
  std::mt19937 random(1);
  for (int round = 0; round < 3000; ++round) {
    const int width = static_cast<int>(random() % 33);
    const uint32_t mask = width == 32 ? ~uint32_t{0} : (uint32_t{1} << width) - 1;
    std::vector<uint32_t> values;
    for (size_t runs = random() % 12; runs-- > 0;)
      values.insert(values.end(), 1 + random() % (random() % 2 ? 3 : 40), static_cast<uint32_t>(random()) & mask);
    std::string bytes;
    put_hybrid(bytes, values, width);
    Reader in(bytes);
    CHECK(hybrid(in, values.size(), width) == values);
    CHECK(in.is_done());
  }
}

TEST_CASE("runs take a few bytes") {
  std::string bytes;
  put_hybrid(bytes, std::vector<uint32_t>(100'000, 1), 1);
  CHECK(bytes.size() <= 4);
}

TEST_CASE("numbers of any size and order are read as they were written") {
  std::mt19937_64 random(2);
  for (int round = 0; round < 2000; ++round) {
    const int bits = static_cast<int>(random() % 64);
    std::vector<int64_t> values;
    int64_t value = static_cast<int64_t>(random());
    for (size_t count = random() % 700; count-- > 0;) {
      const uint64_t step = random() >> bits;
      value = static_cast<int64_t>(static_cast<uint64_t>(value) + (random() % 2 ? step : ~step));
      values.push_back(value);
    }
    if (round % 50 == 0) values.insert(values.end(), {INT64_MAX, INT64_MIN, 0, INT64_MIN, INT64_MAX});
    std::string bytes;
    put_deltas(bytes, values);
    Reader in(bytes);
    CHECK(deltas(in) == values);
    CHECK(in.is_done());
  }
}

TEST_CASE("flags are bits, the first one lowest") {
  std::string bytes;
  put_bits(bytes, {true, false, false, true, false, false, false, false, true});
  CHECK(bytes == std::string("\x09\x01", 2));
}

TEST_CASE("fields of Thrift's compact protocol") {
  Thrift t;
  t.i32(1, -1);
  t.text(20, "ab");  // more than 15 further on
  t.structure(21);
  t.is(1, true);
  t.end();
  t.list(22, Thrift::Element::kI32, 16);
  for (int32_t i = 0; i < 16; ++i) t.element(i);
  t.end();
  CHECK(t.out.substr(0, 13) == std::string("\x15\x01\x08\x28\x02"
                                           "ab\x1c\x11\x00\x19\xf5\x10",
                                           13));
  CHECK(t.out.size() == 13 + 16 + 1);
}

}  // namespace parquet_test
