#include "formats/io/demangle.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace torchprof::formats {
namespace {

constexpr uint64_t kTooMuch = uint64_t{1} << 40;

uint64_t sum(uint64_t a, uint64_t b) { return std::min(a + b, kTooMuch); }
uint64_t product(uint64_t a, uint64_t b) { return b != 0 && a > kTooMuch / b ? kTooMuch : a * b; }

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_one_of(char c, std::string_view set) { return set.find(c) != set.npos; }

// How much a part of a name is when it is written out: `own`, and `parameters` times the template arguments that its
// "T_" stand for.
struct Size {
  uint64_t own = 0;
  uint64_t parameters = 0;

  Size& operator+=(const Size& other) {
    own = sum(own, other.own);
    parameters = sum(parameters, other.parameters);
    return *this;
  }
  Size times(uint64_t count) const { return {product(own, count), product(parameters, count)}; }
};

// Reads a mangled name only to know its size: about a step of a demangler for each thing it writes out. The grammar is
// that of https://itanium-cxx-abi.github.io/cxx-abi/abi.html#mangling as libstdc++'s demangler reads it; each function
// reads one rule. A part that later ones can refer to ("S_") is kept. What does not fit the grammar is no mangled name:
// on some such texts libstdc++ 12 never ends ("_Z1fIiEv1AIXsr1aDpiEE").
class Measure {
 public:
  explicit Measure(std::string_view name) : text_(name) {}

  // Nothing: it is no mangled name.
  std::optional<uint64_t> run() {
    need("_Z");
    const Size size = encoding();
    if (failed_ || (at_ < text_.size() && peek() != '.')) return {};
    return sum(size.own, size.parameters);
  }

 private:
  static constexpr int kMostSteps = 8192;

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
  Size fail() {
    failed_ = true;
    at_ = text_.size();
    return {};
  }
  bool is_more(std::string_view end) { return !failed_ && !eat(end); }
  void keep(const Size& size) { parts_.push_back(size); }

  uint64_t number() {
    eat("n");
    uint64_t value = 0;
    for (; is_digit(peek()); ++at_) value = sum(product(value, 10), static_cast<uint64_t>(peek() - '0'));
    return value;
  }
  void number_and_underscore() {
    number();
    need("_");
  }
  void discriminator() {
    if (!eat("_")) return;
    const bool is_long = eat("_");
    if (number() >= 10 && is_long) need("_");
  }

  Size source_name() {
    const uint64_t length = is_digit(peek()) ? number() : 0;
    if (length == 0 || length > text_.size() - at_) return fail();
    at_ += length;
    last_name_ = length;
    return {length};
  }

  // A function with its parameters, or data. The "T_" in it are the template arguments that end its name.
  Size encoding() {
    if (peek() == 'T' || peek() == 'G') return special_name();
    Size size = name(false);
    const Size arguments = arguments_ ? *arguments_ : Size{0, 1};
    if (!is_one_of(peek(), ".E") && at_ < text_.size()) {
      eat("J");
      size += types();
    }
    size.own = sum(size.own, product(size.parameters, arguments.own));
    size.parameters = product(size.parameters, arguments.parameters);
    return size;
  }

  // Tables, thunks and guards.
  Size special_name() {
    for (const std::string_view of_type : {"TV", "TT", "TI", "TS", "TF", "TJ"})
      if (eat(of_type)) return type();
    for (const std::string_view of_name : {"TH", "TW", "GV"})
      if (eat(of_name)) return name(false);
    for (const std::string_view of_encoding : {"GTt", "GTn", "GA"})
      if (eat(of_encoding)) return encoding();
    if (eat("TA")) return template_argument();
    if (eat("GR")) {
      const Size size = name(false);
      number();
      eat("_");
      return size;
    }
    if (eat("TC")) {
      Size size = type();
      number_and_underscore();
      return size += type();
    }
    const bool has_two = eat("Tc");
    if (!has_two) need("T");
    call_offset();
    if (has_two) call_offset();
    return encoding();
  }
  void call_offset() {
    const bool is_virtual = eat("v");
    if (!is_virtual) need("h");
    number_and_underscore();
    if (is_virtual) number_and_underscore();
  }

