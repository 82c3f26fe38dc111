// Names that a thread has met lately, each by the place that it came from. A name comes again from the same place more
// often than not, and to compare its text takes half the time of the search in the table of all names (strings.h).
//
// Of two places that share a slot the later one holds it. Belongs to one thread. 8 KiB.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

#include "tracer/spool/ids.h"

namespace torchprof {

class KnownNames {
 public:
  struct Name {
    const char* place = nullptr;  // nullptr: the slot is free
    const char* text = nullptr;   // what stood there, kept as long as the process
    const char* more = nullptr;   // of a name of two parts the second (session::intern_overload); otherwise nullptr
    StringId id;
  };

  // The slot of a place. Whether it holds that place, and whether the same text still stands there, the caller looks.
  Name& at(const char* place) noexcept {
    const auto address = reinterpret_cast<uintptr_t>(place);
    return names_[(address >> 3 ^ address >> 11) % std::size(names_)];
  }

 private:
  Name names_[256];
};

}  // namespace torchprof
