// What the user asked for: on stdout. Throws Error where it cannot be written; the error of a reader who went away has
// no text.
//
// Lines for people: on stderr, each beginning "torchprof: ", one write() a call, so that the lines of several processes
// do not mix. Control characters but the newline become '?': names and paths come from anywhere.
#pragma once

#include <exception>
#include <string>
#include <string_view>

namespace torchprof::launcher {

void print(std::string_view text);

// `text` may hold several lines; a newline at its end adds none. Nothing if quiet().
void say(std::string_view text);
// The same, whether quiet or not: errors, and what was lost.
void complain(std::string_view text);

void set_quiet(bool quiet);

// For people: what() says nothing where memory ran out.
std::string reason_of(const std::exception& error);

// The bytes that say() would write.
std::string as_lines(std::string_view text);

}  // namespace torchprof::launcher
