#include "launcher/options/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <limits>
#include <utility>

#include "formats/io/error.h"
#include "formats/io/nearest.h"
#include "launcher/options/parser.h"
#include "tracer/config/window_spec.h"
#include "tracer/spool/control_file.h"

namespace torchprof::launcher {
namespace {

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (const formats::Format& format : formats::all_formats()) names.emplace_back(format.name);
  return names;
}

// What a subcommand does that has nothing to work on.
constexpr const char* kAliveRuns =
    "\n\nWithout arguments: lists the runs of this user that are alive here. The exit status is 1 if there is none.";

constexpr uint64_t kUsualCapture = 5;   // steps
constexpr size_t kLongestRanks = 2000;  // bytes of a list: a line of the control file is shorter than 4096

// A directory of files (formats/write/parquet/dataset.h), which `export` alone writes.
constexpr const char* kDataset = "parquet";

// What was meant by the value of a setting that was refused, or by one of a list.
std::string meant_by(const Setting& setting, const std::string& value) {
  const bool is_format = std::string_view(setting.option) == "--format";
  const std::vector<std::string> known = is_format ? format_names() : split(setting.value, '|');
  for (const std::string& each : split(value))
    if (is_format && each == kDataset)
      return "; `torchprof export RUN --format parquet -o DIRECTORY` writes it";
    else if (std::ranges::find(known, each) == known.end())
      if (std::string meant = formats::did_you_mean(each, known); !meant.empty()) return meant;
  return "";
}

// What `ctl` is to do. Returns what is wrong with it; empty: nothing.
std::string take_command(const std::string& command, CtlOptions& options) {
  if (command == "start" || command == "stop" || command == "status" || command == "capture") return "";
  if (command.starts_with("next=")) {
    const std::string count = command.substr(std::string_view("next=").size());
    if (std::string why = whole_number(count); !why.empty()) return why;
    options.steps = StepsAsked{.next = std::stoull(count)};
    return "";
  }
  if (!command.starts_with("steps=")) return command + ": start, stop, status, steps=N..M, next=K or capture";
  WindowSpec spec;
  ErrorText error;
  if (!parse_window(command.c_str(), spec, error.text, sizeof(error.text))) return error.text;
  options.steps = StepsAsked{.first = spec.first, .last = spec.first + spec.length - 1};
  return "";
}

// --steps and the other options that choose a part of a run.
void add_slice(CLI::App& app, formats::SliceRequest& slice) {
  const auto add = [&app](const char* name, const char* value, const char* meaning, auto parse, auto& out,
                          const char* allowed) {
    app.add_option_function<std::string>(
           name,
           [=, &out](const std::string& text) {
             const auto parsed = parse(text);
             if (!parsed) throw Error(std::string("export: ") + name + ": '" + text + "' is not " + allowed);
             out = *parsed;
           },
           meaning)
        ->type_name(value);
  };
  add("--steps", "A..B", "only from the begin of step A to the end of step B", formats::parse_steps, slice.steps,
      "FIRST..LAST, steps count from 0");
  add("--time", "A..B", "only this time since the run began: 1.5s..2s, 200ms..", formats::parse_time, slice.time,
      "FROM..TO with ns, us, ms, s or m");
  add("--min-duration", "TIME", "leave out what is shorter than, for example, 10us", formats::parse_duration,
      slice.min_ns, "a time with ns, us, ms, s or m");
  app.add_option("--process", slice.processes, "only this process, by its id or rank; may be given several times")
      ->type_name("PID|RANK")
      ->take_all();
  app.add_option("--thread", slice.threads, "only this thread, by its name or id; may be given several times")
      ->type_name("NAME|TID")
      ->take_all();
}

// `allowed`: for the message.
const formats::Format& named_format(const std::string& name, const std::string& shown_as,
                                    const std::vector<std::string>& allowed) {
  if (const formats::Format* format = formats::find_format(name)) return *format;
  throw Error(shown_as + ": '" + name + "' is not a format of this version: " + joined(allowed) +
              formats::did_you_mean(name, allowed));
}

// The column keys of all tables, in lines that fit a terminal.
std::string report_footer() {
  std::string text = "\nColumns for --sort and --columns (also without _ns and _bytes), and in --json and --csv:";
  for (const std::string& table : formats::table_names()) {
    std::string line = "\n  " + table + ":";
    for (const std::string& key : formats::column_names(table)) {
      constexpr size_t kWidest = 115;
      if (line.size() + key.size() > kWidest) text += std::exchange(line, "\n     ");
      line += " " + key;
    }
    text += line;
  }
  return text;
}

}  // namespace

