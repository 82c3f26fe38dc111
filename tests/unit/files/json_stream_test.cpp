// Tokens of JSON, beside those that another parser finds in the same text.
#include "formats/io/json_stream.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>

#include "formats/io/error.h"
#include "tests/unit/support/spool_builder.h"

namespace json_stream_test {

using namespace torchprof;
using namespace torchprof::formats;
using nlohmann::json;

namespace {

std::string number_text(double value) { return "n" + std::to_string(value) + ";"; }

// What was read, as a text.
class Found final : public JsonTokens {
 public:
  std::string tokens;
  void null() override { tokens += "null;"; }
  void boolean(bool value) override { tokens += value ? "true;" : "false;"; }
  void number(std::string_view text) override {
    double value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    tokens += number_text(value);
  }
  void string(std::string_view text) override { tokens.append("s").append(text).append(";"); }
  void key(std::string_view text) override { tokens.append("k").append(text).append(";"); }
  void start_object() override { tokens += "{"; }
  void end_object() override { tokens += "}"; }
  void start_array() override { tokens += "["; }
  void end_array() override { tokens += "]"; }
};

class Expected final : public json::json_sax_t {
 public:
  std::string tokens, error;
  bool null() override { return add("null;"); }
  bool boolean(bool value) override { return add(value ? "true;" : "false;"); }
  bool number_integer(number_integer_t v) override { return add(number_text(static_cast<double>(v))); }
  bool number_unsigned(number_unsigned_t v) override { return add(number_text(static_cast<double>(v))); }
  bool number_float(number_float_t v, const string_t&) override { return add(number_text(v)); }
  bool string(string_t& v) override { return add("s" + v + ";"); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return add("{"); }
  bool end_object() override { return add("}"); }
  bool start_array(std::size_t) override { return add("["); }
  bool end_array() override { return add("]"); }
  bool key(string_t& v) override { return add("k" + v + ";"); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& e) override {
    error = e.what();
    return false;
  }

 private:
  bool add(const std::string& text) {
    tokens += text;
    return true;
  }
};

std::string made_up_text(std::mt19937& random) {
  std::string text;
  const size_t size = random() % 400 == 0 ? 100'000 : random() % 20;
  while (text.size() < size) switch (random() % 8) {
      case 0:
        text += "\xc3\xa4";
        break;
      case 1:
        text += "\xf0\x9f\x98\x80";
        break;
      case 2:
        text += "\"\\/\n\t\b\x01"[random() % 7];
        break;
      default:
        text += static_cast<char>('a' + random() % 26);
    }
  return text;
}

json made_up(std::mt19937& random, int depth) {
  switch (random() % (depth > 0 ? 9 : 6)) {
    case 0:
      return nullptr;
    case 1:
      return random() % 2 == 0;
    case 2:
      return static_cast<int64_t>(random()) * (random() % 2 == 0 ? -1 : 1) << random() % 32;
    case 3:
      return std::ldexp(static_cast<double>(random()), static_cast<int>(random() % 80) - 60);
    case 4:
      return UINT64_MAX - random();
    case 5:
      return made_up_text(random);
    case 6: {
      json list = json::array();
      for (size_t i = random() % 12; i > 0; --i) list.push_back(made_up(random, depth - 1));
      return list;
    }
    default: {
      json object = json::object();
      for (size_t i = random() % 10; i > 0; --i) object[made_up_text(random)] = made_up(random, depth - 1);
      return object;
    }
  }
}

}  // namespace

TEST_CASE("the same tokens as another parser finds, and an error where it finds one") {
  test::TemporaryDirectory directory;
  const auto file = directory / "a.json";
  size_t refused = 0, accepted = 0;
  for (unsigned seed = 0; seed < 400; ++seed) {
    std::mt19937 random(seed);
    json document = json::array();
    for (size_t i = random() % 20; i > 0; --i) document.push_back(made_up(random, 3));
    std::string text = document.dump(random() % 3 == 0 ? 2 : -1, ' ', random() % 2 == 0);
    for (size_t i = random() % 3; i > 0 && !text.empty(); --i)  // damage
      switch (random() % 3) {
        case 0:
          text[random() % text.size()] = static_cast<char>(random());
          break;
        case 1:
          text.insert(random() % text.size(), 1, "{}[],:\"\\0eE.-+tfn \n"[random() % 20]);
          break;
        default:
          text.resize(text.size() - random() % std::min<size_t>(text.size(), 10));
      }
    if (random() % 10 == 0) text.insert(0, "\xef\xbb\xbf");
    std::ofstream(file, std::ios::binary | std::ios::trunc) << text;
    Expected expected;
    const bool is_right = json::sax_parse(text, &expected);
    Found found;
    std::string error;
    try {
      ByteStream stream(file);
      const bool is_whole = read_json(stream, found, [] { return false; });
      CHECK(is_whole);
    } catch (const Error& e) {
      error = e.what();
    }
    CAPTURE(seed);
    // A number without a double is a number.
    if (expected.error.find("number overflow") != std::string::npos) continue;
    CHECK(error.empty() == is_right);
    if (is_right) CHECK((found.tokens == expected.tokens));
    ++(is_right ? accepted : refused);
  }
  CHECK(accepted > 100);
  CHECK(refused > 100);
}

TEST_CASE("where the text ends is said, and who reads may take what came") {
  test::TemporaryDirectory directory;
  const auto file = directory / "a.json";
  const auto read = [&](const std::string& text, bool may_be_cut) -> std::string {
    std::ofstream(file, std::ios::binary | std::ios::trunc) << text;
    Found found;
    try {
      ByteStream stream(file);
      return (read_json(stream, found, [&] { return may_be_cut; }) ? "whole " : "cut ") + found.tokens;
    } catch (const Error& error) {
      const std::string_view what = error.what();
      return std::string(what.substr(what.find(".json: ") + 7));
    }
  };
  CHECK(read("[1,\"a\"", true) == "cut [n1.000000;sa;");
  CHECK(read("[1,\"a\"", false) == "it is cut off after 6 bytes");
  CHECK(read("12", false) == "whole n12.000000;");
  CHECK(read("", false) == "it is empty");
  CHECK(read("[1] x", true).starts_with("it is not JSON at byte 5: "));
  CHECK(read("[1 2]", true).starts_with("it is not JSON at byte 4: "));
  CHECK(read(std::string(kDeepestJson, '[') + std::string(kDeepestJson, ']'), false).starts_with("whole ["));
  CHECK(read(std::string(100'000, '['), true).starts_with("it is not JSON at byte "));
  CHECK(read("[-0.5e3,18446744073709551616]" + std::string(100'000, ' '), false) ==
        "whole [n-500.000000;n18446744073709551616.000000;]");
}

}  // namespace json_stream_test
