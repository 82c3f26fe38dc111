#include "formats/symbols/symbol_file.h"

#include <doctest/doctest.h>

#include <fstream>

#include "formats/trace/native_stacks.h"
#include "tests/unit/support/spool_builder.h"

namespace symbol_file_test {

using namespace torchprof;
using namespace torchprof::formats;

namespace {

const SymbolFile::Object kObject{std::string("\x01\x02\xff", 3), "/usr/lib/libtorch.so"};

SymbolFile an_example() {
  SymbolFile file;
  file.objects[kObject][0x1f] = {{"inlined(int)", "a.h", 7}, {"outer\tone()", "b.cpp", 12}};
  file.objects[{"", "/no build id"}][1] = {{"f", "", 0}};
  return file;
}

std::vector<std::string> texts_of(const Process& process, NativeFrameId frame) {
  std::vector<std::string> out;
  process.native->each_frame(frame, [&](uint32_t text) { out.push_back(process.native->texts()[text]); });
  return out;
}

// Native records have no short way in: fields as they lie.
void object(test::SpoolBuilder& b, uint32_t id, std::string_view path, std::string_view build_id, uint64_t bias) {
  const uint64_t id_and_path = id | uint64_t{b.string(path).value} << 32;
  b.raw_definition(24, {id_and_path, b.string(build_id).value, bias, bias + 0x1000, bias});
}
void frame(test::SpoolBuilder& b, uint32_t id, uint32_t caller, uint32_t object, uint64_t pc) {
  b.raw_definition(25, {id | uint64_t{caller} << 32, object, pc});
}

}  // namespace

TEST_CASE("symbols are read as they were written, tabs apart") {
  const test::TemporaryDirectory directory;
  an_example().write(directory / "symbols");
  const SymbolFile read = SymbolFile::read(directory / "symbols");
  CHECK(read.count() == 2);
  const Place& place = read.objects.at(kObject).at(0x1f);
  REQUIRE(place.size() == 2);
  CHECK(place[0].function == "inlined(int)");
  CHECK(place[0].file == "a.h");
  CHECK(place[0].line == 7);
  CHECK(place[1].function == "outer one()");
  CHECK(read.objects.at({"", "/no build id"}).at(1).at(0).line == 0);
}

TEST_CASE("a file of something else, or of nothing, has no symbols") {
  const test::TemporaryDirectory directory;
  CHECK(SymbolFile::read(directory / "symbols").count() == 0);
  std::ofstream(directory / "symbols") << "torchprof symbols 1\nsymbol\tf\nobject\tzz\tx\nat\t1\nobject\t-\tx\nat\tzz\n"
                                       << "symbol\tf\t\t\nat\t2\nsymbol\tf\t\tx\n\n";
  CHECK(SymbolFile::read(directory / "symbols").count() == 1);
}

TEST_CASE("a stack has its inlined functions, and what is not known by object and address") {
  test::SpoolBuilder b;
  const TrackId main = b.thread(100);
  object(b, 1, kObject.second, kObject.first, 0x7000);
  frame(b, 1, 0, 0, 0);
  frame(b, 2, 1, 1, 0x7020);
  frame(b, 3, 2, 1, 0x7030);
  frame(b, 4, 3, 0, 0xabc);
  frame(b, 7, 3, 1, 0x7020);  // of a caller that is not there
  b.on(main).at(10).op(1, "aten::add").raw(90, {4});
  b.at(20).op_end(1);
  const test::LoadedTrace trace(b);
  const Process& process = trace->processes.at(0);
  CHECK(process.damage.records == 1);
  REQUIRE(process.native);
  CHECK(texts_of(process, {4}).empty());
  SymbolFile known = an_example();
  process.native->find_symbols(process, known, NativeFrames::kFolded);
  CHECK(texts_of(process, {4}) ==
        std::vector<std::string>{"0xabc", "libtorch.so+0x30", "inlined(int) (a.h:7)", "outer?one() (b.cpp:12)", "..."});
  CHECK(texts_of(process, {99}).empty());
}

}  // namespace symbol_file_test
