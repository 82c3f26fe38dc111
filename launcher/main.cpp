// torchprof: starts a command under the library, and makes traces and tables of what that recorded.
#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>
#include <string>

#include "formats/io/error.h"
#include "launcher/subcommands/subcommands.h"
#include "launcher/terminal/say.h"

namespace {

// Makes one line of it, whatever the user's values hold.
void complain_of(std::string what) {
  std::ranges::replace(what, '\n', '?');
  torchprof::launcher::complain(what);
}

int run(int argc, char** argv) {
  using namespace torchprof;
  try {
    const launcher::Subcommand& subcommand = launcher::subcommand_named(argc > 1 ? argv[1] : nullptr);
    return subcommand.main({argv + (argc > 1 ? 2 : 1), argv + argc});
  } catch (const launcher::HelpWanted& help) {
    launcher::print(help.text);
    return 0;
  } catch (const nlohmann::json::exception& error) {  // "[json.exception.type_error.302] type must be ..."
    const std::string what = error.what();
    const size_t prefix = what.find("] ");
    throw Error("a JSON file has unexpected content: " + what.substr(prefix == what.npos ? 0 : prefix + 2));
  }
}

}  // namespace

int main(int argc, char** argv) {
  using namespace torchprof;
  try {
    return run(argc, argv);
  } catch (const Error& error) {
    complain_of(error.what());
    return error.status;
  } catch (const std::exception& error) {  // out of memory, or a mistake of ours
    complain_of(torchprof::launcher::reason_of(error));
    return 125;
  }
}
