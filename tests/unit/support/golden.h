// Golden files: what a test's output is compared with, tests/unit/golden/. People read them in review; for a text that
// nobody would read there is digest.h.
#pragma once

#include <filesystem>
#include <string>

namespace torchprof::test {

// The whole file; the test ends if there is none.
std::string read_file(const std::filesystem::path& file);

// Where golden files are: tests/unit/golden/, or TORCHPROF_GOLDEN, for a test that changes a copy of them.
std::filesystem::path golden_directory();

// Compares with a golden file; TORCHPROF_UPDATE_GOLDEN=1 writes it instead, for people to look at the difference.
void check_golden(const std::string& name, const std::string& text);

}  // namespace torchprof::test
