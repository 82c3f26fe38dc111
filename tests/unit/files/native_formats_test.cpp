// What formats make of native stacks: the same program in each.
#include <doctest/doctest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <protozero/pbf_reader.hpp>

#include "formats/analysis/statistics.h"
#include "formats/native/names.h"
#include "formats/write/memory_snapshot.h"
#include "formats/write/perfetto/perfetto.h"
#include "formats/write/stacks.h"
#include "tests/unit/support/spool_builder.h"

namespace native_formats_test {

using namespace torchprof;
using namespace torchprof::formats;
using protozero::pbf_reader;
using test::SpoolBuilder;
using test::written;

namespace {

constexpr const char* kSymbols = R"(torchprof symbols 1
object	ab	/usr/bin/program
at	1f
symbol	make	program.cpp	12
object	ab	/usr/bin/python3
at	f
symbol	_start		0
at	1f
symbol	_PyEval_EvalFrameDefault		0
object	cd	/lib/libtorch_python.so
at	f
symbol	THPVariable_add	bindings.cpp	30
object	ef	/lib/libtorch.so
at	f
symbol	c10::Dispatcher::call	/src/Dispatcher.h	700
symbol	at::_ops::add::call	/src/Operators.cpp	5
at	1f
symbol	at::_ops::add::call	/src/Operators.cpp	6
at	3f
symbol	at::_ops::empty::call		0
)";

// Native records have no short way in: fields as they lie.
void object(SpoolBuilder& b, uint32_t id, std::string_view path, std::string_view build_id) {
  const uint64_t start = 0x10000 * id;
  b.raw_definition(24,
                   {id | uint64_t{b.string(path).value} << 32, b.string(build_id).value, start, start + 0x1000, start});
}
void frame(SpoolBuilder& b, uint32_t id, uint32_t caller, uint32_t object, uint64_t in_file) {
  b.raw_definition(25, {id | uint64_t{caller} << 32, object, object == 0 ? in_file : 0x10000 * object + in_file});
}

// f() adds two tensors, which makes an empty one; then a thread without Python does the same.
void add_program(SpoolBuilder& b) {
  const TrackId main = b.thread(100, "main"), worker = b.thread(101, "worker");
  object(b, 1, "/usr/bin/python3", "\xab");
  object(b, 2, "/lib/libtorch_python.so", "\xcd");
  object(b, 3, "/lib/libtorch.so", "\xef");
  frame(b, 1, 0, 1, 0x10);  // _start
  frame(b, 2, 1, 1, 0x20);  // the interpreter
  frame(b, 3, 2, 2, 0x10);  // the binding
  frame(b, 4, 3, 3, 0x10);  // add::call where it begins aten::add
  frame(b, 5, 3, 3, 0x20);  // add::call where it calls what adds
  frame(b, 6, 5, 3, 0x30);  // what adds: nothing is known of it
  frame(b, 7, 6, 3, 0x40);  // empty::call
  frame(b, 8, 0, 0, 0xabcd);
  frame(b, 9, 8, 3, 0x10);
  const FunctionId f = b.function("f");
  b.on(main).at(1'000).begin(f).at(2'000).op(1, "aten::add").raw(90, {4});
  b.at(3'000).op(2, "aten::empty").raw(90, {7}).at(5'000).op_end(2).at(8'000).op_end(1).at(9'000).end(f);
  b.on(worker).at(1'000).op(3, "aten::add").raw(90, {9}).at(4'000).op_end(3);
}

class NamedTrace {
 public:
  explicit NamedTrace(const SpoolBuilder& spool) : trace_(spool) {
    Trace named = *trace_;
    std::ofstream(named.processes.at(0).file.parent_path() / "symbols") << kSymbols;
    name_native_frames(named, NativeFrames::kAll);
  }
  const Trace& operator*() const { return *trace_; }

 private:
  test::LoadedTrace trace_;
};

NamedTrace named_program() {
  SpoolBuilder b(100, {"python3"});
  add_program(b);
  return NamedTrace(b);
}

}  // namespace

