// The picture of `torchprof top`: lines of text that fit the terminal.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/live/live_process.h"
#include "launcher/terminal/screen.h"

namespace torchprof::launcher {

struct TopProcess {
  uint32_t pid = 0;
  bool is_live = false;
  bool is_seen = false;   // `pid` is one of this machine, in our namespace
  uint64_t resident = 0;  // bytes; 0: not known
  std::string host;
  formats::LiveView view;
};

struct TopState {
  std::string target;
  std::vector<TopProcess> processes;  // by rank, then pid
  std::string state;                  // "3 processes", "the job has ended"
  std::string said;                   // what the last key has brought; empty: nothing
  bool has_keys = false;
};

struct TopStyle {
  ScreenSize size;
  bool has_colours, has_utf8;
};

// The index of the rank for which the others wait: where collectives take part of the time, the one that spends least
// in them, otherwise the one with the longest steps. `processes.size()`: none stands out.
size_t slowest_of(const std::vector<TopProcess>& processes);

// The last values as one character each, scaled from 0 to the largest of them.
std::string sparkline(const std::vector<int64_t>& values, size_t width, bool has_utf8);

std::vector<std::string> top_picture(const TopState& state, const TopStyle& style);

}  // namespace torchprof::launcher
