// torchprof report: tables on stdout.
#include <cstdio>

#include "formats/error.h"
#include "formats/html.h"
#include "formats/table.h"
#include "launcher/input.h"
#include "launcher/say.h"
#include "launcher/subcommands.h"

namespace torchprof::launcher {

namespace {

int write_page(const ReportOptions& options, const Input& input) {
  formats::Output out(options.html);
  if (input.spools.empty()) {
    formats::write_html(input.trace, out);
  } else {
    const formats::Trace trace = formats::load(input.spools);
    for (const formats::Unreadable& bad : trace.unreadable) complain(bad.file.string() + ": " + bad.reason);
    if (trace.processes.empty()) throw Error(options.input.string() + ": none of its spools can be read");
    formats::write_html(trace, out);
  }
  out.commit();
  say(options.html.string() + ": written");
  return 0;
}

}  // namespace

int report(const Arguments& arguments) {
  const ReportOptions options = parse_report(arguments);
  const Input input = find_input(options.input);
  if (!options.html.empty()) return write_page(options, input);
  std::string text;
  if (input.spools.empty()) {
    text = formats::summary_text(input.trace, options.tables);
  } else {
    const formats::Trace trace = formats::load(input.spools);
    for (const formats::Unreadable& bad : trace.unreadable) complain(bad.file.string() + ": " + bad.reason);
    if (trace.processes.empty()) throw Error(options.input.string() + ": none of its spools can be read");
    text = formats::summary_text(trace, options.tables);
  }
  if (input.run && input.run->is_live()) say("the run still goes on: this is what there is so far");
  fwrite(text.data(), 1, text.size(), stdout);
  return 0;
}

}  // namespace torchprof::launcher
