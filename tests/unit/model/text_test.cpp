#include "formats/io/text.h"

#include <doctest/doctest.h>

namespace text_test {

using namespace torchprof::formats;

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

}  // namespace text_test
