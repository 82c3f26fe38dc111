// The memory of another process, and the objects in it: what is mapped where, and where their symbols lie. All of it is
// read from the process's memory, so it holds in a container, for a file that was replaced or deleted, and for one that
// never had a name.
//
// Needs the right to trace the process (ptrace(2), PTRACE_MODE_ATTACH_REALCREDS). It may run on meanwhile, and end:
// what cannot be read is not there. Nothing of it is stopped or changed but by write(). Source: the ELF specification,
// the GNU hash table as glibc has it (elf/dl-lookup.c).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace torchprof::launcher {

struct Mapping {
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t offset = 0;  // in the file
  bool is_code = false;
  std::string path{};  // as the process sees it; empty: none
};

struct Symbol {
  uint64_t address = 0;  // 0: there is none
  uint64_t size = 0;
};

class Image {
 public:
  explicit Image(uint32_t pid) : pid_(pid) { look(); }

  uint32_t pid() const { return pid_; }
  bool is_there() const { return !maps_.empty(); }  // false: it may not be read, or has gone
  const std::vector<Mapping>& maps() const { return maps_; }
  void look();  // once more at what is mapped

  bool read(uint64_t at, void* to, size_t size) const;
  bool write(uint64_t at, const void* from, size_t size) const;
  template <class T>
  T value(uint64_t at) const {  // zeros where it cannot be read
    T value{};
    return read(at, &value, sizeof(value)) ? value : T{};
  }

  // A symbol that objects export whose file name begins so; of the first such object that has it.
  Symbol symbol(std::string_view file, const char* name) const;
  // The beginning of the first object of that name; empty: there is none.
  std::string object(std::string_view file) const;
  // The mapping in which an address lies; nullptr: in none.
  const Mapping* at(uint64_t address) const;

 private:
  struct Object;
  bool find_object(const Mapping& first, Object& object) const;
  Symbol look_up(const Object& object, const char* name) const;
  std::string text(uint64_t at) const;

  uint32_t pid_;
  std::vector<Mapping> maps_;
};

}  // namespace torchprof::launcher
