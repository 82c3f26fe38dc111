// Opening what is to be read. A name that a user gives, or that lies in a directory that he gives, may be anything: a
// FIFO that nobody writes into would be waited for, a device may never end. Files only, and without waiting.
//
// Errors come as texts, "it is a FIFO (named pipe), not a file" or what the system says; nothing is thrown but for
// memory.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace torchprof::formats {

// A descriptor, the caller's to close, or -1 and the reason.
int open_file(const std::filesystem::path& path, std::string& error);

// All of a file; none, and the reason, where it cannot be read.
std::optional<std::string> read_file(const std::filesystem::path& path, std::string& error);
// Empty where it cannot be read.
std::string read_file(const std::filesystem::path& path);

}  // namespace torchprof::formats
