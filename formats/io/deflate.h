// Compresses text to deflate (RFC 1951), some three times as fast as zlib's level 1 and to less.
//
// It is made for what we write: lines that are much alike, of some hundred bytes. Of a text only matches of eight bytes
// and more are looked for, each where these bytes were last seen, and the first one is taken; of other data (protobuf)
// those of five as well. Where shorter matches count, in source code, the result is larger than zlib's. Each block has
// Huffman codes of its own, or is stored.
//
// Why no library: Debian has no static one of ISA-L (libisal-dev 2.30 to 2.31). libdeflate takes no dictionary and
// always ends the stream, so that chunks of it are no single member of gzip.
//
// The same input gives the same bytes on every processor.
// Memory: 290 to 320 KiB an object. One thread at a time. Errors: none but std::bad_alloc, of the constructor.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace torchprof::formats {

class Deflate {
 public:
  static constexpr size_t kWindow = size_t{32} * 1024;  // how far back a match may be; of deflate
  static constexpr size_t kPadding = 8;                 // bytes behind the text that are read, too, and do not matter
  static constexpr size_t bound(size_t size) { return size + size / 1024 + 64; }  // the most that run() writes

  Deflate();

  // Compresses `text` from `begin` on. What is before that, the dictionary, was compressed earlier and may be referred
  // to; its last kWindow bytes count. kPadding bytes behind the text can be read. Writes to `out`, which has room for
  // bound() of what is compressed, and returns how much: whole blocks, which end at a byte. `is_last`: the stream ends.
  size_t run(std::string_view text, size_t begin, bool is_last, char* out);

 private:
  struct Match {
    uint32_t literals;  // before it
    uint16_t length;    // 0: the block ends
    uint16_t distance;
  };
  class Bits;
  struct Codes;

  template <bool kIsText>
  const uint8_t* find_matches(const uint8_t* base, const uint8_t* at, const uint8_t* end);
  void put_matches(const Codes& codes, const uint8_t* at, Bits& bits) const;

  std::vector<uint16_t> table_;                // by hash of eight bytes: where they were last seen, modulo 64 KiB
  std::vector<uint16_t> short_table_;          // the same of the first five; only for what is no text
  std::vector<Match> matches_;                 // of a block
  size_t count_ = 0;                           // of matches
  std::array<uint32_t, 286> symbol_counts_{};  // literals, the end of the block, lengths
  std::array<uint32_t, 30> distance_counts_{};
};

}  // namespace torchprof::formats
