// Which layout of torch's tensors is found from images of its objects: bytes as they lie in a process of each version.
#include "tracer/objects/search.h"

#include <doctest/doctest.h>

#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tracer/objects/sight.h"
#include "tracer/objects/values.h"

namespace search_test {

using namespace torchprof;
using torch::Search;

namespace {

// Offsets of c10::TensorImpl, c10::StorageImpl and the tags of c10::IValue by c10/core/TensorImpl.h,
// c10/core/StorageImpl.h, c10/util/intrusive_ptr.h and aten/src/ATen/core/ivalue.h of each version; those of 2.11 were
// printed by a program that was compiled with its headers. They are whole numbers here, on purpose not the table's.
struct Torch {
  const char* version;
  size_t counted;  // vptr, references; 24: two counts of 8 bytes, 16: two of 4
  size_t storage, python, sizes, offset, elements, type, device, keys, size;
  bool flag_first;  // of the device's three bytes
  uint32_t boolean, string, list;
  size_t storage_data, storage_bytes;
};
constexpr Torch k1_13{"1.13", 24, 24, 64, 72, 160, 168, 176, 178, 184, 192, true, 8, 10, 12, 24, 56};
constexpr Torch k2_0{"2.0", 24, 24, 64, 72, 160, 168, 176, 178, 184, 192, true, 9, 11, 13, 24, 56};
constexpr Torch k2_2{"2.2", 24, 24, 64, 72, 160, 168, 176, 178, 184, 192, false, 9, 11, 13, 24, 56};
constexpr Torch k2_3{"2.3", 16, 16, 56, 64, 152, 160, 168, 170, 176, 184, false, 9, 11, 13, 16, 48};
constexpr Torch k2_6{"2.6", 16, 16, 56, 64, 152, 160, 168, 170, 176, 184, false, 9, 11, 13, 16, 48};
constexpr Torch k2_9{"2.9", 16, 16, 56, 64, 152, 160, 168, 170, 176, 184, false, 10, 12, 14, 16, 48};
constexpr Torch k2_11{"2.11", 16, 16, 56, 64, 152, 160, 168, 170, 176, 184, false, 10, 12, 14, 16, 48};
constexpr Torch k2_14{"2.14", 16, 16, 48, 56, 144, 152, 160, 162, 168, 176, false, 10, 12, 14, 16, 48};
constexpr std::array kTorches{k1_13, k2_0, k2_2, k2_3, k2_6, k2_9, k2_11, k2_14};

struct Value {  // c10::IValue
  uint64_t payload = 0;
  uint32_t tag = 0;
};
static_assert(sizeof(Value) == torch::kValueSize);

// Two words before the functions, the second of them the class's information.
const void* vtable_of(const char* name) {
  static std::deque<std::array<const void*, 4>> known;
  auto& information = known.emplace_back(std::array<const void*, 4>{nullptr, name, nullptr, nullptr});
  auto& vtable = known.emplace_back(std::array<const void*, 4>{nullptr, information.data(), nullptr, nullptr});
  return &vtable[2];
}
const void* const kTensorImpl = vtable_of("N3c1010TensorImplE");
const void* const kUndefined = vtable_of("N3c1019UndefinedTensorImplE");
const void* const kSparse = vtable_of("N2at16SparseTensorImplE");
const void* const kStorageImpl = vtable_of("N3c1011StorageImplE");
const void* const kListImpl = vtable_of("N3c106detail8ListImplE");
const void* const kConstantString = vtable_of("N3c106ivalue14ConstantStringE");

class Process {
 public:
  explicit Process(const Torch& torch) : torch_(torch) {}

