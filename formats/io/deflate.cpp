#include "formats/io/deflate.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>

namespace torchprof::formats {
namespace {

// Numbers and tables of RFC 1951.
constexpr size_t kLongestMatch = 258, kShortestMatch = 3;       // of a match, in deflate
constexpr unsigned kEndOfBlock = 256, kFirstLength = 257;       // symbols
constexpr unsigned kMostBitsOfCodeSize = 7;                     // of the codes that sizes of codes are written in
constexpr unsigned kRepeat = 16, kZeros = 17, kManyZeros = 18;  // symbols among sizes of codes
constexpr uint8_t kLengthExtra[] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                    2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
constexpr uint8_t kSizeExtra[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 3, 7};
constexpr uint8_t kSizeOrder[] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
constexpr size_t kMostStored = 65535;
constexpr unsigned kStored = 0, kDynamic = 2;

constexpr unsigned kHashBits = 14;
constexpr size_t kMostMatches = size_t{32} * 1024;  // of a block
constexpr unsigned kMostBits = 14;                  // of a code: four of them fit into what Bits has room for

// A little-endian processor is all that we run on.
static_assert(std::endian::native == std::endian::little);
uint64_t load(const uint8_t* at) {
  uint64_t bytes;
  std::memcpy(&bytes, at, sizeof(bytes));
  return bytes;
}

// By its first bytes: a text has no control characters but tabs and ends of lines.
bool is_text(const uint8_t* at, const uint8_t* end) {
  constexpr ptrdiff_t kLooked = 1024;
  return std::none_of(at, at + std::min(end - at, kLooked), [](uint8_t byte) { return byte < '\t'; });
}

constexpr size_t kShort = 5;  // bytes of a match in what is no text, where no eight are the same
uint64_t first_bytes(uint64_t bytes) { return bytes & ((uint64_t{1} << kShort * 8) - 1); }

size_t hash_of(uint64_t bytes) { return static_cast<size_t>(bytes * 0x9E3779B185EBCA87 >> (64 - kHashBits)); }

// At most `most`, of which `length` are known to be the same.
size_t length_of_match(const uint8_t* at, const uint8_t* before, size_t length, size_t most) {
  for (; length + 8 <= most; length += 8) {
    const uint64_t difference = load(at + length) ^ load(before + length);
    if (difference != 0) return length + static_cast<size_t>(std::countr_zero(difference)) / 8;
  }
  while (length < most && at[length] == before[length]) ++length;
  return length;
}

struct LengthSymbol {
  uint8_t symbol;  // less kFirstLength
  uint8_t base;    // the first length that it is for, less kShortestMatch
};
constexpr std::array<LengthSymbol, kLongestMatch - kShortestMatch + 1> kLengths = [] {
  std::array<LengthSymbol, kLongestMatch - kShortestMatch + 1> lengths{};
  size_t base = 0;
  for (uint8_t symbol = 0; symbol < 28; ++symbol) {
    const size_t next = base + (size_t{1} << kLengthExtra[symbol]);
    for (size_t i = base; i < std::min(next, lengths.size()); ++i) lengths[i] = {symbol, static_cast<uint8_t>(base)};
    base = next;
  }
  lengths.back() = {28, kLongestMatch - kShortestMatch};
  return lengths;
}();

// `distance` less 1.
unsigned distance_symbol(unsigned distance) {
  if (distance < 4) return distance;
  const auto bits = static_cast<unsigned>(std::bit_width(distance)) - 1;
  return 2 * bits + (distance >> (bits - 1) & 1);
}
constexpr unsigned distance_extra(unsigned symbol) { return symbol < 4 ? 0 : symbol / 2 - 1; }

}  // namespace

// Not in the namespace above: a class with a name has members of it.
struct HuffmanCode {
  uint16_t bits = 0;
  uint8_t size = 0;  // 0: the symbol does not come
};

namespace {

// How many codes have which size, of a Huffman code for these counts, which ascend and are two at least.
void find_sizes(std::span<const uint32_t> counts, unsigned most, std::span<unsigned> of_size) {
  constexpr size_t kMostNodes = size_t{2} * 288;
  uint32_t weights[kMostNodes];
  uint16_t parents[kMostNodes];
  uint8_t depths[kMostNodes];
  const size_t leaves = counts.size(), nodes = 2 * leaves - 1;
  std::ranges::copy(counts, weights);
  size_t leaf = 0, inner = leaves;  // the smallest of each that have no parent
  for (size_t next = leaves; next < nodes; ++next) {
    weights[next] = 0;
    for (int i = 0; i < 2; ++i) {
      const bool takes_leaf = leaf < leaves && (inner == next || weights[leaf] <= weights[inner]);
      const size_t child = takes_leaf ? leaf++ : inner++;
      weights[next] += weights[child];
      parents[child] = static_cast<uint16_t>(next);
    }
  }
  depths[nodes - 1] = 0;
  for (size_t i = nodes - 1; i-- > 0;) {
    depths[i] = static_cast<uint8_t>(depths[parents[i]] + 1);
    if (i < leaves) ++of_size[std::min<unsigned>(depths[i], most)];
  }
  // Those that were cut to `most` take more room than there is: others grow until all fit.
  unsigned taken = 0;
  for (unsigned size = 1; size <= most; ++size) taken += of_size[size] << (most - size);
  for (; taken > 1u << most; --taken) {
    unsigned size = most - 1;
    while (of_size[size] == 0) --size;
    --of_size[most];
    --of_size[size];
    of_size[size + 1] += 2;
  }
}

// Codes of at most `most` bits for symbols that come so often.
void make_codes(std::span<const uint32_t> counts, unsigned most, HuffmanCode* codes) {
  struct Leaf {
    uint32_t count;
    uint16_t symbol;
  };
  Leaf leaves[288];
  uint32_t ascending[288];
  size_t used = 0;
  for (size_t symbol = 0; symbol < counts.size(); ++symbol) {
    codes[symbol] = {};
    if (counts[symbol] != 0) leaves[used++] = {counts[symbol], static_cast<uint16_t>(symbol)};
  }
  std::sort(leaves, leaves + used,
            [](const Leaf& a, const Leaf& b) { return a.count != b.count ? a.count < b.count : a.symbol < b.symbol; });
  for (size_t i = 0; i < used; ++i) ascending[i] = leaves[i].count;
  unsigned of_size[kMostBits + 1] = {};
  if (used > 1)
    find_sizes({ascending, used}, most, of_size);
  else
    of_size[1] = static_cast<unsigned>(used);
  const Leaf* leaf = leaves;
  for (unsigned size = most; size > 0; --size)
    for (unsigned i = 0; i < of_size[size]; ++i) codes[leaf++->symbol].size = static_cast<uint8_t>(size);
  unsigned next[kMostBits + 1] = {};
  for (unsigned size = 1; size <= most; ++size) next[size] = (next[size - 1] + of_size[size - 1]) << 1;
  for (size_t symbol = 0; symbol < counts.size(); ++symbol) {
    HuffmanCode& code = codes[symbol];
    if (code.size == 0) continue;
    unsigned bits = next[code.size]++;
    for (unsigned i = 0; i < code.size; ++i, bits >>= 1)  // the first bit is the highest
      code.bits = static_cast<uint16_t>(code.bits << 1 | (bits & 1));
  }
}

// The sizes of codes as symbols: a size, or a run of one.
struct SizeSymbols {
  struct Symbol {
    uint8_t symbol, extra;
  };
  Symbol symbols[320];
  size_t count = 0;
  uint32_t counts[19] = {};

