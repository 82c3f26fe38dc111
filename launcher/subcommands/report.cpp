// torchprof report: prints tables.
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "formats/io/cells.h"
#include "formats/io/text.h"
#include "formats/native/names.h"
#include "formats/report/page.h"
#include "formats/report/summary.h"
#include "launcher/run_dir/input.h"
#include "launcher/run_dir/run_info.h"
#include "launcher/subcommands/alive_runs.h"
#include "launcher/subcommands/subcommands.h"
#include "launcher/terminal/say.h"
#include "launcher/terminal/screen.h"

namespace torchprof::launcher {
namespace {

formats::Trace load_named(const Input& input, const ReportOptions& options) {
  formats::Trace trace = load(input, options.input, options.align);
  choose_step(trace, options.step, input.run ? input.run->read_info() : Info::object());
  formats::name_native_frames(trace);
  return trace;
}

int write_page(const ReportOptions& options, const Input& input) {
  formats::Output out(options.html);
  const formats::PageOptions page{options.tables.has_all_processes, options.tables.has_waits, options.step};
  if (input.spools.empty())
    formats::write_html(one_trace(input), out, page);
  else
    formats::write_html(load_named(input, options), out, page);
  out.commit();
  say(options.html.string() + ": written");
  return 0;
}

// How long writing the run took, from run.json: "writing it took: load 1.204 ms, symbols ..."; empty if it was not
// written.
std::string phases_of(const Input& input) {
  std::string out;
  const Info took = input.run ? input.run->read_info().value("took_ns", Info::object()) : Info::object();
  for (const auto& [phase, ns] : took.items())
    if (ns.is_number())
      out.append(out.empty() ? "writing it took: " : ", ")
          .append(formats::printable(phase))
          .append(" ")
          .append(formats::duration_text(ns.get<double>()));
  return out;
}

}  // namespace

int report(const Arguments& arguments) {
  if (arguments.empty()) return list_alive_runs("torchprof report RUN");
  ReportOptions options = parse_report(arguments);
  const Input input = find_input(options.input);
  options.tables.writing = phases_of(input);
  options.tables.terminal = terminal_columns(STDOUT_FILENO);
  if (!options.html.empty()) return write_page(options, input);
  const std::string text = input.spools.empty() ? formats::summary_text(one_trace(input), options.tables)
                                                : formats::summary_text(load_named(input, options), options.tables);
  if (input.run && input.run->is_live()) say("the run still goes on: this is what there is so far");
  // The lines of CSV end with \r\n. What it quotes is printable already.
  options.tables.style == formats::ReportStyle::kCsv ? print(text) : print_text(text);
  return 0;
}

}  // namespace torchprof::launcher
