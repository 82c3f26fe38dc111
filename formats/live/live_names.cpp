#include "formats/live/live_names.h"

#include <algorithm>
#include <string_view>

#include "formats/trace/distributed.h"
#include "formats/trace/names.h"

namespace torchprof::formats {
namespace {

constexpr uint64_t kLowest = 7;  // offsets are multiples of eight
constexpr size_t kMostFacts = 4096, kMostWindows = 4096;

LiveRole role_of(std::string_view name) {
  switch (role_of_name(name)) {
    case NameRole::kProfilerStep:
      return LiveRole::kProfilerStep;
    case NameRole::kOptimizerStep:
      return LiveRole::kOptimizerStep;
    case NameRole::kLoading:
      return LiveRole::kLoading;
    default:
      break;
  }
  // What torch calls the work of its process groups, and the kernels of NCCL (their names are mangled).
  if (name.starts_with("gloo:") || name.starts_with("nccl:") || name.starts_with("mpi:")) return LiveRole::kCollective;
  const std::string_view front = name.substr(0, 20);
  if (front.find("ncclDevKernel") != front.npos || front.find("ncclKernel") != front.npos) return LiveRole::kCollective;
  return LiveRole::kPlain;
}

}  // namespace

void LiveNames::take(const Portion& definitions) {
  RecordCursor cursor(definitions.records);
  RecordView record;
  for (;;) {
    if (!cursor.next(record)) return;
    // All definitions are long records, so this one ends where the rest begins.
    const uint64_t end = definitions.at + (definitions.records.size() - cursor.rest().size());
    if (is_definition(record.kind())) define(record, end - record.header().bytes());
  }
}

template <class T>
T* LiveNames::room_for(std::vector<T>& table, uint32_t id) const {
  if (id == 0 || id > tail_.definition_bytes() / kFirstBytes<StringDef>) return nullptr;
  if (id >= table.size()) table.resize(std::max<size_t>(id + 1, table.size() + table.size() / 2));
  return &table[id];
}

void LiveNames::define(const RecordView& record, uint64_t at) {
  switch (record.kind()) {
    case Kind::StringDef:
      return define_string(record, at);
    case Kind::FunctionDef: {
      const auto& def = record.as<FunctionDef>();
      const uint64_t kind = static_cast<uint64_t>(def.kind) & kLowest;
      if (uint64_t* place = room_for(functions_, def.id.value)) *place = at | kind;
      kinds_ |= 1u << kind;
      return;
    }
    case Kind::ObjectDef:
      if (uint64_t* place = room_for(objects_, record.as<ObjectDef>().id.value)) *place = at;
      return;
    case Kind::ObjectDetailDef:
      if (StringId* path = room_for(paths_, record.as<ObjectDetailDef>().object.value))
        *path = record.as<ObjectDetailDef>().path;
      return;
    case Kind::CallSiteDef:
      if (StringId* site = room_for(sites_, record.as<CallSiteDef>().id.value)) *site = record.as<CallSiteDef>().name;
      return;
    case Kind::MetaDef: {
      const auto& def = record.as<MetaDef>();
      if (facts_.size() < kMostFacts) facts_[recorded(def.key)] = def.value;
      return;
    }
    case Kind::WindowDef:
      return define_window(record.as<WindowDef>());
    default:
      return;
  }
}

void LiveNames::define_string(const RecordView& record, uint64_t at) {
  bool whole = false;
  const LiveRole role = role_of(record.text(whole));
  if (uint64_t* place = room_for(strings_, record.as<StringDef>().id.value)) *place = at | static_cast<uint64_t>(role);
  roles_ |= 1u << static_cast<unsigned>(role);
}

void LiveNames::define_window(const WindowDef& def) {
  const auto known = std::ranges::find(windows_, def.number, &WindowDef::number);
  if (def.is_given_up != 0) {
    if (known != windows_.end()) known->is_given_up = 1;
  } else if (def.begin == 0 || def.number == 0) {
    return;  // it is known, and its reason is a new one
  } else if (known != windows_.end()) {
    *known = def;
  } else {
    if (windows_.size() == kMostWindows) windows_.erase(windows_.begin(), windows_.begin() + kMostWindows / 2);
    windows_.push_back(def);
  }
}

const WindowDef* LiveNames::window_before(uint32_t number) const {
  for (auto it = windows_.rbegin(); it != windows_.rend(); ++it)
    if (it->number < number && it->is_given_up == 0) return &*it;
  return nullptr;
}

const WindowDef* LiveNames::window_of(uint32_t number) const {
  const auto it = std::ranges::find(windows_, number, &WindowDef::number);
  return it == windows_.end() ? nullptr : &*it;
}

template <class R>
R LiveNames::read(uint64_t at) const {
  RecordRoom from, room;
  const size_t n = at == 0 ? 0 : tail_.read(at & ~kLowest, from.bytes, sizeof(R));
  if (n < sizeof(RecordHeader)) return {};
  const R& record = whole_record<R>({from.bytes, n}, room);
  return record.header.kind() == kKindOf<R> ? record : R{};
}

std::string LiveNames::recorded(StringId name) const {
  if (name.value >= strings_.size() || strings_[name.value] == 0) return {};
  const uint64_t at = strings_[name.value] & ~kLowest;
  const auto def = read<StringDef>(at);
  if (def.header.bytes() < kFirstBytes<StringDef>) return {};  // it cannot be read
  const Tail tail = tail_of<StringDef>(def.header.bytes(), std::min(def.length, kMaxString));
  std::string text(tail.size, '\0');
  text.resize(tail_.read(at + tail.begin, text.data(), text.size()));
  return text;
}

LiveRole LiveNames::role(StringId name) const {
  return name.value < strings_.size() ? static_cast<LiveRole>(strings_[name.value] & kLowest) : LiveRole::kPlain;
}

FunctionKind LiveNames::kind(FunctionId function) const {
  return function.value < functions_.size() ? static_cast<FunctionKind>(functions_[function.value] & kLowest)
                                            : FunctionKind::kFunction;
}

std::string LiveNames::text(StringId name) const {
  const std::string text = recorded(name);
  const std::string_view shown = split_operator_name(text).name;
  return shown.empty() ? "<unknown>" : std::string(shown);
}

std::string LiveNames::text(FunctionId function) const {
  const auto def = read<FunctionDef>(function.value < functions_.size() ? functions_[function.value] : 0);
  return def.id ? place_text(def, 0, recorded(def.file), recorded(def.name)) : "<unknown function>";
}

std::string LiveNames::text(ObjectId object) const {
  const auto def = read<ObjectDef>(object.value < objects_.size() ? objects_[object.value] : 0);
  std::string out(prefix_of(def.kind == ObjectKind::kOptimizer ? NameRole::kOptimizer : NameRole::kModule));
  out += recorded(def.class_name);
  if (object.value < paths_.size())
    if (const std::string path = recorded(paths_[object.value]); !path.empty()) out.append("  ").append(path);
  return out;
}

ObjectId LiveNames::stepper(ObjectId object) const {
  const auto def = read<ObjectDef>(object.value < objects_.size() ? objects_[object.value] : 0);
  return def.stepper ? def.stepper : object;
}

std::string LiveNames::fact(const char* key) const {
  const auto it = facts_.find(key);
  return it == facts_.end() ? std::string{} : recorded(it->second);
}

std::optional<int64_t> LiveNames::rank() const {
  std::map<std::string, std::string> facts;
  for (const auto& [key, value] : facts_)
    if (key.find("rank") != key.npos || key.find("RANK") != key.npos) facts[key] = recorded(value);
  Process process;
  for (const auto& [key, value] : facts) process.metadata.push_back({key, value});
  return distributed_of(process).rank;
}

}  // namespace torchprof::formats
