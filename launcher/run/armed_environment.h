// `torchprof env`: what arms commands that no `torchprof run` starts, in the words of a shell or of what starts
// containers and jobs. Values are quoted, whatever they hold. All functions throw Error where a format cannot hold one.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "launcher/run/environment.h"

namespace torchprof::launcher {

// The pattern of the run directory in `config`, absolute, its placeholders not expanded. Throws Error if each process
// would have a directory of its own.
std::string shared_output(const Config& config);

// A text as a word of sh, in quotes.
std::string in_sh(const std::string& value);

// `format`: as EnvOptions has it. `environment`: the one to be armed, as "NAME=VALUE", for the formats of which it is
// known: those of shells, which go on with it.
std::string arming_text(const std::string& format, const std::vector<std::string>& environment, const Library& library,
                        const Config& config);
// What undoes it in a shell.
std::string disarming_text(const std::string& format, const std::vector<std::string>& environment,
                           const Library& library);

// The file that arms each Python whose site directory `directory` is; `text`: what arming_text() says. It replaces one
// of ours. Throws Error where another file has its name.
void install_pth(const std::filesystem::path& directory, const std::string& text);
// Throws Error if there is none of ours.
void remove_pth(const std::filesystem::path& directory);

}  // namespace torchprof::launcher
