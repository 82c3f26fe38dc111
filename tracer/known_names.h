// Names that a thread has met lately, each by the place that it came from. A name comes again from the same place more
// often than not, and to compare its text takes half the time of the search in the table of all names (strings.h).
//
// Beside the names stand the inputs that an operator had last, by its name's place: most operators have the same ones
// again, and to compare two encodings takes less than the search, too.
//
// Of two places that share a slot the later one holds it. Belongs to one thread. 10 KiB.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tracer/spool/ids.h"
#include "tracer/strings.h"

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
  Name& at(const char* place) noexcept { return names_[slot_of(place)]; }
  // The slot of the last inputs of the operator whose name stands there; nullptr: there are none.
  const StringTable::Entry*& inputs_at(const char* place) noexcept { return inputs_[slot_of(place)]; }

 private:
  static constexpr size_t kSlots = 256;
  static size_t slot_of(const char* place) noexcept {
    const auto address = reinterpret_cast<uintptr_t>(place);
    return (address >> 3 ^ address >> 11) % kSlots;
  }

  Name names_[kSlots];
  const StringTable::Entry* inputs_[kSlots] = {};
};

}  // namespace torchprof
