#include "formats/gpu/cpp_name.h"

#include <algorithm>
#include <array>
#include <utility>

namespace torchprof::formats {
namespace {

constexpr std::string_view kCall = "operator()";
constexpr std::string_view kOpen = "(<[{", kClose = ")>]}";

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

}  // namespace

// A '>' ends only the innermost bracket: in "(a > b)" it is none. The others also end what was never ended inside them,
// as after "operator<".
CppName::CppName(std::string_view text) : text_(text), closing_(text.size(), 0) {
  struct Open {
    size_t at;
    size_t kind;  // in kOpen
  };
  std::vector<Open> open;
  std::array<size_t, kOpen.size()> count{};
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.substr(0, i).ends_with("operator") && (text[i] == '<' || text[i] == '>' || text[i] == '-')) {
      while (i + 1 < text.size() && (text[i + 1] == '<' || text[i + 1] == '>' || text[i + 1] == '=')) ++i;
    } else if (const size_t opened = kOpen.find(text[i]); opened < count.size()) {
      open.push_back({i, opened});
      ++count[opened];
    } else if (const size_t closed = kClose.find(text[i]); closed < count.size() && count[closed] != 0) {
      if (text[i] == '>' && text[open.back().at] != '<') continue;
      for (bool is_found = false; !is_found; open.pop_back()) {
        --count[open.back().kind];
        is_found = open.back().kind == closed;
        if (is_found) closing_[open.back().at] = static_cast<uint32_t>(i);
      }
    }
  }
}

size_t CppName::past(std::string_view piece, size_t open) const { return open + inside(piece, open).second; }

std::pair<std::string_view, size_t> CppName::inside(std::string_view piece, size_t open) const {
  const size_t begin = static_cast<size_t>(piece.data() - text_.data()) + open, end = closing_[begin];
  if (end == 0 || end >= begin + piece.size() - open) return {piece.substr(open + 1), piece.size() - open};
  return {piece.substr(open + 1, end - begin - 1), end - begin + 1};
}

std::vector<CppName::Part> CppName::path(std::string_view piece) const {
  std::vector<Part> parts;
  Part part;
  for (size_t i = 0; i < piece.size();) {
    if (piece.substr(i).starts_with("::")) {
      parts.push_back(std::exchange(part, {}));
      i += 2;
    } else if (piece[i] == ' ' && !part.name.empty()) {
      // Words behind a name qualify it: "const", "[clone .kd]". A name before another name is a type.
      const std::string_view rest = piece.substr(i + 1);
      if (rest.starts_with('[')) {
        i = past(piece, i + 1);
      } else if (part.name == "operator") {
        ++i;
      } else if (rest.empty() || rest.starts_with("const")) {
        i = std::min(piece.find_first_of(" :", i + 1), piece.size());
      } else {
        parts.clear();
        part = {};
      }
    } else if (kOpen.find(piece[i]) != kOpen.npos) {
      const auto [content, length] = inside(piece, i);
      if (part.name.empty())
        part.name = piece.substr(i, length);
      else if (part.name == "operator" && content.empty())
        part.name = kCall;
      else if (piece[i] == '<')
        part.args = content;
      else if (piece[i] == '(')
        part.params = content;
      i += length;
    } else if (piece[i] == '*' || piece[i] == '&' || piece[i] == ' ') {
      ++i;
    } else {
      // A word, or the number behind a cast: "(int)4".
      const size_t begin = part.name.empty() ? i : static_cast<size_t>(part.name.data() - piece.data());
      i = std::min(piece.find_first_of(" :*&(<[{", i + 1), piece.size());
      if (part.name != kCall && part.args.empty() && part.params.empty()) part.name = piece.substr(begin, i - begin);
    }
  }
  parts.push_back(part);
  return parts;
}

std::vector<std::string_view> CppName::list(std::string_view piece) const {
  std::vector<std::string_view> out;
  size_t begin = 0;
  for (size_t i = 0; i <= piece.size() && out.size() < kMost;) {
    if (i == piece.size() || piece[i] == ',') {
      if (i != 0) out.push_back(trimmed(piece.substr(begin, i - begin)));
      begin = ++i;
    } else {
      i = kOpen.find(piece[i]) == kOpen.npos ? i + 1 : past(piece, i);
    }
  }
  return out;
}

std::vector<std::string_view> CppName::parameters(const Part& lambda) const {
  const size_t open = lambda.is_lambda() ? lambda.name.find('(') : lambda.name.npos;
  return list(open == lambda.name.npos ? lambda.params : inside(lambda.name, open).first);  // LLVM: 'lambda'(float)
}

std::string_view CppName::value(std::string_view piece) const {
  const bool is_bool = piece.starts_with("(bool)");
  if (piece.starts_with('(')) piece.remove_prefix(past(piece, 0));
  if (is_bool) return piece == "0" ? "false" : "true";
  if (piece.empty() || piece.find_first_not_of("-0123456789ul") != piece.npos) return piece;
  return piece.substr(0, piece.find_last_not_of("ul") + 1);
}

bool CppName::Part::is_lambda() const {
  return name.starts_with("{lambda") || name.starts_with("[lambda") || name.starts_with("'lambda");
}

uint32_t CppName::Part::number() const {
  size_t begin = name.rfind('#');
  const bool is_llvm = name.starts_with('\'');  // 'lambda', 'lambda0', 'lambda1'
  if (begin == name.npos) begin = is_llvm ? std::string_view("'lambda").size() - 1 : name.rfind(' ');
  uint32_t number = 0;
  bool has_digits = false;
  for (size_t i = begin + 1; i < name.size() && name[i] >= '0' && name[i] <= '9' && number < 1000; ++i) {
    number = number * 10 + static_cast<uint32_t>(name[i] - '0');
    has_digits = true;
  }
  return is_llvm ? (has_digits ? number + 2 : 1) : number;
}

