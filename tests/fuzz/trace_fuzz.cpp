// libFuzzer: whatever a trace file holds, JSON, Perfetto or a database, reading it ends in totals or in an Error.
// tests/fuzz/run builds it.
#include <fstream>

#include "formats/io/error.h"
#include "formats/io/sqlite_database.h"
#include "formats/read/read_trace.h"
#include "formats/report/summary.h"
#include "formats/write/format.h"
#include "tests/fuzz/target.h"
#include "tests/unit/support/gpu_program.h"
#include "tests/unit/support/small_training.h"

using namespace torchprof;

namespace {

void write_database(const std::filesystem::path& file, const char* sql) {
  std::ofstream(file).flush();
  formats::Database(file, formats::Database::Use::kCreate).run(sql);
}

}  // namespace

void write_seeds(const std::filesystem::path& directory) {
  test::SpoolBuilder training;
  test::train(training, 100);
  test::Program gpu;
  gpu.b.at(1'000).op(1, "aten::mm").at(9'000).op_end(1);
  gpu.deliver();
  gpu.b.gpu(test::call(100, 2'000, 3'000, 5)).gpu(test::kernel(gpu.b, 4'000, 8'000, 5));
  for (const auto& [name, spool] : {std::pair("training", &training), std::pair("gpu", &gpu.b)}) {
    const test::LoadedTrace trace(*spool);
    for (const char* const format : {"kineto", "perfetto", "chrome-legacy", "kineto.gz"}) {
      const std::string_view form = format;
      write_file(*formats::find_format(std::string(form.substr(0, form.find('.')))), *trace, trace->processes,
                 directory / (std::string(name) + "." + format));
    }
  }
  write_database(directory / "nvprof", R"sql(PRAGMA page_size = 512; VACUUM;
    CREATE TABLE StringTable(_id_, value); INSERT INTO StringTable VALUES(1, 'mm, seq = 5'), (2, '_Z4gemmPf');
    CREATE TABLE CUPTI_ACTIVITY_KIND_MARKER(timestamp, id, name);
    INSERT INTO CUPTI_ACTIVITY_KIND_MARKER VALUES(1, 7, 1), (9, 7, 0);
    CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME(_id_, cbid, start, end, correlationId);
    INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES(1, 211, 2, 3, 9);
    CREATE TABLE CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL(start, end, correlationId, name);
    INSERT INTO CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL VALUES(4, 5, 9, 2);)sql");
  write_database(directory / "nsys", R"sql(PRAGMA page_size = 512; VACUUM;
    CREATE TABLE StringIds(id, value); INSERT INTO StringIds VALUES(1, 'gemm');
    CREATE TABLE NVTX_EVENTS(start, end, eventType, text, globalTid);
    INSERT INTO NVTX_EVENTS VALUES(1, 9, 59, 'mm', 16777217), (1, 9, 60, 'epoch', 16777217);
    CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME(start, end, globalTid, correlationId);
    INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES(2, 3, 16777217, 5);
    CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start, end, deviceId, correlationId, globalPid, demangledName);
    INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES(4, 5, 0, 5, 16777216, 1);)sql");
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    formats::summary_text(std::filesystem::path(file_of(data, size)));
  } catch (const Error&) {
  }
  return 0;
}
