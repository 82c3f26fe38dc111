#include "formats/values/collectives.h"

#include <algorithm>
#include <array>

#include "formats/io/text.h"
#include "formats/values/tensor.h"

namespace torchprof::formats {
namespace {

NumberList list(EncodedReader& in) {
  NumberList result;
  result.count = in.varint();
  for (size_t i = 0; i < std::min<uint64_t>(result.count, kMaxListedRanks) && !in.failed(); ++i)
    result.listed.push_back(in.zigzag());
  return result;
}

// c10::toString(ScalarType)
constexpr std::array<std::string_view, 30> kTypes = {"Byte",
                                                     "Char",
                                                     "Short",
                                                     "Int",
                                                     "Long",
                                                     "Half",
                                                     "Float",
                                                     "Double",
                                                     "ComplexHalf",
                                                     "ComplexFloat",
                                                     "ComplexDouble",
                                                     "Bool",
                                                     "QInt8",
                                                     "QUInt8",
                                                     "QInt32",
                                                     "BFloat16",
                                                     "QUInt4x2",
                                                     "QUInt2x4",
                                                     "Bits1x8",
                                                     "Bits2x4",
                                                     "Bits4x2",
                                                     "Bits8",
                                                     "Bits16",
                                                     "Float8_e5m2",
                                                     "Float8_e4m3fn",
                                                     "Float8_e5m2fnuz",
                                                     "Float8_e4m3fnuz",
                                                     "UInt16",
                                                     "UInt32",
                                                     "UInt64"};

void add(std::string& out, std::string_view key, int64_t value) {
  out.append(",\"").append(key).append("\":").append(std::to_string(value));
}

void add(std::string& out, std::string_view key, std::string_view value) {
  out.append(",\"").append(key).append("\":").append(json_string(value));
}

// "[0, 1]", as a text.
void add(std::string& out, std::string_view key, const NumberList& list) {
  add(out, key, std::string("[").append(text_of(list)).append("]"));
}

}  // namespace

std::string_view dtype_of(uint8_t type) { return type < kTypes.size() ? kTypes[type] : std::string_view(); }

unsigned element_size_of(std::string_view type) {
  const auto known = std::ranges::find(kTypes, type);
  return known == kTypes.end() ? 0 : element_size(static_cast<uint8_t>(known - kTypes.begin()));
}

std::string text_of(const NumberList& list) {
  std::string text;
  for (size_t i = 0; i < list.listed.size(); ++i) {
    if (i > 0) text += ", ";
    if (list.count > list.listed.size() && i + 1 == list.listed.size()) text += "..., ";
    text += std::to_string(list.listed[i]);
  }
  return text;
}

bool decode_collective(std::string_view encoded, Collective& collective) {
  EncodedReader in(encoded);
  collective.name = in.text();
  collective.group = in.text();
  collective.description = in.text();
  collective.rank = in.zigzag();
  collective.size = in.zigzag();
  collective.type = in.byte();
  collective.in_elements = in.zigzag();
  collective.out_elements = in.zigzag();
  collective.in_split = list(in);
  collective.out_split = list(in);
  collective.first_rank = in.zigzag();
  collective.stride = in.zigzag();
  collective.ranks = list(in);
  collective.is_async = in.byte();
  return !in.failed();
}

std::string collective_json(std::string_view encoded) {
  Collective c;
  if (!decode_collective(encoded, c)) return {};
  std::string out;
  add(out, "Collective name", c.name);
  add(out, "dtype", c.type < kTypes.size() ? dtype_of(c.type) : std::string_view("UNKNOWN_SCALAR"));
  add(out, "In msg nelems", c.in_elements);
  add(out, "Out msg nelems", c.out_elements);
  add(out, "In split size", c.in_split);
  add(out, "Out split size", c.out_split);
  if (c.first_rank >= 0) add(out, "Global rank start", c.first_rank);
  if (c.stride >= 0) add(out, "Global rank stride", c.stride);
  if (c.size >= 0) add(out, "Group size", c.size);
  if (!c.group.empty()) add(out, "Process Group Name", c.group);
  if (!c.description.empty()) add(out, "Process Group Description", c.description);
  if (c.ranks.count > 0) add(out, "Process Group Ranks", c.ranks);
  add(out, "Rank", c.rank);
  // The rank of the other side counts within the group; Kineto wants the global one.
  const bool is_all = c.ranks.count == c.ranks.listed.size();
  if (is_all && c.rank >= 0 && static_cast<uint64_t>(c.rank) < c.ranks.count) {
    if (c.name == "send") add(out, "Dst Rank", c.ranks.listed[static_cast<size_t>(c.rank)]);
    if (c.name == "recv") add(out, "Src Rank", c.ranks.listed[static_cast<size_t>(c.rank)]);
  }
  if (c.is_async < 2) out.append(R"(,"Is asynchronized op":)").append(c.is_async == 1 ? "true" : "false");
  return out;
}

}  // namespace torchprof::formats
