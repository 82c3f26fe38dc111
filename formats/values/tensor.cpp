#include "formats/values/tensor.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace torchprof::formats {
namespace {

// c10::ScalarType (c10/core/ScalarType.h, torch 1.13 to 2.14), which only ever grows at its end.
constexpr std::array<std::string_view, 29> kTypeNames = {
    "unsigned char",
    "signed char",
    "short int",
    "int",
    "long int",
    "c10::Half",
    "float",
    "double",
    "c10::complex<c10::Half>",
    "c10::complex<float>",
    "c10::complex<double>",
    "bool",
    "c10::qint8",
    "c10::quint8",
    "c10::qint32",
    "c10::BFloat16",
    "c10::quint4x2",
    "c10::quint2x4",
    "c10::bits1x8",
    "c10::bits2x4",
    "c10::bits4x2",
    "c10::bits8",
    "c10::bits16",
    "c10::Float8_e5m2",
    "c10::Float8_e4m3fn",
    "c10::Float8_e5m2fnuz",
    "c10::Float8_e4m3fnuz",
    "short unsigned int",
    "unsigned int",
};

constexpr std::array<uint8_t, kTypeNames.size()> kElementSizes = {1, 1, 2, 4, 8, 2, 4, 8, 4, 8, 16, 1, 1, 1, 4,
                                                                  2, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1,  1, 2, 4};

}  // namespace

std::string_view type_name(uint8_t scalar_type) {
  return scalar_type < kTypeNames.size() ? kTypeNames[scalar_type] : std::string_view{};
}

std::optional<uint8_t> type_number(std::string_view name) {
  const auto found = std::ranges::find(kTypeNames, name);
  if (found == kTypeNames.end()) return std::nullopt;
  return static_cast<uint8_t>(found - kTypeNames.begin());
}

unsigned element_size(uint8_t scalar_type) {
  return scalar_type < kElementSizes.size() ? kElementSizes[scalar_type] : 0;
}

uint8_t EncodedReader::byte() {
  if (at_ < bytes_.size()) return static_cast<uint8_t>(bytes_[at_++]);
  failed_ = true;
  return 0;
}

uint64_t EncodedReader::varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const uint8_t b = byte();
    value |= uint64_t{b & 0x7fu} << shift;
    if (b < 0x80) return value;
  }
  failed_ = true;
  return 0;
}

int64_t EncodedReader::zigzag() {
  const uint64_t value = varint();
  return static_cast<int64_t>(value >> 1) ^ -static_cast<int64_t>(value & 1);
}

double EncodedReader::number() {
  double value = 0;
  if (bytes_.size() - at_ < sizeof(value)) {
    failed_ = true;
    return 0;
  }
  std::memcpy(&value, bytes_.data() + at_, sizeof(value));
  at_ += sizeof(value);
  return value;
}

std::string_view EncodedReader::text() {
  const uint64_t length = varint();
  if (failed_ || length > bytes_.size() - at_) {
    failed_ = true;
    return {};
  }
  at_ += length;
  return bytes_.substr(at_ - length, length);
}

Tensor EncodedReader::tensor(bool is_readable) {
  Tensor t{.is_readable = is_readable};
  t.type = byte();
  t.device = byte();
  t.device_index = static_cast<int8_t>(byte());
  if (!is_readable) return t;
  const uint8_t strides = byte();
  const uint64_t dims = varint();
  if (dims > 64) failed_ = true;
  if (failed_) return t;
  for (uint64_t i = 0; i < dims; ++i) t.sizes.push_back(static_cast<int64_t>(varint()));
  if (strides == 1) {
    t.strides.resize(dims);
    int64_t stride = 1;
    for (uint64_t i = dims; i-- > 0;) {
      t.strides[i] = stride;
      stride =
          static_cast<int64_t>(static_cast<uint64_t>(stride) * static_cast<uint64_t>(std::max<int64_t>(t.sizes[i], 1)));
    }
  } else if (strides == 0) {
    for (uint64_t i = 0; i < dims; ++i) t.strides.push_back(zigzag());
  }
  return t;
}

}  // namespace torchprof::formats
