#include "formats/io/deflate.h"

#include <doctest/doctest.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace deflate_test {

using torchprof::formats::Deflate;

namespace {

std::string compress(Deflate& deflate, const std::string& text, size_t chunk) {
  std::string padded = text + std::string(Deflate::kPadding, 'x'), out;
  for (size_t at = 0; at == 0 || at < text.size(); at += chunk) {
    const size_t end = std::min(at + chunk, text.size()), room = Deflate::bound(end - at);
    std::string part(room + 100, '#');
    const size_t size = deflate.run(std::string_view(padded).substr(0, end), at, end == text.size(), part.data());
    CHECK(size <= room);
    CHECK(part.substr(room) == std::string(100, '#'));
    out += part.substr(0, size);
  }
  return out;
}

std::string decompress(std::string compressed, size_t size) {
  std::string text(size + 1, '\0');
  z_stream in{};
  REQUIRE(inflateInit2(&in, -MAX_WBITS) == Z_OK);
  in.next_in = reinterpret_cast<Bytef*>(compressed.data());
  in.avail_in = static_cast<uInt>(compressed.size());
  in.next_out = reinterpret_cast<Bytef*>(text.data());
  in.avail_out = static_cast<uInt>(text.size());
  const int code = inflate(&in, Z_FINISH);
  CAPTURE(std::string(in.msg != nullptr ? in.msg : ""));
  CHECK(code == Z_STREAM_END);
  CHECK(in.avail_in == 0);
  text.resize(in.total_out);
  inflateEnd(&in);
  return text;
}

size_t size_by_zlib(std::string text) {
  z_stream out{};
  REQUIRE(deflateInit2(&out, 1, Z_DEFLATED, -MAX_WBITS, MAX_MEM_LEVEL, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string compressed(deflateBound(&out, text.size()), '\0');
  out.next_in = reinterpret_cast<Bytef*>(text.data());
  out.avail_in = static_cast<uInt>(text.size());
  out.next_out = reinterpret_cast<Bytef*>(compressed.data());
  out.avail_out = static_cast<uInt>(compressed.size());
  REQUIRE(deflate(&out, Z_FINISH) == Z_STREAM_END);
  deflateEnd(&out);
  return out.total_out;
}

// Bytes of `symbols` values; the higher `skew`, the rarer the later ones.
std::string noise(size_t size, unsigned symbols, double skew = 0) {
  std::mt19937 random(symbols);
  std::vector<double> weights;
  for (double weight = 1; weights.size() < symbols; weight /= 1 + skew) weights.push_back(weight);
  std::discrete_distribution<int> value(weights.begin(), weights.end());
  std::string text(size, '\0');
  std::ranges::generate(text, [&] { return static_cast<char>(value(random)); });
  return text;
}

std::string repeated(const std::string& part, size_t size) {
  std::string text;
  while (text.size() < size) text += part;
  return text.substr(0, size);
}

std::string events(size_t count) {
  std::mt19937 random(1);
  std::string text;
  uint64_t ns = 64'294'502'756'200;
  const auto us = [](uint64_t t) { return std::to_string(t / 1000) + "." + std::to_string(1000 + t % 1000).substr(1); };
  for (size_t i = 0; i < count; ++i) {
    text += R"({"ph":"X","cat":"cpu_op","name":"aten::operator_)" + std::to_string(random() % 60);
    text += R"(","pid":4711,"tid":4711,"ts":)" + us(ns += random() % 9000) + R"(,"dur":)" + us(random() % 9000);
    text += R"(,"args":{"External id":)" + std::to_string(i) + R"(,"Ev Idx":)" + std::to_string(2 * i) + "}},\n";
  }
  return text;
}

// Like packets of Perfetto: numbers of fields, lengths, varints.
std::string packets(size_t count) {
  std::mt19937 random(1);
  std::string data;
  const auto add = [&](uint8_t field, uint64_t value) {
    data.push_back(static_cast<char>(field));
    for (; value > 127; value >>= 7) data.push_back(static_cast<char>(128 | (value & 127)));
    data.push_back(static_cast<char>(value));
  };
  for (size_t i = 0; i < count; ++i) {
    add(8, random() % 9000);
    add(80, 4711);
    add(90, 12 + random() % 3);
    add(72, 1 + random() % 2);
    add(24, random() % 60);
    if (i % 2 == 0) data.append("\x28\x01\x5a\x02\x09", 6);
  }
  return data;
}

}  // namespace

