#include "formats/values/object_details.h"

#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>

#include "formats/io/text.h"

namespace torchprof::formats {
namespace {

using nlohmann::ordered_json;

class DetailDecoder {
 public:
  explicit DetailDecoder(std::string_view bytes) : in_(bytes) {}

  // Adds the items of one part. An item may belong to one of the part before.
  void add_to(HeldByObject& held) {
    while (!in_.done()) item(held);
  }

 private:
  void item(HeldByObject& held) {
    switch (static_cast<char>(in_.byte())) {
      case 'p':
        last_ = &(held.groups.empty() ? held.parameters : held.groups.back().parameters);
        return parameter();
      case 'b':
        last_ = &held.buffers;
        return parameter();
      case 'g':
        if (last_ == nullptr || last_->empty()) return in_.fail();
        if (auto gradient = tensor()) last_->back().gradient = std::move(gradient);
        return;
      case 'G':
        held.groups.emplace_back();
        return;
      case 's':
        held.state.push_back({in_.varint(), {}});
        return;
      case 'h':
        if (held.groups.empty()) return in_.fail();
        return named_value(held.groups.back().hyperparameters);
      case 'v':
        if (held.state.empty()) return in_.fail();
        return named_value(held.state.back().values);
      default:
        in_.fail();
    }
  }

  void parameter() {
    Parameter p{.name = in_.text(), .key = in_.varint(), .value = {}, .gradient = {}};
    auto value = tensor();
    if (!value) return in_.fail();
    p.value = std::move(*value);
    last_->push_back(std::move(p));
  }

  // None: the encoding is damaged, or the tensor is undefined.
  std::optional<HeldTensor> tensor() {
    const char tag = static_cast<char>(in_.byte());
    if (tag != 'T' && tag != 'X') {
      if (tag != 'U') in_.fail();
      return std::nullopt;
    }
    HeldTensor held{.tensor = in_.tensor(tag == 'T')};
    if (tag == 'T') {
      held.storage = in_.varint();
      held.offset = in_.zigzag();
    }
    if (in_.failed()) return std::nullopt;
    return held;
  }

  void named_value(std::vector<HeldValue>& values) {
    HeldValue held{.name = in_.text(), .value = {}};
    value(held, true);
    if (!in_.failed()) values.push_back(std::move(held));
  }

  void value(HeldValue& held, bool may_nest) {
    switch (static_cast<char>(in_.byte())) {
      case 'N':
        return;
      case 'B':
        held.value = in_.byte() != 0;
        return;
      case 'I':
        held.value = in_.zigzag();
        return;
      case 'D':
        held.value = in_.number();
        return;
      case '=':
        if (auto t = tensor()) held.value = std::move(*t);
        return;
      case '(': {
        std::vector<HeldValue> elements;
        if (!may_nest) return in_.fail();
        for (uint64_t left = in_.varint(); left > 0 && !in_.failed(); --left) value(elements.emplace_back(), false);
        held.value = std::move(elements);
        return;
      }
      default:
        in_.fail();
    }
  }

  EncodedReader in_;
  std::vector<Parameter>* last_ = nullptr;
};

// ---- JSON ------------------------------------------------------------------------------------------------

// c10::DeviceType (c10/core/DeviceType.h). Only those that a user may meet have a name here.
std::string device_name(const Tensor& tensor) {
  constexpr std::array<const char*, 15> kNames = {"cpu",  "cuda", "mkldnn", "opengl", "opencl", "ideep", "hip", "fpga",
                                                  "maia", "xla",  "vulkan", "metal",  "xpu",    "mps",   "meta"};
  std::string name = tensor.device < kNames.size() ? kNames[tensor.device] : "device " + std::to_string(tensor.device);
  if (tensor.device_index >= 0) name.append(":").append(std::to_string(tensor.device_index));
  return name;
}

ordered_json tensor_json(const HeldTensor& held) {
  ordered_json j{{"type", type_name(held.tensor.type)}};
  if (held.tensor.is_readable) {
    j["shape"] = held.tensor.sizes;
    j["strides"] = held.tensor.strides;
  }
  j["device"] = device_name(held.tensor);
  j["data_ptr"] = held.data_ptr();
  return j;
}

ordered_json value_json(const HeldValue& held) {
  struct Print {
    ordered_json operator()(std::monostate) const { return nullptr; }
    ordered_json operator()(bool v) const { return v; }
    ordered_json operator()(int64_t v) const { return v; }
    ordered_json operator()(double v) const { return v; }
    ordered_json operator()(const HeldTensor& v) const { return tensor_json(v); }
    ordered_json operator()(const std::vector<HeldValue>& v) const {
      ordered_json list = ordered_json::array();
      for (const HeldValue& element : v) list.push_back(value_json(element));
      return list;
    }
  };
  return std::visit(Print{}, held.value);
}

class Lister {
 public:
  Lister(const Process& process, Names& names) : process_(process), names_(names) {}

