// What modules and optimizers held when they were called (parameters, buffers, hyperparameters, state), from the
// recorder's encoding (tracer/python/details.h), and the section of the trace with it. A hostile encoding gives less,
// and is never read past its end.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "formats/trace/names.h"
#include "formats/trace/trace.h"
#include "formats/values/tensor.h"

namespace torchprof::formats {

struct HeldTensor {
  Tensor tensor;
  uint64_t storage = 0;  // address of the storage's data; 0: there is none, or it was not readable
  int64_t offset = 0;    // into the storage, in elements
  uint64_t data_ptr() const {
    return storage == 0 ? 0 : storage + static_cast<uint64_t>(offset) * element_size(tensor.type);
  }
};

struct Parameter {  // or a buffer
  std::string_view name;
  uint64_t key = 0;  // address of the Python object
  HeldTensor value;
  std::optional<HeldTensor> gradient;
};

struct HeldValue {
  std::string_view name;
  // None, a truth value, an integer, a number, a tuple of these, or a tensor.
  std::variant<std::monostate, bool, int64_t, double, std::vector<HeldValue>, HeldTensor> value;
};

struct ParameterGroup {
  std::vector<HeldValue> hyperparameters;
  std::vector<Parameter> parameters;
};

struct ParameterState {
  uint64_t key = 0;  // of the parameter
  std::vector<HeldValue> values;
};

struct HeldByObject {
  std::vector<Parameter> parameters;  // of a module
  std::vector<Parameter> buffers;
  std::vector<ParameterGroup> groups;  // of an optimizer
  std::vector<ParameterState> state;
};

HeldByObject decode_details(const ObjectDetail& detail);

// {"modules": [...], "optimizers": [...]} of the process, in the order of their ids. Tensors and objects after the
// first kMaxListed are only counted, in "left_out". A parameter that had no gradient yet when its module was called
// gets the one that an optimizer saw.
inline constexpr size_t kMaxListed = 50'000;
nlohmann::ordered_json objects_json(const Process& process, Names& names);

}  // namespace torchprof::formats
