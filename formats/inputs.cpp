#include "formats/inputs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "formats/text.h"

namespace torchprof::formats {
namespace {

constexpr size_t kMaxListText = 30;  // Kineto's SCALAR_LIST_LENGTH_LIMIT

// c10::ScalarType, which only ever grows at its end: c10/core/ScalarType.h, torch 1.13 to 2.14.
constexpr std::array<std::string_view, 29> kTypeNames = {
    "unsigned char",
    "signed char",
    "short int",
    "int",
    "long int",
    "c10::Half",
    "float",
    "double",
    "c10::complex<c10::Half>",
    "c10::complex<float>",
    "c10::complex<double>",
    "bool",
    "c10::qint8",
    "c10::quint8",
    "c10::qint32",
    "c10::BFloat16",
    "c10::quint4x2",
    "c10::quint2x4",
    "c10::bits1x8",
    "c10::bits2x4",
    "c10::bits4x2",
    "c10::bits8",
    "c10::bits16",
    "c10::Float8_e5m2",
    "c10::Float8_e4m3fn",
    "c10::Float8_e5m2fnuz",
    "c10::Float8_e4m3fnuz",
    "short unsigned int",
    "unsigned int",
};

class Decoder {
 public:
  explicit Decoder(std::string_view bytes) : bytes_(bytes) {}

  bool next(Input& input) {
    input = {};
    if (at_ >= bytes_.size() || failed_) return false;
    const char tag = bytes_[at_++];
    if (tag == '+') return false;
    if (tag == '(' || tag == '[') {
      list(input, tag == '(');
    } else {
      single(input, tag);
    }
    return !failed_;
  }

 private:
  uint8_t byte() {
    if (at_ < bytes_.size()) return static_cast<uint8_t>(bytes_[at_++]);
    failed_ = true;
    return 0;
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const uint8_t b = byte();
      value |= uint64_t{b & 0x7fu} << shift;
      if (b < 0x80) return value;
    }
    failed_ = true;
    return 0;
  }
  int64_t zigzag() {
    const uint64_t value = varint();
    return static_cast<int64_t>(value >> 1) ^ -static_cast<int64_t>(value & 1);
  }

  Tensor tensor(bool is_readable) {
    Tensor t{.is_readable = is_readable};
    t.type = byte();
    t.device = byte();
    t.device_index = static_cast<int8_t>(byte());
    if (!is_readable) return t;
    const uint8_t strides = byte();
    const uint64_t dims = varint();
    if (dims > 64) failed_ = true;
    if (failed_) return t;
    for (uint64_t i = 0; i < dims; ++i) t.sizes.push_back(static_cast<int64_t>(varint()));
    if (strides == 1) {
      t.strides.resize(dims);
      int64_t stride = 1;
      for (uint64_t i = dims; i-- > 0;) {
        t.strides[i] = stride;
        stride = static_cast<int64_t>(static_cast<uint64_t>(stride) *
                                      static_cast<uint64_t>(std::max<int64_t>(t.sizes[i], 1)));
      }
    } else if (strides == 0) {
      for (uint64_t i = 0; i < dims; ++i) t.strides.push_back(zigzag());
    }
    return t;
  }

  void single(Input& input, char tag) {
    switch (tag) {
      case 'T':
      case 'X':
        input.kind = Input::Kind::kTensor;
        input.tensors.push_back(tensor(tag == 'T'));
        break;
      case 'U':
        input.kind = Input::Kind::kTensor;
        break;
      case 'I':
        input.kind = Input::Kind::kScalar;
        input.text = std::to_string(zigzag());
        break;
      case 'B':
        input.kind = Input::Kind::kScalar;
        input.text = byte() != 0 ? "True" : "False";
        break;
      case 'D':
        input.kind = Input::Kind::kScalar;
        input.text = number();
        break;
      case 'S': {
        const uint64_t length = varint();
        if (length > bytes_.size() - at_)
          failed_ = true;
        else
          at_ += length;
        break;
      }
      case 'N':
      case '?':
        break;
      default:
        failed_ = true;
    }
  }

