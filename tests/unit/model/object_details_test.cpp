#include "formats/values/object_details.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "tests/unit/support/spool_builder.h"

namespace object_details_test {

using namespace torchprof;
using namespace torchprof::formats;
using test::SpoolBuilder;

namespace {

using namespace std::string_literals;

// float, CPU, contiguous, 2 x 3; its storage at 0x10, one element further.
const std::string kTensor = "T\x06\x00\xff\x01\x02\x02\x03\x10\x02"s;
const std::string kWeight = "p\x06weight\x01" + kTensor;

ObjectDetail held(std::string_view encoded) { return {.parts = {encoded}}; }

}  // namespace

TEST_CASE("a module's parameter, its gradient and a buffer") {
  const std::string encoded = kWeight + "g" + kTensor + "b\x04mean\x02" + kTensor;
  const HeldByObject module = decode_details(held(encoded));
  REQUIRE(module.parameters.size() == 1);
  const Parameter& weight = module.parameters[0];
  CHECK(weight.name == "weight");
  CHECK(weight.value.tensor.sizes == std::vector<int64_t>{2, 3});
  CHECK(weight.value.tensor.strides == std::vector<int64_t>{3, 1});
  CHECK(weight.value.data_ptr() == 0x14);
  CHECK(weight.gradient.has_value());
  REQUIRE(module.buffers.size() == 1);
  CHECK(module.buffers[0].name == "mean");
}

TEST_CASE("an optimizer's groups and the state of its parameters, in two parts") {
  const std::string first = "G"s + "h\x02lrI\x04" +
                            "h\x05"
                            "betas(\x02" +
                            "B\x01N" + "p" + "\x00\x07"s + kTensor;
  const std::string second =
      "s\x07"
      "v\x03"
      "avg=" +
      kTensor;
  const HeldByObject optimizer = decode_details({.parts = {first, second}});
  REQUIRE(optimizer.groups.size() == 1);
  const ParameterGroup& group = optimizer.groups[0];
  CHECK(std::get<int64_t>(group.hyperparameters.at(0).value) == 2);
  CHECK(std::get<std::vector<HeldValue>>(group.hyperparameters.at(1).value).size() == 2);
  CHECK(group.parameters.at(0).key == 7);
  REQUIRE(optimizer.state.size() == 1);
  CHECK(optimizer.state[0].key == 7);
  CHECK(std::get<HeldTensor>(optimizer.state[0].values.at(0).value).tensor.sizes.size() == 2);
}

TEST_CASE("whatever the bytes are, decoding ends and what came before stays") {
  for (size_t length = 0; length < kWeight.size(); ++length)
    CHECK(decode_details(held(std::string_view(kWeight).substr(0, length))).parameters.empty());
  CHECK(decode_details(held(kWeight + "\xff")).parameters.size() == 1);
  std::mt19937 random(1);
  const std::string tags = "pgbGhsvTXUIDBN(=\x01\x02\xff";
  for (int round = 0; round < 20000; ++round) {
    std::string bytes;
    for (size_t i = random() % 60; i > 0; --i)
      bytes += random() % 2 ? tags[random() % tags.size()] : static_cast<char>(random());
    decode_details(held(bytes));
  }
}

TEST_CASE("a module's missing gradient is the one that the optimizer saw of the same tensor") {
  SpoolBuilder b;
  const ObjectId net = b.object("Net"), sgd = b.object("SGD", ObjectKind::kOptimizer);
  b.detail(net, net, "", kWeight);
  b.detail(sgd, {}, "", "Gp"s + "\x00\x01"s + kTensor + "g" + kTensor);
  const test::LoadedTrace trace(b);
  Names names(trace->processes[0]);
  const auto json = objects_json(trace->processes[0], names);
  CHECK(json["modules"][0]["name"] == "nn.Module: Net_0");
  CHECK(json["modules"][0]["parameters"][0]["grad"]["shape"] == nlohmann::json{2, 3});
  CHECK(json["optimizers"][0]["groups"][0]["params"][0]["data_ptr"] == 0x14);
}

TEST_CASE("a detail whose first part was lost is not taken for a whole one") {
  SpoolBuilder b;
  const ObjectId net = b.object("Net");
  b.detail(net, net, "", kWeight, 1);
  const test::LoadedTrace trace(b);
  CHECK(trace->processes[0].details.at(net.value).parts.empty());
  CHECK(trace->processes[0].damage.records == 1);
}

TEST_CASE("modules are numbered as they were first called, those that were not come last") {
  SpoolBuilder b;
  const ObjectId container = b.object("Linear"), first = b.object("Linear"), second = b.object("Linear");
  b.called(second, "Linear", 1);
  b.called(first, "Linear", 2);
  const test::LoadedTrace trace(b);
  Names names(trace->processes[0]);
  CHECK(names.number(second) == 0);
  CHECK(names.number(first) == 1);
  CHECK(names.number(container) == 2);
}

}  // namespace object_details_test