TEST_CASE("native frames stand between the function and the operator, and between operators, none twice") {
  const std::string f = "python3_100;100_(main);test.py(1):_f";
  const std::string add =
      ";THPVariable_add_(bindings.cpp:30);at::_ops::add::call_(Operators.cpp:5);"
      "c10::Dispatcher::call_(Dispatcher.h:700);aten::add";
  CHECK(written(*named_program(), write_stacks) ==
        f + " 2\n" + f + add + " 4\n" + f + add + ";libtorch.so+0x30;at::_ops::empty::call;aten::empty 2\n" +
            "python3_100;101_(worker);0xabcd;at::_ops::add::call_(Operators.cpp:5);"
            "c10::Dispatcher::call_(Dispatcher.h:700);aten::add 3\n");
}

TEST_CASE("speedscope has the same frames") {
  const auto doc = nlohmann::json::parse(written(*named_program(), write_speedscope));
  std::vector<std::string> path;
  for (const size_t frame : doc["profiles"][0]["samples"].back())
    path.push_back(doc["shared"]["frames"][frame]["name"]);
  CHECK(path == std::vector<std::string>{"test.py(1): f", "THPVariable_add (bindings.cpp:30)",
                                         "at::_ops::add::call (Operators.cpp:5)",
                                         "c10::Dispatcher::call (Dispatcher.h:700)", "aten::add", "libtorch.so+0x30",
                                         "at::_ops::empty::call", "aten::empty"});
}

TEST_CASE("frames that nobody has named are left out") {
  SpoolBuilder b(100, {"python3"});
  add_program(b);
  CHECK(written(*test::LoadedTrace(b), write_stacks) ==
        "python3_100;100_(main);test.py(1):_f 2\npython3_100;100_(main);test.py(1):_f;aten::add 4\n"
        "python3_100;100_(main);test.py(1):_f;aten::add;aten::empty 2\npython3_100;101_(worker);aten::add 3\n");
}

TEST_CASE("an annotation has no frames, and what is inside it those inside of the function") {
  SpoolBuilder b(100, {"python3"});
  add_program(b);
  b.on(TrackId{1}).at(20'000).annotation(10, "block").raw(90, {3}).at(21'000).op(11, "aten::mul").raw(90, {4});
  b.at(22'000).op_end(11).at(23'000).op_end(10);
  const std::string text = written(*NamedTrace(b), write_stacks);
  CHECK(text.find("100_(main);block 2\n") != std::string::npos);
  CHECK(text.find("100_(main);block;_start;_PyEval_EvalFrameDefault;THPVariable_add") != std::string::npos);
}

namespace {

// Of a message, by field: numbers, and bytes.
struct Fields {
  std::map<uint32_t, std::vector<uint64_t>> numbers;
  std::map<uint32_t, std::vector<std::string>> bytes;
  explicit Fields(const std::string& message) {
    for (pbf_reader reader(message); reader.next();) {
      if (reader.wire_type() == protozero::pbf_wire_type::varint)
        numbers[reader.tag()].push_back(reader.get_uint64());
      else if (reader.wire_type() == protozero::pbf_wire_type::length_delimited)
        bytes[reader.tag()].push_back(reader.get_string());
      else
        reader.skip();
    }
  }
  uint64_t number(uint32_t field) const { return numbers.contains(field) ? numbers.at(field).at(0) : 0; }
};

// Of a profile of pprof: each location as "file of the mapping@address:line function:line ...".
std::vector<std::string> locations_of(const Fields& profile) {
  const auto& text = profile.bytes.at(6);
  std::map<uint64_t, std::string> functions, mappings;
  for (const std::string& one : profile.bytes.at(5)) {
    const Fields f(one);
    functions[f.number(1)] = text.at(f.number(2)) + (f.number(4) != 0 ? " " + text.at(f.number(4)) : "");
  }
  for (const std::string& one : profile.bytes.at(3)) {
    const Fields m(one);
    mappings[m.number(1)] = text.at(m.number(5)) + " " + text.at(m.number(6)) + (m.number(7) != 0 ? " known" : "");
    CHECK(m.number(3) - m.number(2) == 0x1000);
  }
  std::vector<std::string> result;
  for (const std::string& one : profile.bytes.at(4)) {
    const Fields l(one);
    std::string shown = l.number(2) != 0 ? mappings.at(l.number(2)) + "@" + std::to_string(l.number(3) & 0xffff) : "";
    for (const std::string& line : l.bytes.at(4))
      shown += "|" + functions.at(Fields(line).number(1)) + ":" + std::to_string(Fields(line).number(2));
    result.push_back(shown);
  }
  return result;
}

}  // namespace

