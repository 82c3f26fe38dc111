// Command lines: what is an option, what is its value, and what belongs to the command.
#include "launcher/options/options.h"

#include <doctest/doctest.h>

#include <string>

#include "formats/io/error.h"

namespace options_test {

using namespace torchprof;
using namespace torchprof::launcher;

namespace {

std::string refusal(const Arguments& arguments) {
  try {
    parse_run(arguments);
  } catch (const Error& error) {
    CHECK(error.status == 125);
    return error.what();
  }
  return "";
}

Arguments command_of(const Arguments& arguments) { return parse_run(arguments).command; }

}  // namespace

TEST_CASE("the command begins at the first argument that is no option, or after --") {
  CHECK(command_of({"python", "-c", "pass"}) == Arguments{"python", "-c", "pass"});
  CHECK(command_of({"--", "python", "--", "-o"}) == Arguments{"python", "--", "-o"});
  CHECK(command_of({"-q", "--", "-odd-name"}) == Arguments{"-odd-name"});
  CHECK(command_of({"--ops", "off", "a", "--ops", "on", "--help", "--unknown"}) ==
        Arguments{"a", "--ops", "on", "--help", "--unknown"});
  CHECK(command_of({"a", "[1,2]", "{}", "", "%%", "++"}) == Arguments{"a", "[1,2]", "{}", "", "%%", "++"});
  CHECK(command_of({"run"}) == Arguments{"run"});
}

TEST_CASE("every setting is an option, in all the ways of writing one") {
  for (const Setting& setting : settings()) {
    CAPTURE(setting.option);
    char value[PATH_MAX];
    value_of(Config{}, setting, value, sizeof(value));
    const std::string option = setting.option;
    CHECK(command_of(setting.is_flag ? Arguments{option, "a"} : Arguments{option, value, "a"}) == Arguments{"a"});
    if (!setting.is_flag) CHECK(command_of({option + "=" + value, "a"}) == Arguments{"a"});
  }
  CHECK(std::string(parse_run({"-oX", "a"}).config.output) == "X");
  CHECK(parse_run({"-qw", "all", "a"}).config.quiet);
}

TEST_CASE("the last of several holds") {
  CHECK(std::string(parse_run({"-o", "x", "--output=y", "a"}).config.output) == "y");
  CHECK(parse_run({"--ops", "off", "--ops", "on", "a"}).config.ops);
}

TEST_CASE("whether the directory was named on the command line") {
  CHECK(parse_run({"-o", "x", "a"}).output_named);
  CHECK_FALSE(parse_run({"-q", "a"}).output_named);
}

TEST_CASE("what is wrong is named") {
  CHECK(refusal({}) == "run: the command is missing: torchprof run [OPTIONS] [--] COMMAND [ARG...]");
  CHECK(refusal({"--"}) == "run: the command is missing: torchprof run [OPTIONS] [--] COMMAND [ARG...]");
  CHECK(refusal({"--op", "off", "a"}) == "run: --op: no such option (did you mean '--ops'?); see `torchprof help run`");
  CHECK(refusal({"-z", "a"}) == "run: -z: no such option; see `torchprof help run`");
  CHECK(refusal({"--unknown=1", "--", "a"}) == "run: --unknown=1: no such option; see `torchprof help run`");
  CHECK(refusal({"--ops"}) == "run: --ops: the value is missing: on|off; see `torchprof help run`");
  CHECK(refusal({"--output=", "a", "b"}) == "run: --output=: the value is missing; see `torchprof help run`");
  CHECK(refusal({"--ops", "--gpu", "off", "a"}) == "--ops: '--gpu' is not allowed: off or on");
}

TEST_CASE("a dry run needs no command") {
  CHECK(parse_run({"--dry-run"}).dry_run);
  CHECK(parse_run({"--dry-run"}).command.empty());
}

TEST_CASE("help is asked for only before the command") {
  CHECK_THROWS_AS(parse_run({"--help"}), HelpWanted);
  CHECK_THROWS_AS(parse_run({"-q", "-h", "a"}), HelpWanted);
  CHECK_THROWS_AS(parse_report({"--help"}), HelpWanted);
}

TEST_CASE("--format takes every format that there is") {
  for (const formats::Format& format : formats::all_formats())
    CHECK(std::string(parse_run({"--format", std::string(format.name), "a"}).config.format) == format.name);
}

TEST_CASE("the formats of a list, without none") {
  CHECK(formats_named("kineto,table").size() == 2);
  CHECK(formats_named("table").front()->name == "table");
  CHECK(formats_named("none").empty());
}

}  // namespace options_test
