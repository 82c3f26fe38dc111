// Limits in a small file of JSON, for `torchprof diff --budget`:
//
//   {
//     "fail_over": {"step": 10, "ops": 25},            percent, by metric, as --fail-over with --metric
//     "step": "120ms",                                 a step at most; a number is ms
//     "total": "90ms",                                 the same of all operators together
//     "ops": {"aten::mm": {"time": "3ms", "calls": 20, "allocated": "10M"}},   of a step, as `diff` shows them
//     "modules": {"Linear decoder.out": {"time": "1ms"}}, "kernels": {...}, "python": {...}
//     "memory": {"CPU": "2G"}                          the peak of a device; a number is bytes
//   }
//
// Every key may be missing. Limits but those of "fail_over" are of the new run alone; without steps they are of the
// whole run. A name that the new run does not have passes.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "formats/diff/diff.h"

namespace torchprof::formats {

struct NameBudget {
  std::optional<double> time;  // ns
  std::optional<double> calls;
  std::optional<double> bytes;
};

struct Budget {
  std::map<Metric, double> fail_over;
  std::map<Metric, std::map<std::string, NameBudget>> names;  // kStep and kTotal: under their own names
};

// Throws Error naming the file, the key and what is allowed there.
Budget read_budget(const std::filesystem::path& file);

}  // namespace torchprof::formats
