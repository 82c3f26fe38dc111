#include "formats/trace/distributed.h"

#include <charconv>

#include "formats/io/text.h"
#include "tracer/spool/rank_facts.h"

namespace torchprof::formats {
namespace {

std::optional<int64_t> number_in(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

// Returns the text before the separator; `text` keeps what follows it.
std::string_view next(std::string_view& text, char separator) {
  const size_t at = text.find(separator);
  const std::string_view piece = text.substr(0, at);
  text.remove_prefix(at == text.npos ? text.size() : at + 1);
  return piece;
}

std::optional<ProcessGroup> group_of(std::string_view fact) {
  ProcessGroup group;
  const auto size = number_in(next(fact, '\t'));
  if (!size) return std::nullopt;
  group.size = *size;
  group.ranks = ranks_of(next(fact, '\t'));
  group.backends = next(fact, '\t');
  group.name = next(fact, '\t');
  group.description = fact;
  return group;
}

}  // namespace

std::vector<int64_t> ranks_of(std::string_view runs) {
  std::vector<int64_t> ranks;
  while (!runs.empty()) {
    std::string_view run = next(runs, ',');
    std::string_view ends = next(run, '/');
    const auto step = run.empty() ? 1 : number_in(run);
    const auto first = number_in(next(ends, '-'));
    const auto last = ends.empty() ? first : number_in(ends);
    if (!first || !last || !step || *step == 0 || *last < *first) return {};
    if (static_cast<uint64_t>((*last - *first) / *step) >= kMaxRanks - ranks.size()) return {};
    for (int64_t rank = *first; rank <= *last; rank += *step) ranks.push_back(rank);
  }
  return ranks;
}

Distributed distributed_of(const Process& process) {
  Distributed result;
  result.rank = number_in(process.meta("distributed.rank"));
  if (!result.rank) {
    if (const std::string_view rank = process.meta("collectives.rank"); !rank.empty()) {
      result.source = "arguments of collectives";
      result.rank = number_in(rank);
      result.world_size = number_in(process.meta("collectives.world_size"));
      return result;
    }
    for (const RankFacts& names : kRankFacts) {
      result.rank = number_in(process.meta(names.rank));
      if (!result.rank) continue;
      result.source = std::string("environment variable ").append(names.rank + kEnvironmentFact.size());
      result.world_size = number_in(process.meta(names.world_size));
      break;
    }
    return result;
  }
  result.world_size = number_in(process.meta("distributed.world_size"));
  result.backend = process.meta("distributed.backend");
  for (size_t i = 0;; ++i) {
    const std::string_view fact = process.meta("distributed.group." + std::to_string(i));
    if (fact.empty()) return result;
    if (auto group = group_of(fact)) result.groups.push_back(std::move(*group));
  }
}

std::string distributed_json(const Distributed& distributed) {
  if (!distributed.rank) return {};
  const auto text = [](std::string_view s) { return json_string(s); };
  std::string json = R"({"backend": )" + text(distributed.source.empty() ? distributed.backend : "unknown");
  json += R"(, "rank": )" + std::to_string(*distributed.rank);
  if (distributed.world_size) json += R"(, "world_size": )" + std::to_string(*distributed.world_size);
  if (!distributed.source.empty()) return json + R"(, "source": )" + text(distributed.source) + "}";
  json += R"(, "pg_count": )" + std::to_string(distributed.groups.size()) + R"(, "pg_config": [)";
  for (size_t i = 0; i < distributed.groups.size(); ++i) {
    const ProcessGroup& group = distributed.groups[i];
    json.append(i > 0 ? ", " : "").append(R"({"pg_name": )").append(text(group.name));
    json.append(R"(, "pg_desc": )").append(text(group.description));
    json.append(R"(, "backend_config": )").append(text(group.backends));
    json.append(R"(, "pg_size": )").append(std::to_string(group.size)).append(R"(, "ranks": [)");
    for (size_t k = 0; k < group.ranks.size(); ++k)
      json.append(k > 0 ? ", " : "").append(std::to_string(group.ranks[k]));
    json += "]}";
  }
  return json + "]}";
}

}  // namespace torchprof::formats
