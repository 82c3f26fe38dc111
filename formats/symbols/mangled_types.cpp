#include "formats/symbols/mangled_size.h"

#include <algorithm>
#include <utility>

namespace torchprof::formats {
namespace {
constexpr int kMostSteps = 8192;
}

MangledSize NameMeasure::template_parameter() {
  need("T");
  number_and_underscore();
  return {1, 1};
}

MangledSize NameMeasure::template_arguments() {
  if (!eat("I") && !eat("J")) return fail();
  MangledSize size{2};
  while (is_more("E")) size += template_argument();
  return size;
}

MangledSize NameMeasure::template_argument() {
  if (eat("X")) return expressions('E');
  if (peek() == 'L') return literal();
  return is_one_of(peek(), "IJ") ? template_arguments() : type();
}

MangledSize NameMeasure::literal() {
  need("L");
  MangledSize size;
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

bool NameMeasure::is_qualifier() const {
  return is_one_of(peek(), "rVK") || (peek() == 'D' && is_one_of(peek(1), "xoOw"));
}

MangledSize NameMeasure::qualifiers() {
  MangledSize size;
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
MangledSize NameMeasure::types() {
  MangledSize size;
  while (!failed_ && at_ < text_.size() && !is_one_of(peek(), ".E") && !(is_one_of(peek(), "RO") && peek(1) == 'E'))
    size += type();
  return size;
}

MangledSize NameMeasure::function_type() {
  need("F");
  eat("Y");
  eat("J");
  const MangledSize size = types();
  if (is_one_of(peek(), "RO")) ++at_;
  need("E");
  return size;
}

MangledSize NameMeasure::type() {
  if (++steps_ > kMostSteps) return fail();
  MangledSize size{4};
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
MangledSize NameMeasure::of_template_parameter(const MangledSize& parameter) {
  const size_t before = at_, parts = parts_.size();
  if (!is_conversion_) keep(parameter);
  MangledSize size = template_arguments();
  if (is_conversion_ && peek() == 'I') keep(parameter);
  if (!is_conversion_ || peek() == 'I') return size += parameter;
  at_ = failed_ ? at_ : before;
  parts_.resize(parts);
  return parameter;
}

// A pattern stands for as many types as there are in a pack: less than there are bytes in the name.
MangledSize NameMeasure::repeated(const MangledSize& pattern) const {
  return pattern.parameters == 0 ? pattern : pattern.times(text_.size());
}

// But "T_", with or without "R" and the like before it, stands for the whole pack already.
MangledSize NameMeasure::pack_expansion() {
  const size_t begin = at_;
  const MangledSize pattern = type();
  const std::string_view text = text_.substr(begin, at_ - begin);
  const size_t parameter = text.find_first_not_of("rVKPRO");
  const bool is_plain = parameter != text.npos && text[parameter] == 'T' && text.find('_') == text.size() - 1;
  return is_plain ? pattern : repeated(pattern);
}

// All expressions up to `end`, which is read too. How they are nested makes no difference, but a pattern may be all
// of them.
MangledSize NameMeasure::expressions(char end) {
  const bool was_expression = std::exchange(is_expression_, true);
  MangledSize size{2};
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
      if (!eat("_")) copies = MangledSize::product(copies, 2);  // it is looked at twice
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

}  // namespace torchprof::formats
