#include "formats/trace/nvtx.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "formats/io/text.h"

namespace torchprof::formats {
namespace {

constexpr size_t kMaxName = 500;  // bytes of JSON; \u0000 takes six
static_assert(size_t{2} * 6 * kMaxName + 200 < kMaxNvtxBytes);

template <class T>
std::string number_text(T value) {
  char text[64];
  return {text, std::to_chars(text, std::end(text), value).ptr};
}

template <class T>
std::string real(T value) {
  if (std::isnan(value)) return "\"nan\"";
  if (std::isinf(value)) return value > 0 ? "\"inf\"" : "\"-inf\"";
  return number_text(value);
}

std::string payload_json(const NvtxAttributes& a) {
  const auto low = static_cast<uint32_t>(a.payload);
  switch (a.payload_type) {
    case NvtxPayload::kUint64:
      return number_text(a.payload);
    case NvtxPayload::kInt64:
      return number_text(static_cast<int64_t>(a.payload));
    case NvtxPayload::kDouble:
      return real(std::bit_cast<double>(a.payload));
    case NvtxPayload::kUint32:
      return number_text(low);
    case NvtxPayload::kInt32:
      return number_text(static_cast<int32_t>(low));
    case NvtxPayload::kFloat:
      return real(std::bit_cast<float>(low));
    case NvtxPayload::kNone:
      break;
  }
  return {};
}

}  // namespace

NvtxAttributes NvtxRanges::take(uint64_t key) {
  const auto it = open_.find(key);
  if (it == open_.end()) return {};
  const NvtxAttributes attributes = it->second;
  open_.erase(it);
  return attributes;
}

std::string nvtx_json(const Process& process, const NvtxAttributes& a) {
  const auto name = [&process](StringId id) { return json_string(process.string(id).substr(0, kMaxName)); };
  std::string out = R"(,"NVTX domain":)";
  out += a.domain ? name(a.domain) : "\"default\"";
  if (a.category != 0)
    out.append(R"(,"NVTX category":)").append(a.category_name ? name(a.category_name) : number_text(a.category));
  if (const std::string payload = payload_json(a); !payload.empty()) out.append(R"(,"NVTX payload":)").append(payload);
  if (a.has_color != 0) {
    char color[16];
    std::snprintf(color, sizeof(color), "#%08x", a.color);
    out.append(R"(,"NVTX color":")").append(color).append("\"");
  }
  return out;
}

}  // namespace torchprof::formats
