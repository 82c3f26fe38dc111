// torchprof export: a format again. Spools are read, never removed.
#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "formats/error.h"
#include "formats/output.h"
#include "launcher/input.h"
#include "launcher/say.h"
#include "launcher/subcommands.h"
#include "launcher/write_run.h"

namespace torchprof::launcher {
namespace {

// The same trace, compressed or not as the new name says. zlib reads both.
void copy_trace(const std::filesystem::path& from, formats::Output& out) {
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> in(gzopen(from.c_str(), "rbe"), gzclose);
  if (!in) throw Error(from.string() + ": " + std::strerror(errno));
  std::string part(formats::Output::kMaxReserve, '\0');
  int n;
  while ((n = gzread(in.get(), part.data(), static_cast<unsigned>(part.size()))) > 0)
    out.write({part.data(), static_cast<size_t>(n)});
  int code = Z_OK;
  const char* message = gzerror(in.get(), &code);
  if (n < 0 || code != Z_OK) throw Error(from.string() + ": " + (code == Z_BUF_ERROR ? "ends too early" : message));
}

void export_trace(const std::filesystem::path& trace, const ExportOptions& options) {
  formats::Output out(options.output);
  if (options.format->name == "table")
    out.write(formats::summary_text(trace));
  else if (options.format->name == "kineto")
    copy_trace(trace, out);
  else
    throw Error("the spools are gone (--keep-spool keeps them): " + std::string(options.format->name) +
                " cannot be written from a trace");
  out.commit();
}

void export_spools(const std::vector<std::filesystem::path>& spools, const ExportOptions& options) {
  const formats::Trace trace = formats::load(spools);
  for (const formats::Unreadable& bad : trace.unreadable) complain(bad.file.string() + ": " + bad.reason);
  if (trace.processes.empty()) throw Error(options.input.string() + ": none of its spools can be read");
  formats::write_file(*options.format, trace, trace.processes, options.output);
}

// What a dead launcher left undone.
int complete_run(const Input& input, const ExportOptions& options) {
  if (!input.run)
    throw Error(options.input.string() +
                ": -o FILE is missing: only a run directory has a place of its own for what is written");
  if (input.spools.empty())
    throw Error(options.input.string() +
                ": is exported already and its spools are gone; -o FILE writes its trace elsewhere");
  if (input.run->is_live())
    throw Error(options.input.string() + ": the run still goes on; -o FILE writes what there is so far");
  const Info info = input.run->read_info();
  std::vector<const formats::Format*> formats{options.format};
  if (!options.format) formats = formats_named("kineto,table");
  const Written written = write_run(*input.run, info, formats);
  say(written.text);
  complain(written.trouble);
  return written.is_complete ? 0 : 125;
}

}  // namespace

int export_(const Arguments& arguments) {
  const ExportOptions options = parse_export(arguments);
  const Input input = find_input(options.input);
  if (options.output.empty()) return complete_run(input, options);
  if (input.spools.empty())
    export_trace(input.trace, options);
  else
    export_spools(input.spools, options);
  say(options.output.string() + ": written");
  return 0;
}

}  // namespace torchprof::launcher
