#include "formats/report/part_groups.h"

#include <map>
#include <unordered_map>

#include "formats/io/sum.h"

namespace torchprof::formats {

std::string PartGroup::pid() const { return is_one() ? first().key() : std::to_string(parts.size()) + " of them"; }

std::string PartGroup::role() const {
  return is_one() ? first().role : std::to_string(parts.size()) + " " + first().group_name;
}

std::string PartGroup::who() const {
  if (!is_one()) return role();
  return "process " + first().pid + (first().role.empty() ? "" : ", " + first().role);
}

std::string PartGroup::ended() const {
  std::map<std::string, size_t> ends;
  for (const ReportPart* part : parts) ++ends[part->ended];
  if (ends.size() == 1) return ends.begin()->first;
  std::string text;
  for (const auto& [how, times] : ends)
    text.append(text.empty() ? "" : ", ")
        .append(std::to_string(times))
        .append(" ")
        .append(how.empty() ? "not known" : how);
  return text;
}

int64_t PartGroup::operator_ns() const {
  int64_t sum = 0;
  for (const ReportPart* part : parts) add_to(sum, part->statistics.operator_ns);
  return sum;
}

std::vector<PartGroup> groups_of(const std::vector<ReportPart>& parts, bool is_folded) {
  std::vector<PartGroup> groups;
  std::unordered_map<uint32_t, size_t> of_number;
  for (const ReportPart& part : parts) {
    size_t at = groups.size();
    if (is_folded && part.group != 0) at = of_number.try_emplace(part.group, at).first->second;
    if (at == groups.size()) groups.emplace_back();
    groups[at].parts.push_back(&part);
  }
  return groups;
}

}  // namespace torchprof::formats
