// From c10::IValue to the arguments of a trace: tracer/objects/values.cpp encodes, formats/values/inputs.cpp reads.
#include <doctest/doctest.h>

#include <cstring>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "formats/values/inputs.h"
#include "tracer/objects/values.h"
#include "tracer/torch/known_inputs.h"

namespace values_test {

using namespace torchprof;

namespace {

struct Value {  // c10::IValue
  uint64_t payload = 0;
  uint32_t tag = 0;
};
static_assert(sizeof(Value) == torch::kValueSize);

// What a version of torch makes of its values: numbers as in tracer/objects/layouts.cpp, typed a second time.
struct Layout {
  unsigned version;
  size_t counted, sizes;
  uint32_t boolean, string, list;
  bool flag_first;
};
constexpr Layout k1_13{113, 24, 72, 8, 10, 12, true};
constexpr Layout k2_1_a{201, 24, 72, 9, 11, 13, true};
constexpr Layout k2_1_b{201, 24, 72, 9, 11, 13, false};
constexpr Layout k2_6{206, 16, 64, 9, 11, 13, false};
constexpr Layout k2_14{214, 16, 56, 10, 12, 14, false};

class Maker {
 public:
  explicit Maker(const Layout& layout) : layout_(layout) {}

  Value none() { return {0, 0}; }
  Value integer(int64_t value) { return {static_cast<uint64_t>(value), 5}; }
  Value boolean(bool value) { return {value, layout_.boolean}; }
  Value real(double value) {
    Value v{0, 3};
    std::memcpy(&v.payload, &value, sizeof(value));
    return v;
  }
  Value complex(double real, double imaginary) {
    std::byte* object = room();
    const double value[] = {real, imaginary};
    std::memcpy(object + (layout_.counted == 24 ? 32 : 16), static_cast<const void*>(value), sizeof(value));
    return {pointer(object), 4};
  }
  Value symbolic() { return {0, layout_.boolean - 1}; }
  Value other() { return {0, 200}; }
  Value string(const char* text) {
    std::byte* object = room();
    std::memcpy(object + layout_.counted, static_cast<const void*>(&text), sizeof(text));
    return {pointer(object), layout_.string};
  }
  enum Element : int32_t { kOfTensors = 3, kOfAnythingElse = 9 };  // c10::TypeKind: TensorType, FloatType
  Value list(const std::vector<Value>& elements) {
    return list(elements, !elements.empty() && elements[0].tag == 1 ? kOfTensors : kOfAnythingElse);
  }
  Value list(const std::vector<Value>& elements, Element element) {
    std::byte* object = room();
    std::byte* type = room();
    put(type, 8, element);
    put(object, layout_.counted + 24, type);
    const auto& kept = lists_.emplace_back(elements);
    const Value* ends[] = {kept.data(), kept.data() + kept.size()};
    std::memcpy(object + layout_.counted, static_cast<const void*>(ends), sizeof(ends));
    return {pointer(object), layout_.list};
  }
  Value undefined() { return {pointer(room()), 1}; }
  Value tensor(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides, uint8_t policy = 0,
               int64_t numel = -1) {
    std::byte* object = room();
    std::byte* at = object + layout_.sizes;
    const uint64_t dims = sizes.size();
    put(at, 0, dims);
    auto& numbers = numbers_.emplace_back(sizes);
    numbers.insert(numbers.end(), strides.begin(), strides.end());
    if (dims <= 5) {
      for (size_t i = 0; i < dims; ++i) {
        put(at, 8 + i * 8, sizes[i]);
        put(at, 48 + i * 8, strides[i]);
      }
    } else {
      put(at, 8, numbers.data());
    }
    int64_t product = 1;
    for (const int64_t size : sizes) product *= size;
    put(at, 96, numel < 0 ? product : numel);
    put(at, 104, uint16_t{6});  // float
    const uint8_t device[2][3] = {{0, 255, 1}, {1, 0, 255}};
    std::memcpy(at + 106, device[layout_.flag_first], 3);
    put(at, 110, policy);
    return {pointer(object), 1};
  }
  // What functorch puts around a tensor: an object of the class that `vtable` is of.
  Value wrapper(const void* vtable, Value tensor, Value inner) {
    auto* object = reinterpret_cast<std::byte*>(tensor.payload);
    put(object, 0, static_cast<const std::byte*>(vtable) + 16);
    put(object, layout_.sizes + 120, inner.payload);
    return tensor;
  }

