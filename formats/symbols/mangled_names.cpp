#include "formats/symbols/mangled_size.h"

#include <utility>

namespace torchprof::formats {

uint64_t NameMeasure::number() {
  eat("n");
  uint64_t value = 0;
  for (; is_digit(peek()); ++at_)
    value = MangledSize::sum(MangledSize::product(value, 10), static_cast<uint64_t>(peek() - '0'));
  return value;
}

void NameMeasure::number_and_underscore() {
  number();
  need("_");
}

void NameMeasure::discriminator() {
  if (!eat("_")) return;
  const bool is_long = eat("_");
  if (number() >= 10 && is_long) need("_");
}

MangledSize NameMeasure::source_name() {
  const uint64_t length = is_digit(peek()) ? number() : 0;
  if (length == 0 || length > text_.size() - at_) return fail();
  at_ += length;
  last_name_ = length;
  return {length};
}

// A function with its parameters, or data. The "T_" in it are the template arguments that end its name.
MangledSize NameMeasure::encoding() {
  if (peek() == 'T' || peek() == 'G') return special_name();
  MangledSize size = name(false);
  const MangledSize arguments = arguments_ ? *arguments_ : MangledSize{0, 1};
  if (!is_one_of(peek(), ".E") && at_ < text_.size()) {
    eat("J");
    size += types();
  }
  size.own = MangledSize::sum(size.own, MangledSize::product(size.parameters, arguments.own));
  size.parameters = MangledSize::product(size.parameters, arguments.parameters);
  return size;
}

// Tables, thunks and guards.
MangledSize NameMeasure::special_name() {
  for (const std::string_view of_type : {"TV", "TT", "TI", "TS", "TF", "TJ"})
    if (eat(of_type)) return type();
  for (const std::string_view of_name : {"TH", "TW", "GV"})
    if (eat(of_name)) return name(false);
  for (const std::string_view of_encoding : {"GTt", "GTn", "GA"})
    if (eat(of_encoding)) return encoding();
  if (eat("TA")) return template_argument();
  if (eat("GR")) {
    const MangledSize size = name(false);
    number();
    eat("_");
    return size;
  }
  if (eat("TC")) {
    MangledSize size = type();
    number_and_underscore();
    return size += type();
  }
  const bool has_two = eat("Tc");
  if (!has_two) need("T");
  call_offset();
  if (has_two) call_offset();
  return encoding();
}

void NameMeasure::call_offset() {
  const bool is_virtual = eat("v");
  if (!is_virtual) need("h");
  number_and_underscore();
  if (is_virtual) number_and_underscore();
}

// Sets arguments_.
MangledSize NameMeasure::name(bool is_type) {
  MangledSize size;
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

MangledSize NameMeasure::nested_name() {
  need("N");
  MangledSize size = qualifiers();
  if (is_one_of(peek(), "RO")) ++at_;
  size += prefix(true);
  need("E");
  return size;
}

// Up to an "E". Sets arguments_.
MangledSize NameMeasure::prefix(bool is_kept) {
  MangledSize size;
  for (bool is_first = true; !failed_; is_first = false) {
    std::optional<MangledSize> arguments;
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
MangledSize NameMeasure::local_name() {
  need("Z");
  MangledSize size = encoding();
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

MangledSize NameMeasure::unqualified_name() {
  MangledSize size{2};
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
MangledSize NameMeasure::template_head() {
  MangledSize size;
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

MangledSize NameMeasure::operator_name() {
  if (eat("cv")) {
    const bool was_conversion = std::exchange(is_conversion_, !is_expression_);
    const MangledSize size = type();
    is_conversion_ = was_conversion;
    return size;
  }
  if (eat("li")) return source_name();
  const bool has_name = peek() == 'v' && is_digit(peek(1));
  if (text_.size() - at_ < 2) return fail();
  at_ += 2;
  return has_name ? source_name() : MangledSize{2};
}

// "S_" is the first part that was kept, "S0_" the next. "Sa" and a few others stand for names in std.
MangledSize NameMeasure::reference() {
  need("S");
  if (is_one_of(peek(), "tabsiod")) {
    ++at_;
    MangledSize size{last_name_ = 12};
    if (peek() != 'B') return size;
    while (eat("B")) size += source_name();
    keep(size);
    return size;
  }
  uint64_t index = 0;
  if (peek() != '_') {
    for (; is_digit(peek()) || is_one_of(peek(), "ABCDEFGHIJKLMNOPQRSTUVWXYZ"); ++at_)
      index = MangledSize::sum(MangledSize::product(index, 36),
                               static_cast<uint64_t>(is_digit(peek()) ? peek() - '0' : peek() - 'A' + 10));
    ++index;
  }
  need("_");
  return index < parts_.size() ? parts_[index] : fail();
}

// A name in something that depends on template arguments.
MangledSize NameMeasure::unresolved_name() {
  MangledSize size;
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

}  // namespace torchprof::formats
