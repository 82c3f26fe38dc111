// TORCHPROF_* <-> Config: every setting goes both ways, nothing bad passes, the message names what is allowed.
#include "tracer/config/config.h"

#include <doctest/doctest.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "tracer/config/run_directory.h"

namespace config_test {

using namespace torchprof;

namespace {

using Variables = std::map<std::string, std::string>;

const Setting& setting(const std::string& option) {
  for (const Setting& s : settings())
    if (option == s.option) return s;
  FAIL("no such option: ", option);
  return settings()[0];
}

// What `assign` says; "" if it takes the value.
std::string refusal(Config& config, const std::string& option, const std::string& value) {
  ErrorText error;
  const bool taken = assign(config, setting(option), value.c_str(), option.c_str(), error);
  CHECK(taken == (error.text[0] == 0));
  return error.text;
}

std::string value(const Config& config, const std::string& option) {
  char text[PATH_MAX];
  value_of(config, setting(option), text, sizeof(text));
  return text;
}

// The environment holds these TORCHPROF_* variables alone, as long as this lives.
class Environment {
 public:
  explicit Environment(const Variables& variables) : saved_(environ) {
    for (const auto& [name, text] : variables) entries_.push_back(name + "=" + text);
    for (std::string& entry : entries_) pointers_.push_back(entry.data());
    pointers_.push_back(nullptr);
    environ = pointers_.data();
  }
  ~Environment() { environ = saved_; }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  char** saved_;
  std::vector<std::string> entries_;
  std::vector<char*> pointers_;
};

std::string refusal_of_environment(const Variables& variables) {
  const Environment environment(variables);
  Config config;
  ErrorText error;
  const bool taken = from_environment(config, error);
  CHECK(taken == (error.text[0] == 0));
  return error.text;
}

std::string expanded(const std::string& pattern, size_t size = PATH_MAX) {
  std::string out(size, 'x');
  ErrorText error;
  return expand_output(pattern.c_str(), out.data(), size, error) ? out.c_str() : std::string("refused: ") + error.text;
}

}  // namespace

TEST_CASE("every setting takes another value than its default and gives it back") {
  const std::map<std::string, std::string> other = {{"--output", "elsewhere"},
                                                    {"--window", "all"},
                                                    {"--python", "calls"},
                                                    {"--imports", "full"},
                                                    {"--ops", "off"},
                                                    {"--shapes", "off"},
                                                    {"--memory", "off"},
                                                    {"--gpu", "off"},
                                                    {"--nvtx", "emit"},
                                                    {"--native", "on"},
                                                    {"--flops", "off"},
                                                    {"--max-size", "1048576"},
                                                    {"--max-run-size", "1048576"},
                                                    {"--keep", "first"},
                                                    {"--format", "none"},
                                                    {"--quiet", "1"},
                                                    {"--keep-spool", "1"},
                                                    {"--discard", "1"},
                                                    {"--native-threshold", "5"},
                                                    {"--native-frames", "all"},
                                                    {"--budget-events", "5000"},
                                                    {"--budget-overhead", "7"},
                                                    {"--sample", "20"}};
  REQUIRE(other.size() == settings().size());
  for (const Setting& s : settings()) {
    CAPTURE(s.option);
    Config config;
    CHECK(refusal(config, s.option, other.at(s.option)) == "");
    CHECK(value(config, s.option) == other.at(s.option));
    // Only that one changed.
    const Config defaults;
    for (const Setting& rest : settings())
      if (&rest != &s) CHECK(value(config, rest.option) == value(defaults, rest.option));
  }
}

TEST_CASE("every default is a value that is allowed") {
  Config config;
  for (const Setting& s : settings()) CHECK(refusal(config, s.option, value(Config{}, s.option)) == "");
}

TEST_CASE("names and variables of the settings belong together") {
  for (const Setting& s : settings()) {
    std::string name = s.option + 2;
    for (char& c : name) c = c == '-' ? '_' : static_cast<char>(toupper(c));
    CHECK("TORCHPROF_" + name == s.variable);
  }
}

TEST_CASE("sizes") {
  Config config;
  for (const auto& [text, bytes] : std::map<std::string, uint64_t>{{"1M", 1 << 20},
                                                                   {"1024K", 1 << 20},
                                                                   {"1048576", 1 << 20},
                                                                   {"2g", uint64_t{2} << 30},
                                                                   {"2GB", uint64_t{2} << 30},
                                                                   {"2GiB", uint64_t{2} << 30},
                                                                   {"1024T", uint64_t{1} << 50}}) {
    CAPTURE(text);
    CHECK(refusal(config, "--max-size", text) == "");
    CHECK(config.max_size == bytes);
  }
  CHECK(refusal(config, "--max-run-size", "20M") == "");
  CHECK(config.max_run_size == uint64_t{20} << 20);
  CHECK(refusal(config, "--max-run-size", "none") == "");
  CHECK(config.max_run_size == 0);
  CHECK(refusal(config, "--max-run-size", "1K") ==
        "--max-run-size: '1K' is not a size: a whole number with K, M, G or T, from 1M, none or auto");
  const uint64_t before = config.max_size;
  for (const char* bad : {"", "M", "-1M", " 1M", "1.5G", "1023K", "0", "1025T", "99999999999999999999999", "1MM", "1i",
                          "1B", "0x100000"}) {
    CAPTURE(std::string(bad));
    CHECK(refusal(config, "--max-size", bad) ==
          "--max-size: '" + std::string(bad) + "' is not a size: a whole number with K, M, G or T, from 1M");
    CHECK(config.max_size == before);
  }
}

TEST_CASE("a bad value leaves the configuration as it was and says what is allowed") {
  const std::string no_format =
      " is not a format of this version: kineto, kineto-ranks, perfetto, perfetto-ranks, chrome-legacy, json-stream, "
      "stacks, stacks-cuda, speedscope, pprof, "
      "memory-timeline, memory-timeline-raw, memory-timeline-html, memory-snapshot, sqlite, table or none";
  const std::map<std::pair<std::string, std::string>, std::string> cases = {
      {{"--python", "on"}, "--python: 'on' is not allowed: off, modules, functions or calls"},
      {{"--python", ""}, "--python: '' is not allowed: off, modules, functions or calls"},
      {{"--ops", "ON"}, "--ops: 'ON' is not allowed: off or on"},
      {{"--nvtx", "emits"}, "--nvtx: 'emits' is not allowed: off, on or emit"},
      {{"--quiet", "on"}, "--quiet: 'on' is not allowed: 0 or 1"},
      {{"--output", ""}, "--output: the run directory needs a name"},
      {{"--format", ""}, "--format: ''" + no_format},
      {{"--format", "kineto,"}, "--format: ''" + no_format},
      {{"--format", "kinetotable"}, "--format: 'kinetotable'" + no_format},
      {{"--window", "signal=KILL"},
       "--window: 'signal=KILL' is not a window: signal=USR1, USR2, HUP, WINCH, URG, IO or PWR"}};
  for (const auto& [input, message] : cases) {
    Config config;
    CHECK(refusal(config, input.first, input.second) == message);
    CHECK(value(config, input.first) == value(Config{}, input.first));
  }
  Config config;
  CHECK(refusal(config, "--output", std::string(PATH_MAX, 'x')) == "--output: longer than 4095 bytes");
  CHECK(refusal(config, "--output", std::string(PATH_MAX - 1, 'x')) == "");
}

TEST_CASE("a message longer than its line is cut") {
  Config config;
  CHECK(refusal(config, "--ops", std::string(2000, 'y')).size() == sizeof(ErrorText::text) - 1);
}

TEST_CASE("the environment fills the configuration") {
  const Environment environment({{"TORCHPROF_PYTHON", "modules"},
                                 {"TORCHPROF_OPS", ""},
                                 {"TORCHPROF_QUIET", "1"},
                                 {"PATH", "x"},
                                 {"TORCHPROFILE", "x"}});
  Config config;
  ErrorText error;
  CHECK(from_environment(config, error));
  CHECK(config.python == PythonLevel::kModules);
  CHECK(config.ops);  // empty is unset
  CHECK(config.quiet);
}

TEST_CASE("settings as text say the same as variables") {
  Config config;
  for (const Setting& each : settings()) {
    char text[PATH_MAX];
    value_of(config, each, text, sizeof(text));
    Config read;
    ErrorText error;
    REQUIRE(from_text(read, (std::string(each.variable) + "=" + text + "\n").c_str(), error));
    CHECK(value(read, each.option) == text);
  }
  ErrorText error;
  CHECK(from_text(config, "\nTORCHPROF_PYTHON=calls\nHOME=/x\nTORCHPROF_OUTPUT=/a b\nTORCHPROF_OPS=off", error));
  CHECK((config.python == PythonLevel::kCalls && !config.ops && std::string(config.output) == "/a b"));
  CHECK_FALSE(from_text(config, "TORCHPROF_OPS=on\nTORCHPROF_PYTHON=much\n", error));
  CHECK(std::string(error.text).starts_with("TORCHPROF_PYTHON: 'much' is not allowed"));
  CHECK_FALSE(from_text(config, ("TORCHPROF_OUTPUT=" + std::string(2 * PATH_MAX, 'x')).c_str(), error));
}

TEST_CASE("a bad or unknown variable is refused by its name") {
  CHECK(refusal_of_environment({{"TORCHPROF_GPU", "1"}}) ==
        "TORCHPROF_GPU: '1' is not allowed: off, kernels, on or full");
  CHECK(refusal_of_environment({{"TORCHPROF_PYTHONS", "off"}}) ==
        "TORCHPROF_PYTHONS: no such variable; `torchprof help run` lists them");
  CHECK(refusal_of_environment({{"TORCHPROF_", "x"}}) ==
        "TORCHPROF_: no such variable; `torchprof help run` lists them");
  CHECK(refusal_of_environment({{"TORCHPROF_DISABLE", "1"}}) == "");
  CHECK(refusal_of_environment({{"TORCHPROF_LAUNCHED", "host:/runs/a"}}) == "");
  CHECK(refusal_of_environment({}) == "");
}

TEST_CASE("wanted and disabled") {
  const auto wanted = [](const Variables& variables) {
    const Environment environment(variables);
    return wanted_by_environment();
  };
  CHECK(wanted({{"TORCHPROF_OUTPUT", "x"}}));
  CHECK(wanted({{"TORCHPROF_OUTPUT", "x"}, {"TORCHPROF_DISABLE", "0"}}));
  CHECK(wanted({{"TORCHPROF_OUTPUT", "x"}, {"TORCHPROF_DISABLE", ""}}));
  CHECK_FALSE(wanted({{"TORCHPROF_OUTPUT", "x"}, {"TORCHPROF_DISABLE", "1"}}));
  CHECK_FALSE(wanted({{"TORCHPROF_OUTPUT", ""}}));
  CHECK_FALSE(wanted({{"TORCHPROF_PYTHON", "calls"}}));
}

TEST_CASE("a program knows the run directory that its launcher made, and no other") {
  char entry[PATH_MAX + 256];
  write_launched("/runs/a", entry);
  utsname host{};
  uname(&host);
  CHECK(entry == "TORCHPROF_LAUNCHED=" + std::string(host.nodename) + ":/runs/a");
  const auto made = [](const std::string& value, const char* output) {
    const Environment environment(Variables{{kLaunched, value}});
    return made_by_launcher(output);
  };
  const std::string value = strchr(entry, '=') + 1;
  CHECK(made(value, "/runs/a"));
  CHECK_FALSE(made(value, "/runs/b"));
  CHECK_FALSE(made(value, "/runs"));
  CHECK_FALSE(made("x" + value, "/runs/a"));
  CHECK_FALSE(made("/runs/a", "/runs/a"));
  CHECK_FALSE(made_by_launcher("/runs/a"));
}

TEST_CASE("placeholders of the run directory") {
  const Environment environment({{"JOB", "a/b"}, {"EMPTY", ""}});
  char host[256] = "";
  gethostname(host, sizeof(host));
  CHECK(expanded("plain") == "plain");
  CHECK(expanded("%h.%p") == std::string(host) + "." + std::to_string(getpid()));
  CHECK(expanded("%q{JOB}-%q{EMPTY}-%%") == "a/b--%");
  const std::string time = expanded("%t");
  CHECK(time.size() == strlen("20260102-030405"));
  CHECK(time.find_first_not_of("0123456789") == 8);
}

TEST_CASE("the job is what the batch system, Ray or torchrun call it, or the machine") {
  using V = std::map<std::string, std::string>;
  const auto job = [](const V& variables) {
    const Environment environment({variables.begin(), variables.end()});
    return expanded("%j");
  };
  V all = {{"SLURM_JOB_ID", "17"}, {"PBS_JOBID", "18.host"}, {"RAY_JOB_ID", "19"}, {"TORCHELASTIC_RUN_ID", "20"}};
  for (const auto& [name, id] : V(all)) CHECK(job({{name, id}}) == id);
  CHECK(job(all) == "17");
  all["SLURM_JOB_ID"] = "";
  CHECK(job(all) == "18.host");
  CHECK(job({{"TORCHELASTIC_RUN_ID", "a/b c\nd"}}) == "a_b_c_d");
  CHECK(job({{"TORCHELASTIC_RUN_ID", ".."}}) == "_");
  char host[256] = "";
  gethostname(host, sizeof(host));
  CHECK(job({{"TORCHELASTIC_RUN_ID", "none"}, {"KUBERNETES_SERVICE_HOST", "10.0.0.1"}}) == host);
  CHECK(job({}).starts_with(host));
  CHECK(job({}) == job({{"TORCHELASTIC_RUN_ID", "none"}}));
}

TEST_CASE("what stands for a variable that is not set, or is empty") {
  const Environment environment({{"JOB", "7"}, {"EMPTY", ""}});
  CHECK(expanded("%q{JOB:-x}%q{NONE:-x y}%q{EMPTY:-/z}%q{NONE:-}") == "7x y/z");
  CHECK(expanded("%u") == std::to_string(getuid()));
}

TEST_CASE("a pattern that gives each process a directory is none for all") {
  const auto why = [](const char* pattern) {
    ErrorText error;
    return is_shared_output(pattern, error) ? "" : std::string(error.text);
  };
  for (const char* shared : {"x", "%h/%j-%u", "%q{NONE}", "%q{A:-%p}", "%%p"}) CHECK(why(shared) == "");
  for (const char* own : {"%p", "x/%t", "%h%p"}) CHECK(why(own).find("a directory of its own") != std::string::npos);
  for (const char* bad : {"%", "%z", "%q{A"}) CHECK(why(bad) != "");
}

TEST_CASE("a pattern that cannot be filled in is refused") {
  const Environment environment(Variables{{"JOB", "seven"}});
  CHECK(expanded("x%") == "refused: output 'x%': a lone % at its end: %% is a percent sign");
  CHECK(expanded("%z") == "refused: output '%z': %z is not a placeholder: %h, %j, %p, %t, %u, %q{NAME} or %%");
  CHECK(expanded("%q{NONE}") == "refused: output '%q{NONE}': variable NONE is not set");
  for (const char* bad : {"%q", "%qJOB", "%q{JOB"})
    CHECK(expanded(bad) ==
          "refused: output '" + std::string(bad) + "': %q wants a variable: %q{NAME} or %q{NAME:-INSTEAD}");
  CHECK(expanded("12345678", 8) == "refused: output '12345678': the name is too long");
  CHECK(expanded("1234567", 8) == "1234567");
  CHECK(expanded("123%q{JOB}", 8) == "refused: output '123%q{JOB}': the name is too long");
}

}  // namespace config_test
