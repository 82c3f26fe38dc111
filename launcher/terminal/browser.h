// Shows an address in the browser of whoever sits at this terminal.
#pragma once

#include <string>

namespace torchprof::launcher {

// "file:///tmp/a%20b.html" of an absolute path.
std::string file_address(const std::string& path);

// Starts the first that can be started of $BROWSER: commands separated by colons, each with %s for the address or the
// address at its end. Where that is empty and there is a display: xdg-open. Does not wait for it. False: there is none,
// or none could be started.
bool open_in_browser(const std::string& address);

}  // namespace torchprof::launcher
