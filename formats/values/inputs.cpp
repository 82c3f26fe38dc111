#include "formats/values/inputs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <utility>

#include "formats/io/text.h"

namespace torchprof::formats {
namespace {

constexpr size_t kMaxListText = 30;  // Kineto's SCALAR_LIST_LENGTH_LIMIT

class Decoder {
 public:
  explicit Decoder(std::string_view bytes) : in_(bytes) {}

  bool next(Input& input) {
    input = {};
    if (in_.done() || in_.peek() == 'K') return false;
    const char tag = static_cast<char>(in_.byte());
    if (tag == '+') {
      is_cut_ = true;
      return false;
    }
    if (tag == '(' || tag == '[' || tag == 'O') {
      list(input, tag);
    } else {
      single(input, tag);
    }
    return !in_.failed();
  }
  bool is_cut() const { return is_cut_; }

  // After next() has returned false.
  bool next_keyword(KeywordInput& keyword) {
    keyword = {};
    if (in_.done() || in_.byte() != 'K') return false;
    keyword.name = in_.text();
    const char tag = static_cast<char>(in_.byte());
    if (tag == '(' || tag == 'O') {
      Input input;
      list(input, tag);
    } else if (tag == '[') {
      const uint64_t count = in_.varint();
      keyword.json.assign(1, '[');
      bool is_list_of_strings = true;
      for (uint64_t i = 0; i < count && !in_.failed(); ++i) {
        const char element = static_cast<char>(in_.byte());
        is_list_of_strings = is_list_of_strings && element == 'S';
        keyword.json.append(i > 0 ? "," : "").append(scalar_json(element));
      }
      keyword.json += "]";
      if (!is_list_of_strings) keyword.json.clear();
    } else {
      keyword.json = scalar_json(tag);
    }
    return !in_.failed();
  }

 private:
  std::string scalar_json(char tag) {
    if (tag == 'S') return json_string(in_.text());
    Input input;
    single(input, tag);
    if (input.kind != Input::Kind::kScalar) return tag == 'N' ? "\"NULL\"" : "";
    if (tag == 'B') return input.text == "True" ? "true" : "false";
    if (tag == 'I') return input.text;
    if (tag != 'D') return json_string(input.text);
    if (input.text.find_first_of("in") != std::string::npos) return json_string(input.text);  // inf, nan
    if (input.text.ends_with('.')) input.text.push_back('0');
    return input.text;
  }

  void single(Input& input, char tag) {
    switch (tag) {
      case 'T':
      case 'X':
        input.kind = Input::Kind::kTensor;
        input.tensors.push_back(in_.tensor(tag == 'T'));
        break;
      case 'U':
        input.kind = Input::Kind::kTensor;
        break;
      case 'I':
        input.kind = Input::Kind::kScalar;
        input.integers.push_back(in_.zigzag());
        input.text = std::to_string(input.integers.back());
        break;
      case 'B':
        input.kind = Input::Kind::kScalar;
        input.integers.push_back(in_.byte() != 0);
        input.text = input.integers.back() != 0 ? "True" : "False";
        break;
      case 'D':
        input.kind = Input::Kind::kScalar;
        input.text = print(in_.number());
        break;
      case 'C': {
        input.kind = Input::Kind::kScalar;
        const double real = in_.number(), imaginary = in_.number();
        input.text = print(real).append(std::signbit(imaginary) ? "" : "+").append(print(imaginary)).append("j");
        break;
      }
      case 'Y':  // only Python could say its text
        input.kind = Input::Kind::kScalar;
        input.text.assign(1, '?');
        break;
      case 'S':
        input.word = in_.text();
        break;
      case 'N':
      case '?':
        break;
      default:
        in_.fail();
    }
  }