void add_settings(CLI::App& app, Config& config, const std::function<void(const Setting&)>& was_set,
                  const std::function<bool(const Setting&)>& wanted) {
  for (const Setting& setting : settings()) {
    if (!wanted(setting)) continue;
    std::string names = setting.option;
    if (setting.short_option) names = std::string{'-', setting.short_option} + "," + names;
    const auto set = [&config, &setting, was_set](const std::string& value) {
      ErrorText error;
      if (!assign(config, setting, value.c_str(), setting.option, error))
        throw Error(error.text + meant_by(setting, value));
      was_set(setting);
    };
    if (setting.is_flag)
      app.add_flag_callback(
          names, [set] { set("1"); }, setting.meaning);
    else
      app.add_option_function<std::string>(names, set, setting.meaning)->type_name(setting.value);
  }
}

void add_step(CLI::App& app, std::string& step) {
  app.add_option("--step", step,
                 "what a step is: a call of this function or nn.Module, or a range\n[steps of optimizers; without any "
                 "what recurs]")
      ->type_name("FUNCTION|MODULE|range=NAME")
      ->check([](const std::string& value) { return value.empty() ? "needs a name" : ""; });
}

RunOptions parse_run(const Arguments& arguments) {
  RunOptions options;
  Parser parser("run", "[OPTIONS] [--] COMMAND [ARG...]", "Profiles a command and everything that it starts.");
  CLI::App& app = parser.app();
  app.prefix_command();
  add_settings(app, options.config, [&options](const Setting& setting) {
    if (std::string_view(setting.option) == "--output") options.output_named = true;
  });
  add_step(app, options.step);
  add_align(app, options.align);
  add_ranks(app, options.ranks);
  app.add_option("--metrics", options.metrics,
                 "numbers for Prometheus while it runs, as `torchprof metrics RUN -o FILE`")
      ->type_name("FILE");
  app.add_flag("--open", options.is_open,
               "at the end, open a page with all tables in a browser, as `report RUN --open`");
  app.add_flag("--dry-run", options.dry_run, "print the environment that would be set, and start nothing");
  app.footer(
      "\nEvery option but the last six has a variable (--max-size has TORCHPROF_MAX_SIZE); the option wins. A flag's "
      "is 1 or 0.\n"
      "TORCHPROF_DISABLE=1: the preloaded library does nothing at all.\n\n"
      "The exit status is the command's own; 125: torchprof itself failed before the command ran, 126: the command "
      "could\n"
      "not be started, 127: there is no such command.");
  ErrorText error;
  const bool wants_help =
      std::ranges::any_of(arguments, [](const std::string& a) { return a == "--help" || a == "-h"; });
  if (!from_environment(options.config, error) && !wants_help) throw Error(error.text);
  parser.parse(arguments);
  options.command = parser.command();
  if (options.command.empty() && !options.dry_run)
    throw Error("run: the command is missing: torchprof run [OPTIONS] [--] COMMAND [ARG...]");
  return options;
}

