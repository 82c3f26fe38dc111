// Opens files to read them. A name that a user gives, or that lies in a directory that a user gives, may be anything:
// opening a FIFO that nobody writes to would wait for ever, and reading a device may never end. So only regular files
// are opened, and nothing is waited for.
//
// Errors are texts: "it is a directory, not a file", or what the system says. Nothing is thrown unless memory runs out,
// but by absolute_path().
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace torchprof::formats {

// A descriptor, which the caller closes, or -1 and the reason.
int open_file(const std::filesystem::path& path, std::string& error);

// The content of a file; none, and the reason, if it cannot be read.
std::optional<std::string> read_file(const std::filesystem::path& path, std::string& error);
// Empty if it cannot be read.
std::string read_file(const std::filesystem::path& path);

// Throws Error where the working directory is gone.
std::filesystem::path absolute_path(const std::filesystem::path& path);

}  // namespace torchprof::formats
