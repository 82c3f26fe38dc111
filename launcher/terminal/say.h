// Output for people and programs.
//
// print() writes what the user asked for to stdout, as it is; print_text() as a terminal survives it
// (formats/io/text.h). They throw Error if that cannot be written; if the reader has gone, the error has no text.
//
// say() and complain() write lines for people to stderr. A call is one write(), so that lines of several processes do
// not mix. The first line of a call begins with "torchprof: ", and each line of an error does. A terminal survives
// them, because names and paths may hold anything, and a line of more than kLongestLine columns loses its middle.
#pragma once

#include <exception>
#include <string>
#include <string_view>

namespace torchprof::launcher {

inline constexpr size_t kLongestLine = 5000;  // more than a path can have

void print(std::string_view text);
void print_text(std::string_view text);

// `text` may have several lines, of which the first one begins with "torchprof: "; a newline at its end adds no empty
// line. Prints nothing after set_quiet(true).
void say(std::string_view text);
// The same of lines that have nothing to do with each other: each begins with "torchprof: ".
void say_each(std::string_view lines);
// The same, even if quiet: for errors, and for what was lost.
void complain(std::string_view lines);
// How many columns the terminal at stderr has; 0: there is no terminal.
size_t said_columns();

// From now on lines for people name `name` where they would name what begins with `begin`: a place that nobody knows.
// One thread: before others say anything.
void show_as(std::string begin, std::string name);

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
}  // namespace torchprof::launcher