  void list(Input& input, char kind) {
    const uint64_t count = in_.varint();
    const bool is_tensors = kind != '[';
    input.kind = kind == '('   ? Input::Kind::kTensorList
                 : kind == 'O' ? Input::Kind::kOptionalTensorList
                               : Input::Kind::kScalarList;
    input.text.assign(1, '[');
    for (uint64_t i = 0; i < count && !in_.failed(); ++i) {
      const char tag = static_cast<char>(in_.byte());
      if (tag == '+') {
        input.left_out = count - i;
        break;
      }
      Input element;
      single(element, tag);
      if (is_tensors) {
        const bool has_sizes = !element.tensors.empty() && element.tensors[0].is_readable;
        if (!has_sizes) input.kind = Input::Kind::kOptionalTensorList;
        if (element.tensors.empty()) element.tensors.emplace_back();
        input.tensors.insert(input.tensors.end(), element.tensors.begin(), element.tensors.end());
      } else if (element.kind != Input::Kind::kScalar) {
        input.kind = Input::Kind::kOther;
      } else if (i < kMaxListText) {
        if (i > 0) input.text += ", ";
        input.text += element.text;
        input.integers.insert(input.integers.end(), element.integers.begin(), element.integers.end());
      }
    }
    input.text += "]";
    if (input.kind != Input::Kind::kScalarList || count > kMaxListText || input.left_out > 0) input.text.clear();
    if (count > kMaxListText && !is_tensors) {
      input.kind = Input::Kind::kOther;
      input.left_out = 0;  // nobody shows any of them
    }
  }

  // As c10::IValue prints a double: 17 digits, and a dot behind a whole number.
  static std::string print(double value) {
    std::array<char, 40> text;
    const bool is_whole = std::isfinite(value) && std::fabs(value) < 1e10 && value == std::trunc(value);
    const int n = is_whole ? std::snprintf(text.data(), text.size(), "%lld.", static_cast<long long>(value))
                           : std::snprintf(text.data(), text.size(), "%.17g", value);
    return {text.data(), static_cast<size_t>(n)};
  }

  EncodedReader in_;
  bool is_cut_ = false;
};

void append_numbers(std::string& out, const std::vector<int64_t>& numbers) {
  out += '[';
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0) out += ',';
    out += std::to_string(numbers[i]);
  }
  out += ']';
}

void append_shapes(std::string& out, const std::vector<Tensor>& tensors, std::vector<int64_t> Tensor::*member) {
  out += '[';
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (i > 0) out += ',';
    append_numbers(out, tensors[i].*member);
  }
  out += ']';
}

// A list for a tensor, a list of lists for a list of tensors, [] for anything else.
void append_shape(std::string& out, const Input& input, std::vector<int64_t> Tensor::*member) {
  if (input.kind == Input::Kind::kTensorList) {
    append_shapes(out, input.tensors, member);
  } else if (input.kind == Input::Kind::kTensor && !input.tensors.empty()) {
    append_numbers(out, input.tensors[0].*member);
  } else {
    out += "[]";
  }
}

std::string_view type_of(const Input& input) {
  switch (input.kind) {
    case Input::Kind::kTensor:
      return input.tensors.empty() || !input.tensors[0].is_readable ? std::string_view{}
                                                                    : type_name(input.tensors[0].type);
    case Input::Kind::kTensorList:
      return "TensorList";
    case Input::Kind::kScalar:
      return "Scalar";
    case Input::Kind::kScalarList:
      return "ScalarList";
    case Input::Kind::kOptionalTensorList:  // torch.profiler gives neither type nor sizes
    case Input::Kind::kOther:
      break;
  }
  return {};
}

struct Decoded {
  std::vector<Input> list{};
  bool is_cut = false;  // more follow
  std::vector<KeywordInput> keywords{};
};

Decoded decode(std::string_view encoded) {
  Decoded inputs;
  Decoder decoder(encoded);
  for (Input input; decoder.next(input);) inputs.list.push_back(std::move(input));
  inputs.is_cut = decoder.is_cut();
  for (KeywordInput keyword; decoder.next_keyword(keyword);) inputs.keywords.push_back(std::move(keyword));
  return inputs;
}

