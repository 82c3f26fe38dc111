// What functions of Python's library, of torch and of well-known libraries do for a program, and what it can do about
// their cost. What runs inside such a function belongs to it, operators too.
//
// Sources: CPython 3.10 to 3.15, Lib; torch 1.13 to 2.15; numpy 1.21 to 2.3; the documentation of the others.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace torchprof::formats {

enum class Effort : uint8_t {
  kWorks,  // it keeps a processor busy
  kWaits,  // it waits for something else: a disk, a network, another process
};

struct Cause {
  std::string_view file;  // the end of its path: "torch/serialization.py"
  std::string_view name;  // of the function; one that ends in a star: what begins so
  Effort effort;
  std::string_view does;  // continues "save_checkpoint ": "writes a file with torch.save"
  std::string_view todo;  // a sentence
};

std::span<const Cause> known_causes();

// The number of the cause that a function ("path(line): name") is, from 1; 0: none.
uint8_t cause_of(std::string_view function);
inline const Cause& cause_at(uint8_t number) { return known_causes()[number - 1]; }

}  // namespace torchprof::formats
