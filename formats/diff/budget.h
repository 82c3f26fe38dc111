// Limits in a small JSON file, for `torchprof diff --budget`:
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
// Every key is optional. "fail_over" limits the change between the runs; all other limits are for the new run alone,
// for the whole run if it has no steps. A name that the new run does not have passes.
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
  std::map<Metric, std::map<std::string, NameBudget>> names;  // kStep and kTotal have one name, their own
};

// Throws Error naming the file, the key and what is allowed there.
Budget read_budget(const std::filesystem::path& file);

}  // namespace torchprof::formats