  void add(unsigned symbol, size_t extra = 0) {
    symbols[count++] = {static_cast<uint8_t>(symbol), static_cast<uint8_t>(extra)};
    ++counts[symbol];
  }
  explicit SizeSymbols(std::span<const uint8_t> sizes) {
    for (size_t at = 0; at < sizes.size();) {
      const uint8_t size = sizes[at];
      size_t same = 1;
      while (at + same < sizes.size() && sizes[at + same] == size) ++same;
      at += same;
      if (size != 0) add(size), --same;
      while (same >= 3) {
        const size_t n = std::min<size_t>(same, size != 0 ? 6 : 138);
        add(size != 0 ? kRepeat : n <= 10 ? kZeros : kManyZeros, n <= 10 ? n - 3 : n - 11);
        same -= n;
      }
      for (; same > 0; --same) add(size);
    }
  }
};

}  // namespace

class Deflate::Bits {
 public:
  explicit Bits(char* at) : at_(at) {}
  // Between calls of flush() at most 57 bits.
  void put(uint64_t bits, unsigned size) {
    bits_ |= bits << size_;
    size_ += size;
  }
  void put(HuffmanCode code) { put(code.bits, code.size); }
  void flush() {
    std::memcpy(at_, &bits_, sizeof(bits_));
    at_ += size_ / 8;
    bits_ >>= size_ & ~7u;
    size_ %= 8;
  }
  // A block that is as it is; at most kMostStored bytes.
  void put_stored(std::string_view text, bool is_last) {
    put(is_last | kStored << 1, 3);
    size_ = (size_ + 7) & ~7u;
    put(text.size(), 16);
    put(~text.size() & kMostStored, 16);
    flush();
    at_ += text.copy(at_, text.size());
  }
  char* at() const { return at_; }

