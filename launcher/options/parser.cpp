#include "launcher/options/parser.h"

#include <algorithm>
#include <utility>

#include "formats/io/error.h"
#include "formats/io/nearest.h"
#include "formats/io/parallel.h"
#include "formats/ranks/choose.h"

namespace torchprof::launcher {
namespace {

// CLI11's help with first lines of our own.
class HelpFormatter : public CLI::Formatter {
 public:
  explicit HelpFormatter(std::string usage) : usage_(std::move(usage)) { column_width(36); }
  std::string make_description(const CLI::App*) const override { return {}; }
  std::string make_usage(const CLI::App* app, std::string) const override {
    return "Usage: " + usage_ + "\n\n" + app->get_description() + "\n";
  }

 private:
  std::string usage_;
};

}  // namespace

std::string see_help(const std::string& subcommand) { return "; see `torchprof help " + subcommand + "`"; }

std::string joined(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return out;
}

std::string in_lines(const std::vector<std::string>& names) {
  constexpr size_t kWidest = 76;
  std::string text;
  size_t width = 0;
  for (const std::string& name : names) {
    if (!text.empty()) text += ",";
    width += name.size() + 2;
    const bool is_next_line = width > kWidest;
    if (is_next_line) width = name.size() + 2;
    if (!text.empty()) text += is_next_line ? "\n" : " ";
    text += name;
  }
  return text;
}

std::vector<std::string> split(const std::string& list, char at) {
  std::vector<std::string> out;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(at, begin), list.size());
    out.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

std::string whole_number(const std::string& value) {
  const bool is_one = !value.empty() && value.size() < 10 &&
                      value.find_first_not_of("0123456789") == std::string::npos &&
                      value.find_first_not_of('0') != std::string::npos;
  return is_one ? "" : "'" + value + "' is not a whole number of 1 or more";
}

// Not CLI::IsMember: help would show its list behind the option's own.
std::function<std::string(const std::string&)> one_of(std::vector<std::string> values) {
  return [values = std::move(values)](const std::string& value) -> std::string {
    if (std::ranges::find(values, value) != values.end()) return "";
    std::string allowed;
    for (size_t i = 0; i < values.size(); ++i)
      allowed.append(i == 0 ? "" : i + 1 == values.size() ? " or " : ", ").append(values[i]);
    return "'" + value + "' is not allowed: " + allowed + formats::did_you_mean(value, values);
  };
}

void add_align(CLI::App& app, std::string& align) {
  app.add_option(
         "--align", align,
         "the clocks of several machines: put to one by what their ranks do together,\nor left as they are [auto]")
      ->type_name("auto|off")
      ->check(one_of({kAuto, kOff}));
}

void add_jobs(CLI::App& app) {
  static constexpr uint64_t kMost = 256;
  app.add_option_function<std::string>(
         "-j,--jobs",
         [](const std::string& count) {
           formats::set_thread_count(static_cast<size_t>(std::min<uint64_t>(std::stoull(count), kMost)));
         },
         "so many processes of the run are read at once; the result is the same\n[one for each processor, at most 8]")
      ->type_name("N")
      ->check(whole_number);
}

void add_ranks(CLI::App& app, std::string& ranks) {
  app.add_option(
         "--ranks", ranks,
         "the ranks in kineto and perfetto: numbers, slowest (for whom the others wait),\ntypical; or all [of more "
         "than 8 the lowest, slowest and typical]")
      ->type_name("R[,R]|all")
      ->check([](const std::string& list) -> std::string {
        if (list == formats::kAllRanks) return "";
        for (const std::string& one : split(list))
          if (one != formats::kSlowestRank && one != formats::kTypicalRank &&
              (one.empty() || one.size() > 9 || one.find_first_not_of("0123456789") != std::string::npos))
            return "'" + one + "' is not a rank, slowest, typical or all";
        return "";
      });
}

Parser::Parser(const std::string& name, const std::string& usage, const std::string& meaning) : name_(name) {
  app_.description(meaning);
  app_.formatter(std::make_shared<HelpFormatter>("torchprof " + name + " " + usage));
  app_.set_help_flag("-h,--help", "this text");
  app_.option_defaults()->take_last();
}

void Parser::parse(const Arguments& arguments) {
  try {
    app_.parse(Arguments(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::CallForHelp&) {
    throw HelpWanted{app_.help()};
  } catch (const CLI::ExtrasError&) {
    fail_unknown(app_.remaining().front());
  } catch (const CLI::ArgumentMismatch&) {  // the arguments ended where a value should be
    const CLI::Option* option = app_.get_option_no_throw(arguments.back());
    throw Error(name_ + ": " + arguments.back() + ": the value is missing" +
                (option ? ": " + option->get_type_name() : std::string{}) + see_help(name_));
  } catch (const CLI::ParseError& error) {
    throw Error(name_ + ": " + error.what() + see_help(name_));
  }
  // CLI11 takes `--option= next` for `--option next`: then the command would be the value.
  const size_t used = arguments.size() - std::min(arguments.size(), app_.remaining_size());
  for (size_t i = 0; i < used; ++i)
    if (arguments[i].starts_with("--") && arguments[i].ends_with('='))
      throw Error(name_ + ": " + arguments[i] + ": the value is missing" + see_help(name_));
}

void Parser::fail_unknown(const std::string& argument) const {
  if (!argument.starts_with('-')) throw Error(name_ + ": " + argument + ": one argument too many" + see_help(name_));
  std::vector<std::string> names;
  for (const CLI::Option* option : app_.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  const std::string given = argument.substr(0, argument.find('='));
  throw Error(name_ + ": " + argument + ": no such option" + formats::did_you_mean(given, names) + see_help(name_));
}

Arguments Parser::command() const {
  Arguments rest = app_.remaining();
  if (rest.empty()) return rest;
  if (rest.front() == "--")
    rest.erase(rest.begin());
  else if (rest.front().size() > 1 && rest.front().starts_with('-'))
    fail_unknown(rest.front());
  return rest;
}

}  // namespace torchprof::launcher
