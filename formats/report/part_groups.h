// The rows of tables about processes: workers that do the same are one (formats/trace/roles.h), unless one has failed,
// which stands on its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/report/report.h"

namespace torchprof::formats {

// One process, or several of a group. Points into the report's parts, which must outlive it.
struct PartGroup {
  std::vector<const ReportPart*> parts;  // one or more, in their order

  const ReportPart& first() const { return *parts.front(); }
  bool is_one() const { return parts.size() == 1; }
  std::string pid() const;    // ReportPart::key(), "12 of them"
  std::string role() const;   // "DataLoader worker 1", "12 DataLoader workers, 3 epochs"; empty: none
  std::string who() const;    // "process 4711, rank 0", "12 DataLoader workers, 3 epochs"
  std::string ended() const;  // "clean", "11 ended, 1 killed by SIGKILL"; empty: not known
  int64_t operator_ns() const;
};

// `is_folded`: false: a row for each process. A group stands where its first process does.
std::vector<PartGroup> groups_of(const std::vector<ReportPart>& parts, bool is_folded);

}  // namespace torchprof::formats
