#include "formats/io/output.h"

#include <doctest/doctest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <zlib.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <system_error>
#include <thread>

#include "formats/io/error.h"
#include "formats/io/gzip.h"
#include "tests/unit/support/spool_builder.h"

namespace output_test {

using namespace torchprof;
using formats::Gzip;
using formats::Output;
namespace fs = std::filesystem;

namespace {

std::string gunzip(const fs::path& file) {
  std::string text;
  gzFile in = gzopen(file.c_str(), "rb");
  char buffer[4096];
  for (int n = 0; (n = gzread(in, buffer, sizeof(buffer))) > 0;) text.append(buffer, static_cast<size_t>(n));
  gzclose(in);
  return text;
}

void add(Gzip& gzip, std::string_view data) { gzip.add(data.copy(gzip.room(), data.size())); }

std::string noise(size_t size) {
  std::string text;
  for (uint64_t x = 88172645463325252; text.size() < size;) {
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    text += static_cast<char>(x);
  }
  return text;
}

}  // namespace

TEST_CASE("a file appears under its name when it is complete") {
  test::TemporaryDirectory directory;
  const fs::path file = directory / "x.txt";
  Output out(file);
  out.write("hello ");
  char* at = out.reserve(5);
  std::copy_n("world", 5, at);
  out.advance(at + 5);
  CHECK(out.bytes_in() == 11);
  CHECK_FALSE(fs::exists(file));
  out.commit();
  CHECK(test::read_file(file) == "hello world");
  CHECK(out.bytes_out() == 11);
  CHECK_FALSE(fs::exists(directory / "x.txt.tmp"));
}

TEST_CASE("a name that ends in .gz makes one gzip member of all that was written") {
  test::TemporaryDirectory directory;
  const fs::path file = directory / "x.json.gz";
  const std::string text = noise(1'000'000) + std::string(3'000'000, 'a');
  Output out(file);
  out.write(text);
  out.commit();
  CHECK(gunzip(file) == text);
  CHECK(out.bytes_in() == text.size());
  CHECK(out.bytes_out() == fs::file_size(file));
  const std::string raw = test::read_file(file);
  CHECK(raw.substr(0, 3) == "\x1f\x8b\x08");
  uint32_t size = 0;  // of the last member: all of it, so there is one
  std::copy_n(raw.data() + raw.size() - 4, 4, reinterpret_cast<char*>(&size));
  CHECK(size == text.size());
}

TEST_CASE("what is compressed in pieces is whole, whatever its size") {
  test::TemporaryDirectory directory;
  const std::string text = noise(700'000) + std::string(2'000'000, ' ') + noise(100'000);
  for (const size_t size : {size_t{0}, size_t{1}, Gzip::kChunk - 1, Gzip::kChunk, Gzip::kChunk + 1, text.size()}) {
    for (const size_t piece : {size_t{1000}, Gzip::kChunk}) {
      std::string compressed;
      Gzip gzip([&compressed](std::string_view data) { compressed.append(data); });
      for (size_t at = 0; at < size; at += piece)
        add(gzip, std::string_view(text).substr(at, std::min(piece, size - at)));
      gzip.finish();
      std::ofstream(directory / "x.gz", std::ios::binary) << compressed;
      CHECK(gunzip(directory / "x.gz") == text.substr(0, size));
    }
  }
}

TEST_CASE("signals are blocked as before and the bytes are the same, also where a thread cannot be started") {
  sigset_t mine, before, now;
  sigemptyset(&mine);
  sigaddset(&mine, SIGUSR2);
  pthread_sigmask(SIG_SETMASK, &mine, &before);
  pthread_attr_t plain, huge;
  pthread_getattr_default_np(&plain);
  pthread_getattr_default_np(&huge);
  REQUIRE(pthread_attr_setstacksize(&huge, size_t{1} << 47) == 0);  // all that there is of addresses
  const std::string text = noise(400'000) + std::string(Gzip::kChunk, 'a');
  std::string compressed[2];
  for (const pthread_attr_t* attributes : {&plain, &huge}) {
    const bool can_start = attributes == &plain;
    CAPTURE(can_start);
    REQUIRE(pthread_setattr_default_np(attributes) == 0);
    if (!can_start) CHECK_THROWS_AS(std::thread([] {}), std::system_error);
    Gzip gzip([&](std::string_view data) { compressed[can_start].append(data); });
    for (size_t at = 0; at < text.size(); at += Gzip::kChunk)
      add(gzip, std::string_view(text).substr(at, Gzip::kChunk));
    gzip.finish();
    pthread_sigmask(SIG_SETMASK, nullptr, &now);
    for (int signal = 1; signal < NSIG; ++signal) CHECK(sigismember(&now, signal) == sigismember(&mine, signal));
  }
  CHECK((compressed[0] == compressed[1]));
  pthread_setattr_default_np(&plain);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TEST_CASE("what was there before stays when a writer gives up") {
  test::TemporaryDirectory directory;
  const fs::path file = directory / "x.txt";
  std::ofstream(file) << "before";
  { Output(file).write("after"); }
  CHECK(test::read_file(file) == "before");
  CHECK_FALSE(fs::exists(directory / "x.txt.tmp"));
}

TEST_CASE("memory takes what a file would") {
  std::string text = "> ";
  Output out(text);
  out.write(std::string(600'000, 'x'));
  out.commit();
  CHECK(text.size() == 600'002);
}

TEST_CASE("what is no file is written to as it is") {
  test::TemporaryDirectory directory;
  const fs::path link = directory / "null.gz";
  fs::create_symlink("/dev/null", link);
  Output out(link);
  out.write("gone");
  out.commit();
  CHECK(fs::is_symlink(link));
  CHECK(std::distance(fs::directory_iterator(directory.path()), {}) == 1);
}

TEST_CASE("a FIFO is written to once somebody reads from it, and not waited for without end") {
  test::TemporaryDirectory directory;
  const fs::path fifo = directory / "p";
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  CHECK_THROWS_WITH_AS((Output(fifo)), ("cannot write " + fifo.string() + ": nobody reads from this FIFO").c_str(),
                       Error);
  const std::string text = noise(1'000'000);  // more than it holds
  std::string got;
  std::thread reader([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    got = test::read_file(fifo);
  });
  Output out(fifo);
  out.write(text);
  out.commit();
  reader.join();
  CHECK(got == text);
}

TEST_CASE("what took the place of a file of ours is not written to") {
  test::TemporaryDirectory directory;
  const fs::path file = directory / "x.txt";
  std::ofstream(file) << "before";
  {
    Output out(file, formats::Existing::kOwn);
    out.write("after");
    out.commit();
  }
  CHECK(test::read_file(file) == "after");
  fs::remove(file);
  REQUIRE(mkfifo(file.c_str(), 0600) == 0);
  CHECK_THROWS_AS(Output(file, formats::Existing::kOwn), Error);
}

TEST_CASE("a directory that is not there is one clear error") {
  CHECK_THROWS_WITH_AS(Output("/nonexistent/x.txt"), "cannot create /nonexistent/x.txt: No such file or directory",
                       Error);
}

TEST_CASE("a file that cannot grow is one clear error and leaves nothing behind") {
  test::TemporaryDirectory directory;
  const fs::path file = directory / "x.json.gz";
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{100'000, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  std::string message;
  try {
    Output out(file);
    out.write(noise(2'000'000));
    out.commit();
  } catch (const Error& error) {
    message = error.what();
    CHECK(error.status == 125);
  }
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  CHECK(message == "cannot write " + file.string() + ": File too large");
  CHECK(fs::is_empty(directory.path()));
}

}  // namespace output_test
