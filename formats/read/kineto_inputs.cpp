#include "formats/read/kineto_inputs.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "formats/io/text.h"

namespace torchprof::formats {
namespace {

using Json = nlohmann::json;

constexpr uint8_t kFloat = 6;  // c10::ScalarType

std::vector<int64_t> integers_of(const Json& list) {
  std::vector<int64_t> result;
  for (const Json& each : list)
    if (each.is_number_integer()) result.push_back(each.get<int64_t>());
  return result;
}

bool is_list_of_lists(const Json& list) {
  return !list.empty() && std::ranges::all_of(list, [](const Json& each) { return each.is_array(); });
}

// "2", "True", "[1, 2]"
std::vector<int64_t> integers_in(std::string_view text) {
  if (text == "True") return {1};
  if (text == "False") return {0};
  std::vector<int64_t> result;
  while (!text.empty()) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const auto length = static_cast<size_t>(end - text.data());
    if (error != std::errc{}) {
      if (std::string_view("[], ").find(text.front()) == std::string_view::npos) return {};
      text.remove_prefix(1);
      continue;
    }
    if (length < text.size() && std::string_view("], ").find(text[length]) == std::string_view::npos) return {};
    result.push_back(value);
    text.remove_prefix(length);
  }
  return result;
}

// Its elements as far as it is a list; else nothing.
const Json& at(const Json& list, size_t i) {
  static const Json none;
  return list.is_array() && i < list.size() ? list[i] : none;
}

Tensor tensor_of(std::string_view type, const Json& dims, const Json& strides) {
  return {.is_readable = true,
          // Lists do not say theirs: most are float.
          .type = type_number(type).value_or(kFloat),
          .sizes = integers_of(dims),
          .strides = integers_of(strides)};
}

}  // namespace

void KinetoInputs::clear() {
  for (std::string& list : lists_) list.clear();
  depth_ = 0;
}

void KinetoInputs::begin(List list) {
  at_ = static_cast<size_t>(list);
  lists_[at_].assign(1, '[');
  depth_ = 1;
}

void KinetoInputs::start_array() {
  ++depth_;
  element("[");
}

void KinetoInputs::end_array() {
  --depth_;
  lists_[at_] += ']';
}

void KinetoInputs::number(std::string_view text) { element(text); }

void KinetoInputs::string(std::string_view text) { element(json_string(text)); }

void KinetoInputs::element(std::string_view json) {
  std::string& list = lists_[at_];
  if (list.size() + json.size() > kMostText) return;
  if (list.back() != '[') list += ',';
  list.append(json);
}

std::string KinetoInputs::text() const {
  if (lists_[0].empty()) return {};
  std::string result;
  for (const std::string& list : lists_) {
    result.append(result.empty() ? "[" : ",").append(list.empty() ? "[]" : list);
    if (list.size() >= kMostText / 2) return {};
  }
  return result + "]";
}

std::vector<Input> inputs_of_kineto(std::string_view text) {
  const Json all = Json::parse(text, nullptr, false);
  if (!all.is_array() || all.size() != 5) return {};
  const Json &dims = all[0], &strides = all[1], &types = all[2], &concrete = all[3], &left_out = all[4];
  std::vector<Input> result;
  for (size_t i = 0; i < dims.size(); ++i) {
    Input& input = result.emplace_back();
    const Json& type_json = at(types, i);
    const std::string type = type_json.is_string() ? type_json.get<std::string>() : std::string();
    const Json& value = at(concrete, i);
    if (value.is_string()) input.text = value.get<std::string>();
    if (const Json& more = at(left_out, i); more.is_number_unsigned()) input.left_out = more.get<uint64_t>();
    if (type == "TensorList" || is_list_of_lists(dims[i])) {
      input.kind = Input::Kind::kTensorList;
      for (size_t k = 0; k < dims[i].size(); ++k)
        input.tensors.push_back(tensor_of({}, dims[i][k], at(at(strides, i), k)));
    } else if (type == "Scalar" || type == "ScalarList") {
      input.kind = type == "Scalar" ? Input::Kind::kScalar : Input::Kind::kScalarList;
      input.integers = integers_in(input.text);
    } else if (dims[i].is_array() && (type_number(type) || !dims[i].empty())) {
      input.kind = Input::Kind::kTensor;
      input.tensors.push_back(tensor_of(type, dims[i], at(strides, i)));
    }
  }
  return result;
}

}  // namespace torchprof::formats
