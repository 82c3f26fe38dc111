// Which files in a directory are ours, if it may hold others, too: by name, kind and, where that is cheap, content.
//
// All access is through the directory's descriptor, and no link is followed. Nothing throws.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tracer/spool/run_files.h"

namespace torchprof::launcher {

// A file descriptor that its owner closes; -1: none.
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

// Opens a directory to list it, without changing its access time if possible. If there is no descriptor, errno says
// why.
Descriptor open_directory(int at, const std::string& name);
// The names in it, sorted, without "." and "..".
std::vector<std::string> names_in(int directory);
bool is_regular(int directory, const std::string& name);
bool is_directory(int directory, const std::string& name);
// The first `most` bytes of a regular file; empty if there is no such file.
std::string text_in(int directory, const std::string& name, size_t most);

// Whether the library writes such a file into RUN/spool: it has a name of tracer/spool/run_files.h, and a spool begins
// like one.
bool is_ours_in_spool(int directory, const std::string& name);
// The socket of a process (tracer/door_socket.h), perhaps of one that is gone.
bool is_door(int directory, const std::string& name);
// Whether it is the name of a trace, a table, or a temporary file of one.
bool is_output_name(const std::string& name);
// The outputs that a run.json names in "files".
std::vector<std::string> own_files(const nlohmann::ordered_json& info);
// Whether it is a page of ours (formats/report/page.h), which no run.json names.
bool is_page(int directory, const std::string& name);
// Moves a file or a directory to another directory of the same file system, where the name is free. False: errno says
// why not.
bool move_to(int from, const std::string& name, int to) noexcept;
// Removes a regular file or a socket of ours, and nothing else.
void remove_file(int directory, const std::string& name) noexcept;

}  // namespace torchprof::launcher