TEST_CASE("pprof has a location for each call, with its mapping, its address and what was inlined") {
  CHECK(
      locations_of(Fields(written(*named_program(), write_pprof))) ==
      std::vector<std::string>{"|f test.py:1", "/lib/libtorch_python.so cd known@15|THPVariable_add bindings.cpp:30",
                               "/lib/libtorch.so ef@15|c10::Dispatcher::call /src/Dispatcher.h:700|at::_ops::add::call "
                               "/src/Operators.cpp:5",
                               "|aten::add:0", "/lib/libtorch.so ef@47|libtorch.so+0x30:0",
                               "/lib/libtorch.so ef@63|at::_ops::empty::call:0", "|aten::empty:0", "|0xabcd:0"});
}

TEST_CASE("perfetto has each stack, frame, object and name once") {
  std::map<uint32_t, std::vector<Fields>> interned;
  std::vector<uint64_t> stacks;
  const Fields trace(written(*named_program(), write_perfetto));
  for (const std::string& one : trace.bytes.at(1)) {
    const Fields packet(one);
    if (packet.bytes.contains(12))
      for (const auto& [table, entries] : Fields(packet.bytes.at(12).at(0)).bytes)
        for (const std::string& entry : entries) interned[table].emplace_back(entry);
    if (packet.bytes.contains(11))
      if (const uint64_t id = Fields(packet.bytes.at(11).at(0)).number(56); id != 0) stacks.push_back(id);
  }
  CHECK(stacks == std::vector<uint64_t>{1, 2, 3});
  CHECK(interned[7].size() == 3);
  CHECK(interned[6].size() == 9);
  CHECK(interned[19].size() == 3);
  CHECK(interned[16].at(0).bytes.at(2).at(0) == "\xef");
  std::string names;
  for (const uint64_t frame : interned[7].at(1).numbers.at(2))
    names += interned[5].at(interned[6].at(frame - 1).number(2) - 1).bytes.at(2).at(0) + ";";
  CHECK(names ==
        "_start;_PyEval_EvalFrameDefault;THPVariable_add;at::_ops::add::call;libtorch.so+0x30;at::_ops::empty::call;");
}

TEST_CASE("operators by the frames that call them, native and Python's, the innermost first") {
  const auto stack_of_empty = [](uint32_t depth) {
    const NamedTrace trace = named_program();
    OpGrouping grouping{.by = OpGrouping::By::kStack, .depth = depth};
    for (const auto& [key, group] : statistics_of((*trace).processes[0], {.grouping = grouping}).op_groups)
      if (group.name == "aten::empty") return group.detail;
    return std::string();
  };
  CHECK(stack_of_empty(1) == "at::_ops::empty::call");
  CHECK(stack_of_empty(9) ==
        "at::_ops::empty::call; libtorch.so+0x30; c10::Dispatcher::call (Dispatcher.h:700); at::_ops::add::call "
        "(Operators.cpp:5); THPVariable_add (bindings.cpp:30); test.py(1): f");
}

TEST_CASE("memory that no function of Python asked for has the native line outside of torch") {
  SpoolBuilder b(100, {"program"});
  const TrackId main = b.thread(100, "main");
  object(b, 1, "/usr/bin/program", "\xab");
  object(b, 2, "/lib/libtorch_cpu.so.2", "\xcd");
  frame(b, 1, 0, 1, 0x10);
  frame(b, 2, 1, 1, 0x20);
  frame(b, 3, 2, 2, 0x10);
  b.on(main).at(10).raw(91, {3}).raw(68, {0x1000, 4096, 4096, 4096, 0xff00});
  const NamedTrace trace(b);
  const Statistics s = statistics_of((*trace).processes[0], {});
  REQUIRE(s.memory.size() == 1);
  REQUIRE(s.memory[0].shares.size() == 1);
  CHECK(s.memory[0].shares[0].owner.place == "make (program.cpp:12)");
  const std::string snapshot = written(*trace, write_memory_snapshot);
  for (const char* const text : {"make", "program.cpp", "libtorch_cpu.so.2+0x10"})
    CHECK(snapshot.find(text) != std::string::npos);
}

}  // namespace native_formats_test
