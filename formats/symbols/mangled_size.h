// How much a mangled C++ name is when it is written out, without writing it out: about a step of a demangler for each
// thing in it.
//
// The grammar is that of https://itanium-cxx-abi.github.io/cxx-abi/abi.html#mangling as libstdc++'s demangler reads it;
// each function reads one rule. A part that later ones can refer to ("S_") is kept. What does not fit the grammar is no
// mangled name: on some such texts libstdc++ 12 never ends ("_Z1fIiEv1AIXsr1aDpiEE").
//
// Takes time linear in the length of the name. For demangle.cpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "formats/io/ascii.h"

namespace torchprof::formats {

// Of a part of a name: `own`, and `parameters` times the template arguments that its "T_" stand for. Sums and products
// end at kTooMuch.
struct MangledSize {
  static constexpr uint64_t kTooMuch = uint64_t{1} << 40;
  static uint64_t sum(uint64_t a, uint64_t b) { return std::min(a + b, kTooMuch); }
  static uint64_t product(uint64_t a, uint64_t b) { return b != 0 && a > kTooMuch / b ? kTooMuch : a * b; }

  uint64_t own = 0;
  uint64_t parameters = 0;

  MangledSize& operator+=(const MangledSize& other) {
    own = sum(own, other.own);
    parameters = sum(parameters, other.parameters);
    return *this;
  }
  MangledSize times(uint64_t count) const { return {product(own, count), product(parameters, count)}; }
};

class NameMeasure {
 public:
  explicit NameMeasure(std::string_view name) : text_(name) {}

  // Once. Nothing: it is no mangled name.
  std::optional<uint64_t> run() {
    need("_Z");
    const MangledSize size = encoding();
    if (failed_ || (at_ < text_.size() && peek() != '.')) return {};
    return MangledSize::sum(size.own, size.parameters);
  }

 private:
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  bool is_next(std::string_view what) const { return text_.substr(at_, what.size()) == what; }
  bool eat(std::string_view what) {
    const bool is_there = is_next(what);
    if (is_there) at_ += what.size();
    return is_there;
  }
  void need(std::string_view what) {
    if (!eat(what)) fail();
  }
  MangledSize fail() {
    failed_ = true;
    at_ = text_.size();
    return {};
  }
  bool is_more(std::string_view end) { return !failed_ && !eat(end); }
  void keep(const MangledSize& size) { parts_.push_back(size); }

  static bool is_one_of(char c, std::string_view set) { return set.find(c) != set.npos; }

  // mangled_names.cpp
  uint64_t number();
  void number_and_underscore();
  void discriminator();
  MangledSize source_name();
  MangledSize encoding();
  MangledSize special_name();
  void call_offset();
  MangledSize name(bool is_type);
  MangledSize nested_name();
  MangledSize prefix(bool is_kept);
  MangledSize local_name();
  MangledSize unqualified_name();
  MangledSize template_head();
  MangledSize operator_name();
  MangledSize reference();
  MangledSize unresolved_name();

  // mangled_types.cpp
  MangledSize template_parameter();
  MangledSize template_arguments();
  MangledSize template_argument();
  MangledSize literal();
  bool is_qualifier() const;
  MangledSize qualifiers();
  MangledSize types();
  MangledSize function_type();
  MangledSize type();
  MangledSize of_template_parameter(const MangledSize& parameter);
  MangledSize repeated(const MangledSize& pattern) const;
  MangledSize pack_expansion();
  MangledSize expressions(char end);

  std::string_view text_;
  size_t at_ = 0;
  bool failed_ = false;
  int steps_ = 0;
  bool is_expression_ = false;
  bool is_conversion_ = false;
  std::vector<MangledSize> parts_;
  std::optional<MangledSize> arguments_;  // template arguments that end the name that was read last
  uint64_t last_name_ = 0;
};

}  // namespace torchprof::formats
