// The order of begins and ends in the file, which decides where their times are equal. What Perfetto makes of a whole
// trace: tests/e2e/files/test_formats.py.
#include "formats/write/perfetto/perfetto.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <protozero/pbf_reader.hpp>

#include "formats/io/perfetto_fields.h"
#include "tests/unit/support/small_training.h"
#include "tests/unit/support/spool_builder.h"

namespace perfetto_test {

using namespace torchprof;
using namespace torchprof::formats;
using namespace torchprof::formats::perfetto;
using protozero::pbf_reader;
using test::SpoolBuilder;

namespace {

struct Event {
  uint64_t time;
  std::string text;  // "( name", ")"
};

std::map<uint64_t, std::string> names_in(pbf_reader data) {
  std::map<uint64_t, std::string> names;
  while (data.next(interned::kEventNames)) {
    pbf_reader entry = data.get_message();
    uint64_t id = 0;
    while (entry.next())
      entry.tag() == interned::kId ? void(id = entry.get_uint64()) : void(names[id] = entry.get_string());
  }
  return names;
}

// The slices' begins and ends in the order in which Perfetto takes them.
std::string events_of(const Trace& trace) {
  const std::string bytes = test::written(trace, write_perfetto);
  std::vector<Event> events;
  std::map<uint64_t, std::string> names;
  for (pbf_reader file(bytes); file.next(trace::kPacket);) {
    pbf_reader packet = file.get_message();
    uint64_t time = 0;
    while (packet.next()) {
      if (packet.tag() == packet::kTimestamp) {
        time = packet.get_uint64();
      } else if (packet.tag() == packet::kInternedData) {
        names.merge(names_in(packet.get_message()));
      } else if (packet.tag() == packet::kTrackEvent) {
        uint64_t type = 0, name = 0;
        for (pbf_reader e = packet.get_message(); e.next();) {
          if (e.tag() == event::kType)
            type = e.get_uint32();
          else if (e.tag() == event::kName)
            name = e.get_uint64();
          else
            e.skip();
        }
        if (type == event::kSliceBegin) events.push_back({time, "(" + names[name]});
        if (type == event::kSliceEnd) events.push_back({time, ")"});
      } else {
        packet.skip();
      }
    }
  }
  std::ranges::stable_sort(events, {}, &Event::time);
  std::string text;
  for (const Event& e : events) text += std::to_string(e.time) + e.text + " ";
  return text;
}

// "NAME TIME=VALUE ..." of each counter, in the order in which they come.
std::string counters_of(const Trace& trace) {
  const std::string bytes = test::written(trace, write_perfetto);
  std::vector<std::pair<uint64_t, std::string>> tracks;
  for (pbf_reader file(bytes); file.next(trace::kPacket);) {
    uint64_t time = 0;
    for (pbf_reader packet = file.get_message(); packet.next();) {
      if (packet.tag() == packet::kTimestamp) {
        time = packet.get_uint64();
      } else if (packet.tag() == packet::kTrackDescriptor) {
        bool is_counter = false;
        std::pair<uint64_t, std::string> track;
        for (pbf_reader d = packet.get_message(); d.next();) {
          if (d.tag() == track::kUuid) {
            track.first = d.get_uint64();
          } else if (d.tag() == track::kName) {
            track.second = d.get_string();
          } else {
            is_counter = is_counter || d.tag() == track::kCounter;
            d.skip();
          }
        }
        if (is_counter) tracks.push_back(track);
      } else if (packet.tag() == packet::kTrackEvent) {
        uint64_t type = 0, on = 0;
        std::optional<int64_t> value;
        for (pbf_reader e = packet.get_message(); e.next();) {
          if (e.tag() == event::kType)
            type = e.get_uint32();
          else if (e.tag() == event::kTrack)
            on = e.get_uint64();
          else if (e.tag() == event::kCounterValue)
            value = e.get_int64();
          else
            e.skip();
        }
        if (type != event::kCounter) continue;
        const auto track = std::ranges::find(tracks, on, &std::pair<uint64_t, std::string>::first);
        REQUIRE(track != tracks.end());
        REQUIRE(value.has_value());
        track->second.append(" ").append(std::to_string(time)).append("=").append(std::to_string(*value));
      } else {
        packet.skip();
      }
    }
  }
  std::string text;
  for (const auto& [id, track] : tracks) text += track + "\n";
  return text;
}

}  // namespace

TEST_CASE("memory of each device is counted, what is reserved where that changes") {
  SpoolBuilder b;
  b.thread(100);
  const auto memory = [&b](uint64_t t, uint64_t address, int64_t bytes, uint64_t allocated, uint64_t reserved,
                           uint64_t device) {
    b.at(t).raw(static_cast<uint8_t>(Kind::Memory),
                {address, static_cast<uint64_t>(bytes), allocated, reserved, device});
  };
  constexpr uint64_t kCpu = 0xff00, kCuda1 = 0x0101;
  memory(10, 1, 64, 64, 0, kCpu);
  memory(20, 2, 100, 100, 0, kCuda1);
  memory(30, 3, 200, 300, 1024, kCuda1);
  memory(40, 2, -100, 200, 1024, kCuda1);
  memory(50, 3, -200, 0, 512, kCuda1);
  CHECK(counters_of(*test::LoadedTrace(b)) ==
        "Memory allocated, CPU 10=64\nMemory allocated, CUDA 1 20=100 30=300 40=200 50=0\n"
        "Memory reserved, CUDA 1 30=1024 50=512\n");
}

TEST_CASE("slices that begin together are begun from the outermost in") {
  SpoolBuilder b;
  b.thread(100);
  const FunctionId f = b.function("f"), g = b.function("g"), h = b.function("h");
  b.at(10).frame(f).frame(g).begin(h).op(1, "aten::add").at(20).op_end(1).end(h).at(30).end(g).at(40).end(f);
  CHECK(events_of(*test::LoadedTrace(b)) ==
        "10(test.py(1): f 10(test.py(1): g 10(test.py(1): h 10(aten::add 20) 20) 30) 40) ");
}

TEST_CASE("a range keeps its times, and __enter__ and __exit__ are cut") {
  SpoolBuilder b;
  b.thread(100);
  const FunctionId enter = b.function("__enter__"), exit = b.function("__exit__"), inner = b.function("inner");
  b.at(10).begin(enter).at(12).annotation(1, "block").at(20).end(enter).at(30).begin(exit).at(32).begin(inner);
  b.at(34).end(inner).at(36).op_end(1).at(40).end(exit);
  CHECK(events_of(*test::LoadedTrace(b)) ==
        "10(test.py(1): __enter__ 12) 12(block 32(test.py(1): inner 34) 36) 36(test.py(1): __exit__ 40) ");
}

TEST_CASE("a range that begins with what is in it begins after its __enter__") {
  SpoolBuilder b;
  b.thread(100);
  const FunctionId enter = b.function("__enter__"), inner = b.function("inner");
  b.at(10).begin(enter).at(12).annotation(1, "block").begin(inner).at(15).end(inner).at(20).end(enter).at(30).op_end(1);
  CHECK(events_of(*test::LoadedTrace(b)) == "10(test.py(1): __enter__ 11) 12(block 12(test.py(1): inner 15) 30) ");
}

TEST_CASE("hostile names are text") {
  SpoolBuilder b;
  test::hostile(b);
  const std::string text = events_of(*test::LoadedTrace(b));
  CHECK(nlohmann::json(text).dump().size() > 10'000);  // throws for bytes that are no UTF-8
  for (const char c : text) REQUIRE(static_cast<unsigned char>(c) >= 0x20);
  CHECK(text.starts_with("10(C:\\x\"y\".py?(1): \xef\xbf\xbd( 10(<??[31m> 1010) "));
}

}  // namespace perfetto_test
