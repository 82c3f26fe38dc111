// What costs a program time, or memory, without need.
//
//   cost   what a step would save, in ns: its time now, less its time without what was found (a what-if, by the models
//          that the rules name). 0: it costs no time but something else, as memory
//   step   of a process without steps the whole of its capture is one
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace torchprof::formats {

struct Finding {
  std::string_view rule{};  // a short name: "loading"
  int64_t cost_ns = 0;
  std::string what{};      // a sentence, where {} is the cost: "A step waits {} for a DataLoader."
  std::string evidence{};  // sentences with what it was seen by; empty: nothing more than that
  std::string where{};     // the program's own line; empty: not known
  std::string source{};    // the text of that line; empty: not known, or the first line of a function
  std::string todo{};      // a sentence: "Use more workers, or do less work for each item."
  bool is_rare = false;  // few steps have it: the cost is the mean over all steps, and its share that of the mean step
  bool is_work = false;  // Python that the program runs, which is nothing to gain where it does nothing else
  bool is_on_thread = false;  // the program's thread is at it, and waits for Python's lock meanwhile as at all it does
  double weight = 0;          // share of a step that a finding without cost counts as, in the order of findings
};

struct Timeline;
// The text of the line "train.py(12): step"; empty: it is not known, or a function's first line, which says nothing of
// what it does.
std::string source_of(const Timeline& timeline, std::string_view place);

}  // namespace torchprof::formats