 private:
  char* at_;
  uint64_t bits_ = 0;
  unsigned size_ = 0;
};

// The codes of a block.
struct Deflate::Codes {
  HuffmanCode symbols[286];
  HuffmanCode distances[30];
  struct {
    uint32_t bits, size;
  } lengths[kLongestMatch - kShortestMatch + 1];  // with the bits behind the symbol
  HuffmanCode sizes[19];
  uint8_t size_list[286 + 30];
  size_t symbol_count = 286, distance_count = 30, size_count = 19;  // those that are written
  size_t bits = 0;                                                  // of the block

  Codes(std::span<const uint32_t> symbol_counts, std::span<const uint32_t> distance_counts) {
    make_codes(symbol_counts, kMostBits, symbols);
    make_codes(distance_counts, kMostBits, distances);
    while (symbols[symbol_count - 1].size == 0) --symbol_count;  // the end of the block comes for sure
    while (distance_count > 1 && distances[distance_count - 1].size == 0) --distance_count;
    for (size_t i = 0; i < symbol_count; ++i) size_list[i] = symbols[i].size;
    for (size_t i = 0; i < distance_count; ++i) size_list[symbol_count + i] = distances[i].size;
    for (size_t i = 0; i < std::size(lengths); ++i) {
      const auto [symbol, base] = kLengths[i];
      const HuffmanCode code = symbols[kFirstLength + symbol];
      lengths[i] = {code.bits | static_cast<uint32_t>(i - base) << code.size, 0u + code.size + kLengthExtra[symbol]};
    }
    for (size_t i = 0; i < symbol_counts.size(); ++i)
      bits += size_t{symbol_counts[i]} * (symbols[i].size + (i < kFirstLength ? 0 : kLengthExtra[i - kFirstLength]));
    for (unsigned i = 0; i < distance_counts.size(); ++i)
      bits += size_t{distance_counts[i]} * (distances[i].size + distance_extra(i));
    const SizeSymbols written = size_symbols();
    make_codes(written.counts, kMostBitsOfCodeSize, sizes);
    while (size_count > 4 && sizes[kSizeOrder[size_count - 1]].size == 0) --size_count;
    bits += 3 + 5 + 5 + 4 + 3 * size_count;
    for (size_t i = 0; i < std::size(sizes); ++i) bits += size_t{written.counts[i]} * (sizes[i].size + kSizeExtra[i]);
  }

  SizeSymbols size_symbols() const { return SizeSymbols({size_list, symbol_count + distance_count}); }

