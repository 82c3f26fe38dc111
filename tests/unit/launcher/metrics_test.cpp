// The text of `torchprof metrics`, and what its server answers.
#include <doctest/doctest.h>

#include <random>
#include <set>
#include <string>

#include "launcher/watch/metrics_server.h"
#include "launcher/watch/metrics_text.h"
#include "launcher/watch/page_server.h"

namespace metrics_test {

using namespace torchprof;
using namespace torchprof::launcher;

namespace {

size_t count(const std::string& text, const std::string& part) {
  size_t times = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++times;
  return times;
}

MeasuredProcess rank(int64_t number, const std::string& host = "node1") {
  MeasuredProcess one;
  one.process.pid = static_cast<uint32_t>(100 + number);
  one.process.host = host;
  one.process.view.rank = number;
  return one;
}

}  // namespace

TEST_CASE("of a process of which nothing is known there is nothing but what recording costs") {
  Measured measured{.run = "/run", .processes = {rank(3)}, .unix_ns = 1'500'000'000'250'000'000};
  const std::string text = metrics_text(measured);
  const std::string labels = R"({run="/run",host="node1",rank="3",role="rank"} )";
  std::string samples;
  for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1)
    if (text[at] != '#') samples += text.substr(at, text.find('\n', at) + 1 - at);
  const auto line = [&](const std::string& name, int value) {
    return "torchprof_" + name + labels + std::to_string(value) + "\n";
  };
  CHECK(samples ==
        "torchprof_written_timestamp_seconds{run=\"/run\"} 1500000000.25\n"
        "torchprof_processes{run=\"/run\"} 1\n"
        "torchprof_metrics_cpu_seconds_total{run=\"/run\"} 0\n" +
            line("window_open", 1) + line("capture_stopped", 0) + line("spool_bytes", 0) +
            line("lost_events_total", 0) + line("recycled_bytes_total", 0));
  CHECK(text.ends_with("\n# EOF\n"));
}

TEST_CASE("a step that takes just as long as a bound is at most as long") {
  formats::StepSizes sizes;
  for (const int64_t ns : {1'000'000, 1'000'001, 250'000'000}) sizes.add(ns);
  MeasuredProcess one = rank(0);
  one.process.view.has_every_step = true;
  one.process.view.steps = 4;
  one.process.view.step_sizes = sizes;
  const std::string text = metrics_text({.run = "r", .processes = {one}});
  const auto bucket = [](const std::string& le, int n) {
    return R"(torchprof_step_seconds_bucket{run="r",host="node1",rank="0",role="rank",le=")" + le + "\"} " +
           std::to_string(n) + "\n";
  };
  CHECK(count(text, bucket("0.001", 1) + bucket("0.003", 2) + bucket("0.01", 2)) == 1);
  CHECK(count(text, bucket("0.3", 3) + bucket("1.0", 3)) == 1);
  CHECK(count(text, bucket("+Inf", 3)) == 1);
  CHECK(count(text, "torchprof_step_seconds_sum{run=\"r\",host=\"node1\",rank=\"0\",role=\"rank\"} 0.252000001\n") ==
        1);
}

TEST_CASE("whatever names hold, each sample is one line with labels of its own") {
  std::mt19937 random(5);
  constexpr std::string_view kOdd = "a\"\\\n{}, =\x1b\xff";
  for (int round = 0; round < 200; ++round) {
    const auto odd = [&] {
      std::string text;
      for (size_t i = random() % 8; i > 0; --i) text += kOdd[random() % kOdd.size()];
      return text;
    };
    Measured measured{.run = odd(), .processes = {}};
    const std::string host = odd();
    for (size_t i = 1 + random() % 5; i > 0; --i) {
      MeasuredProcess& one = measured.processes.emplace_back(rank(static_cast<int64_t>(random() % 2), host));
      one.process.pid = static_cast<uint32_t>(i);
      if (random() % 3 == 0) one.process.view.worker = odd();
      if (random() % 3 == 0) one.process.view.rank.reset();
    }
    const std::string text = metrics_text(measured);
    const std::string name = "torchprof_spool_bytes{";
    std::set<std::string> labels;
    for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
      const std::string line = text.substr(at, text.find('\n', at) - at);
      CHECK((line.starts_with("# ") || line.starts_with("torchprof_")));
      if (line.starts_with(name)) labels.insert(line);
      size_t quotes = 0;
      for (size_t i = 0; i < line.size(); ++i) {
        if (line[i] == '\\')
          ++i;
        else
          quotes += line[i] == '"';
      }
      CHECK((line.starts_with("#") || quotes % 2 == 0));
    }
    CHECK(labels.size() == measured.processes.size());
  }
}

TEST_CASE("a page is for who has its token and asks this machine") {
  const std::string token(32, 'a');
  const auto status = [&](const std::string& line, const std::string& fields = "Host: 127.0.0.1:80\r\n") {
    return page_answer(line + " HTTP/1.1\r\n" + fields + "\r\n", token, "page").substr(9, 3);
  };
  CHECK(status("GET /" + token + "/") == "200");
  CHECK(status("GET /" + token + "/?x", "host:\tLocalhost\r\n") == "421");  // browsers write it small
  CHECK(status("HEAD /" + token + "/", "Accept: x\r\nHOST: localhost\r\n") == "200");
  CHECK(
      page_answer("GET /" + token + "/ HTTP/1.1\r\nHost: localhost\r\n\r\n", token, "page").ends_with("\r\n\r\npage"));
  CHECK(status("POST /" + token + "/") == "405");
  // A token that differs in one place, wherever that is, or in its length.
  for (size_t i = 0; i < token.size(); ++i) {
    std::string other = token;
    other[i] = 'b';
    CHECK(status("GET /" + other + "/") == "404");
    CHECK(status("GET /" + token.substr(i + 1) + "/") == "404");
  }
  for (const char* host : {"", "Host:\r\n", "Host: example.org\r\n", "Host: 127.0.0.1.example.org\r\n",
                           "Host: x127.0.0.1\r\n", "Host: 127.0.0.1\r\nHost: example.org\r\n", "Host: 10.0.0.1:80\r\n"})
    CHECK(status("GET /" + token + "/", host) == "421");
}

TEST_CASE("a request is answered by its method and target alone") {
  const auto status = [](std::string_view head) { return answer_to(head, "numbers\n").substr(9, 3); };
  CHECK(status("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n") == "200");
  CHECK(status("GET /metrics?a=b HTTP/1.0\r\n\r\n") == "200");
  CHECK(status("HEAD /metrics HTTP/1.1\r\n\r\n") == "200");
  CHECK(status("GET / HTTP/1.1\r\n\r\n") == "404");
  CHECK(status("GET /metrics/ HTTP/1.1\r\n\r\n") == "404");
  CHECK(status("PUT /metrics HTTP/1.1\r\n\r\n") == "405");
  for (const std::string_view odd :
       {"", "\r\n\r\n", "GET", "GET /metrics", "GET /metrics HTTP/2\r\n\r\n", " ", "  HTTP/1.1\r\n"})
    CHECK(status(odd) == "400");
  CHECK(answer_to("GET /metrics HTTP/1.1\r\n\r\n", "numbers\n")
            .ends_with("Content-Length: 8\r\nConnection: close\r\n\r\nnumbers\n"));
  CHECK(answer_to("HEAD /metrics HTTP/1.1\r\n\r\n", "numbers\n").ends_with("\r\n\r\n"));
}

}  // namespace metrics_test