  // Sets arguments_.
  Size name(bool is_type) {
    Size size;
    bool is_reference = false;
    if (peek() == 'N') {
      size = nested_name();
    } else if (peek() == 'Z') {
      size = local_name();
    } else {
      is_reference = peek() == 'S' && peek(1) != 't';
      if (is_reference) {
        size = reference();
      } else {
        if (eat("St")) size += {5};
        size += unqualified_name();
      }
      arguments_.reset();
      if (peek() == 'I') {
        if (!is_reference) keep(size);
        is_reference = false;
        size += *(arguments_ = template_arguments());
      }
    }
    if (is_type && !is_reference) keep(size);
    return size;
  }

  Size nested_name() {
    need("N");
    Size size = qualifiers();
    if (is_one_of(peek(), "RO")) ++at_;
    size += prefix(true);
    need("E");
    return size;
  }

  // Up to an "E". Sets arguments_.
  Size prefix(bool is_kept) {
    Size size;
    for (bool is_first = true; !failed_; is_first = false) {
      std::optional<Size> arguments;
      if (eat("M")) continue;
      if (is_first && peek() == 'S') {
        size = reference();
        continue;
      }
      if (is_next("Dt") || is_next("DT"))
        size += type();
      else if (peek() == 'T')
        size += template_parameter();
      else if (peek() == 'I')
        size += *(arguments = template_arguments());
      else
        size += unqualified_name();
      arguments_ = arguments;
      if (peek() == 'E') break;
      if (is_kept) keep(size);
    }
    return size;
  }

  // What is in a function. Sets arguments_.
  Size local_name() {
    need("Z");
    Size size = encoding();
    need("E");
    if (eat("s")) {
      arguments_.reset();
    } else {
      if (eat("d")) number_and_underscore();
      size += name(false);
    }
    discriminator();
    return size;
  }

  Size unqualified_name() {
    Size size{2};
    if (is_digit(peek())) {
      size += source_name();
    } else if (is_lower(peek())) {
      const bool was_expression = is_expression_;
      if (eat("on")) is_expression_ = false;
      size += operator_name();
      is_expression_ = was_expression;
    } else if (eat("DC")) {
      while (is_more("E")) size += source_name();
    } else if (peek() == 'C' || peek() == 'D') {
      const bool is_constructor = eat("C"), is_inheriting = is_constructor && eat("I");
      if (!is_constructor) ++at_;
      if (!is_one_of(peek(), is_constructor ? "12345" : "01245")) return fail();
      ++at_;
      size += {last_name_};
      if (is_inheriting) size += type();
    } else if (eat("L")) {
      size += source_name();
      discriminator();
    } else if (eat("Ul")) {
      size += template_head();
      size += types();
      need("E");
      number_and_underscore();
    } else if (eat("Ut")) {
      number_and_underscore();
      keep(size);
    } else {
      return fail();
    }
    while (eat("B")) size += source_name();
    return size;
  }

  // The template parameters of a lambda.
  Size template_head() {
    Size size;
    while (peek() == 'T' && is_lower(peek(1))) {
      eat("Tp");
      if (eat("Tn")) {
        size += type();
      } else if (eat("Tt")) {
        size += template_head();
        need("E");
      } else {
        need("Ty");
      }
    }
    return size;
  }

  Size operator_name() {
    if (eat("cv")) {
      const bool was_conversion = std::exchange(is_conversion_, !is_expression_);
      const Size size = type();
      is_conversion_ = was_conversion;
      return size;
    }
    if (eat("li")) return source_name();
    const bool has_name = peek() == 'v' && is_digit(peek(1));
    if (text_.size() - at_ < 2) return fail();
    at_ += 2;
    return has_name ? source_name() : Size{2};
  }