ReportOptions parse_report(const Arguments& arguments) {
  ReportOptions options;
  formats::TableOptions& t = options.tables;
  Parser parser(
      "report", "RUN|TRACE [OPTIONS]",
      std::string(
          "Prints tables of a run directory, a spool, or a trace: ours, torch.profiler's, nvprof's or nsys's.") +
          kAliveRuns);
  CLI::App& app = parser.app();
  std::string tables, columns;
  size_t top = 0;
  app.add_option("RUN|TRACE", options.input,
                 "a run directory, or a file, which is recognised by its content, not its name; also\nwhat `torchprof "
                 "collect` or tar has packed")
      ->required()
      ->type_name("");
  app.add_option("-t,--tables", tables, "which tables:\n" + in_lines(formats::table_names()))->type_name("T[,T]");
  app.add_option("-s,--sort", t.sort, "the order, largest first: self, total, calls, average, or the key of any column")
      ->type_name("KEY");
  app.add_option("--filter", t.filter, "only rows that have this in one of their names, in either case of letters")
      ->type_name("NAME");
  app.add_option("-n,--top,--limit", top, "rows of each table [15 in text and Markdown, 5 of many processes, else all]")
      ->type_name("N")
      ->check(whole_number);
  app.add_option("-c,--columns", columns, "which columns of the table, by their keys, or all")
      ->type_name("KEY[,KEY]|all");
  std::string group_by;
  app.add_option("-g,--group-by", group_by,
                 "group operators by name and (stack:N: N innermost functions):\nshape, module, thread, overload, "
                 "line, stack:N")
      ->type_name("G");
  app.add_flag("--top-level", t.grouping.top_level, "only operators outside of any other operator");
  app.add_flag("--all-processes", t.has_all_processes,
               "a row for each process: workers that do the same are one row otherwise\n(--json and --csv have all)");
  app.add_flag(
      "--waits", t.has_waits,
      "Python functions that only wait (for locks, other threads, sockets), too\n(--json and --csv have them)");
  add_step(app, options.step);
  add_align(app, options.align);
  add_jobs(app);
  app.add_flag("--full-names", t.has_full_names, "the whole names of GPU kernels, not short ones");
  std::vector<formats::ReportStyle> styles;
  const auto add_style = [&](const char* name, formats::ReportStyle style, const char* meaning) {
    app.add_flag_callback(
        name, [&styles, style] { styles.push_back(style); }, meaning);
  };
  add_style("--json", formats::ReportStyle::kJson, "all columns as JSON: times in ns, sizes in bytes");
  add_style("--csv", formats::ReportStyle::kCsv, "all columns as CSV, with a first line of keys");
  add_style("--markdown", formats::ReportStyle::kMarkdown, "tables for a job summary or a comment");
  app.add_option("--html", options.html, "write an HTML page with all tables instead")->type_name("FILE");
  app.add_flag("--open", options.is_open, "open that page in a browser; without --html it is RUN/report.html");
  app.add_flag("--serve", options.is_served,
               "serve that page to this machine alone, at an address that nobody can guess,\nuntil Ctrl-C");
  app.footer(report_footer());
  parser.parse(arguments);
  if (options.is_page() && app.count_all() > 1u + !options.html.empty() + options.is_open + options.is_served +
                                                 t.has_all_processes + t.has_waits + !options.step.empty() +
                                                 !options.align.empty() + app.count("--jobs"))
    throw Error(
        "report: --html, --open and --serve write all tables and take no other options than --align, --all-processes, "
        "--jobs, --step and --waits");
  if (styles.size() > 1) throw Error("report: only one of --json, --csv and --markdown");
  if (!styles.empty()) t.style = styles.front();
  const bool is_for_people = t.style == formats::ReportStyle::kText || t.style == formats::ReportStyle::kMarkdown;
  if (!is_for_people && !options.is_page()) t.has_all_processes = t.has_waits = true;
  if (top != 0 || !is_for_people) t.rows = top != 0 ? top : std::numeric_limits<size_t>::max();
  if (!tables.empty()) t.tables = split(tables);
  if (!columns.empty()) t.columns = split(columns);
  t.has_totals = !tables.empty();
  if (!group_by.empty() && !formats::parse_grouping(group_by, t.grouping))
    throw Error("report: --group-by: '" + group_by + "' is not shape, stack:N, module, thread, overload or line" +
                formats::did_you_mean(
                    group_by, std::vector<std::string>{"shape", "stack:", "module", "thread", "overload", "line"}));
  t.step = options.step;
  t.grouping.has_source = !is_for_people || !t.columns.empty() || t.sort == "source";
  try {
    formats::check(t);
  } catch (const Error& error) {
    throw Error(std::string("report: ") + error.what());
  }
  return options;
}