  Value integer(int64_t value) { return {static_cast<uint64_t>(value), 5}; }
  Value boolean(bool value) { return {value, torch_.boolean}; }
  Value string(const char* text) {
    std::byte* object = counted(kConstantString, torch_.counted + 32);
    put(object, torch_.counted, text);
    return {address(object), torch_.string};
  }
  Value list(const std::vector<Value>& elements) {
    std::byte* object = counted(kListImpl, torch_.counted + 40);
    const auto& kept = lists_.emplace_back(elements);
    put(object, torch_.counted, kept.data());
    put(object, torch_.counted + 8, kept.data() + kept.size());
    put(object, torch_.counted + 16, kept.data() + kept.size());
    return {address(object), torch_.list};
  }
  Value tensor(const std::vector<int64_t>& sizes, int64_t offset = 0, const void* vtable = kTensorImpl) {
    std::byte* object = counted(vtable, torch_.size);
    int64_t elements = 1;
    std::vector<int64_t> strides(sizes.size());
    for (size_t i = sizes.size(); i-- > 0; elements *= sizes[i]) strides[i] = elements;
    put(object, torch_.storage, storage((elements + offset) * 4));
    put(object, torch_.sizes, sizes.size());
    auto& numbers = numbers_.emplace_back(sizes);
    numbers.insert(numbers.end(), strides.begin(), strides.end());
    for (size_t i = 0; i < sizes.size() && sizes.size() <= 5; ++i) {
      put(object, torch_.sizes + 8 + i * 8, sizes[i]);
      put(object, torch_.sizes + 48 + i * 8, strides[i]);
    }
    if (sizes.size() > 5) put(object, torch_.sizes + 8, numbers.data());
    put(object, torch_.offset, offset);
    put(object, torch_.elements, elements);
    put(object, torch_.type, uint16_t{6});  // float
    const uint8_t device[2][3] = {{0, 255, 1}, {1, 0, 255}};
    std::memcpy(object + torch_.device, device[torch_.flag_first], 3);
    put(object, torch_.keys, uint64_t{0x8000000001});
    return {address(object), 1};
  }
  // c10::UndefinedTensorImpl's only one
  const void* undefined() {
    std::byte* object = room(torch_.size);
    put(object, 0, kUndefined);
    put(object, torch_.sizes, uint64_t{1});
    put(object, torch_.sizes + 48, uint64_t{1});
    put(object, torch_.type, uint16_t{21});
    return object;
  }
  // THPVariable, to 2.9 with a MaybeOwned<Tensor>, later with a Tensor
  const void* python_tensor(Value tensor, bool is_owned_apart) {
    std::byte* object = room(64);
    put(object, is_owned_apart ? 24 : 16, tensor.payload);
    put(reinterpret_cast<std::byte*>(tensor.payload), torch_.python, object);
    return object;
  }
  std::byte* room(size_t size) { return rooms_.emplace_back(size).data(); }
  template <class T>
  static void put(std::byte* object, size_t at, T value) {
    std::memcpy(object + at, &value, sizeof(value));
  }
  static uint64_t address(const void* object) { return reinterpret_cast<uint64_t>(object); }

 private:
  std::byte* counted(const void* vtable, size_t size) {
    std::byte* object = room(size);
    put(object, 0, vtable);
    if (torch_.counted == 24) {
      put(object, 8, uint64_t{2});
      put(object, 16, uint64_t{1});
    } else {
      put(object, 8, uint64_t{0x100000002});
    }
    return object;
  }
  std::byte* storage(int64_t bytes) {
    std::byte* object = counted(kStorageImpl, 120);
    put(object, torch_.storage_data, room(16));
    put(object, torch_.storage_bytes, bytes);
    return object;
  }

