// torchprof report: tables on stdout.
#include "formats/html.h"
#include "formats/native_names.h"
#include "formats/table.h"
#include "launcher/input.h"
#include "launcher/say.h"
#include "launcher/subcommands.h"

namespace torchprof::launcher {
namespace {

formats::Trace load_named(const Input& input, const ReportOptions& options) {
  formats::Trace trace = load(input, options.input);
  formats::name_native_frames(trace);
  return trace;
}

int write_page(const ReportOptions& options, const Input& input) {
  formats::Output out(options.html);
  if (input.spools.empty())
    formats::write_html(input.trace, out);
  else
    formats::write_html(load_named(input, options), out);
  out.commit();
  say(options.html.string() + ": written");
  return 0;
}

}  // namespace

int report(const Arguments& arguments) {
  const ReportOptions options = parse_report(arguments);
  const Input input = find_input(options.input);
  if (!options.html.empty()) return write_page(options, input);
  const std::string text = input.spools.empty() ? formats::summary_text(input.trace, options.tables)
                                                : formats::summary_text(load_named(input, options), options.tables);
  if (input.run && input.run->is_live()) say("the run still goes on: this is what there is so far");
  print(text);
  return 0;
}

}  // namespace torchprof::launcher
