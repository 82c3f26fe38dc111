// Records that a CUPTI delivered to tests/gpu/raw_records.c, decoded, as text: golden/gpu/NAME.VERSION.records, and
// what comes of it. VERSION says where from: "gpu" a real one, whose thousands of records are kept as a digest
// (.digest); otherwise the layout of tests/cupti_sim, which has each kind of record with numbers that a reader
// recognizes (.txt).
#include <doctest/doctest.h>

#include <cstring>
#include <initializer_list>
#include <sstream>
#include <string>
#include <vector>

#include "cupti/activity_decode.h"
#include "tests/unit/support/digest.h"
#include "tests/unit/support/golden.h"

namespace gpu_golden_test {

using namespace torchprof;
using namespace torchprof::cupti;
namespace fs = std::filesystem;

namespace {

uint32_t number_at(const std::string& bytes, size_t at) {
  uint32_t number = 0;
  REQUIRE(at + sizeof(number) <= bytes.size());
  std::memcpy(&number, bytes.data() + at, sizeof(number));
  return number;
}

struct Field {
  template <class Number>
  Field(const char* name, Number number) : text(std::string(name) + '=' + std::to_string(number)) {}
  std::string text;
};

std::string line(const char* kind, std::initializer_list<Field> fields) {
  std::string text = kind;
  for (const Field& field : fields) text += ' ' + field.text;
  return text;
}

std::string text_of(Decoded& d) {
  switch (d.kind) {
    case Kind::GpuKernel: {
      const auto& r = d.as<GpuKernel>();
      return line("kernel", {{"duration", r.end - r.start},
                             {"correlation", r.correlation},
                             {"device", r.device},
                             {"stream", r.stream},
                             {"grid_x", r.grid[0]},
                             {"block_x", r.block[0]},
                             {"registers", r.registers},
                             {"static_shared", r.static_shared},
                             {"dynamic_shared", r.dynamic_shared},
                             {"graph", r.graph},
                             {"graph_node", r.graph_node}});
    }
    case Kind::GpuCopy: {
      const auto& r = d.as<GpuCopy>();
      return line("copy", {{"duration", r.end - r.start},
                           {"correlation", r.correlation},
                           {"device", r.device},
                           {"stream", r.stream},
                           {"copy_kind", r.copy_kind},
                           {"src_kind", r.src_kind},
                           {"dst_kind", r.dst_kind},
                           {"bytes", r.bytes}});
    }
    case Kind::GpuSet: {
      const auto& r = d.as<GpuSet>();
      return line("set", {{"duration", r.end - r.start},
                          {"correlation", r.correlation},
                          {"device", r.device},
                          {"stream", r.stream},
                          {"bytes", r.bytes}});
    }
    case Kind::GpuApi: {
      const auto& r = d.as<GpuApi>();
      return line("call", {{"duration", r.end - r.start},
                           {"correlation", r.correlation},
                           {"api", static_cast<int>(r.api)},
                           {"cbid", r.cbid},
                           {"result", r.result}});
    }
    case Kind::GpuSync: {
      const auto& r = d.as<GpuSync>();
      return line("wait", {{"duration", r.end - r.start},
                           {"correlation", r.correlation},
                           {"type", r.type},
                           {"stream", r.stream},
                           {"event", r.event}});
    }
    case Kind::GpuEvent: {
      const auto& r = d.as<GpuEvent>();
      return line("event", {{"correlation", r.correlation}, {"stream", r.stream}, {"event", r.event}});
    }
    case Kind::GpuOverhead: {
      const auto& r = d.as<GpuOverhead>();
      return line("overhead", {{"duration", r.end - r.start},
                               {"kind", r.kind},
                               {"object_kind", r.object_kind},
                               {"correlation", r.correlation}});
    }
    case Kind::GpuMemory: {
      const auto& r = d.as<GpuMemory>();
      return line("memory", {{"bytes", r.bytes}, {"device", r.device}});
    }
    case Kind::GpuMemoryPool: {
      const auto& r = d.as<GpuMemoryPool>();
      return line("pool", {{"operation", r.operation},
                           {"type", r.type},
                           {"bytes", r.bytes},
                           {"used", r.used},
                           {"device", r.device},
                           {"correlation", r.correlation}});
    }
    case Kind::GpuEnvironment: {
      const auto& r = d.as<GpuEnvironment>();
      return line("environment", {{"device", r.device},
                                  {"kind", r.kind},
                                  {"value_0", r.values[0]},
                                  {"value_1", r.values[1]},
                                  {"value_4", r.values[4]}});
    }
    case Kind::GpuDeviceDef: {
      const auto& r = d.as<GpuDeviceDef>();
      return line("device", {{"device", r.device},
                             {"memory", r.memory},
                             {"multiprocessors", r.multiprocessors},
                             {"major", r.major},
                             {"minor", r.minor},
                             {"warp_size", r.warp_size}});
    }
    case Kind::GpuContextDef: {
      const auto& r = d.as<GpuContextDef>();
      return line("context", {{"context", r.context}, {"device", r.device}});
    }
    default:
      return line("unexpected", {{"kind", static_cast<int>(d.kind)}});
  }
}

std::string decoded(const std::string& bytes) {
  std::ostringstream text;
  const uint32_t version = number_at(bytes, 0);
  text << line("CUPTI", {{"version", version}}) << "\n";
  for (size_t at = 4; at < bytes.size();) {
    const uint32_t size = number_at(bytes, at), name = number_at(bytes, at + 4);
    REQUIRE(at + 8 + size + name <= bytes.size());
    std::vector<std::byte> record(size);  // of its own, so that nothing behind it can be read
    std::memcpy(record.data(), bytes.data() + at + 8, size);
    Decoded d;
    if (decode(record.data(), size, version, d) == Decoding::kDone)
      text << text_of(d);
    else
      text << line("unknown", {{"kind", number_at(bytes, at + 8)}});
    if (name > 0) text << ' ' << std::string_view(bytes).substr(at + 8 + size, name);
    text << '\n';
    at += 8 + size + name;
  }
  return text.str();
}

}  // namespace

TEST_CASE("what CUPTI delivered is decoded as it was") {
  size_t digests = 0, texts = 0;
  for (const auto& entry : fs::directory_iterator(test::golden_directory() / "gpu")) {
    if (entry.path().extension() == ".digest") CHECK(fs::exists(fs::path(entry).replace_extension(".records")));
    if (entry.path().extension() != ".records") continue;
    const std::string name = "gpu/" + entry.path().stem().string();
    CAPTURE(name);
    const std::string text = decoded(test::read_file(entry.path()));
    if (name.ends_with(".gpu"))
      test::check_digest(name, text), ++digests;
    else
      test::check_golden(name + ".txt", text), ++texts;
  }
  CHECK(digests >= 9);
  CHECK(texts >= 6);
}

}  // namespace gpu_golden_test