TEST_CASE("what is compressed is whole, whatever it is") {
  const std::vector<std::pair<std::string, std::string>> texts = {
      {"nothing", ""},
      {"one byte", "a"},
      {"too short for a match", "abcdefg"},
      {"one byte again and again", std::string(300'000, 'a')},
      {"all bytes", repeated(noise(4000, 256), 100'000)},
      {"noise", noise(700'000, 256)},
      {"noise of two bytes", noise(300'000, 2)},
      {"noise, then text, then noise", noise(300'000, 256) + events(3000) + noise(70'000, 256)},
      {"codes that would be longer than the most", noise(1'000'000, 60, 0.6)},
      {"a match as far away as can be", repeated(noise(Deflate::kWindow, 256), 200'000)},
      {"a match that is too far away", repeated(noise(Deflate::kWindow + 1, 256), 200'000)},
      {"a match 64 KiB away", repeated(noise(65'536, 256), 300'000)},
      {"events", events(20'000)},
      {"packets", packets(50'000)},
      {"text, then packets", events(3000) + packets(30'000)},
  };
  Deflate deflate;
  for (const auto& [name, text] : texts) {
    CAPTURE(name);
    for (const size_t chunk : {size_t{256} * 1024, size_t{999}, text.size() + 1}) {
      if (text.size() / chunk > 500) continue;  // takes long, and shows nothing more
      CAPTURE(chunk);
      const std::string back = decompress(compress(deflate, text, chunk), text.size());
      CHECK((back == text));  // too long to be printed
    }
  }
}

TEST_CASE("matches of each length, at each place of the end") {
  Deflate deflate;
  const std::string part = noise(300, 256);
  for (size_t length = 0; length <= part.size(); ++length) {
    const std::string text = part + part.substr(0, length) + noise(length % 12, 256);
    CHECK((decompress(compress(deflate, text, text.size()), text.size()) == text));
  }
}

TEST_CASE("nothing of what was compressed before changes the bytes") {
  const std::string text = events(2000);
  Deflate deflate, other;
  compress(other, noise(500'000, 3) + text, size_t{256} * 1024);
  CHECK((compress(deflate, text, size_t{256} * 1024) == compress(other, text, size_t{256} * 1024)));
}

TEST_CASE("what is behind the text does not change the bytes") {
  Deflate deflate;
  for (const std::string& text : {events(100), packets(100), std::string("abcdefgabcdefg")}) {
    std::string compressed[2];
    for (const bool again : {false, true}) {
      const std::string padded = text + (again ? text : std::string(Deflate::kPadding, '\0'));
      compressed[again].resize(Deflate::bound(text.size()));
      compressed[again].resize(
          deflate.run(std::string_view(padded).substr(0, text.size()), 0, true, compressed[again].data()));
    }
    CHECK((compressed[0] == compressed[1]));
  }
}

TEST_CASE("events and packets take at most what they take by zlib, and noise what it takes as it is") {
  Deflate deflate;
  for (const std::string& text : {events(20'000), events(20), packets(50'000), packets(500)})
    CHECK(compress(deflate, text, text.size()).size() <= size_by_zlib(text));
  const std::string text = noise(200'000, 256);
  CHECK(compress(deflate, text, text.size()).size() <= text.size() + 100);
}

}  // namespace deflate_test