  // "S_" is the first part that was kept, "S0_" the next. "Sa" and a few others stand for names in std.
  Size reference() {
    need("S");
    if (is_one_of(peek(), "tabsiod")) {
      ++at_;
      Size size{last_name_ = 12};
      if (peek() != 'B') return size;
      while (eat("B")) size += source_name();
      keep(size);
      return size;
    }
    uint64_t index = 0;
    if (peek() != '_') {
      for (; is_digit(peek()) || is_one_of(peek(), "ABCDEFGHIJKLMNOPQRSTUVWXYZ"); ++at_)
        index = sum(product(index, 36), static_cast<uint64_t>(is_digit(peek()) ? peek() - '0' : peek() - 'A' + 10));
      ++index;
    }
    need("_");
    return index < parts_.size() ? parts_[index] : fail();
  }

  Size template_parameter() {
    need("T");
    number_and_underscore();
    return {1, 1};
  }

  Size template_arguments() {
    if (!eat("I") && !eat("J")) return fail();
    Size size{2};
    while (is_more("E")) size += template_argument();
    return size;
  }
  Size template_argument() {
    if (eat("X")) return expressions('E');
    if (peek() == 'L') return literal();
    return is_one_of(peek(), "IJ") ? template_arguments() : type();
  }

  Size literal() {
    need("L");
    Size size;
    if (eat("_Z") || eat("Z")) {
      size = encoding();
    } else {
      size = type();
      const size_t end = std::min(text_.find('E', at_), text_.size());
      size += {end - at_};
      at_ = end;
    }
    need("E");
    return size;
  }

  bool is_qualifier() const { return is_one_of(peek(), "rVK") || (peek() == 'D' && is_one_of(peek(1), "xoOw")); }
  Size qualifiers() {
    Size size;
    for (; !failed_ && is_qualifier(); size += {8}) {
      if (eat("DO")) {
        size += expressions('E');
      } else if (eat("Dw")) {
        size += types();
        need("E");
      } else {
        at_ += peek() == 'D' ? 2 : 1;
      }
    }
    return size;
  }

  // Parameters, and the type of a result.
  Size types() {
    Size size;
    while (!failed_ && at_ < text_.size() && !is_one_of(peek(), ".E") && !(is_one_of(peek(), "RO") && peek(1) == 'E'))
      size += type();
    return size;
  }

  Size function_type() {
    need("F");
    eat("Y");
    eat("J");
    const Size size = types();
    if (is_one_of(peek(), "RO")) ++at_;
    need("E");
    return size;
  }

  Size type() {
    if (++steps_ > kMostSteps) return fail();
    Size size{4};
    if (is_qualifier()) {
      size += qualifiers();
      size += peek() == 'F' ? function_type() : type();
    } else if (is_one_of(peek(), "abcdefghijlmnostvwxyz")) {
      ++at_;
      return size;
    } else if (eat("u")) {
      size += source_name();
    } else if (peek() == 'F') {
      size += function_type();
    } else if (eat("A")) {
      if (is_digit(peek()))
        number_and_underscore();
      else
        size += expressions('_');
      size += type();
    } else if (eat("M")) {
      size += type();
      size += type();
    } else if (peek() == 'T') {
      size += template_parameter();
      if (peek() == 'I') size = of_template_parameter(size);
    } else if (is_one_of(peek(), "OPRCG")) {
      ++at_;
      size += type();
    } else if (eat("U")) {
      size += source_name();
      if (peek() == 'I') size += template_arguments();
      size += type();
    } else if (eat("Dt") || eat("DT")) {
      size += expressions('E');
    } else if (eat("Dp")) {
      size += pack_expansion();
    } else if (eat("Dv")) {
      if (eat("_"))
        size += expressions('_');
      else
        number_and_underscore();
      size += type();
    } else if (eat("DF")) {
      number();
      if (!eat("x") && !eat("b")) need("_");
      return size;
    } else if (peek() == 'D') {
      if (!is_one_of(peek(1), "acdefhinsu")) return fail();
      at_ += 2;
      return size;
    } else {
      return name(true);
    }
    keep(size);
    return size;
  }

  // Template arguments after "T_" belong to it, but in a conversion to "T_" only if others follow.
  Size of_template_parameter(const Size& parameter) {
    const size_t before = at_, parts = parts_.size();
    if (!is_conversion_) keep(parameter);
    Size size = template_arguments();
    if (is_conversion_ && peek() == 'I') keep(parameter);
    if (!is_conversion_ || peek() == 'I') return size += parameter;
    at_ = failed_ ? at_ : before;
    parts_.resize(parts);
    return parameter;
  }

