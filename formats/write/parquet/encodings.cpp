#include "formats/write/parquet/encodings.h"

#include <algorithm>
#include <array>
#include <bit>

namespace torchprof::formats::parquet {
namespace {

constexpr size_t kGroup = 8;  // values that are bit-packed together
constexpr size_t kBlock = 128, kMiniblocks = 4, kMiniblock = kBlock / kMiniblocks;

uint64_t zigzag(int64_t value) { return static_cast<uint64_t>(value) << 1 ^ static_cast<uint64_t>(value >> 63); }

// The lowest bits of each value behind one another, the first value lowest; zeros up to a whole byte.
template <class T>
void pack(std::string& out, std::span<const T> values, int width) {
  uint64_t bits = 0;
  int held = 0;
  const auto put = [&](uint64_t part, int size) {  // at most 32 bits
    bits |= part << held;
    for (held += size; held >= 8; held -= 8, bits >>= 8) out.push_back(static_cast<char>(bits));
  };
  for (const T value : values) {
    const auto all = static_cast<uint64_t>(value);
    put(all & 0xffffffff & (width < 32 ? (uint64_t{1} << width) - 1 : 0xffffffff), std::min(width, 32));
    if (width > 32) put(all >> 32 & ((uint64_t{1} << (width - 32)) - 1), width - 32);
  }
  if (held > 0) out.push_back(static_cast<char>(bits));
}

}  // namespace

void put_uleb(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

int width_of(uint64_t largest) { return static_cast<int>(std::bit_width(largest)); }

void put_hybrid(std::string& out, std::span<const uint32_t> values, int width) {
  const auto put_packed = [&](std::span<const uint32_t> part) {
    if (part.empty()) return;
    const size_t groups = (part.size() + kGroup - 1) / kGroup;
    put_uleb(out, groups << 1 | 1);
    const size_t size = out.size() + groups * static_cast<size_t>(width);
    pack(out, part, width);
    out.resize(size, '\0');  // the last group's missing values
  };
  size_t packed = 0;  // from here on nothing is written yet
  for (size_t i = 0; i < values.size();) {
    size_t end = i + 1;
    while (end < values.size() && values[end] == values[i]) ++end;
    // What is packed before the run has to be whole groups.
    const size_t run = i + (kGroup - (i - packed) % kGroup) % kGroup;
    if (end >= run + kGroup) {
      put_packed(values.subspan(packed, run - packed));
      put_uleb(out, (end - run) << 1);
      for (int bits = 0; bits < width; bits += 8) out.push_back(static_cast<char>(values[i] >> bits));
      packed = end;
    }
    i = end;
  }
  put_packed(values.subspan(packed));
}

void put_deltas(std::string& out, std::span<const int64_t> values) {
  put_uleb(out, kBlock);
  put_uleb(out, kMiniblocks);
  put_uleb(out, values.size());
  put_uleb(out, zigzag(values.empty() ? 0 : values[0]));
  // Differences wrap around, as readers add them.
  const auto difference = [&values](size_t i) {
    return static_cast<int64_t>(static_cast<uint64_t>(values[i]) - static_cast<uint64_t>(values[i - 1]));
  };
  for (size_t first = 1; first < values.size(); first += kBlock) {
    const size_t count = std::min(kBlock, values.size() - first);
    int64_t least = difference(first);
    for (size_t i = 1; i < count; ++i) least = std::min(least, difference(first + i));
    std::array<uint64_t, kBlock> above{};
    for (size_t i = 0; i < count; ++i)
      above[i] = static_cast<uint64_t>(difference(first + i)) - static_cast<uint64_t>(least);
    put_uleb(out, zigzag(least));
    std::array<int, kMiniblocks> widths{};
    for (size_t m = 0; m < kMiniblocks; ++m) {
      const std::span part = std::span(above).subspan(m * kMiniblock, kMiniblock);
      widths[m] = width_of(*std::ranges::max_element(part));
      out.push_back(static_cast<char>(widths[m]));
    }
    for (size_t m = 0; m * kMiniblock < count; ++m)
      pack(out, std::span<const uint64_t>(above).subspan(m * kMiniblock, kMiniblock), widths[m]);
  }
}

void put_bits(std::string& out, const std::vector<bool>& values) {
  for (size_t i = 0; i < values.size(); i += 8) {
    unsigned byte = 0;
    for (size_t k = i; k < std::min(i + 8, values.size()); ++k) byte |= static_cast<unsigned>(values[k]) << (k - i);
    out.push_back(static_cast<char>(byte));
  }
}

void Thrift::field(int id, int type) {
  int& last = last_ids_.back();
  if (id > last && id - last <= 15) {
    out.push_back(static_cast<char>((id - last) << 4 | type));
  } else {
    out.push_back(static_cast<char>(type));
    put_uleb(out, zigzag(id));
  }
  last = id;
}

void Thrift::number(int id, int type, int64_t value) {
  field(id, type);
  put_uleb(out, zigzag(value));
}

void Thrift::text(int id, std::string_view value) {
  field(id, 8);
  element(value);
}

void Thrift::is(int id, bool value) { field(id, value ? 1 : 2); }

void Thrift::structure(int id) {
  field(id, 12);
  begin();
}

void Thrift::list(int id, Element type, size_t size) {
  field(id, 9);
  if (size < 15) {
    out.push_back(static_cast<char>(size << 4 | static_cast<size_t>(type)));
  } else {
    out.push_back(static_cast<char>(0xf0 | static_cast<unsigned>(type)));
    put_uleb(out, size);
  }
}

void Thrift::element(int32_t value) { put_uleb(out, zigzag(value)); }

void Thrift::element(std::string_view value) {
  put_uleb(out, value.size());
  out.append(value);
}

void Thrift::begin() { last_ids_.push_back(0); }

void Thrift::end() {
  out.push_back('\0');
  last_ids_.pop_back();
}

}  // namespace torchprof::formats::parquet
