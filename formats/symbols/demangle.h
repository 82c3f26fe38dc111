// Names of C++ symbols for people.
#pragma once

#include <string>

namespace torchprof::formats {

// "_Z1fi" -> "f(int)". Other texts come back as they are, and so do names that would take long.
//
// A mangled name refers back to its own parts, and each reference may double what comes out: 250 bytes can ask for
// gigabytes. abi::__cxa_demangle() then takes all the time and memory there is. Here the size of a name is worked out
// first, in time linear in its length. What comes from files and other programs goes through this function only.
std::string demangle(std::string name);

}  // namespace torchprof::formats