bool has_cut_list(const std::vector<Input>& inputs) {
  return std::ranges::any_of(inputs, [](const Input& input) { return input.left_out > 0; });
}

// Halves the longest lists of tensors; where all are short, the number of inputs. False: nothing is left to shorten.
bool shorten(Decoded& inputs) {
  constexpr size_t kShort = 8;
  size_t longest = 0;
  for (const Input& input : inputs.list) longest = std::max(longest, input.tensors.size());
  if (longest > kShort) {
    for (Input& input : inputs.list) {
      if (input.tensors.size() <= longest / 2) continue;
      input.left_out += input.tensors.size() - longest / 2;
      input.tensors.resize(longest / 2);
    }
    return true;
  }
  if (inputs.list.empty()) return !std::exchange(inputs.keywords, {}).empty();
  inputs.list.resize(inputs.list.size() / 2);
  inputs.is_cut = true;
  return true;
}

std::string json_of(const Decoded& inputs, bool has_lists) {
  std::string out;
  const auto list = [&](std::string_view key, const auto& append) {
    out.append(",\"").append(key).append("\":[");
    for (size_t i = 0; i < inputs.list.size(); ++i) {
      if (i > 0) out += ',';
      append(inputs.list[i]);
    }
    out += ']';
  };
  if (has_lists) {
    list("Input Dims", [&](const Input& input) { append_shape(out, input, &Tensor::sizes); });
    list("Input Strides", [&](const Input& input) { append_shape(out, input, &Tensor::strides); });
    list("Input type", [&](const Input& input) { out += json_string(type_of(input)); });
    list("Concrete Inputs", [&](const Input& input) { out += json_string(input.text); });
    const auto is_optional = [](const Input& input) { return input.kind == Input::Kind::kOptionalTensorList; };
    if (std::ranges::any_of(inputs.list, is_optional)) {
      list("Optional Input Dims", [&](const Input& input) {
        if (is_optional(input))
          append_shapes(out, input.tensors, &Tensor::sizes);
        else
          out += "[]";
      });
    }
    if (inputs.is_cut || has_cut_list(inputs.list)) {
      list("Inputs left out", [&](const Input& input) { out += std::to_string(input.left_out); });
      if (inputs.is_cut) out.insert(out.size() - 1, inputs.list.empty() ? "\"more\"" : ",\"more\"");
    }
  }
  for (const auto& [name, json] : inputs.keywords) {
    if (!json.empty()) out.append(",").append(json_string(name)).append(":").append(json);
  }
  return out;
}

}  // namespace

std::vector<Input> decode_inputs(std::string_view encoded) { return decode(encoded).list; }

bool is_cut(std::string_view encoded) {
  const Decoded inputs = decode(encoded);
  return inputs.is_cut || has_cut_list(inputs.list);
}

std::vector<KeywordInput> decode_keywords(std::string_view encoded) { return decode(encoded).keywords; }

std::string dims_json(std::string_view encoded) {
  const Decoded inputs = decode(encoded);
  std::string out = "[";
  for (const Input& input : inputs.list) {
    if (out.size() > 1) out += ',';
    append_shape(out, input, &Tensor::sizes);
    if (input.left_out > 0 && input.kind == Input::Kind::kTensorList)
      out.insert(out.size() - 1, (input.tensors.empty() ? "\"+" : ",\"+") + std::to_string(input.left_out) + "\"");
  }
  if (inputs.is_cut) out += out.size() > 1 ? ",\"+\"" : "\"+\"";
  return out + "]";
}

std::string inputs_json(std::string_view encoded, size_t most) {
  Decoded inputs = decode(encoded);
  const bool has_lists = !encoded.starts_with('K');
  std::string out = json_of(inputs, has_lists);
  while (out.size() > most && shorten(inputs)) out = json_of(inputs, has_lists);
  return out;
}

}  // namespace torchprof::formats