ExportOptions parse_export(const Arguments& arguments) {
  ExportOptions options;
  Parser parser(
      "export", "RUN|TRACE [--format F[,F]] [-o FILE|DIR]",
      "Writes formats again. Without -o: what the run would have written at its end, into the run directory.");
  CLI::App& app = parser.app();
  std::string format;
  app.add_option("RUN|TRACE", options.input,
                 "a run directory, a spool, a trace, or what `torchprof collect` has packed")
      ->required()
      ->type_name("");
  std::vector<std::string> names = format_names();
  names.emplace_back(kDataset);
  app.add_option("-f,--format", format, "one or several of:\n" + in_lines(names))->type_name("F[,F]");
  app.add_option("-o,--output", options.outputs,
                 "the file, compressed if its name ends in .gz, or - for stdout; one for each\nformat, or a directory")
      ->type_name("FILE")
      ->take_all();
  add_slice(app, options.slice);
  add_ranks(app, options.ranks);
  std::string frames = "folded";
  app.add_option("--native-frames", frames,
                 "native stacks without frames of the interpreter\nand the dispatcher, or with all [folded]")
      ->type_name("folded|all")
      ->check(one_of({"folded", "all"}));
  app.add_flag("--critical-path", options.has_critical_path,
               "a row with what each instant of the steps waited for,\nin kineto, perfetto and those of ranks");
  add_step(app, options.step);
  add_align(app, options.align);
  add_jobs(app);
  parser.parse(arguments);
  if (frames == "all") options.frames = formats::NativeFrames::kAll;
  if (!options.slice.is_all() && options.outputs.empty())
    throw Error("export: a part of a run needs -o" + see_help("export"));
  if (!format.empty())
    for (const std::string& name : split(format)) {
      if (name == kDataset)
        options.has_dataset = true;
      else
        options.formats.push_back(&named_format(name, "export: --format", names));
    }
  if (options.has_dataset && options.outputs.size() != 1)
    throw Error("export: parquet is a directory of files: name one directory with -o");
  if (!options.outputs.empty() && options.formats.empty() && !options.has_dataset)
    throw Error("export: -o needs --format" + see_help("export"));
  if (options.outputs.size() > 1 && options.outputs.size() != options.formats.size())
    throw Error("export: -o was given " + std::to_string(options.outputs.size()) + " times for " +
                std::to_string(options.formats.size()) + " formats: once for each, or one directory");
  if (std::ranges::find(options.outputs, std::filesystem::path(kStdout)) != options.outputs.end() &&
      (options.outputs.size() > 1 || options.formats.size() != 1 || options.formats.front()->stem.empty()))
    throw Error("export: -o - is for one format that is one file" + see_help("export"));
  for (const formats::Format* format : options.formats)
    if (options.outputs.size() > 1 && format->stem.empty())
      throw Error("export: " + std::string(format->name) + " has a file for each rank: name one directory with -o");
  return options;
}

WhereOptions parse_where(const Arguments& arguments) {
  WhereOptions options;
  Parser parser(
      "where", "PID|RUN [--no-attach]",
      "Prints what every thread is doing, or was doing when it died: the calls, modules and operators that are\n"
      "open, outermost first, since when, and the line of each Python function. The program is not stopped. Functions\n"
      "that no event has told of, as in a hang outside of windows, have no time. A process that is not being profiled\n"
      "is attached to for a moment." +
          std::string(kAliveRuns));
  parser.app()
      .add_option("PID|RUN", options.target,
                  "a process, the `torchprof run` of a command, a run directory, a .spool, or what\n`torchprof "
                  "collect` has packed")
      ->required()
      ->type_name("");
  parser.app().add_flag("--no-attach", options.no_attach, "only what is being profiled already");
  parser.parse(arguments);
  return options;
}

