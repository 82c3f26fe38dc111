// The units of a process without steps: what the program does again and again. Found in its timeline, when the run is
// read; nothing is recorded for it.
//
//   unit      the outermost call that recurs: at least kFewestCalls times after the imports, and its calls (or the
//             passes of the loop that makes them) have at least half of what the program did from the first of them on,
//             and a quarter of all: what is set up before, a model that is built or read, is done once. A call of a
//             function of the program, of a module from outside of any other, a backward pass, or a range. Inner ones
//             are looked at where no outer one is so
//   did       own time after the imports and before the interpreter's end, without the garbage collector and functions
//             that only wait (formats/trace/waiting.h), on those threads that run operators; on all if none does. The
//             time in operators counts, too: a unit that has half of it and a quarter of all is enough, as a program
//             may sleep in its own code between two requests
//   pass      a loop of the program makes the calls: the innermost frame around two that follow each other is the
//             program's, and from one to the next it mostly does the same. A unit lasts from the begin of a call to the
//             begin of the next one in the same loop, so what prepares and uses it belongs to it. The last call of a
//             loop is counted, but no span
//   request   otherwise: a thread's or an event loop's library makes the calls. A unit lasts as long as the call; the
//             time between is idle. Of a coroutine each stretch that runs is a call; those without operators are
//             none where they take less than a hundredth of the median, or the others have nearly all of the time
//   recurs    a few calls that take nearly all of the time of all are no unit, unless they do what the others do
//
// Functions of installed packages count where the program's own give nothing. Spans that the edge of a window or of the
// recording cuts do not count.
//
// Costs: two passes over the spans of a process without steps and one for each call that may be its unit, 13 bytes for
// each span of a row, at most kMostNodes nodes.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/replay/steps.h"
#include "formats/timeline/timeline.h"

namespace torchprof::formats {

inline constexpr uint64_t kFewestCalls = 10;

// "batch" of "batch 17": ranges whose names differ by a number at the end are one.
std::string_view without_last_number(std::string_view name);
// "f" of "main.<locals>.f".
std::string_view without_locals(std::string_view qualname);

struct RecurringUnit {
  std::string name{};  // "a call of GPT", "a request of Handler.do_POST (server.py)"; empty: there is none
  bool is_pass = false;
  bool is_part = false;           // a stretch of a coroutine, of which a request has several
  uint64_t count = 0;             // calls after the imports
  std::vector<StepSpan> spans{};  // sorted by begin; of several threads they may overlap; numbered from 0
};

struct UnitRequest {
  // A function ("handle", "Handler.do_POST", "server.py:handle"), a module's class or name ("GPT", "GPT_0"), or
  // "range=NAME"; however rarely it is called. Empty: what recurs.
  std::string_view chosen{};
  std::span<const StepSpan> windows{};  // in which something was recorded, sorted; empty: all of it
  bool may_end_whole = false;           // a call that ends when the timeline does may have ended by itself
};

// The timeline is finished. Its steps do not matter.
RecurringUnit find_unit(const Timeline& timeline, const UnitRequest& request = {});

// What UnitRequest::chosen may name there, for who has named something else.
void add_unit_names(const Timeline& timeline, std::set<std::string>& names);

// Makes the unit the timeline's steps, or, where there is none, moves its begin past its imports and its end before the
// interpreter's. Requests on several threads get a row of their own with all that the chosen ones did, one after the
// other.
void use_unit(Timeline& timeline, const RecurringUnit& unit);

// All of them, as steps that tables show. What they end with is the unit's name.
Steps steps_of(const RecurringUnit& unit);

// The imports of a finished timeline.
ImportTime imports_of(const Timeline& timeline);

// When a row's work ends. On the thread of the main module that is when its code has ended: then the interpreter begins
// to end, and calls what was registered for its exit. Other threads, which it waits for, work until the timeline ends.
int64_t row_works_until(const Timeline& timeline, const TimelineRow& row);

}  // namespace torchprof::formats