 private:
  template <class T>
  void put(std::byte* at, size_t offset, T value) {
    std::memcpy(at + offset, &value, sizeof(value));
  }
  static uint64_t pointer(std::byte* object) { return reinterpret_cast<uint64_t>(object); }
  std::byte* room() { return objects_.emplace_back(256).data(); }

  const Layout& layout_;
  std::deque<std::vector<std::byte>> objects_;
  std::deque<std::vector<Value>> lists_;
  std::deque<std::vector<int64_t>> numbers_;
};

torch::ValueRow row_of(const Layout& layout) {
  const auto order = layout.flag_first ? torch::DeviceOrder::kFlagFirst : torch::DeviceOrder::kFlagLast;
  return torch::compose({layout.counted, layout.sizes, order, ""},
                        {3, 4, 5, layout.boolean, layout.string, layout.list, layout.version < 200 ? 2u : 3u, ""});
}

std::string encode(const Layout& layout, const std::vector<Value>& values, const void* keywords = nullptr) {
  unsigned char out[torch::kMaxInputs];
  const size_t size =
      torch::encode_inputs(row_of(layout), values.data(), values.size(), keywords, sizeof(std::string), out);
  return {reinterpret_cast<char*>(out), size};
}

std::string json(const std::string& encoded) { return formats::inputs_json(encoded); }

}  // namespace

TEST_CASE("inputs read the same in the layout of every torch") {
  for (const Layout& layout : {k1_13, k2_1_a, k2_1_b, k2_6, k2_14}) {
    CAPTURE(layout.version);
    Maker make(layout);
    const auto t = make.tensor({2, 3}, {3, 1});
    CHECK(
        json(encode(layout, {t, make.tensor({4, 5}, {1, 4}), make.undefined(), make.integer(-7), make.real(2.5),
                             make.boolean(true), make.none(), make.string("sum"), make.other(), make.complex(1.5, -2),
                             make.symbolic(), make.list({make.integer(1), make.symbolic()}), make.list({t, t})})) ==
        R"(,"Input Dims":[[2,3],[4,5],[],[],[],[],[],[],[],[],[],[],[[2,3],[2,3]]])"
        R"(,"Input Strides":[[3,1],[1,4],[],[],[],[],[],[],[],[],[],[],[[3,1],[3,1]]])"
        R"(,"Input type":["float","float","","Scalar","Scalar","Scalar","","","","Scalar","Scalar","ScalarList","TensorList"])"
        R"(,"Concrete Inputs":["","","","-7","2.5","True","","","","1.5-2.j","?","[1, ?]",""])");
  }
}

TEST_CASE("a tensor of more than five dimensions keeps its sizes elsewhere") {
  Maker make(k2_14);
  const std::string text = json(encode(k2_14, {make.tensor({1, 2, 3, 4, 5, 6}, {720, 360, 120, 30, 6, 1})}));
  CHECK(text.find(R"("Input Dims":[[1,2,3,4,5,6]],"Input Strides":[[720,360,120,30,6,1]])") != std::string::npos);
}

TEST_CASE("sizes that a tensor does not have itself are not read") {
  Maker make(k2_6);
  constexpr uint8_t kSparse = 0x04, kNested = 0x08, kSymbolic = 0x10;
  CHECK(encode(k2_6, {make.tensor({2}, {1}, kNested, 99)})[0] == 'X');
  CHECK(encode(k2_6, {make.tensor({2}, {1}, kSymbolic, 99)})[0] == 'X');
  const std::string sparse = json(encode(k2_6, {make.tensor({2, 3}, {9, 9}, kSparse)}));
  CHECK(sparse.find(R"("Input Dims":[[2,3]],"Input Strides":[[]])") != std::string::npos);
}

TEST_CASE("vmap's wrappers have sizes and strides, those of functionalization the ones of what they hold") {
  static const std::byte batched[16] = {}, functional[16] = {};
  constexpr uint8_t kOwnStrides = 0x04, kOwnSizes = 0x08, kSymbolic = 0x10;
  torch::know_wrappers({batched, nullptr, functional});
  for (const Layout& layout : {k1_13, k2_6, k2_14}) {
    CAPTURE(layout.version);
    Maker make(layout);
    const auto inner = make.tensor({4, 2, 3}, {6, 3, 1});
    CHECK(json(encode(layout, {make.wrapper(batched, make.tensor({2, 3}, {9, 1}, kOwnStrides), inner)}))
              .starts_with(R"(,"Input Dims":[[2,3]],"Input Strides":[[9,1]])"));
    CHECK(json(encode(layout, {make.wrapper(functional, make.tensor({9, 9}, {9, 1}, kOwnSizes), inner)}))
              .starts_with(R"(,"Input Dims":[[4,2,3]],"Input Strides":[[6,3,1]])"));
    CHECK(encode(layout, {make.wrapper(functional, make.tensor({9}, {1}, kOwnSizes | kSymbolic), inner)})[0] == 'X');
    CHECK(encode(layout, {make.wrapper(functional, make.tensor({9}, {1}, kOwnSizes), make.undefined())})[0] == 'X');
    CHECK(encode(layout, {make.wrapper(functional, make.tensor({9}, {1}, kOwnSizes), make.none())})[0] == 'X');
    const auto wrapped = make.wrapper(functional, make.tensor({9}, {1}, kOwnSizes), inner);
    CHECK(encode(layout, {make.wrapper(functional, make.tensor({9}, {1}, kOwnSizes), wrapped)})[0] == 'X');
  }
  torch::know_wrappers({});
}

TEST_CASE("a list of tensors is what its type says, one of optional tensors stands by itself") {
  for (const Layout& layout : {k1_13, k2_6, k2_14}) {
    CAPTURE(layout.version);
    Maker make(layout);
    const auto t = make.tensor({2}, {1});
    const auto nested = make.tensor({2}, {1}, 0x08);
    CHECK(
        json(encode(layout, {make.list({}, Maker::kOfTensors), make.list({}), make.list({t, nested}, Maker::kOfTensors),
                             make.list({make.none(), t}, Maker::kOfAnythingElse),
                             make.list({make.none()}, Maker::kOfAnythingElse)})) ==
        R"(,"Input Dims":[[],[],[],[],[]],"Input Strides":[[],[],[],[],[]])"
        R"(,"Input type":["TensorList","ScalarList","","",""],"Concrete Inputs":["","[]","","",""])"
        R"(,"Optional Input Dims":[[],[],[[2],[]],[[],[2]],[]])");
    const auto object = [](Value value) { return reinterpret_cast<const void*>(value.payload); };
    const torch::ValueRow row = row_of(layout);
    CHECK(torch::check_list(row, object(make.list({t}))) == nullptr);
    CHECK(torch::check_list(row, object(make.list({make.integer(1)}, Maker::kOfTensors))) != nullptr);
  }
}

TEST_CASE("arguments of Python stand where they were between the tensors") {
  Maker make(k2_14);
  const auto t = make.tensor({2, 3}, {3, 1});
  const auto tensors = std::vector<Value>{t, make.tensor({5}, {1})};
  using Kind = torch::PlainValue::Kind;
  const auto plain = [](Kind kind, int64_t integer) {
    torch::PlainValue value;
    value.kind = kind;
    value.integer = integer;
    return value;
  };
  torch::PlainValue complex = plain(Kind::kComplex, 0);
  complex.number[0] = 1.5;
  complex.number[1] = -2;
  const std::vector<torch::PlainValue> arguments{
      plain(Kind::kNone, 0), plain(Kind::kTensor, 0),  plain(Kind::kInteger, -7), plain(Kind::kTensor, 0), complex,
      plain(Kind::kList, 2), plain(Kind::kInteger, 4), plain(Kind::kBoolean, 1),  plain(Kind::kOther, 0)};
  unsigned char out[torch::kMaxInputs];
  const size_t size = torch::encode_arguments(row_of(k2_14), arguments.data(), arguments.size(), tensors.data(), out);
  CHECK(json({reinterpret_cast<char*>(out), size}) ==
        R"(,"Input Dims":[[],[2,3],[],[5],[],[],[]],"Input Strides":[[],[3,1],[],[1],[],[],[]])"
        R"(,"Input type":["","float","Scalar","float","Scalar","ScalarList",""])"
        R"(,"Concrete Inputs":["","","-7","","1.5-2.j","[4, True]",""])");
  const std::vector<torch::PlainValue> many(5000, plain(Kind::kInteger, int64_t{1} << 60));
  CHECK(torch::encode_arguments(row_of(k2_14), many.data(), many.size(), nullptr, out) <= torch::kMaxInputs);
}

namespace {
std::vector<uint64_t> key_of(const Layout& layout, const std::vector<Value>& values) {
  const torch::ValueRow row = row_of(layout);
  torch::InputsKey key(row);
  const size_t words = key.write(reinterpret_cast<const char*>(values.data()), values.size());
  return {key.words(), key.words() + words};
}
}  // namespace

TEST_CASE("inputs of equal keys have equal encodings, and what has no key is what a key cannot tell") {
  std::mt19937 random(7);
  const auto any = [&random](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  for (const Layout& layout : {k1_13, k2_1_a, k2_1_b, k2_6, k2_14}) {
    CAPTURE(layout.version);
    Maker make(layout);
    const std::vector<Value> kinds{make.tensor({2, 3}, {3, 1}),
                                   make.tensor({2, 3}, {1, 2}),
                                   make.tensor({3, 2}, {2, 1}),
                                   make.tensor({}, {}),
                                   make.tensor({6}, {1}),
                                   make.tensor({1, 2, 1, 3, 1}, {6, 3, 3, 1, 1}),
                                   make.none(),
                                   make.integer(2),
                                   make.integer(3),
                                   make.real(2),
                                   make.boolean(true),
                                   make.boolean(false),
                                   make.other(),
                                   make.symbolic(),
                                   make.integer(-1),
                                   make.integer(int64_t{1} << 32),
                                   make.list({}),
                                   make.list({}, Maker::kOfTensors),
                                   make.list({make.none(), make.tensor({2}, {1})}),
                                   make.list({make.real(1)}),
                                   make.list({make.integer(1)}),
                                   make.list({make.integer(1), make.integer(2)}),
                                   make.list({make.tensor({2, 3}, {3, 1}), make.tensor({2}, {1})})};
    const std::vector<Value> keyless{make.undefined(),
                                     make.string("a"),
                                     make.complex(1, 2),
                                     make.list({make.integer(1), make.string("a")}),
                                     make.list({make.integer(1), make.real(1)}),
                                     make.tensor({2, 1}, {1, int64_t{1} << 32}),
                                     make.tensor({2}, {-1}),
                                     make.tensor({2}, {1}, 0x04),
                                     make.tensor({2}, {1}, 0x08),
                                     make.tensor({1, 2, 3, 4, 5, 6}, {720, 360, 120, 30, 6, 1})};
    std::map<std::vector<uint64_t>, std::string> encodings;
    std::set<std::string> seen;
    for (int i = 0; i < 2000; ++i) {
      std::vector<Value> values(1 + any(3));
      for (Value& value : values) value = kinds[any(kinds.size())];
      const std::vector<uint64_t> key = key_of(layout, values);
      const std::string encoded = encode(layout, values);
      if (key.empty()) continue;  // too long
      seen.insert(encoded);
      const auto [known, is_new] = encodings.try_emplace(key, encoded);
      REQUIRE(known->second == encoded);
      values.push_back(keyless[any(keyless.size())]);
      CHECK(key_of(layout, values).empty());
    }
    CHECK(encodings.size() == seen.size());
    CHECK(seen.size() > 500);
  }
}

TEST_CASE("the inputs of more operators than there is room for are found or not known, never those of another") {
  const auto known = std::make_unique<torch::KnownInputs>();
  std::memset(static_cast<void*>(known.get()), 0, sizeof(*known));  // as it is mapped
  std::mt19937 random(7);
  size_t found = 0;
  for (int i = 0; i < 20000; ++i) {
    const auto name = static_cast<uint32_t>(1 + random() % 200);
    const uint64_t key[] = {random() % 5, 1};
    const size_t words = 1 + random() % 2;
    const StringId id{name * 100 + static_cast<uint32_t>(key[0] * 2 + words)};
    const StringId there = known->find({name}, key, words);
    if (there) REQUIRE(there == id);
    found += static_cast<bool>(there);
    if (!there) known->keep({name}, key, words, id);
  }
  CHECK(found > 1000);
  CHECK(found < 19000);
}

TEST_CASE("numbers are written as c10::IValue does") {
  Maker make(k2_14);
  const std::string text = json(encode(k2_14, {make.real(-0.0), make.real(-3), make.real(1e10), make.real(0.1)}));
  CHECK(text.find(R"("Concrete Inputs":["0.","-3.","10000000000","0.10000000000000001"])") != std::string::npos);
}

TEST_CASE("a tensor whose elements are not the product of its sizes disproves the row") {
  Maker make(k2_6);
  CHECK(encode(k2_6, {make.tensor({2, 3}, {3, 1}, 0, 7)}) == "");
  CHECK(encode(k2_6, {make.integer(1), make.list({make.tensor({2, 3}, {3, 1}, 0, 5)})}) == "");
  CHECK(encode(k1_13, {make.tensor({2, 3}, {3, 1})}) == "");  // laid out as in 2.6
}

TEST_CASE("keyword inputs become arguments of their own names") {
  Maker make(k2_14);
  const std::unordered_map<std::string, Value> map{
      {"whole", make.real(1)},
      {"stream", make.integer(7)},
      {"text", make.string("a\"b")},
      {"flag", make.boolean(false)},
      {"endless", make.real(std::numeric_limits<double>::infinity())},
      {"tensor", make.tensor({2}, {1})},
      {"numbers", make.list({make.integer(1)})},
      {"a name that is longer than what a string holds in itself", make.integer(1)},
      {"texts", make.list({make.string("x"), make.string("y")})}};
  const std::string text = json(encode(k2_14, {make.integer(3)}, &map));
  CHECK(text.starts_with(R"(,"Input Dims":[[]],)"));
  for (const char* member :
       {R"(,"whole":1.0)", R"(,"stream":7)", R"(,"text":"a\"b")", R"(,"flag":false)", R"(,"endless":"inf")",
        R"(,"a name that is longer than what a string holds in itself":1)", R"(,"texts":["x","y"])"})
    CHECK_MESSAGE(text.find(member) != std::string::npos, text);
  CHECK(text.find("tensor") == std::string::npos);
  CHECK(text.find("numbers") == std::string::npos);
  // Only a list that is not of texts is left out.
  const std::unordered_map<std::string, Value> tensors{{"tensors", make.list({make.tensor({2}, {1})})},
                                                       {"n", make.integer(1)}};
  CHECK(json(encode(k2_14, {}, &tensors)) == R"(,"n":1)");
}

TEST_CASE("keyword inputs alone bring no lists of inputs, and an empty map none at all") {
  Maker make(k2_14);
  std::unordered_map<std::string, Value> map;
  CHECK_FALSE(torch::has_keywords(&map));
  map["grid"] = make.integer(3);
  CHECK(torch::has_keywords(&map));
  CHECK(json(encode(k2_14, {}, &map)) == R"(,"grid":3)");
}

TEST_CASE("what does not fit is cut, not spilled") {
  Maker make(k2_14);
  const std::vector<Value> many(3000, make.integer(int64_t{1} << 60));
  for (const auto& values : {many, std::vector<Value>(500, make.tensor({7, 8}, {8, 1}))}) {
    const std::string encoded = encode(k2_14, values);
    CHECK(encoded.size() > 1900);
    CHECK(encoded.size() <= torch::kMaxInputs);
    CHECK(encoded.back() == '+');
    CHECK(formats::is_cut(encoded));
    CHECK(formats::decode_inputs(encoded).size() < values.size());
    CHECK(json(encoded).ends_with(R"(0,"more"])"));
    CHECK(formats::dims_json(encoded).ends_with(R"(,"+"])"));
  }
  static const std::string long_text(5000, 'x');
  std::unordered_map<std::string, Value> map;
  for (int i = 0; i < 100; ++i) map["key " + std::to_string(i)] = make.string(long_text.c_str());
  const std::string encoded = encode(k2_14, {}, &map);
  CHECK(encoded.size() <= torch::kMaxInputs);
  CHECK(formats::decode_keywords(encoded).size() >= 5);
}

TEST_CASE("where there are too many inputs, numbers, types and keywords stay, and as many shapes as fit") {
  std::mt19937 random(7);
  const auto any = [&random](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  constexpr size_t kLongest = 8 + 5 * 20;  // bytes of a tensor
  size_t cut = 0;
  for (int round = 0; round < 400; ++round) {
    CAPTURE(round);
    const Layout& layout = any(2) ? k2_14 : k1_13;
    Maker make(layout);
    const std::vector<Value> tensors{make.tensor({4, 4}, {4, 1}), make.tensor({}, {}), make.tensor({2, 3}, {1, 2}),
                                     make.tensor({1 << 20, 2, 3, 4, 5}, {1, 1 << 20, 1 << 22, 1 << 24, 1 << 26})};
    const std::vector<Value> numbers{make.real(0.25),
                                     make.boolean(true),
                                     make.integer(-7),
                                     make.none(),
                                     make.complex(1, 2),
                                     make.string("a"),
                                     make.list({make.integer(3)}),
                                     make.list(std::vector<Value>(any(60), make.integer(5)))};
    std::vector<Value> values(1 + any(20)), in_list;
    std::vector<size_t> lengths(values.size(), SIZE_MAX);
    size_t lists = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = numbers[any(numbers.size())];
      if (any(3) != 0) continue;
      lengths[i] = any(10) == 0 ? 0 : any(600);
      in_list.clear();
      for (size_t k = 0; k < lengths[i]; ++k) in_list.push_back(tensors[any(tensors.size())]);
      values[i] = make.list(in_list, Maker::kOfTensors);
      ++lists;
    }
    std::unordered_map<std::string, Value> map;
    if (any(2)) map = {{"grid", make.integer(3)}, {"text", make.string("abc")}};
    const std::string encoded = encode(layout, values, &map);
    REQUIRE(encoded.size() <= torch::kMaxInputs);
    CHECK(formats::decode_keywords(encoded).size() == map.size());
    const std::vector<formats::Input> inputs = formats::decode_inputs(encoded);
    REQUIRE(inputs.size() == values.size());
    bool has_left_out = false;
    for (size_t i = 0; i < values.size(); ++i) {
      if (lengths[i] == SIZE_MAX) {
        const formats::Input alone = formats::decode_inputs(encode(layout, {values[i]})).at(0);
        CHECK(inputs[i].kind == alone.kind);
        CHECK(inputs[i].text == alone.text);
        continue;
      }
      CHECK(inputs[i].kind == formats::Input::Kind::kTensorList);
      CHECK(inputs[i].tensors.size() + inputs[i].left_out == lengths[i]);
      has_left_out = has_left_out || inputs[i].left_out > 0;
    }
    CHECK(formats::is_cut(encoded) == has_left_out);
    CHECK((json(encoded).find("\"Inputs left out\"") != std::string::npos) == has_left_out);
    if (!has_left_out) continue;
    ++cut;
    CHECK(encoded.size() + 64 + (1 + kLongest) * lists > torch::kMaxInputs);
  }
  CHECK(cut > 100);
}

TEST_CASE("the lists of an operator that has six equal ones are cut alike") {
  Maker make(k2_14);
  const Value list = make.list(std::vector<Value>(300, make.tensor({4, 4}, {4, 1})));
  std::vector<Value> adam(6, list);
  adam.push_back(make.real(0.25));
  const std::vector<formats::Input> inputs = formats::decode_inputs(encode(k2_14, adam));
  REQUIRE(inputs.size() == 7);
  CHECK(inputs[6].text == "0.25");
  for (size_t i = 0; i < 6; ++i) {
    CHECK(inputs[i].tensors.size() >= 40);
    CHECK(inputs[i].tensors.size() <= 42);
  }
}

TEST_CASE("a list that an earlier version cut, and with it all that followed, is read as far as it goes") {
  Maker make(k2_14);
  const std::string whole = encode(k2_14, {make.list(std::vector<Value>(3, make.tensor({2}, {1})))});
  for (const char* marks : {"++", "+++", "++++"}) {
    const std::string old = encode(k2_14, {make.integer(1)}) + "(\x09" + whole.substr(2) + marks;
    CHECK(json(old) ==
          R"(,"Input Dims":[[],[[2],[2],[2]]],"Input Strides":[[],[[1],[1],[1]]],"Input type":["Scalar","TensorList"])"
          R"(,"Concrete Inputs":["1",""],"Inputs left out":[0,6,"more"])");
    CHECK(formats::dims_json(old) == R"([[],[[2],[2],[2],"+6"],"+"])");
    CHECK(formats::decode_keywords(old).empty());
  }
}

TEST_CASE("a text that must not be longer keeps what fits") {
  Maker make(k2_14);
  const std::unordered_map<std::string, Value> map{{"n", make.integer(1)}};
  const Value wide = make.tensor(std::vector<int64_t>(60, 1), std::vector<int64_t>(60, 1));
  const std::string encoded = encode(
      k2_14, {make.list(std::vector<Value>(100, make.tensor({2, 3}, {3, 1}))), make.real(0.5), wide, wide}, &map);
  const size_t whole = json(encoded).size();
  for (size_t most = 0; most <= whole; ++most) {
    const std::string text = formats::inputs_json(encoded, most);
    if (most > 200) CHECK(text.size() <= most);
    CHECK((text == json(encoded)) == (most == whole));
    if (most > whole / 2) CHECK(text.find("0.5") != std::string::npos);
    if (most > 200) CHECK(text.ends_with(R"(,"n":1)"));
  }
}

TEST_CASE("hostile encodings give less, never more than they hold") {
  Maker make(k2_14);
  const std::unordered_map<std::string, Value> map{{"texts", make.list({make.string("x"), make.integer(2)})}};
  const std::string whole = encode(k2_14, {make.tensor({2, 3}, {3, 1}), make.list({make.integer(4)})}, &map);
  for (size_t n = 0; n <= whole.size(); ++n) {
    const std::string cut = whole.substr(0, n);  // on the heap: a read past it is seen by the sanitizers
    CHECK(formats::decode_inputs(cut).size() <= 2);
    CHECK(formats::decode_keywords(cut).size() <= 1);
    for (const char c : {'\xff', '(', '[', 'O', 'K', 'S'}) {
      std::string spoilt = whole;
      if (n < spoilt.size()) spoilt[n] = c;
      CHECK(json(spoilt).size() < 100000);
    }
  }
}

}  // namespace values_test
