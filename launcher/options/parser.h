// What the command lines of all subcommands share. All functions throw Error, or HelpWanted for --help (options.h).
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launcher/options/options.h"

namespace torchprof::launcher {

// "; see `torchprof help NAME`"
std::string see_help(const std::string& subcommand);
std::string joined(const std::vector<std::string>& names);  // "a, b"
// The same, broken into lines for the help's column of descriptions, which has some 80 columns.
std::string in_lines(const std::vector<std::string>& names);
std::vector<std::string> split(const std::string& list, char at = ',');
// A check for CLI11: returns the complaint, or an empty text.
std::string whole_number(const std::string& value);
// A check for CLI11 of an option that takes one of few.
std::function<std::string(const std::string&)> one_of(std::vector<std::string> values);
// --align, of the subcommands that read runs of several machines.
void add_align(CLI::App& app, std::string& align);
// -j, of those that read many processes: takes effect at once (formats/io/parallel.h).
void add_jobs(CLI::App& app);
// --ranks, of those that write traces.
void add_ranks(CLI::App& app, std::string& ranks);

// The options of `run`, one for each of settings() that is `wanted`; `was_set` is called after each that the command
// line has.
void add_settings(
    CLI::App& app, Config& config, const std::function<void(const Setting&)>& was_set,
    const std::function<bool(const Setting&)>& wanted = [](const Setting&) { return true; });
void add_step(CLI::App& app, std::string& step);  // --step

// A CLI11 application for one subcommand, with messages of ours.
class Parser {
 public:
  // `usage`: the text behind "torchprof NAME".
  Parser(const std::string& name, const std::string& usage, const std::string& meaning);
  CLI::App& app() { return app_; }
  void parse(const Arguments& arguments);
  [[noreturn]] void fail_unknown(const std::string& argument) const;
  // With prefix_command(): the arguments from the first one that is no option on, or those behind `--`.
  Arguments command() const;

 private:
  CLI::App app_;
  std::string name_;
};

}  // namespace torchprof::launcher