namespace {

using NamedType = std::pair<std::string_view, std::string_view>;

// Without namespaces. CUDA's float2 is the type of complex numbers in cuBLAS.
constexpr std::array kElementTypes{
    NamedType{"float", "fp32"},
    NamedType{"double", "fp64"},
    NamedType{"BFloat16", "bf16"},
    NamedType{"Half", "fp16"},
    NamedType{"__nv_bfloat16", "bf16"},
    NamedType{"nv_bfloat16", "bf16"},
    NamedType{"bfloat16_t", "bf16"},
    NamedType{"__hip_bfloat16", "bf16"},
    NamedType{"__half", "fp16"},
    NamedType{"half", "fp16"},
    NamedType{"half_t", "fp16"},
    NamedType{"__nv_bfloat162", "bf16x2"},
    NamedType{"__half2", "fp16x2"},
    NamedType{"half2", "fp16x2"},
    NamedType{"tfloat32_t", "tf32"},
    NamedType{"Float8_e4m3fn", "fp8e4m3"},
    NamedType{"Float8_e5m2", "fp8e5m2"},
    NamedType{"Float8_e4m3fnuz", "fp8e4m3fnuz"},
    NamedType{"Float8_e5m2fnuz", "fp8e5m2fnuz"},
    NamedType{"Float8_e8m0fnu", "fp8e8m0"},
    NamedType{"__nv_fp8_e4m3", "fp8e4m3"},
    NamedType{"__nv_fp8_e5m2", "fp8e5m2"},
    NamedType{"float_e4m3_t", "fp8e4m3"},
    NamedType{"float_e5m2_t", "fp8e5m2"},
    NamedType{"float_ue8m0_t", "fp8e8m0"},
    NamedType{"float_e2m1_t", "fp4e2m1"},
    NamedType{"__nv_fp4_e2m1", "fp4e2m1"},
    NamedType{"Float4_e2m1fn_x2", "fp4e2m1"},
    NamedType{"complex<float>", "complex64"},
    NamedType{"complex<double>", "complex128"},
    NamedType{"complex<c10::Half>", "complex32"},
    NamedType{"float2", "complex64"},
    NamedType{"double2", "complex128"},
    NamedType{"cuComplex", "complex64"},
    NamedType{"cuDoubleComplex", "complex128"},
    NamedType{"bool", "bool"},
    NamedType{"signed char", "int8"},
    NamedType{"unsigned char", "uint8"},
    NamedType{"short", "int16"},
    NamedType{"unsigned short", "uint16"},
    NamedType{"int", "int32"},
    NamedType{"unsigned int", "uint32"},
    NamedType{"unsigned", "uint32"},
    NamedType{"long", "int64"},
    NamedType{"unsigned long", "uint64"},
    NamedType{"long long", "int64"},
    NamedType{"unsigned long long", "uint64"},
    NamedType{"int8_t", "int8"},
    NamedType{"uint8_t", "uint8"},
    NamedType{"int16_t", "int16"},
    NamedType{"uint16_t", "uint16"},
    NamedType{"int32_t", "int32"},
    NamedType{"uint32_t", "uint32"},
    NamedType{"int64_t", "int64"},
    NamedType{"uint64_t", "uint64"},
    NamedType{"OpaqueType<1>", "1B"},
    NamedType{"OpaqueType<2>", "2B"},
    NamedType{"OpaqueType<4>", "4B"},
    NamedType{"OpaqueType<8>", "8B"},
    NamedType{"OpaqueType<16>", "16B"},
};

constexpr size_t kLongestType = 40;

}  // namespace

std::string_view element_type(std::string_view type) {
  for (bool is_changed = true; std::exchange(is_changed, false);) {
    const auto drop = [&](std::string_view front, std::string_view back) {
      if (!type.starts_with(front) || !type.ends_with(back) || type.size() <= front.size() + back.size()) return;
      type = type.substr(front.size(), type.size() - front.size() - back.size());
      is_changed = true;
    };
    for (const std::string_view front : {"const ", "volatile ", " "}) drop(front, "");
    for (const std::string_view back : {" const", "*", "&", " __restrict__", " "}) drop("", back);
  }
  constexpr std::string_view kUnnamed = "<unnamed>::";  // nsys
  if (const size_t unnamed = type.rfind(kUnnamed); unnamed != type.npos) type.remove_prefix(unnamed + kUnnamed.size());
  const size_t scope = type.rfind("::", type.find('<'));
  if (scope != type.npos) type.remove_prefix(scope + 2);
  if (type.size() > kLongestType) return {};
  // "OpaqueType<4u>" and "OpaqueType<(unsigned int)4>" are one type.
  std::string plain(type);
  if (const size_t cast = plain.find('('); cast != plain.npos) plain.erase(cast, plain.find(')', cast) + 1 - cast);
  if (plain.ends_with("u>")) plain.erase(plain.size() - 2, 1);
  const auto found = std::ranges::find(kElementTypes, std::string_view(plain), &NamedType::first);
  return found == kElementTypes.end() ? std::string_view{} : found->second;
}

bool is_floating(std::string_view type) {
  return type.starts_with("fp") || type.starts_with("bf") || type.starts_with("tf") || type.starts_with("complex");
}

}  // namespace torchprof::formats
