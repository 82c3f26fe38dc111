#include "formats/io/text.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "tracer/process/printable.h"

namespace text_test {

using namespace torchprof::formats;
using namespace std::string_literals;

TEST_CASE("a JSON string escapes what JSON wants escaped and repairs what is no UTF-8") {
  CHECK(json_string("aten::add") == R"("aten::add")");
  CHECK(json_string("say \"hi\"\\") == R"("say \"hi\"\\")");
  CHECK(json_string(std::string_view("a\nb\t\0c\x1b", 7)) == R"("a\nb\t\u0000c\u001b")");
  CHECK(json_string("Größe 模型 😀") == R"("Größe 模型 😀")");
  CHECK(json_string("\xff-\xc3") == "\"\xef\xbf\xbd-\xef\xbf\xbd\"");
  CHECK(json_string("\xed\xa0\x80") == "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");  // a lone surrogate
}

TEST_CASE("text for people is one line of valid UTF-8") {
  CHECK(printable("plain") == "plain");
  CHECK(printable("a\nb\x1b[31m") == "a?b?[31m");
  CHECK(printable("\xfe!") == "\xef\xbf\xbd!");
  CHECK(printable("") == "");
  CHECK(printable("\u009b31m\u202egnp\u2066\u200f\u061c\u2028\x7f") == "?31m?gnp?????");
}

TEST_CASE("of any bytes, text for a terminal is UTF-8 without a character on which one acts, and JSON says the same") {
  const std::vector<std::string> pieces = {"a",      "\n",     "\x1b[31m", "\x7f",   "\0"s,        "\u0080", "\u009b",
                                           "\u009f", "\u00a0", "\u061c",   "\u200e", "\u200f",     "\u2028", "\u2029",
                                           "\u202a", "\u202e", "\u2066",   "\u2069", "\U0001f600", "\xc2",   "\xe2\x80",
                                           "\x9b",   "\"",     "\\",       "~"};
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    for (size_t n = random() % 12; n > 0; --n) bytes += pieces[random() % pieces.size()];
    const std::string text = for_terminal(bytes), line = printable(bytes), json = json_string(bytes);
    CAPTURE(json);
    std::string as_line = text;
    std::ranges::replace(as_line, '\n', '?');
    CHECK(line == as_line);
    for (const std::string& out : {text, json}) {
      for (size_t i = 0; i < out.size(); ++i) {
        const auto c = static_cast<unsigned char>(out[i]);
        CHECK(((c == '\n' && out == text) || (c >= 0x20 && c != 0x7f)));
      }
      for (const std::string& piece : pieces)
        if (piece.size() > 1 && piece != "\u00a0" && piece != "\U0001f600" && piece != "\xe2\x80")
          CHECK(out.find(piece) == out.npos);
    }
    // The same text to who reads it, but for bytes that are no UTF-8.
    const std::string read = nlohmann::json::parse(json).get<std::string>();
    CHECK(for_terminal(read) == text);
  }
}

TEST_CASE("a long text loses its middle, by characters") {
  CHECK(columns("Größe") == 5);
  CHECK(shorten("short", 5) == "short");
  CHECK(shorten("torch/nn/modules/linear.py(114): forward", 24) == "torch/n...(114): forward");
  CHECK(columns(shorten("torch/nn/modules/linear.py(114): forward", 24)) <= 24);
  CHECK(shorten("ßßßßßßßßßß", 6) == "ß...ßß");
  CHECK(shorten("abcdef", 2) == "..");
}

TEST_CASE("a long text is broken at spaces, a long word shortened") {
  using Lines = std::vector<std::string>;
  CHECK(wrap("a line that fits, as  it is", 30) == Lines{"a line that fits, as  it is"});
  CHECK(wrap("steps 3-9: twice the median; in load()", 20) == Lines{"steps 3-9: twice the", "  median; in load()"});
  CHECK(wrap("in abcdefghijklmnopqrstuvwxyz.py now", 16) == Lines{"in", "  abc...vwxyz.py", "  now"});
  for (const std::string& line : wrap("ä öü ßßßßßßßßßßßßßßßßßßßßßßßßßß ö", 16)) CHECK(columns(line) <= 16);
}

TEST_CASE("of any bytes, what the library says in the program is as safe as what the launcher says") {
  const std::vector<std::string> pieces = {"a",
                                           "\n",
                                           "\x1b[31m",
                                           "\x7f",
                                           "\0"s,
                                           "\u0080",
                                           "\u009b",
                                           "\u00a0",
                                           "\u061c",
                                           "\u200e",
                                           "\u2029",
                                           "\u202e",
                                           "\u2069",
                                           "\u2070",
                                           "\U0001f600",
                                           "\U0010ffff",
                                           "\xc2",
                                           "\xe2\x80",
                                           "\x9b",
                                           "\xc0\xaf",
                                           "\xed\xa0\x80",
                                           "\xe0\x9f\xbf",
                                           "\xf4\x90\x80\x80",
                                           "\xf0\x8f\xbf\xbf"};
  std::mt19937 random(8);
  for (int round = 0; round < 5000; ++round) {
    std::string bytes;
    for (size_t n = random() % 12; n > 0; --n) bytes += pieces[random() % pieces.size()];
    if (random() % 4 == 0)
      for (size_t n = random() % 8; n > 0; --n) bytes += static_cast<char>(random());
    std::string safe = bytes;
    torchprof::make_printable(safe.data(), safe.size());
    CHECK(printable(safe) == safe);
    if (printable(bytes) == bytes) CHECK(safe == bytes);
  }
}

}  // namespace text_test