  // A pattern stands for as many types as there are in a pack: less than there are bytes in the name.
  Size repeated(const Size& pattern) const { return pattern.parameters == 0 ? pattern : pattern.times(text_.size()); }
  // But "T_", with or without "R" and the like before it, stands for the whole pack already.
  Size pack_expansion() {
    const size_t begin = at_;
    const Size pattern = type();
    const std::string_view text = text_.substr(begin, at_ - begin);
    const size_t parameter = text.find_first_not_of("rVKPRO");
    const bool is_plain = parameter != text.npos && text[parameter] == 'T' && text.find('_') == text.size() - 1;
    return is_plain ? pattern : repeated(pattern);
  }

  // All expressions up to `end`, which is read too. How they are nested makes no difference, but a pattern may be all
  // of them.
  Size expressions(char end) {
    const bool was_expression = std::exchange(is_expression_, true);
    Size size{2};
    int patterns = 0;
    uint64_t copies = 1;
    while (is_more({&end, 1})) {
      if (peek() == 'L') {
        size += literal();
      } else if (peek() == 'T') {
        size += template_parameter();
      } else if (eat("sr")) {
        size += unresolved_name();
      } else if (eat("sp")) {
        patterns += peek() == 'T' ? 0 : 1;
      } else if (eat("fl") || eat("fr") || eat("fL") || eat("fR")) {
        size += operator_name();
        ++patterns;
      } else if (eat("fp")) {
        if (!eat("T")) number_and_underscore();
        size += {4};
      } else if (is_digit(peek()) || is_next("on")) {
        size += unqualified_name();
        if (peek() == 'I') size += template_arguments();
      } else if (eat("il") || eat("cl")) {
        size += expressions('E');
      } else if (eat("tl")) {
        size += type();
        size += expressions('E');
      } else if (eat("u")) {
        size += source_name();
        while (is_more("E")) size += template_argument();
      } else if (eat("sP")) {
        while (is_more("E")) size += template_argument();
      } else if (is_next("cv")) {
        size += operator_name();
        if (eat("_")) size += expressions('E');
      } else if (eat("st") || eat("sc") || eat("dc") || eat("cc") || eat("rc")) {
        size += type();
      } else if (eat("nw") || eat("na")) {
        size += expressions('_');
        size += type();
        if (!eat("E") && eat("pi")) size += expressions('E');
      } else if (eat("pp") || eat("mm")) {
        if (!eat("_")) copies = product(copies, 2);  // it is looked at twice
      } else if (is_lower(peek())) {
        size += operator_name();
      } else {
        return fail();
      }
    }
    is_expression_ = was_expression;
    size = size.times(copies);
    for (; patterns > 0; --patterns) size = repeated(size);
    return size;
  }

  // A name in something that depends on template arguments.
  Size unresolved_name() {
    Size size;
    if (is_digit(peek()) || is_lower(peek()) || is_one_of(peek(), "CUL")) {
      size = prefix(false);
      eat("E");
    } else {
      size = type();
    }
    size += unqualified_name();
    if (peek() == 'I') size += template_arguments();
    return size;
  }

  std::string_view text_;
  size_t at_ = 0;
  bool failed_ = false;
  int steps_ = 0;
  bool is_expression_ = false;
  bool is_conversion_ = false;
  std::vector<Size> parts_;
  std::optional<Size> arguments_;  // template arguments that end the name that was read last
  uint64_t last_name_ = 0;
};

}  // namespace

std::string demangle(std::string name) {
  constexpr size_t kLongest = 1024;  // libstdc++ does not take longer ones
  constexpr uint64_t kLargest = uint64_t{1} << 20;
  if (!name.starts_with("_Z") || name.size() > kLongest || name.find('\0') != name.npos) return name;
  const std::optional<uint64_t> size = Measure(name).run();
  if (!size || *size > kLargest) return name;
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status),
                                                    std::free);
  return status == 0 && text ? text.get() : name;
}

}  // namespace torchprof::formats
