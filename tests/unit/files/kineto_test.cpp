#include "formats/write/kineto/kineto.h"

#include <doctest/doctest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "tests/unit/support/small_training.h"
#include "tests/unit/support/spool_builder.h"

namespace kineto_test {

using namespace torchprof;
using namespace torchprof::formats;
using nlohmann::json;
using test::SpoolBuilder;
using test::train;

namespace {

std::string kineto(const Trace& trace, Processes processes) { return test::written(trace, processes, write_kineto); }

}  // namespace

TEST_CASE("the trace of one process") {
  SpoolBuilder b(100, {"/usr/bin/python3", "train.py"});
  train(b, 100);
  const test::LoadedTrace trace(b);
  const std::string text = kineto(*trace, trace->processes);
  CHECK(json::parse(text).at("traceEvents").size() > 10);
  // The version changes without the format.
  test::check_golden("kineto.json", std::regex_replace(text, std::regex(R"("version":"[^"]*")"), R"("version":"*")"));
}

TEST_CASE("the stream has the same events, one a line, and the names of threads first") {
  SpoolBuilder b(100, {"/usr/bin/python3", "train.py"});
  train(b, 100);
  const test::LoadedTrace trace(b);
  const std::string text = test::written(*trace, write_json_stream);
  test::check_golden("stream.json", text);
  std::vector<std::string> lines;
  const json events = json::parse(kineto(*trace, trace->processes)).at("traceEvents");
  for (size_t i = 0; i + 4 < events.size(); ++i) {  // without Kineto's tail
    std::string line = events[i].dump();
    if (events[i].at("ph") != "M") lines.push_back(line);
  }
  std::istringstream in(text);
  std::string line;
  std::getline(in, line);
  CHECK(line == "[");
  size_t found = 0;
  while (std::getline(in, line)) {
    REQUIRE(line.ends_with("},"));
    line.pop_back();
    if (const json event = json::parse(line); event.at("ph") != "M") CHECK(event.dump() == lines.at(found++));
  }
  CHECK(found == lines.size());
}

TEST_CASE("threads have Python's name, C calls their caller's place, garbage collections what they found") {
  SpoolBuilder b;
  const TrackId t = b.thread(100, "worker-0123456");
  b.python_name(t, 100, "worker-0123456789");
  const FunctionId f = b.function("/usr/lib/python3/json/decoder.py", 10, "decode", 17);
  b.at(10).begin(f).at(20).c_begin(b.call_site("<built-in function len>", f, 12)).at(30).c_end();
  b.at(40).gc_begin(1).at(50).gc_end(7, 2).at(60).gc_begin(0);
  const test::LoadedTrace trace(b);
  const json events = json::parse(kineto(*trace, trace->processes)).at("traceEvents");
  const auto named = [&](std::string_view name) {
    return *std::ranges::find_if(events, [&](const json& e) { return e.at("name") == name; });
  };
  CHECK(named("<built-in function len>").at("args").at("CallFrom") == "json/decoder.py:12");
  CHECK(named("thread_name").at("args").at("name") == "thread 100 (worker-0123456789)");
  std::vector<json> collections;
  for (const json& e : events)
    if (e.at("name") == "Python GC") collections.push_back(e.at("args"));
  REQUIRE(collections.size() == 2);
  CHECK((collections[0].at("generation") == 1 && collections[0].at("collected") == 7));
  CHECK(collections[0].at("uncollectable") == 2);
  CHECK_FALSE(collections[1].contains("collected"));  // it never ended
}

TEST_CASE("an import is a span of Python with the file that was known when it had ended") {
  SpoolBuilder b;
  b.thread(100);
  const FunctionId outer = b.import("torch.nn"), inner = b.import("torch.nn.functional");
  b.at(10).begin(outer).at(20).begin(inner).at(50).end(inner).at(60).end(outer);
  b.file_of_import(outer, "torch.nn", "/usr/lib/python3/torch/nn/__init__.py", 17);
  const test::LoadedTrace trace(b);
  std::map<std::string, json> found;
  const json parsed = json::parse(kineto(*trace, trace->processes));
  for (const json& e : parsed.at("traceEvents"))
    if (e.value("cat", "") == "python_function") found[e.at("name")] = e.at("args");
  REQUIRE(found.size() == 2);
  CHECK(found["import torch.nn"].at("File") == "torch/nn/__init__.py");
  CHECK_FALSE(found["import torch.nn.functional"].contains("File"));
  CHECK(found["import torch.nn.functional"].at("Python parent id") == found["import torch.nn"].at("Python id"));
}

TEST_CASE("the merged trace of two processes that share a pid") {
  SpoolBuilder first(100, {"sh"}), second(100, {"/usr/bin/python3", "train.py"});
  train(first, 100);
  train(second, 100);
  second.header().start.realtime.value += 1;  // after exec
  const SpoolBuilder* both[] = {&first, &second};
  const test::LoadedTrace trace(both);
  const std::string text = kineto(*trace, trace->processes);
  std::set<uint64_t> pids, flows, external_ids, indices, python_ids;
  const json parsed = json::parse(text);
  for (const json& e : parsed.at("traceEvents")) {
    if (e["ph"] == "s") CHECK(flows.insert(e["id"].get<uint64_t>()).second);
    if (e["ph"] != "X" || e["cat"] == "Trace") continue;
    pids.insert(e["pid"].get<uint64_t>());
    const json& args = e["args"];
    CHECK(indices.insert(args["Ev Idx"].get<uint64_t>()).second);
    if (args.contains("External id")) CHECK(external_ids.insert(args["External id"].get<uint64_t>()).second);
    if (args.contains("Python id")) CHECK(python_ids.insert(args["Python id"].get<uint64_t>()).second);
  }
  CHECK(pids == std::set<uint64_t>{100, 101});
  CHECK(flows == std::set<uint64_t>{1, 2});
  CHECK(external_ids.size() == 10);
  CHECK(python_ids.size() == 6);
  CHECK(parsed["torchprof"]["processes"].size() == 2);
}

TEST_CASE("hostile names come out as valid JSON, whole lines, no control characters") {
  SpoolBuilder b(100, {"/bin/\"py\\thon\"\n"});
  b.use_chunks_of(64 * 1024);
  const TrackId track = b.thread(100, "\x01\xff");
  const FunctionId f = b.function("C:\\x\"y\".py\n", 1, "\xc3(", 0);
  b.source("so\nurce\xf0", SourceState::kFailed, "why\tnot\x80");
  b.meta("\xff", "\xfe");
  const std::string endless(kMaxString, '\x02');
  b.on(track).at(10).begin(f).op(1, "<\x7f\x1b[31m>").op_end(1).op(2, endless).op_end(2).op(3, "").op_end(3).end(f);
  const test::LoadedTrace trace(b);
  const std::string text = kineto(*trace, trace->processes);
  const json parsed = json::parse(text);  // also throws for bytes that are no UTF-8
  for (const char c : text) REQUIRE((static_cast<unsigned char>(c) >= 0x20 || c == '\n'));
  const json& events = parsed["traceEvents"];
  CHECK(events[3]["name"] == "<\x7f\x1b[31m>");
  CHECK(events[4]["name"].get<std::string>().size() > 5000);
  CHECK(events[5]["name"] == "<unknown>");
  CHECK(events[6]["name"] == "C:\\x\"y\".py\n(1): \xef\xbf\xbd(");
}

TEST_CASE("a trace of nothing has its frame and its tail") {
  SpoolBuilder b;
  const test::LoadedTrace trace(b);
  const json parsed = json::parse(kineto(*trace, trace->processes));
  CHECK(parsed["traceEvents"].size() == 3 + 4);
  CHECK(json::parse(kineto(*trace, {}))["traceEvents"].size() == 4);
}

}  // namespace kineto_test
