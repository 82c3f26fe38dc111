// Output for people and programs.
//
// print() writes what the user asked for to stdout, as it is; print_text() as a terminal survives it
// (formats/io/text.h). They throw Error if that cannot be written; if the reader has gone, the error has no text.
//
// say() and complain() write lines for people to stderr. Each line begins with "torchprof: ", and a call is one
// write(), so that lines of several processes do not mix. A terminal survives them, because names and paths may hold
// anything, and a line of more than kLongestLine columns loses its middle.
#pragma once

#include <exception>
#include <string>
#include <string_view>

namespace torchprof::launcher {

inline constexpr size_t kLongestLine = 5000;  // more than a path can have

void print(std::string_view text);
void print_text(std::string_view text);

// `text` may have several lines; a newline at its end adds no empty one. Prints nothing after set_quiet(true).
void say(std::string_view text);
// How many columns a line of say() has on the terminal at stderr, behind "torchprof: "; 0: there is no terminal.
size_t said_columns();
// The same, even if quiet: for errors, and for what was lost.
void complain(std::string_view text);

void set_quiet(bool quiet);

// Whether stderr is a terminal on which overwrite() works and is wanted: TERM is set and not "dumb", and NO_COLOR
// (https://no-color.org) is not set, as who sets it has no use for escape sequences.
bool can_overwrite();
// A line on a terminal that the next one overwrites, of whichever of these functions; it is shown even if quiet. wipe()
// removes it. Any thread.
void overwrite(std::string_view text);
void wipe();

// A text for people; what() of an exception for lack of memory says nothing.
std::string reason_of(const std::exception& error);

// The text that say() would write.
std::string as_lines(std::string_view text);

}  // namespace torchprof::launcher