  void put_header(Bits& out) const {
    out.put(kDynamic << 1, 3);
    out.put(symbol_count - kFirstLength, 5);
    out.put(distance_count - 1, 5);
    out.put(size_count - 4, 4);
    out.flush();
    for (size_t i = 0; i < size_count; ++i) {
      out.put(sizes[kSizeOrder[i]].size, 3);
      out.flush();
    }
    const SizeSymbols written = size_symbols();
    for (const auto& [symbol, extra] : std::span(written.symbols, written.count)) {
      out.put(sizes[symbol]);
      out.put(extra, kSizeExtra[symbol]);
      out.flush();
    }
  }
};

Deflate::Deflate() : table_(size_t{1} << kHashBits), matches_(kMostMatches) {}

// Of one block, which ends at the returned place.
template <bool kIsText>
const uint8_t* Deflate::find_matches(const uint8_t* base, const uint8_t* at, const uint8_t* end) {
  symbol_counts_.fill(0);
  distance_counts_.fill(0);
  uint32_t* const symbol_counts = symbol_counts_.data();
  uint32_t* const distance_counts = distance_counts_.data();
  uint16_t* const table = table_.data();
  Match* match = matches_.data();
  Match* const last_match = match + kMostMatches - 1;
  const uint8_t* literals = at;
  const uint8_t* const last = end - at > 8 ? end - 8 : at;  // the last that eight bytes can be loaded from
  while (at < last && match != last_match) {
    const uint64_t here = load(at);
    const auto place = static_cast<uint16_t>(at - base);
    uint16_t& seen = table[hash_of(here)];
    // Never more than there is before `at`: what a place modulo 64 KiB says can only be too small. And 0, which the
    // table begins with, is a place.
    auto distance = static_cast<uint16_t>(place - seen);
    seen = place;
    size_t known = 8;
    bool is_match = here == load(at - distance) && static_cast<uint16_t>(distance - 1) < kWindow;
    if constexpr (!kIsText) {
      uint16_t& seen_short = short_table_[hash_of(first_bytes(here))];
      if (!is_match) {
        known = kShort;
        distance = static_cast<uint16_t>(place - seen_short);
        is_match =
            first_bytes(here) == first_bytes(load(at - distance)) && static_cast<uint16_t>(distance - 1) < kWindow;
      }
      seen_short = place;
    }
    if (!is_match) {
      ++symbol_counts[*at++];
      continue;
    }
    const size_t most = std::min(kLongestMatch, static_cast<size_t>(end - at));
    const size_t length = length_of_match(at, at - distance, known, most);
    ++symbol_counts[kFirstLength + kLengths[length - kShortestMatch].symbol];
    ++distance_counts[distance_symbol(distance - 1u)];
    *match++ = {static_cast<uint32_t>(at - literals), static_cast<uint16_t>(length), distance};
    // All the places in the match would cost more time than they save bytes.
    table[hash_of(load(at + 1))] = static_cast<uint16_t>(place + 1);
    table[hash_of(load(at + 2))] = static_cast<uint16_t>(place + 2);
    literals = at += length;
  }
  if (match != last_match)
    while (at < end) ++symbol_counts[*at++];
  *match++ = {static_cast<uint32_t>(at - literals), 0, 0};
  ++symbol_counts[kEndOfBlock];
  count_ = static_cast<size_t>(match - matches_.data());
  return at;
}

void Deflate::put_matches(const Codes& codes, const uint8_t* at, Bits& bits) const {
  for (size_t i = 0; i < count_; ++i) {
    const Match match = matches_[i];
    uint32_t literals = match.literals;
    for (; literals >= 4; literals -= 4, at += 4) {
      for (int k = 0; k < 4; ++k) bits.put(codes.symbols[at[k]]);
      bits.flush();
    }
    for (uint32_t k = 0; k < 3; ++k) {  // without a branch, which would be hard to predict
      const HuffmanCode code = codes.symbols[at[k]];
      const unsigned mask = 0u - static_cast<unsigned>(k < literals);
      bits.put(code.bits & mask, code.size & mask);
    }
    at += literals;
    bits.flush();
    if (match.length == 0) break;
    const auto length = codes.lengths[match.length - kShortestMatch];
    bits.put(length.bits, length.size);
    const unsigned distance = match.distance - 1u, symbol = distance_symbol(distance);
    bits.put(codes.distances[symbol]);
    const unsigned extra = distance_extra(symbol);
    bits.put(distance & ((1u << extra) - 1), extra);
    bits.flush();
    at += match.length;
  }
  bits.put(codes.symbols[kEndOfBlock]);
  bits.flush();
}

size_t Deflate::run(std::string_view text, size_t begin, bool is_last, char* out) {
  text.remove_prefix(begin - std::min(begin, kWindow));
  begin = std::min(begin, kWindow);
  const auto* const base = reinterpret_cast<const uint8_t*>(text.data());
  const uint8_t* at = base + begin;
  const uint8_t* const end = base + text.size();
  const bool takes_text = is_text(at, end);
  // Of what was compressed before nothing may stay: it differs from thread to thread.
  std::ranges::fill(table_, uint16_t{0});
  if (!takes_text) short_table_.assign(table_.size(), 0);
  // Every other place: all of them take twice as long and save a thousandth.
  for (const uint8_t* p = base; p < at; p += 2) table_[hash_of(load(p))] = static_cast<uint16_t>(p - base);
  Bits bits(out);
  while (at != end) {
    const uint8_t* const next = takes_text ? find_matches<true>(base, at, end) : find_matches<false>(base, at, end);
    const auto size = static_cast<size_t>(next - at);
    const Codes codes(symbol_counts_, distance_counts_);
    if (codes.bits / 8 < size + 5 * (size / kMostStored + 1)) {
      codes.put_header(bits);
      put_matches(codes, at, bits);
    } else {
      for (std::string_view rest = text.substr(static_cast<size_t>(at - base), size); !rest.empty();
           rest.remove_prefix(std::min(rest.size(), kMostStored)))
        bits.put_stored(rest.substr(0, kMostStored), false);
    }
    at = next;
  }
  bits.put_stored({}, is_last);  // ends at a byte
  return static_cast<size_t>(bits.at() - out);
}

}  // namespace torchprof::formats
