// Files that other tools and we wrote. JSON: read_kineto_test.cpp.
#include "formats/read/read_trace.h"

#include <doctest/doctest.h>

#include <fstream>
#include <protozero/pbf_writer.hpp>

#include "formats/io/error.h"
#include "formats/io/perfetto_fields.h"
#include "formats/io/sqlite_database.h"
#include "formats/write/format.h"
#include "tests/unit/support/gpu_program.h"
#include "tests/unit/support/small_training.h"

namespace read_trace_test {

using namespace torchprof;
using namespace torchprof::formats;
using test::SpoolBuilder;
namespace fs = std::filesystem;

namespace {

fs::path write(const fs::path& file, std::string_view bytes) {
  std::ofstream(file, std::ios::binary) << bytes;
  return file;
}

fs::path database(const fs::path& file, const std::string& sql) {
  Database(write(file, ""), Database::Use::kCreate).run(sql.c_str());
  return file;
}

std::string error_of(const fs::path& file) {
  try {
    read_trace(file);
  } catch (const Error& error) {
    const std::string what = error.what(), prefix = "cannot read the trace " + file.string() + ": ";
    return what.starts_with(prefix) ? what.substr(prefix.size()) : what;
  }
  return "no error";
}

template <class T>
void check_same_calls(const T& got, const T& expected) {
  CHECK(got.size() == expected.size());
  for (const auto& [name, tally] : expected) {
    CAPTURE(name);
    REQUIRE(got.contains(name));
    CHECK(got.at(name).self_ns == tally.self_ns);
    CHECK(got.at(name).total_ns == tally.total_ns);
    CHECK(got.at(name).calls == tally.calls);
  }
}

void check_same(const Tallies& got, const Tallies& expected) {
  check_same_calls(got, expected);
  for (const auto& [name, tally] : expected) {
    CAPTURE(name);
    CHECK(got.at(name).flops == tally.flops);
    CHECK(got.at(name).gpu_self_ns == tally.gpu_self_ns);
    CHECK(got.at(name).gpu_total_ns == tally.gpu_total_ns);
  }
}

// What nvprof wrote for two ranges, one inside the other, and their kernels.
const std::string kNvprof = R"sql(
  CREATE TABLE StringTable(_id_ INTEGER PRIMARY KEY, value TEXT);
  CREATE TABLE CUPTI_ACTIVITY_KIND_MARKER(_id_ INTEGER PRIMARY KEY, id INT, name INT, timestamp INT);
  CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME(_id_ INT, cbid INT, start INT, end INT, correlationId INT);
  CREATE TABLE CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL(start INT, end INT, name INT, correlationId INT);
  INSERT INTO StringTable VALUES(1, 'linear, seq = 7, op_id = 3'), (2, 'addmm'), (3, '_Z4gemmPf');
  INSERT INTO CUPTI_ACTIVITY_KIND_MARKER VALUES(1, 10, 1, 1000), (2, 11, 2, 2000), (3, 11, 0, 5000), (4, 10, 0, 9000), (5, 12, 1, 9500);
  INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES(1, 211, 3000, 3100, 21), (2, 211, 6000, 6100, 22), (3, 3, 9990, 9991, 23);
  INSERT INTO CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL VALUES(4000, 4300, 3, 21), (6200, 6250, 3, 22), (9995, 9999, 3, 23);
)sql";

}  // namespace

TEST_CASE("our own Perfetto trace gives the totals of the spool that it was made from") {
  SpoolBuilder b(100, {"/usr/bin/python3", "train.py"});
  test::train(b, 100);
  const test::LoadedTrace trace(b);
  test::TemporaryDirectory directory;
  for (const char* name : {"x.bin", "x.gz"}) {
    write_file(*find_format("perfetto"), *trace, trace->processes, directory / name);
    const TraceFile read = read_trace(directory / name);
    REQUIRE(read.processes.size() == 1);
    CHECK(read.processes[0].pid == "100");
    CHECK(read.processes[0].name == "python3");
    const Statistics expected = statistics_of(trace->processes[0]), &got = read.processes[0].statistics;
    check_same(got.operators, expected.operators);
    check_same_calls(got.python, expected.python);
    const ModuleTally &linear = got.modules.at("nn.Module: Linear_0"), &as = expected.modules.at("nn.Module: Linear_0");
    CHECK(linear.forward_total_ns == as.forward_total_ns);
    CHECK(linear.backward_self_ns == as.backward_self_ns);
    CHECK(got.steps.count == expected.steps.count);
  }
}