  void list(Input& input, bool is_tensors) {
    const uint64_t count = varint();
    input.kind = is_tensors ? Input::Kind::kTensorList : Input::Kind::kScalarList;
    input.text.assign(1, '[');
    for (uint64_t i = 0; i < count && !failed_; ++i) {
      const char tag = static_cast<char>(byte());
      if (tag == '+') {
        failed_ = true;
        break;
      }
      Input element;
      single(element, tag);
      if (is_tensors) {
        input.tensors.insert(input.tensors.end(), element.tensors.begin(), element.tensors.end());
      } else if (element.kind != Input::Kind::kScalar) {
        input.kind = Input::Kind::kOther;
      } else if (i < kMaxListText) {
        if (i > 0) input.text += ", ";
        input.text += element.text;
      }
    }
    input.text += "]";
    if (input.kind != Input::Kind::kScalarList || count > kMaxListText) input.text.clear();
    if (count > kMaxListText && !is_tensors) input.kind = Input::Kind::kOther;
  }

  // As c10::IValue prints a double: 17 digits, a whole number with a dot at its end.
  std::string number() {
    double value = 0;
    if (bytes_.size() - at_ < sizeof(value)) {
      failed_ = true;
      return {};
    }
    std::memcpy(&value, bytes_.data() + at_, sizeof(value));
    at_ += sizeof(value);
    std::array<char, 40> text;
    const bool is_whole = std::isfinite(value) && std::fabs(value) < 1e10 && value == std::trunc(value);
    const int n = is_whole ? std::snprintf(text.data(), text.size(), "%.0f.", value)
                           : std::snprintf(text.data(), text.size(), "%.17g", value);
    return {text.data(), static_cast<size_t>(n)};
  }

  std::string_view bytes_;
  size_t at_ = 0;
  bool failed_ = false;
};

void append_numbers(std::string& out, const std::vector<int64_t>& numbers) {
  out += '[';
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0) out += ',';
    out += std::to_string(numbers[i]);
  }
  out += ']';
}

// One list a tensor, a list of them for a list of tensors, [] for anything else.
void append_shape(std::string& out, const Input& input, std::vector<int64_t> Tensor::*member) {
  if (input.kind == Input::Kind::kTensorList) {
    out += '[';
    for (size_t i = 0; i < input.tensors.size(); ++i) {
      if (i > 0) out += ',';
      append_numbers(out, input.tensors[i].*member);
    }
    out += ']';
  } else if (input.kind == Input::Kind::kTensor && !input.tensors.empty()) {
    append_numbers(out, input.tensors[0].*member);
  } else {
    out += "[]";
  }
}

std::string_view type_of(const Input& input) {
  switch (input.kind) {
    case Input::Kind::kTensor:
      return input.tensors.empty() ? std::string_view{} : type_name(input.tensors[0].type);
    case Input::Kind::kTensorList:
      return "TensorList";
    case Input::Kind::kScalar:
      return "Scalar";
    case Input::Kind::kScalarList:
      return "ScalarList";
    case Input::Kind::kOther:
      break;
  }
  return {};
}

}  // namespace

std::string_view type_name(uint8_t scalar_type) {
  return scalar_type < kTypeNames.size() ? kTypeNames[scalar_type] : std::string_view{};
}

std::vector<Input> decode_inputs(std::string_view encoded) {
  std::vector<Input> inputs;
  Decoder decoder(encoded);
  for (Input input; decoder.next(input);) inputs.push_back(std::move(input));
  return inputs;
}

std::string inputs_json(const std::vector<Input>& inputs) {
  std::string out;
  const auto list = [&](std::string_view key, const auto& append) {
    out.append(",\"").append(key).append("\":[");
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (i > 0) out += ',';
      append(inputs[i]);
    }
    out += ']';
  };
  list("Input Dims", [&](const Input& input) { append_shape(out, input, &Tensor::sizes); });
  list("Input Strides", [&](const Input& input) { append_shape(out, input, &Tensor::strides); });
  list("Input type", [&](const Input& input) { out += json_string(type_of(input)); });
  list("Concrete Inputs", [&](const Input& input) { out += json_string(input.text); });
  return out;
}

}  // namespace torchprof::formats
