#include "formats/analysis/module_tree.h"

#include <algorithm>

#include "formats/analysis/modules.h"

namespace torchprof::formats {
namespace {

constexpr int64_t kMostBytesOfTensor = int64_t{1}
                                       << 52;  // limit for a damaged record's tensor: sums stay exact and in range

}  // namespace

ModuleTree::ModuleTree(const Process& process) : process_(process) {
  holders_.resize(process.details.size());
  holdings_.resize(process.details.size());
  find_holders(process);
  for (uint32_t i = 1; i < process.details.size(); ++i) {
    if (process.details[i].parts.empty() || i >= process.objects.size() ||
        process.objects[i].kind != ObjectKind::kModule)
      continue;
    for (const Parameter& p : decode_details(process.details[i]).parameters) add_parameter({i}, p);
  }
}

void ModuleTree::find_holders(const Process& process) {
  const auto key = [](ObjectId root, std::string_view path) {
    return std::to_string(root.value).append(1, '\0').append(path);
  };
  std::unordered_map<std::string, ObjectId> places;
  for (uint32_t i = 1; i < process.details.size(); ++i)
    if (process.root({i})) places.emplace(key(process.root({i}), process.path({i})), ObjectId{i});
  for (uint32_t i = 1; i < process.details.size(); ++i) {
    if (!process.root({i})) continue;
    holders_[i] = find_holder(process.path({i}), [&](std::string_view path) {
      const auto it = places.find(key(process.root({i}), path));
      return it == places.end() ? ObjectId{} : it->second;
    });
  }
}

ModuleTree::Size ModuleTree::size_of(const Parameter& parameter) {
  const Tensor& tensor = parameter.value.tensor;
  if (!tensor.is_readable) return {};
  int64_t numbers = 1;
  for (const int64_t n : tensor.sizes)
    if (n < 0 || __builtin_mul_overflow(numbers, n, &numbers) || numbers > kMostBytesOfTensor / 16) return {};
  return {static_cast<uint64_t>(numbers), numbers * element_size(tensor.type)};
}

void ModuleTree::add_parameter(ObjectId module, const Parameter& parameter) {
  const Size size = size_of(parameter);
  std::vector<ObjectId>& known = holders_of_[parameter.key];
  holdings_[module.value].own += size.numbers;
  // The loop ends, because a holder's path is shorter than that of a module inside it.
  for (ObjectId m = module; m; m = holders_[m.value]) {
    if (std::ranges::find(known, m) != known.end()) continue;
    known.push_back(m);
    holdings_[m.value].parameters += size.numbers;
    holdings_[m.value].bytes = std::min(holdings_[m.value].bytes + size.bytes, int64_t{1} << 60);
  }
}

ModuleTree::Shares ModuleTree::shares(ObjectId optimizer) const {
  if (optimizer.value >= process_.details.size()) return {};
  std::unordered_map<uint32_t, double> bytes_of;
  double all = 0;
  for (const ParameterGroup& group : decode_details(process_.details[optimizer.value]).groups) {
    for (const Parameter& p : group.parameters) {
      const auto bytes = static_cast<double>(size_of(p).bytes);
      all += bytes;
      const auto known = holders_of_.find(p.key);
      if (known == holders_of_.end()) continue;
      for (const ObjectId module : known->second) bytes_of[module.value] += bytes;
    }
  }
  Shares shares;
  if (all <= 0) return shares;
  for (const auto& [module, bytes] : bytes_of) shares.emplace_back(ObjectId{module}, std::min(1.0, bytes / all));
  return shares;
}

}  // namespace torchprof::formats