TopOptions parse_top(const Arguments& arguments) {
  TopOptions options;
  Parser parser(
      "top", "RUN|PID [--once] [--last SECONDS]",
      "Shows what a running program does now, refreshed each second: its steps, operators and Python functions by "
      "self\n"
      "time, GPUs, memory, and its ranks side by side with the slowest marked. It reads the records of the last "
      "window\n"
      "or of the last seconds; the program is not stopped. Keys: w opens a window as `torchprof ctl RUN start` does,\n"
      "q or Ctrl-C leaves." +
          std::string(kAliveRuns));
  CLI::App& app = parser.app();
  app.add_option("RUN|PID", options.target,
                 "a run directory, a process that is being profiled, its `torchprof run`, or a .spool")
      ->required()
      ->type_name("");
  app.add_flag("--once", options.is_once, "print one picture and end, as where stdout is no terminal");
  app.add_option("--last", options.seconds, "how long something counts where the capture has no windows [10]")
      ->type_name("SECONDS")
      ->check(whole_number);
  parser.parse(arguments);
  return options;
}

CtlOptions parse_ctl(const Arguments& arguments) {
  CtlOptions options;
  Parser parser(
      "ctl", "PID|RUN start|stop|status|steps=N..M|next=K|capture",
      std::string(
          "Opens and closes the window of a program that runs under `torchprof run -w manual` (or auto, once a\n"
          "long run has windows), or was armed by `torchprof env`, or says whether it is open. With a run\n"
          "directory it does so for all its processes.\n\n"
          "  start       opens it when the next step begins; at once where no step ends within two seconds\n"
          "  stop        closes it\n"
          "  steps=N..M  RUN alone: all ranks record steps N to M, on all hosts that share RUN; where hosts have\n"
          "              run directories of their own, the same numbers on each of them do it\n"
          "  next=K      RUN alone: the next K steps that all ranks can begin together\n"
          "  capture     next=K, waits until they are over, and writes a trace of them (-o)") +
          kAliveRuns);
  CLI::App& app = parser.app();
  app.add_option("PID|RUN", options.target,
                 "a process that is being profiled; all of a run: its directory or its `torchprof run`")
      ->required()
      ->type_name("");
  app.add_option("start|stop|status|steps=N..M|next=K|capture", options.command, "what to do")
      ->required()
      ->type_name("")
      ->check([&options](const std::string& command) { return take_command(command, options); });
  std::string steps;
  app.add_option("--steps", steps, "with capture: so many steps [5]")->type_name("N")->check(whole_number);
  app.add_option("--ranks", options.ranks, "with capture, next and steps: these ranks alone, as in 0,4..7")
      ->type_name("R[,R]")
      ->check([](const std::string& ranks) {
        const bool is_list =
            parse_control_line("window 1 steps=1..1 ranks=" + ranks).kind == ControlLine::Kind::kWindow;
        return is_list && ranks.size() <= kLongestRanks ? "" : "'" + ranks + "' is not a list of ranks, as 0,4..7";
      });
  app.add_option("-o,--output", options.output,
                 "with capture: the trace; of the format perfetto where it\nends in .perfetto-trace, else kineto "
                 "[steps-N-M.json.gz]")
      ->type_name("FILE");
  parser.parse(arguments);
  const bool captures = options.command == "capture";
  if (captures) options.steps = StepsAsked{.next = steps.empty() ? kUsualCapture : std::stoull(steps)};
  if (!captures && (!steps.empty() || !options.output.empty()))
    throw Error("ctl: --steps and -o are for capture" + see_help("ctl"));
  if (!options.steps && !options.ranks.empty())
    throw Error("ctl: --ranks is for capture, next and steps" + see_help("ctl"));
  return options;
}

Arguments parse_doctor(const Arguments& arguments) {
  Parser parser(
      "doctor", "[PID] | [--] [COMMAND [ARG...]]",
      "Says what would be captured here, what would not, and why; or of a process that runs, whether it can be\n"
      "attached to, and what helps. The exit status is 1 if nothing would be captured.");
  parser.app().prefix_command();
  parser.parse(arguments);
  return parser.command();
}

std::vector<const formats::Format*> formats_named(const char* list) {
  std::vector<const formats::Format*> out;
  for (const std::string& name : split(list))
    if (name != "none") out.push_back(&named_format(name, "format", format_names()));
  return out;
}

}  // namespace torchprof::launcher
