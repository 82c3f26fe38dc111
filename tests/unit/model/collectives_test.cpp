#include "formats/values/collectives.h"

#include <doctest/doctest.h>

#include "formats/replay/replay.h"
#include "tests/unit/support/collective_encoding.h"
#include "tests/unit/support/spool_builder.h"

namespace collectives_test {

using namespace torchprof;
using namespace torchprof::formats;
using test::Encoding;

namespace {

Encoding send() {
  return Encoding()
      .text("send")
      .text("0")
      .text("default_pg")
      .number(1)
      .number(4)
      .byte(15)
      .number(9)
      .number(0)
      .list({})
      .list({1, 2})
      .number(3)
      .number(2)
      .list({3, 5, 7, 9})
      .byte(1);
}

}  // namespace

TEST_CASE("a collective has Kineto's arguments") {
  CHECK(collective_json(send().bytes()) ==
        R"(,"Collective name":"send","dtype":"BFloat16","In msg nelems":9,"Out msg nelems":0,"In split size":"[]",)"
        R"("Out split size":"[1, 2]","Global rank start":3,"Global rank stride":2,"Group size":4,)"
        R"("Process Group Name":"0","Process Group Description":"default_pg","Process Group Ranks":"[3, 5, 7, 9]",)"
        R"("Rank":1,"Dst Rank":5,"Is asynchronized op":true)");
}

TEST_CASE("what torch 1.13 does not say is left out") {
  Encoding e;
  e.text("allreduce").text("").text("").number(0).number(-1).byte(6).number(2).number(2).list({}).list({}).number(-1);
  e.number(-1).list({}).byte(2);
  CHECK(collective_json(e.bytes()) ==
        R"(,"Collective name":"allreduce","dtype":"Float","In msg nelems":2,"Out msg nelems":2,"In split size":"[]",)"
        R"("Out split size":"[]","Rank":0)");
}

TEST_CASE("of a long list the first and the very last are shown") {
  std::vector<int> numbers(29, 7);
  numbers.push_back(8);
  Encoding e;
  e.text("a")
      .text("")
      .text("")
      .number(0)
      .number(-1)
      .byte(99)
      .number(2)
      .number(2)
      .list(numbers, 100)
      .list({})
      .number(-1);
  e.number(-1).list({}).byte(2);
  const std::string json = collective_json(e.bytes());
  CHECK(json.find(R"(7, 7, ..., 8]")") != json.npos);
  CHECK(json.find(R"("dtype":"UNKNOWN_SCALAR")") != json.npos);
}

TEST_CASE("a collective that is cut off has no arguments") {
  const std::string whole = send().bytes();
  for (size_t n = 0; n < whole.size(); ++n) CHECK(collective_json(whole.substr(0, n)).empty());
}

TEST_CASE("arguments belong to the operator that has just begun, and to no other") {
  test::SpoolBuilder b;
  b.thread(100);
  const auto say = [&b](StringId info, uint64_t sequence) { b.raw(44, {info.value, sequence}); };
  const StringId info = b.string(send().bytes());
  b.at(1000).op(1, "record_param_comms");
  say(info, 17);
  b.at(2000).op(2, "aten::copy_").at(3000).op_end(2);
  say(info, 18);
  b.at(4000).op_end(1);
  b.clean_exit(5000);
  const test::LoadedTrace trace(b);
  Replay replay(trace->processes.at(0));
  class Lines final : public Sink {
   public:
    explicit Lines(Names& names) : names_(names) {}
    void slice(const Slice& s) override {
      text.append(names_.text(s.name)).append(s.collective ? " " : " none ");
      text.append(std::to_string(s.collective_sequence)).append("\n");
    }
    std::string text{};

   private:
    Names& names_;
  } lines(replay.names());
  replay.run(lines);
  CHECK(lines.text == "aten::copy_ none -1\nrecord_param_comms 17\n");
}

}  // namespace collectives_test