  ordered_json run() {
    ordered_json modules = ordered_json::array(), optimizers = ordered_json::array();
    // Optimizers first: the gradients that they saw are written with the modules.
    for (const ObjectKind kind : {ObjectKind::kOptimizer, ObjectKind::kModule}) {
      for (uint32_t i = 1; i < process_.details.size(); ++i) {
        const ObjectDef* def = names_.object({i});
        if (def == nullptr || def->kind != kind || process_.details[i].parts.empty()) continue;
        if (listed_++ >= kMaxListed) {
          ++left_out_;
        } else if (kind == ObjectKind::kOptimizer) {
          optimizers.push_back(optimizer({i}));
        } else {
          modules.push_back(module({i}));
        }
      }
    }
    ordered_json j;
    if (!modules.empty()) j["modules"] = std::move(modules);
    if (!optimizers.empty()) j["optimizers"] = std::move(optimizers);
    if (left_out_ > 0) j["left_out"] = left_out_;
    return j;
  }

 private:
  std::string name(ObjectId id) { return std::string(names_.text(names_.function({}, id))); }

  ordered_json module(ObjectId id) {
    ordered_json j{{"name", name(id)}, {"path", std::string(process_.path(id))}};
    if (const ObjectId root = process_.root(id)) j["root"] = name(root);
    const HeldByObject held = decode_details(process_.details[id.value]);
    if (!held.parameters.empty()) j["parameters"] = tensors(held.parameters);
    if (!held.buffers.empty()) j["buffers"] = tensors(held.buffers);
    return j;
  }

  ordered_json optimizer(ObjectId id) {
    const HeldByObject held = decode_details(process_.details[id.value]);
    std::unordered_map<uint64_t, const ParameterState*> state;
    for (const ParameterState& s : held.state) state[s.key] = &s;
    ordered_json j{{"name", name(id)}, {"groups", ordered_json::array()}};
    for (const ParameterGroup& group : held.groups) {
      ordered_json g;
      for (const HeldValue& h : group.hyperparameters) g[std::string(h.name)] = value_json(h);
      ordered_json list = ordered_json::array();
      for (const Parameter& p : group.parameters) {
        if (!may_list()) continue;
        if (p.gradient) gradients_[{p.key, p.value.data_ptr()}] = *p.gradient;
        ordered_json one = parameter(p);
        const auto it = state.find(p.key);
        if (it != state.end()) {
          for (const HeldValue& v : it->second->values) one["state"][std::string(v.name)] = value_json(v);
        }
        list.push_back(std::move(one));
      }
      g["params"] = std::move(list);
      j["groups"].push_back(std::move(g));
    }
    return j;
  }

  ordered_json tensors(const std::vector<Parameter>& parameters) {
    ordered_json list = ordered_json::array();
    for (const Parameter& p : parameters) {
      if (may_list()) list.push_back(parameter(p));
    }
    return list;
  }

  ordered_json parameter(const Parameter& p) {
    ordered_json j;
    if (!p.name.empty()) j["name"] = std::string(p.name);
    j.update(tensor_json(p.value));
    if (p.gradient) {
      j["grad"] = tensor_json(*p.gradient);
    } else if (const auto it = gradients_.find({p.key, p.value.data_ptr()}); it != gradients_.end()) {
      j["grad"] = tensor_json(it->second);
    }
    return j;
  }

  bool may_list() {
    if (listed_++ < kMaxListed) return true;
    ++left_out_;
    return false;
  }

  struct KeyHash {
    size_t operator()(const std::pair<uint64_t, uint64_t>& k) const {
      return std::hash<uint64_t>()(k.first * 0x9e3779b97f4a7c15u ^ k.second);
    }
  };

  const Process& process_;
  Names& names_;
  std::unordered_map<std::pair<uint64_t, uint64_t>, HeldTensor, KeyHash> gradients_;
  size_t listed_ = 0;
  size_t left_out_ = 0;
};

}  // namespace

HeldByObject decode_details(const ObjectDetail& detail) {
  HeldByObject held;
  for (const std::string_view part : detail.parts) DetailDecoder(part).add_to(held);
  return held;
}

ordered_json objects_json(const Process& process, Names& names) { return Lister(process, names).run(); }

}  // namespace torchprof::formats
