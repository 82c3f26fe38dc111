#include "formats/values/flops.h"

#include <doctest/doctest.h>

#include <sstream>

namespace flops_test {

using namespace torchprof::formats;

namespace {

// "3x4" a tensor, "()" one without dimensions, "#" one whose sizes must not be read, "=2" an integer, "[2,1]" a list of
// them, "'same" a string, "-" None.
std::vector<Input> inputs(const std::string& text) {
  std::vector<Input> all;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    Input input;
    const auto numbers = [&word](size_t from, char between) {
      std::vector<int64_t> list;
      std::istringstream in(word.substr(from));
      for (std::string number; std::getline(in, number, between);) list.push_back(std::stoll(number));
      return list;
    };
    if (word[0] == '[') {
      input.kind = Input::Kind::kScalarList;
      input.integers = numbers(1, ',');
    } else if (word[0] == '=') {
      input.kind = Input::Kind::kScalar;
      input.integers = numbers(1, ',');
    } else if (word[0] == '\'') {
      input.word = word.substr(1);
    } else if (word != "-") {
      input.kind = Input::Kind::kTensor;
      Tensor tensor;
      tensor.is_readable = word != "#";
      if (word != "()" && word != "#") tensor.sizes = numbers(0, 'x');
      input.tensors.push_back(tensor);
    }
    all.push_back(input);
  }
  return all;
}

uint64_t flops(const char* op, const std::string& of) { return flops_of(std::string("aten::") + op, inputs(of)); }

}  // namespace

TEST_CASE("products of matrices count a multiplication and an addition for each pair") {
  CHECK(flops("mm", "3x4 4x5") == 2 * 3 * 4 * 5);
  CHECK(flops("addmm", "7 6x2 2x7 =1 =1") == 2 * 6 * 2 * 7);
  CHECK(flops("bmm", "2x3x4 2x4x9") == 2 * 2 * 3 * 4 * 9);
  CHECK(flops("baddbmm", "2x3x5 2x3x4 2x4x5 =1 =1") == 2 * 2 * 3 * 4 * 5);
  CHECK(flops("linear", "2x3x4 5x4 5") == 2 * 2 * 3 * 4 * 5);
  CHECK(flops("linear", "2x4 4 -") == 2 * 2 * 4);  // a weight of one dimension: one output feature
}

TEST_CASE("additions and products of elements count those of the first input") {
  CHECK(flops("add", "7x3 3 =1") == 21);
  CHECK(flops("mul", "7x1 1x9") == 7);
  CHECK(flops("mul", "() ()") == 1);
  CHECK(flops("mul", "=3 5") == 0);
}

TEST_CASE("a convolution counts its kernel once for each place of its output") {
  // input weight bias stride padding dilation groups
  CHECK(flops("conv1d", "2x4x19 6x4x3 - [2] [2] [1] =1") == 2 * 2 * 11 * (6 * 4 * 3));
  CHECK(flops("conv2d", "8x6x17x16 6x6x3x3 6 [2,2] [1,1] [1,1] =1") == 2 * 8 * (9 * 8) * (6 * 6 * 9));
  CHECK(flops("conv2d", "8x6x17x16 4x6x5x3 4 [1,1] [2,0] [1,3] =1") == 2 * 8 * (17 * 10) * (4 * 6 * 15));
  CHECK(flops("conv3d", "2x4x5x6x7 3x4x2x2x3 - [1] [0] [1] =1") == 2 * 2 * (4 * 5 * 5) * (3 * 4 * 12));
  CHECK(flops("conv2d", "6x17x16 5x6x3x3 - [1,1] [0,0] [1,1] =1") == 2 * (15 * 14) * (5 * 6 * 9));  // no batch
  CHECK(flops("conv2d", "8x6x17x16 6x1x3x3 - [1,1] [1,1] [1,1] =6") == 2 * 8 * (17 * 16) * (6 * 1 * 9));
  CHECK(flops("conv2d", "8x6x17x16 5x6x3x2 - [1,1] 'same [2,2] =1") == 2 * 8 * (17 * 16) * (5 * 6 * 6));
  CHECK(flops("conv2d", "8x6x17x16 5x6x3x2 - [1,1] 'valid [1,1] =1") == 2 * 8 * (15 * 15) * (5 * 6 * 6));
}

TEST_CASE("a transposed convolution counts its kernel once for each place of its input") {
  // input weight bias stride padding output_padding groups dilation
  CHECK(flops("conv_transpose1d", "2x4x9 4x5x3 - [2] [0] [0] =1 [1]") == 2 * 2 * 9 * (4 * 5 * 3));
  CHECK(flops("conv_transpose2d", "2x4x9x8 4x5x3x3 - [2,2] [0,0] [1,1] =2 [1,1]") == 2 * 2 * 72 * (4 * 5 * 9));
  CHECK(flops("conv_transpose3d", "1x4x3x3x3 4x2x2x2x2 - [1] [0] [0] =1 [1]") == 2 * 27 * (4 * 2 * 8));
  // ... transposed output_padding groups
  CHECK(flops("convolution", "2x4x9x8 4x5x3x3 - [2,2] [0,0] [1,1] =1 [1,1] =2") == 2 * 2 * 72 * (4 * 5 * 9));
  CHECK(flops("convolution", "2x4x9x8 5x4x3x3 - [1,1] [0,0] [1,1] =0 [0,0] =1") == 2 * 2 * 42 * (5 * 4 * 9));
}

TEST_CASE("attention is query times key and weights times value") {
  const uint64_t expected = 2 * (2 * 4 * 10 * 12) * (8 + 6);
  for (const char* op : {"scaled_dot_product_attention", "_scaled_dot_product_flash_attention_for_cpu",
                         "_scaled_dot_product_attention_math", "_scaled_dot_product_efficient_attention"})
    CHECK(flops(op, "2x4x10x8 2x4x12x8 2x4x12x6") == expected);
  CHECK(flops("scaled_dot_product_attention", "2x4x10x8 2x2x12x8 2x2x12x6") == expected);  // keys shared by heads
  CHECK(flops("_flash_attention_forward", "2x10x4x8 2x12x4x8 2x12x4x6") == expected);      // heads after the length
  CHECK(flops("_flash_attention_forward", "20x4x8 24x4x8 24x4x8") == 0);                   // packed
}

TEST_CASE("what the inputs do not tell counts nothing") {
  CHECK(flops("relu", "3x4") == 0);
  CHECK(flops("mm", "3x4") == 0);
  CHECK(flops("mm", "3x4 #") == 0);
  CHECK(flops("mm", "0x4 4x5") == 0);
  CHECK(flops("mm", "3x4x5 5x6") == 0);
  CHECK(flops("conv2d", "8x6x2x2 4x6x3x3 - [1,1] [0,0] [1,1] =1") == 0);  // the kernel is larger than the picture
  CHECK(flops("conv2d", "8x6x9x9 4x6x3x3 - [0,0] [0,0] [1,1] =1") == 0);
  CHECK(flops("mm", "4294967296x4294967296 4294967296x4294967296") == 0);  // more than 64 bits hold
}

}  // namespace flops_test