TEST_CASE("our own Perfetto trace has its kernels and who launched them") {
  test::Program p;
  p.b.at(1'000).op(1, "aten::linear").at(1'500).op(2, "aten::mm").at(9'000).op_end(2).at(9'500).op_end(1);
  p.deliver();
  p.b.gpu(test::call(100, 2'000, 3'000, 5)).gpu(test::kernel(p.b, 4'000, 8'000, 5));
  p.b.gpu(test::kernel(p.b, 10'000, 11'000, 99, "_Z4lostv"));
  p.b.clean_exit(1'000'000);
  const test::LoadedTrace trace(p.b);
  test::TemporaryDirectory directory;
  write_file(*find_format("perfetto"), *trace, trace->processes, directory / "x");
  const TraceFile read = read_trace(directory / "x");
  REQUIRE(read.processes.size() == 1);
  const Statistics expected = statistics_of(trace->processes[0]), &got = read.processes[0].statistics;
  check_same(got.operators, expected.operators);
  CHECK(got.operators.at("aten::linear").gpu_total_ns == 4'000);
  REQUIRE(got.gpu.devices.size() == 1);
  CHECK(got.gpu.devices[0].name == "NVIDIA H100");
  CHECK(got.gpu.work.size() == expected.gpu.work.size());
}

TEST_CASE("a Perfetto trace whose fields have other types than the schema's has what is known of it") {
  namespace pf = perfetto;
  using protozero::pbf_writer;
  SpoolBuilder b(100, {"/usr/bin/python3", "train.py"});
  test::train(b, 10);
  const test::LoadedTrace trace(b);
  test::TemporaryDirectory directory;
  const fs::path file = directory / "x";
  write_file(*find_format("perfetto"), *trace, trace->processes, file);
  std::string strange;
  {
    pbf_writer out(strange);
    pbf_writer packet(out, pf::trace::kPacket);
    packet.add_uint32(pf::packet::kSequenceId, 9999);
    packet.add_string(pf::packet::kTimestamp, "long ago");
    {
      pbf_writer snapshot(packet, pf::packet::kClockSnapshot);
      snapshot.add_uint32(pf::clock_snapshot::kClocks, 7);
      pbf_writer clock(snapshot, pf::clock_snapshot::kClocks);
      clock.add_string(pf::clock_snapshot::kClockId, "realtime");
      clock.add_fixed64(pf::clock_snapshot::kTimestamp, 7);
    }
    {
      pbf_writer interned(packet, pf::packet::kInternedData);
      interned.add_uint32(pf::interned::kEventNames, 7);
      pbf_writer name(interned, pf::interned::kEventNames);
      name.add_string(pf::interned::kId, "7");
      name.add_uint32(pf::interned::kName, 7);
    }
    {
      pbf_writer track(packet, pf::packet::kTrackDescriptor);
      for (const uint32_t field : {pf::track::kUuid, pf::track::kParent}) track.add_string(field, "7");
      for (const uint32_t field : {pf::track::kName, pf::track::kProcess, pf::track::kThread})
        track.add_uint32(field, 7);
    }
    {
      pbf_writer event(packet, pf::packet::kTrackEvent);
      for (const uint32_t field : {pf::event::kType, pf::event::kTrack, pf::event::kName, pf::event::kCategory})
        event.add_string(field, "7");
      for (const uint32_t field : {pf::event::kFlowIds, pf::event::kAnnotations}) event.add_uint32(field, 7);
      pbf_writer annotation(event, pf::event::kAnnotations);
      for (const uint32_t field :
           {pf::annotation::kNameId, pf::annotation::kStringId, pf::annotation::kInt, pf::annotation::kBool})
        annotation.add_string(field, "7");
    }
  }
  std::ofstream(file, std::ios::binary | std::ios::app) << strange;
  const TraceFile read = read_trace(file);
  REQUIRE(read.processes.size() == 1);
  check_same(read.processes[0].statistics.operators, statistics_of(trace->processes[0]).operators);
}

TEST_CASE("nvprof: ranges, and the kernels of the calls that they hold") {
  test::TemporaryDirectory directory;
  const TraceFile read = read_trace(database(directory / "nvprof.json", kNvprof));
  REQUIRE(read.processes.size() == 1);
  const Tallies& ops = read.processes[0].statistics.operators;
  CHECK(ops.size() == 2);
  CHECK(ops.at("linear").self_ns == 5000);
  CHECK(ops.at("linear").gpu_self_ns == 50);
  CHECK(ops.at("linear").gpu_total_ns == 350);
  CHECK(ops.at("addmm").gpu_self_ns == 300);
  CHECK(read.processes[0].statistics.gpu.work.at("gemm(float*)").calls == 3);
}

TEST_CASE("nvprof: what is there twice is an error, as in torch") {
  test::TemporaryDirectory directory;
  CHECK(
      error_of(database(directory / "a", kNvprof + "INSERT INTO CUPTI_ACTIVITY_KIND_MARKER VALUES(9, 11, 2, 2000)")) ==
      "the marker 11 is there twice");
  CHECK(error_of(database(directory / "b", kNvprof + "INSERT INTO CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL "
                                                     "VALUES(1, 2, 3, 21)")) ==
        "the runtime call 1 is there twice, or has two kernels");
  CHECK(error_of(database(directory / "c", kNvprof + "UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET cbid = 31")) ==
        "the runtime call 1 has a kernel, and is no launch of one (cbid 31)");
}

TEST_CASE("nsys: ranges of two threads, and the work of their calls") {
  test::TemporaryDirectory directory;
  const std::string process = "(4711 << 24)", main = "(4711 << 24 | 4711)", engine = "(4711 << 24 | 4712)";
  const TraceFile read =
      read_trace(database(directory / "nsys", R"sql(
    CREATE TABLE StringIds(id INTEGER PRIMARY KEY, value TEXT);
    CREATE TABLE PROCESSES(globalPid INT, pid INT, name TEXT);
    CREATE TABLE TARGET_INFO_GPU(id INT, name TEXT);
    CREATE TABLE NVTX_EVENTS(start INT, end INT, eventType INT, text TEXT, globalTid INT, textId INT);
    CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME(start INT, end INT, globalTid INT, correlationId INT, nameId INT);
    CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start INT, end INT, deviceId INT, correlationId INT, globalPid INT, demangledName INT, shortName INT);
    CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY(start INT, end INT, deviceId INT, correlationId INT, globalPid INT, copyKind INT, srcKind INT, dstKind INT);
    INSERT INTO StringIds VALUES(1, 'aten::mm'), (2, 'void gemm<float>(float*)'), (3, 'gemm');
    INSERT INTO TARGET_INFO_GPU VALUES(0, 'NVIDIA H100');
    INSERT INTO PROCESSES VALUES()sql" + process + R"sql(, 4711, 'python3');
    INSERT INTO NVTX_EVENTS VALUES(1000, 9000, 59, 'ProfilerStep#0', )sql" +
                                                  main + R"sql(, NULL),
      (2000, 4000, 59, NULL, )sql" + main + R"sql(, 1), (2500, 3500, 59, 'MmBackward0, seq = 3', )sql" +
                                                  engine + R"sql(, NULL),
      (5000, 99000, 60, 'epoch', )sql" + main + R"sql(, NULL), (5000, NULL, 34, 'a mark', )sql" +
                                                  main + R"sql(, NULL);
    INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES(2100, 2200, )sql" +
                                                  main + R"sql(, 5, 3), (2600, 2700, )sql" + engine + R"sql(, 6, 3);
    INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES(2300, 2400, 0, 5, )sql" +
                                                  process + R"sql(, 2, 3), (2800, 3000, 0, 6, )sql" + process +
                                                  R"sql(, 2, 3);
    INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES(7000, 7500, 0, 77, )sql" +
                                                  process + R"sql(, 1, 1, 3);
  )sql"));
  REQUIRE(read.processes.size() == 1);
  CHECK(read.processes[0].pid == "4711");
  CHECK(read.processes[0].name == "python3");
  const Statistics& s = read.processes[0].statistics;
  CHECK(s.operators.at("aten::mm").gpu_self_ns == 100);
  CHECK(s.operators.at("MmBackward0").gpu_self_ns == 200);
  CHECK(s.operators.at("epoch").self_ns == 0);  // it was started by number
  CHECK(s.operators.at("epoch").total_ns == 94'000);
  CHECK(s.steps.ns == std::vector<int64_t>{8000});
  CHECK(s.gpu.work.at("void gemm<float>(float*)").calls == 2);
  CHECK(s.gpu.work.at("Memcpy HtoD (Pageable -> Device)").calls == 1);
  CHECK(s.gpu.devices.at(0).name == "NVIDIA H100");
}

TEST_CASE("databases that are none of these, and files that are damaged, are one clear error") {
  test::TemporaryDirectory directory;
  SpoolBuilder b;
  test::train(b, 100);
  const test::LoadedTrace trace(b);
  const auto written = [&](const char* format) {
    write_file(*find_format(format), *trace, trace->processes, directory / format);
    return test::read_file(directory / format);
  };
  const std::string perfetto = written("perfetto"), ours = written("sqlite");
  CHECK(error_of(database(directory / "a", "CREATE TABLE t(x)")) ==
        "it is a database, but none that nvprof or nsys export wrote");
  CHECK(error_of(directory / "sqlite") == "it is a database of torchprof's: sqlite3 shows its tables and views");
  CHECK(error_of(database(directory / "b", "CREATE TABLE NVTX_EVENTS(x)")) == "no such column: start");
  CHECK(error_of(write(directory / "c", ours.substr(0, 100))) == "database disk image is malformed");
  CHECK(error_of(write(directory / "d", ours.substr(0, ours.size() / 2))) != "no error");
  CHECK(error_of(write(directory / "e", perfetto.substr(0, perfetto.size() - 1))) ==
        "it is cut off after " + std::to_string(perfetto.size() - 1) + " bytes");
  CHECK(error_of(write(directory / "f", "\x0a\x04\xff\xff\xff\xff")) == "the packet at byte 2 is damaged");
  CHECK(error_of(write(directory / "g", "\x0a\xff\xff\xff\xff\xff\x0f")) == "it is damaged at byte 7");
  CHECK(error_of(write(directory / "h", std::string("\x0a\x00", 2))) == "it has no slices as torchprof writes them");
  CHECK(error_of(write(directory / "i", "\n\n  {}")) == "it has no traceEvents");
}

}  // namespace read_trace_test
