// Records that a CUPTI delivered to tests/gpu/raw_records.c, decoded, as text: golden/gpu/NAME.VERSION.records and
// .txt. VERSION says where from: "gpu" a real one, otherwise the layout of tests/cupti_sim.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

#include "cupti/activity_decode.h"
#include "tests/unit/support/spool_builder.h"

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

template <class... Numbers>
std::string line(const char* kind, Numbers... numbers) {
  std::ostringstream text;
  text << kind;
  ((text << ' ' << +numbers), ...);
  return text.str();
}

std::string text_of(Decoded& d) {
  switch (d.kind) {
    case Kind::GpuKernel: {
      const auto& r = d.as<GpuKernel>();
      return line("kernel", r.end - r.start, r.correlation, r.device, r.stream, r.grid[0], r.block[0], r.registers,
                  r.static_shared, r.dynamic_shared, r.graph, r.graph_node);
    }
    case Kind::GpuCopy: {
      const auto& r = d.as<GpuCopy>();
      return line("copy", r.end - r.start, r.correlation, r.device, r.stream, r.copy_kind, r.src_kind, r.dst_kind,
                  r.bytes);
    }
    case Kind::GpuSet: {
      const auto& r = d.as<GpuSet>();
      return line("set", r.end - r.start, r.correlation, r.device, r.stream, r.bytes);
    }
    case Kind::GpuApi: {
      const auto& r = d.as<GpuApi>();
      return line("call", r.end - r.start, r.correlation, static_cast<int>(r.api), r.cbid, r.result);
    }
    case Kind::GpuSync: {
      const auto& r = d.as<GpuSync>();
      return line("wait", r.end - r.start, r.correlation, r.type, r.stream, r.event);
    }
    case Kind::GpuEvent: {
      const auto& r = d.as<GpuEvent>();
      return line("event", r.correlation, r.stream, r.event);
    }
    case Kind::GpuOverhead: {
      const auto& r = d.as<GpuOverhead>();
      return line("overhead", r.end - r.start, r.kind, r.object_kind, r.correlation);
    }
    case Kind::GpuMemory: {
      const auto& r = d.as<GpuMemory>();
      return line("memory", r.bytes, r.device);
    }
    case Kind::GpuMemoryPool: {
      const auto& r = d.as<GpuMemoryPool>();
      return line("pool", r.operation, r.type, r.bytes, r.used, r.device, r.correlation);
    }
    case Kind::GpuEnvironment: {
      const auto& r = d.as<GpuEnvironment>();
      return line("environment", r.device, r.kind, r.values[0], r.values[1], r.values[4]);
    }
    case Kind::GpuDeviceDef: {
      const auto& r = d.as<GpuDeviceDef>();
      return line("device", r.device, r.memory, r.multiprocessors, r.major, r.minor, r.warp_size);
    }
    case Kind::GpuContextDef: {
      const auto& r = d.as<GpuContextDef>();
      return line("context", r.context, r.device);
    }
    default:
      return line("kind", static_cast<int>(d.kind));
  }
}

std::string decoded(const std::string& bytes) {
  std::ostringstream text;
  const uint32_t version = number_at(bytes, 0);
  text << "CUPTI " << version << "\n";
  for (size_t at = 4; at < bytes.size();) {
    const uint32_t size = number_at(bytes, at), name = number_at(bytes, at + 4);
    REQUIRE(at + 8 + size + name <= bytes.size());
    std::vector<std::byte> record(size);  // of its own, so that nothing behind it can be read
    std::memcpy(record.data(), bytes.data() + at + 8, size);
    Decoded d;
    if (decode(record.data(), size, version, d) == Decoding::kDone)
      text << text_of(d);
    else
      text << "kind " << number_at(bytes, at + 8) << " is not known";
    if (name > 0) text << ' ' << std::string_view(bytes).substr(at + 8 + size, name);
    text << '\n';
    at += 8 + size + name;
  }
  return text.str();
}

}  // namespace

TEST_CASE("what CUPTI delivered is decoded as it was") {
  size_t files = 0;
  for (const auto& entry : fs::directory_iterator(test::golden_directory() / "gpu")) {
    if (entry.path().extension() != ".records") continue;
    ++files;
    const std::string name = entry.path().stem().string();
    CAPTURE(name);
    test::check_golden("gpu/" + name + ".txt", decoded(test::read_file(entry.path())));
  }
  CHECK(files >= 6);
}

}  // namespace gpu_golden_test