  const Torch& torch_;
  std::deque<std::vector<std::byte>> rooms_;
  std::deque<std::vector<Value>> lists_;
  std::deque<std::vector<int64_t>> numbers_;
};

struct OneSearch : Search {
  OneSearch() { use(torch::object_rows(), torch::tag_rows()); }
  const torch::ValueRow* see(const std::vector<Value>& values) {
    return see_operator(values.data(), values.size(), false);
  }
};

bool is_right(const torch::ValueRow* row, const Torch& torch) {
  return row && row->refcounted == torch.counted && row->sizes == torch.sizes && row->boolean == torch.boolean &&
         row->string == torch.string && row->list == torch.list &&
         (row->device == torch::DeviceOrder::kFlagFirst) == torch.flag_first;
}

std::string encoded(const torch::ValueRow& row, const std::vector<Value>& values) {
  unsigned char out[torch::kMaxInputs];
  return {reinterpret_cast<char*>(out), torch::encode_inputs(row, values.data(), values.size(), nullptr, 0, out)};
}

}  // namespace

TEST_CASE("each torch is found by what its tensors show, whatever its version") {
  for (const Torch& torch : kTorches) {
    CAPTURE(torch.version);
    Process process(torch);
    OneSearch search;
    CHECK(search.see({process.tensor({2, 3})}) == nullptr);  // one shows nothing yet
    const std::vector<Value> add{process.tensor({2, 3}), process.tensor({3}), process.integer(1)};
    REQUIRE(search.see(add) != nullptr);
    CHECK(search.found() == nullptr);
    const std::vector<Value> empty{process.list({process.integer(2), process.integer(3)}), process.boolean(true)};
    CHECK(is_right(search.see(empty), torch));
    CHECK(is_right(search.see({process.tensor({4, 5, 6}), process.string("mean")}), torch));
    CHECK(is_right(search.found(), torch));
  }
}

TEST_CASE("where torch exports its undefined tensor, the first operator is read") {
  for (const Torch& torch : kTorches) {
    CAPTURE(torch.version);
    Process process(torch);
    OneSearch search;
    search.set_undefined(process.undefined(), torch.size);
    const std::vector<Value> ones{process.list({process.integer(2)}), process.boolean(false)};
    const torch::ValueRow* row = search.see(ones);
    REQUIRE(row);
    CHECK(row->list == torch.list);
    CHECK(row->sizes == torch.sizes);
    // The order of the device's bytes is not decided yet.
    CHECK(is_right(search.see({process.tensor({2})}), torch));
    search.see({process.tensor({2}), process.list({})});
    CHECK(is_right(search.found(), torch));
  }
}

TEST_CASE("an undefined tensor whose constructor has not run yet says nothing, and later all") {
  Process process(k2_11);
  OneSearch search;
  auto* object = const_cast<std::byte*>(static_cast<const std::byte*>(process.undefined()));
  std::vector<std::byte> made(object, object + k2_11.size);
  std::memset(object, 0, k2_11.size);
  search.set_undefined(object, k2_11.size);
  CHECK(search.see({process.tensor({2})}) == nullptr);
  std::memcpy(object, made.data(), made.size());
  CHECK(search.see({process.tensor({2})}) != nullptr);
}

TEST_CASE("no tensor that is right puts its row out") {
  for (const Torch& torch : kTorches) {
    CAPTURE(torch.version);
    Process process(torch);
    OneSearch search;
    const std::vector<std::vector<int64_t>> shapes{{},     {0},       {1},       {1, 1, 1},          {0, 4},
                                                   {7, 8}, {1 << 20}, {3, 0, 5}, {1, 2, 3, 4, 5, 6}, {2, 2, 2, 2, 2}};
    for (const auto& shape : shapes)
      for (const int64_t offset : {0, 1, 17}) {
        const auto tensor = process.tensor(shape, offset);
        if (offset == 17) Process::put(reinterpret_cast<std::byte*>(tensor.payload), torch.storage, uint64_t{0});
        search.see({tensor, process.tensor(shape, offset, kSparse), process.list({tensor, tensor}),
                    Value{Process::address(process.undefined()), 1}});
      }
    CHECK(is_right(search.found(), torch));
  }
}

TEST_CASE("tensors that Python holds lead back to their objects") {
  for (const Torch& torch : kTorches) {
    CAPTURE(torch.version);
    Process process(torch);
    OneSearch search;
    CHECK(search.object_row() == nullptr);
    for (const bool apart : {true, false})
      search.see_python_tensor(process.python_tensor(process.tensor({3, 4}), apart));
    const torch::ValueRow* row = search.object_row();
    REQUIRE(row);
    CHECK(row->sizes == torch.sizes);
    CHECK(torch::tensor_of(*row, process.python_tensor(process.tensor({3}), true)));
    const void* stranger = process.python_tensor(process.tensor({3, 4}), true);
    Process::put(reinterpret_cast<std::byte*>(torch::field_at<uint64_t>(stranger, 24)), torch.python, uint64_t{16});
    search.see_python_tensor(stranger);
    CHECK(search.is_hopeless());
  }
}

TEST_CASE("a tensor whose storage is none, or too small, or that has one element, shows nothing") {
  for (const Torch& torch : kTorches) {
    CAPTURE(torch.version);
    Process process(torch);
    OneSearch search;
    const auto spoilt = [&](auto spoil) {
      const Value tensor = process.tensor({2, 3});
      auto* impl = reinterpret_cast<std::byte*>(tensor.payload);
      spoil(impl, reinterpret_cast<std::byte*>(torch::field_at<uint64_t>(impl, torch.storage)));
      return tensor;
    };
    for (int i = 0; i < 4; ++i)
      search.see({process.tensor({1}), process.tensor({}), process.tensor({2, 3}, 0, kSparse),
                  spoilt([&](std::byte* impl, std::byte*) { Process::put(impl, torch.storage, uint64_t{0}); }),
                  spoilt([&](std::byte* impl, std::byte*) { Process::put(impl, torch.storage, uint64_t{1} << 46); }),
                  spoilt([&](std::byte*, std::byte* storage) { Process::put(storage, 0, kListImpl); }),
                  spoilt([&](std::byte*, std::byte* storage) { Process::put(storage, torch.storage_bytes, 23); })});
    CHECK(search.object_row() == nullptr);
    CHECK_FALSE(search.is_hopeless());
  }
}

TEST_CASE("what all rows read alike is read before one is found, what they do not is held back") {
  Process process(k2_6);
  OneSearch search;
  search.set_undefined(process.undefined(), k2_6.size);
  const std::vector<Value> add{process.tensor({2, 3}), process.tensor({2, 3}), process.integer(1)};
  // A compiler may leave what the other seven bytes of a truth value were.
  const std::vector<Value> sum{process.tensor({2, 3}), {uint64_t{0x7f0000000001}, k2_6.boolean}};
  for (int i = 0; i < 10; ++i) {
    REQUIRE(search.see(add));
    CHECK(encoded(*search.see(add), add).size() > 0);
    CHECK(search.see(sum) == nullptr);
  }
  CHECK(search.found() == nullptr);
  search.see({process.list({})});
  CHECK(is_right(search.see(sum), k2_6));
}

TEST_CASE("the first operator is read whatever numbers and truth values it has, before there was a list or a text") {
  for (const Torch& torch : kTorches) {
    for (const bool truth : {false, true}) {
      CAPTURE(torch.version);
      Process process(torch);
      OneSearch search;
      search.set_undefined(process.undefined(), torch.size);
      const std::vector<Value> eye{process.integer(3), {}, {}, process.boolean(truth)};
      const torch::ValueRow* row = search.see(eye);
      REQUIRE(row);
      CHECK(encoded(*row, eye) == std::string("I\6NNB") + char(truth));
      CHECK(search.found() == nullptr);  // a list or a text may still say that this torch is another
      search.see({process.tensor({2}), process.list({})});
      search.see({process.tensor({2}), process.list({})});
      CHECK(is_right(search.found(), torch));
    }
  }
}

TEST_CASE("without a list or a text the search does not go on for ever: the rest is read, values that differ are not") {
  Process process(k2_6);
  OneSearch search;
  search.set_undefined(process.undefined(), k2_6.size);
  const std::vector<Value> sum{process.tensor({2, 3}), process.integer(7), process.boolean(true)};
  for (uint32_t i = 0; i <= Search::kPatience; ++i) search.see(sum);
  const torch::ValueRow* row = search.see(sum);
  REQUIRE(row);
  CHECK(encoded(*row, sum).find("I\x0e?") != std::string::npos);
  for (uint32_t i = 0; i < 3 * Search::kLater; ++i) search.see({process.tensor({2}), process.list({})});
  CHECK(is_right(search.found(), k2_6));
}

TEST_CASE("a tensor that looks otherwise puts the last row out, found or not") {
  Process process(k2_11), other(k2_14);
  OneSearch search;
  for (int i = 0; i < 8; ++i) search.see({process.tensor({2, 3}), process.list({})});
  CHECK(is_right(search.found(), k2_11));
  CHECK(search.see({other.tensor({2, 3})}) == nullptr);
  CHECK(search.found() == nullptr);
  CHECK(search.is_hopeless());
}

TEST_CASE("objects of classes whose layout is not known decide nothing, and are not read") {
  Process process(k2_11), other(k2_14);
  OneSearch search;
  for (int i = 0; i < 8; ++i) {
    search.see({process.tensor({2, 3}), process.list({})});
    CHECK(search.see({other.tensor({2, 3}, 0, kSparse)}) == nullptr);
  }
  CHECK(is_right(search.found(), k2_11));
}

TEST_CASE("a wrong row beside the right one, with the header or the device of another, is put out") {
  using torch::DeviceOrder;
  const auto before = DeviceOrder::kFlagFirst, behind = DeviceOrder::kFlagLast;
  for (const Torch& torch : kTorches) {
    CAPTURE(torch.version);
    const auto own = torch.flag_first ? before : behind, wrong = torch.flag_first ? behind : before;
    const torch::ObjectRow rows[] = {{40 - torch.counted, torch.sizes, own, "wrong header"},
                                     {torch.counted, torch.sizes, wrong, "wrong device"},
                                     {40 - torch.counted, torch.sizes, wrong, "both wrong"},
                                     {torch.counted, torch.sizes - 8, own, "a word before"},
                                     {torch.counted, torch.sizes, own, "right"}};
    Process process(torch);
    OneSearch search;
    search.use(rows, torch::tag_rows());
    search.set_undefined(process.undefined(), torch.size);
    for (int i = 0; i < 4; ++i) search.see({process.tensor({2, 3}), process.list({})});
    CHECK(is_right(search.found(), torch));
  }
}

TEST_CASE("a torch of later years: tensors elsewhere are not read, tags of their own leave tensors and lose the rest") {
  Torch later = k2_14;
  later.sizes -= 8, later.offset -= 8, later.elements -= 8, later.type -= 8, later.device -= 8, later.keys -= 8;
  later.python -= 8, later.size -= 8;
  Process process(later);
  OneSearch search;
  for (int i = 0; i < 20; ++i) CHECK(search.see({process.tensor({2, 3}), process.list({})}) == nullptr);
  CHECK(search.is_hopeless());

  later = k2_14;
  later.boolean = 14, later.string = 16, later.list = 18;
  Process another(later);
  OneSearch second;
  second.set_undefined(another.undefined(), later.size);
  const std::vector<Value> values{another.tensor({2, 3}), another.list({another.integer(7)}), another.string("mean"),
                                  another.boolean(true)};
  const torch::ValueRow* row = nullptr;
  for (int i = 0; i < 20; ++i) row = second.see(values);
  REQUIRE(row);
  const std::string text = encoded(*row, values);
  CHECK(text.substr(0, 1) == "T");
  CHECK(text.substr(text.size() - 3) == "???");
}

TEST_CASE("bytes that are no tensor choose nothing") {
  std::mt19937_64 random(7);
  enum { kZeros, kOnes, kAllBits, kRandom, kSmall, kMixture, kKinds };
  for (int kind = 0; kind < kKinds; ++kind)
    for (int round = 0; round < (kind < kRandom ? 1 : 300); ++round)
      for (const bool has_class : {false, true}) {
        Process process(k2_11);
        OneSearch search;
        for (int i = 0; i < 12; ++i) {
          std::byte* object = process.room(192);
          for (size_t at = 0; at < 192; at += 8) {
            const uint64_t choices[] = {
                0,         1, Process::address(object), Process::address(&search), random(), random() % 8, ~uint64_t{0},
                0x01ff0006};
            const uint64_t word[] = {0,        0x0101010101010101, ~uint64_t{0},
                                     random(), random() % 8,       choices[random() % 8]};
            Process::put(object, at, word[kind]);
          }
          if (has_class) Process::put(object, 0, kTensorImpl);
          const Value list{Process::address(object), 12 + static_cast<uint32_t>(random() % 3)};
          CHECK(search.see({Value{Process::address(object), 1}}) == nullptr);
          CHECK(search.see({list}) == nullptr);
          search.see_python_tensor(object);
        }
        CHECK(search.found() == nullptr);
        CHECK(search.object_row() == nullptr);
      }
}

TEST_CASE("addresses that lead nowhere are not followed") {
  int here = 0;
  CHECK(torch::read_safely(&here, &here, 0));
  for (const uint64_t address : {uint64_t{0}, uint64_t{8}, uint64_t{4096}, uint64_t{1} << 46, ~uint64_t{0} - 4}) {
    unsigned char out[16];
    CHECK_FALSE(torch::read_safely(reinterpret_cast<const void*>(address), out, sizeof(out)));
    OneSearch search;
    for (uint32_t tag = 0; tag < 30; ++tag) search.see({Value{address, tag}});
    CHECK(search.object_row() == nullptr);
    for (const Torch& torch : kTorches) {  // a tensor's sizes, a list's elements
      Process process(torch);
      OneSearch another;
      const Value tensor = process.tensor({1, 2, 3, 4, 5, 6}), list = process.list({tensor});
      Process::put(reinterpret_cast<std::byte*>(tensor.payload), torch.sizes + 8, address);
      Process::put(reinterpret_cast<std::byte*>(list.payload), torch.counted, address & ~uint64_t{15});
      Process::put(reinterpret_cast<std::byte*>(list.payload), torch.counted + 8, (address & ~uint64_t{15}) + 1600);
      CHECK(another.see({list}) == nullptr);
      CHECK(another.see({tensor}) == nullptr);
    }
  }
}

}  // namespace search_test
