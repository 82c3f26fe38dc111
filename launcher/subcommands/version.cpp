#include "launcher/subcommands/commit.h"
#include "launcher/subcommands/subcommands.h"
#include "launcher/terminal/say.h"

namespace torchprof::launcher {

int version(const Arguments&) {
  constexpr std::string_view kCommit = TORCHPROF_COMMIT;  // none: not built from a clone of the repository
  std::string text = "torchprof " TORCHPROF_VERSION;
  if (!kCommit.empty()) text.append(" (").append(kCommit).append(")");
  print(text + "\n");
  return 0;
}

}  // namespace torchprof::launcher
