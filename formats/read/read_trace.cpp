#include "formats/read/read_trace.h"

#include "formats/io/byte_stream.h"
#include "formats/io/sqlite_database.h"
#include "formats/read/kineto.h"
#include "formats/read/nsys.h"
#include "formats/read/nvprof.h"
#include "formats/read/perfetto.h"
#include "tracer/spool/layout.h"

namespace torchprof::formats {
namespace {

using namespace std::string_view_literals;

// https://www.sqlite.org/fileformat.html, 1.3.1.
constexpr std::string_view kDatabaseMagic = "SQLite format 3\0"sv;

// The first byte of a trace is that of a newline. JSON may begin with one, too, but then goes on differently.
bool is_perfetto(std::string_view front) {
  if (front.empty() || front[0] != '\x0a') return false;
  const size_t text = front.find_first_not_of(" \t\r\n");
  return text != std::string_view::npos && front[text] != '{' && front[text] != '[';
}

TraceForm form_of(ByteStream& stream) {
  const std::string_view front = stream.front();
  if (front.starts_with(kDatabaseMagic)) return TraceForm::kDatabase;
  if (front.starts_with(std::string_view(reinterpret_cast<const char*>(&kSpoolMagic), sizeof(kSpoolMagic))))
    return TraceForm::kSpool;
  return is_perfetto(front) ? TraceForm::kPerfetto : TraceForm::kJson;
}

ReadEvents read_database(const std::filesystem::path& file) {
  const Database database(file, Database::Use::kRead);
  if (database.has_table("CUPTI_ACTIVITY_KIND_MARKER") && database.has_table("StringTable"))
    return read_nvprof(database);
  for (const char* const table :
       {"NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "CUPTI_ACTIVITY_KIND_MEMCPY"})
    if (database.has_table(table)) return read_nsys(database);
  if (database.has_table("info") && database.has_table("ops"))
    database.fail("it is a database of torchprof's: sqlite3 shows its tables and views");
  database.fail("it is a database, but none that nvprof or nsys export wrote");
}

ReadEvents read_events(const std::filesystem::path& file, bool has_inputs) {
  ByteStream stream(file);
  switch (form_of(stream)) {
    case TraceForm::kDatabase:
      if (stream.is_compressed()) stream.fail("a database has to be decompressed first");
      return read_database(file);
    case TraceForm::kSpool:
      stream.fail("it is a spool");
    case TraceForm::kPerfetto:
      return read_perfetto(stream);
    case TraceForm::kJson:
      break;
  }
  return read_kineto(stream, has_inputs);
}

}  // namespace

TraceForm form_of(const std::filesystem::path& file) {
  ByteStream stream(file);
  return form_of(stream);
}

bool may_be_trace(const std::filesystem::path& file) {
  ByteStream stream(file);
  if (form_of(stream) != TraceForm::kJson) return true;
  const std::string_view front = stream.front();
  const size_t begin = front.find_first_not_of(" \t\r\n\xef\xbb\xbf");  // a byte order mark, too
  if (begin == std::string_view::npos || (front[begin] != '{' && front[begin] != '[')) return false;
  const size_t next = front.find_first_not_of(" \t\r\n", begin + 1);  // in a list of events, an event
  return front[begin] == '{' || next == std::string_view::npos || front[next] == '{' || front[next] == ']';
}

TraceFile read_trace(const std::filesystem::path& file, const ReadRequest& request) {
  ReadEvents events = read_events(file, request.has_timelines && request.has_inputs);
  return totals_of(events, request);
}

}  // namespace torchprof::formats
