#include "formats/report/first_use.h"

#include <algorithm>
#include <utility>

#include "formats/io/cells.h"
#include "formats/io/sum.h"
#include "formats/io/text.h"

namespace torchprof::formats {
namespace {

constexpr int64_t kMuch = 10'000'000;  // ns
constexpr int64_t kShare = 20;         // a twentieth of all
constexpr size_t kNamed = 3;

using Part = std::pair<int64_t, std::string>;  // ns, and whose

// "aten::mm 53.1 ms, aten::add 2.0 ms and 3 more"
std::string largest(std::vector<Part> parts) {
  std::ranges::sort(parts, [](const Part& a, const Part& b) { return a.first != b.first ? a.first > b.first : a < b; });
  std::string out;
  for (size_t i = 0; i < std::min(parts.size(), kNamed); ++i) out.append(i == 0 ? "" : ", ").append(parts[i].second);
  if (parts.size() > kNamed) out.append(" and ").append(std::to_string(parts.size() - kNamed)).append(" more");
  return out;
}

std::string cuda_part(const Tallies& operators, int64_t Tally::*member, const char* what) {
  int64_t sum = 0;
  std::vector<Part> parts;
  for (const auto& [name, tally] : operators) {
    if (tally.*member == 0) continue;
    add_to(sum, tally.*member);
    parts.emplace_back(tally.*member, printable(name));
  }
  if (sum < kMuch) return {};
  if (parts.size() > 1)
    for (auto& [ns, text] : parts) text.append(" ").append(duration_text(static_cast<double>(ns)));
  std::string out = duration_text(static_cast<double>(sum));
  return out.append(" ").append(what).append(" (").append(largest(std::move(parts))).append(")");
}

}  // namespace

std::vector<std::string> first_use_remarks(const Tallies& operators, int64_t operator_ns) {
  std::vector<std::string> remarks;
  const std::string ready = cuda_part(operators, &Tally::initialises_ns, "to make it ready");
  const std::string code = cuda_part(operators, &Tally::loads_ns, "to load code of kernels");
  if (!ready.empty() || !code.empty())
    remarks.push_back("first use of CUDA: " + ready + (ready.empty() || code.empty() ? "" : ", ") + code);
  std::vector<Part> firsts;
  for (const auto& [name, tally] : operators) {
    const int64_t others = difference(tally.self_ns, tally.first_ns);
    if (tally.calls < 2 || tally.first_ns < kMuch || tally.first_ns < operator_ns / kShare || tally.first_ns < others)
      continue;
    std::string text = printable(name);
    text.append(" ").append(duration_text(static_cast<double>(tally.first_ns)));
    text.append(" of ").append(duration_text(static_cast<double>(tally.self_ns)));
    firsts.emplace_back(tally.first_ns, std::move(text));
  }
  if (!firsts.empty()) remarks.push_back("first calls: " + largest(std::move(firsts)));
  return remarks;
}

}  // namespace torchprof::formats
