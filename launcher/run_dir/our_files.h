// What is ours in a directory that may hold other things: by its name, its kind and, where that is cheap, its content.
//
// All through the descriptor of the directory, and no link is followed. Nothing throws.
#pragma once

#include <array>
#include <filesystem>
#include <string>
#include <vector>

#include "tracer/spool/layout.h"

namespace torchprof::launcher {

// A descriptor with an owner; -1 is none.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) noexcept : fd_(fd) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&& other) noexcept;
  int get() const noexcept { return fd_; }

 private:
  int fd_;
};

// To list, without a change to its times where that can be had. errno says why there is none.
Descriptor open_directory(int at, const std::string& name);
// Names, without "." and "..", sorted.
std::vector<std::string> names_in(int directory);
bool is_regular(int directory, const std::string& name);
// A regular file's bytes, at most `most`; empty if there is none.
std::string text_in(int directory, const std::string& name, size_t most);

// What processes of a run add to, in RUN/spool.
inline constexpr std::array<const char*, 3> kLists{"untraced", "used", kUncapturedName};
// The same of an earlier run, set aside until the command of a new one has started.
std::string set_aside(const std::string& list);
// What the library writes into RUN/spool: HOST.PID.START.spool that begins as one does, and kLists.
bool is_ours_in_spool(int directory, const std::string& name);
// The name of a trace, a table or a temporary of one.
bool is_output_name(const std::string& name);
// Removes a regular file, nothing else.
void remove_file(int directory, const std::string& name) noexcept;

}  // namespace torchprof::launcher
