// torchprof env: what arms commands that no launcher starts.
#include "formats/io/error.h"
#include "launcher/run/armed_environment.h"
#include "launcher/subcommands/subcommands.h"
#include "launcher/terminal/say.h"

namespace torchprof::launcher {

int env(const Arguments& arguments) {
  const EnvOptions options = parse_env(arguments);
  const Library library = find_library();
  const std::vector<std::string> environment = current_environment();
  if (options.pth.empty())
    print(options.unset ? disarming_text(options.format, environment, library)
                        : arming_text(options.format, environment, library, options.config));
  else if (options.unset)
    remove_pth(options.pth);
  else
    install_pth(options.pth, arming_text("pth", {}, library, options.config));
  return 0;
}

}  // namespace torchprof::launcher
