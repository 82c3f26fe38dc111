// torchprof report: prints tables.
#include <fcntl.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "formats/io/cells.h"
#include "formats/io/error.h"
#include "formats/io/open_file.h"
#include "formats/io/text.h"
#include "formats/native/names.h"
#include "formats/report/page.h"
#include "formats/report/summary.h"
#include "launcher/run_dir/input.h"
#include "launcher/run_dir/our_files.h"
#include "launcher/run_dir/run_info.h"
#include "launcher/subcommands/alive_runs.h"
#include "launcher/subcommands/subcommands.h"
#include "launcher/terminal/browser.h"
#include "launcher/terminal/say.h"
#include "launcher/terminal/screen.h"
#include "launcher/watch/page_server.h"

namespace torchprof::launcher {
namespace {

formats::Trace load_named(const Input& input, const ReportOptions& options) {
  formats::Trace trace = load(input, options.input, options.align);
  choose_step(trace, options.step, input.run ? input.run->read_info() : Info::object());
  formats::name_native_frames(trace);
  return trace;
}

void write_page(const ReportOptions& options, const Input& input, formats::Output& out) {
  const formats::PageOptions page{options.tables.has_all_processes, options.tables.has_waits, options.step};
  if (input.spools.empty())
    formats::write_html(one_trace(input), out, page);
  else
    formats::write_html(load_named(input, options), out, page);
  out.commit();
}

// Where nobody has named it: of a run in its directory, as that of torchprof.profile() in Python; of anything else, as
// of a copy or an archive, beside us. Throws Error if something is there that is no page of ours.
std::filesystem::path unnamed_page(const ReportOptions& options, const Input& input) {
  std::error_code error;
  std::filesystem::path path =
      input.run && !input.unpacked && !input.run->is_copy()
          ? input.run->path() / formats::kPageOfRun
          : std::filesystem::path(std::filesystem::canonical(options.input, error).filename().string() + ".html");
  if (std::filesystem::exists(std::filesystem::symlink_status(path, error)) &&
      !is_page(open_directory(AT_FDCWD, path.has_parent_path() ? path.parent_path() : ".").get(), path.filename()))
    throw Error(path.string() + ": is there, and no page of torchprof; --html FILE names another place");
  return path;
}

void show_in_browser(const std::string& address) {
  if (open_in_browser(address)) return say(address + ": opened in the browser");
  say("there is no browser to open it in ($BROWSER, or xdg-open with a display): " + address);
}

int serve_page(const ReportOptions& options, const Input& input) {
  std::string page;
  formats::Output out(page);
  write_page(options, input, out);
  if (!options.html.empty()) {
    formats::Output file(options.html);
    file.write(page);
    file.commit();
  }
  sigset_t ends;
  sigemptyset(&ends);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction now {};
    // nohup and a shell's background: what is ignored stays so, but would be read where it is blocked.
    if (sigaction(signal, nullptr, &now) != 0 || now.sa_handler != SIG_IGN) sigaddset(&ends, signal);
  }
  sigprocmask(SIG_BLOCK, &ends, nullptr);
  const int stop = signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK);
  if (stop < 0) throw Error(std::string("signalfd: ") + std::strerror(errno));
  PageServer server;
  const std::string port = std::to_string(server.port());
  say(server.url() + ": the page, for whoever has this address on this machine, until Ctrl-C; from elsewhere: ssh -L " +
      port + ":127.0.0.1:" + port + " HOST");
  if (options.is_open) show_in_browser(server.url());
  server.serve(page, stop);
  return 0;
}

int make_page(const ReportOptions& options, const Input& input) {
  if (!options.html.empty()) demand_not_input(input, options.input, options.html);
  if (options.is_served) return serve_page(options, input);
  const std::filesystem::path file = options.html.empty() ? unnamed_page(options, input) : options.html;
  formats::Output out(file, options.html.empty() ? formats::Existing::kOwn : formats::Existing::kReplaced);
  write_page(options, input, out);
  say(file.string() + ": written");
  if (options.is_open) show_in_browser(file_address(formats::absolute_path(file).string()));
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
  if (options.is_page()) return make_page(options, input);
  const std::string text = input.spools.empty() ? formats::summary_text(one_trace(input), options.tables)
                                                : formats::summary_text(load_named(input, options), options.tables);
  if (input.run && input.run->is_live()) say("the run still goes on: this is what there is so far");
  // The lines of CSV end with \r\n. What it quotes is printable already.
  options.tables.style == formats::ReportStyle::kCsv ? print(text) : print_text(text);
  return 0;
}

}  // namespace torchprof::launcher
