// What somebody probably meant who mistyped a name: the nearest of those that there are.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace torchprof::formats {

// The only name that begins with `wrong`, of two letters or more; else the one that becomes `wrong` with the fewest
// single letters added, left out, replaced or swapped with their neighbours, in either case of letters; the first of
// several. Empty: all differ in more than a third of their letters, or (as a name of less than three has) in all of
// them. Names longer than 64 bytes are like nothing.
std::string_view nearest(std::string_view wrong, std::span<const std::string> names);

// For the end of what an error says of `wrong`: " (did you mean 'steps'?)". Empty: nothing is near.
std::string did_you_mean(std::string_view wrong, std::span<const std::string> names);

}  // namespace torchprof::formats
