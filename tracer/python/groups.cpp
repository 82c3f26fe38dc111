#include "tracer/python/groups.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <string_view>

#include "tracer/control_reader.h"
#include "tracer/python/abi.h"
#include "tracer/session.h"

namespace torchprof::python {
namespace {

// A line of text; what does not fit is cut.
class Line {
 public:
  void add(std::string_view text) noexcept {
    const size_t n = std::min(text.size(), sizeof(text_) - used_);
    memcpy(text_ + used_, text.data(), n);
    used_ += n;
  }
  void add(long number) noexcept {
    char digits[24];
    add({digits, static_cast<size_t>(snprintf(digits, sizeof(digits), "%ld", number))});
  }
  void field() noexcept { add("\t"); }
  void cut(size_t used) noexcept { used_ = used; }
  size_t used() const noexcept { return used_; }
  size_t room() const noexcept { return sizeof(text_) - used_; }
  std::string_view text() const noexcept { return {text_, used_}; }

 private:
  char text_[4096];
  size_t used_ = 0;
};

// The groups that were recorded, by their names, with the hash of what was recorded last. Guarded by the GIL.
struct KnownGroup {
  StringId name;
  uint64_t said;
};
constinit KnownGroup g_known_groups[kMaxGroups] = {};
unsigned g_known_groups_count = 0;
uint64_t g_default_said = 0;

bool is_dict(Object* object) noexcept { return object && type_of(object) == api().dict_type; }

// dict[key], borrowed. Keys are compared by identity, so no __eq__ and no __hash__ of the program runs.
Object* item_of(Object* dict, Object* key) noexcept {
  Size at = 0;
  Object *found = nullptr, *value = nullptr;
  while (is_dict(dict) && api().dict_next(dict, &at, &found, &value))
    if (found == key) return value;
  return nullptr;
}

std::string_view text_of(Object* object) noexcept {
  Size size = 0;
  const char* text = object ? api().utf8(object, &size) : nullptr;
  api().error_clear();
  return text ? std::string_view(text, static_cast<size_t>(size)) : std::string_view();
}

long number_by_method(Object* group, const char* method) noexcept {
  const Ref value(api().call_method(group, method, nullptr));
  const long number = value ? api().as_long(value.get()) : -1;
  api().error_clear();
  return number;
}

// The keys of {global rank: rank}.
void add_ranks(Line& line, Object* ranks) noexcept {
  constexpr size_t kMostOfRun = 72, kRest = 1024;
  const size_t begin = line.used();
  long first = -1, last = -1, step = 0;
  const auto end_run = [&] {
    if (first < 0) return;
    if (line.used() != begin) line.add(",");
    line.add(first);
    if (last == first) return;
    line.add("-");
    line.add(last);
    if (step == 1) return;
    line.add("/");
    line.add(step);
  };
  Size at = 0;
  Object *key = nullptr, *value = nullptr;
  while (is_dict(ranks) && api().dict_next(ranks, &at, &key, &value)) {
    const long rank = api().as_long(key);
    if (rank < 0 || line.room() < kMostOfRun + kRest) {
      api().error_clear();
      return line.cut(begin);
    }
    if (first >= 0 && rank > last && (step == 0 || rank - last == step)) {
      step = rank - last;
    } else {
      end_run();
      first = rank;
      step = 0;
    }
    last = rank;
  }
  end_run();
}

void define_fact(const char* key, std::string_view value) noexcept { session::define_fact(key, value); }

void define_fact(const char* key, long value) noexcept {
  Line line;
  line.add(value);
  define_fact(key, line.text());
}

void record_default(Object* group, std::string_view backend) noexcept {
  const long rank = number_by_method(group, "rank"), size = number_by_method(group, "size");
  if (rank < 0 || size <= 0) return;
  const uint64_t said = StringTable::hash(backend) ^ (static_cast<uint64_t>(rank) << 32 | static_cast<uint64_t>(size));
  if (said == g_default_said) return;
  g_default_said = said;
  define_fact("distributed.rank", rank);
  window::control_reader::know_rank(static_cast<uint64_t>(rank));
  define_fact("distributed.world_size", size);
  define_fact("distributed.backend", backend);
}

struct Tables {
  Ref names, groups, ranks, backends;
};

void record_group(const Tables& tables, Object* group, Object* name, bool is_default) noexcept {
  Object* entry = item_of(tables.groups.get(), group);
  Object* backend = entry && type_of(entry) == api().tuple_type ? api().tuple_get(entry, 0) : nullptr;
  if (is_default) record_default(group, text_of(backend));
  const Ref description(api().get_attr(group, "group_desc"));
  api().error_clear();
  Object* backends = item_of(tables.backends.get(), group);
  Line line;
  line.add(number_by_method(group, "size"));
  line.field();
  add_ranks(line, item_of(tables.ranks.get(), group));
  constexpr size_t kMost = 300;  // of each text
  for (const std::string_view text :
       {text_of(backends ? backends : backend), text_of(name), text_of(description.get())}) {
    line.field();
    line.add(text.substr(0, kMost));
  }
  const StringId id = session::intern(text_of(name));
  unsigned number = 0;
  while (number < g_known_groups_count && g_known_groups[number].name != id) ++number;
  if (number == kMaxGroups) return;
  if (number == g_known_groups_count) g_known_groups[g_known_groups_count++] = {id, 0};
  const uint64_t said = StringTable::hash(line.text());
  if (said == g_known_groups[number].said) return;
  g_known_groups[number].said = said;
  char key[40];
  snprintf(key, sizeof(key), "distributed.group.%u", number);
  define_fact(key, line.text());
}

}  // namespace

void record_groups() noexcept {
  const KeepError keep;
  Object* module = api().dict_get(api().modules(), "torch.distributed.distributed_c10d");
  if (!module) return;
  const Tables tables{Ref(api().get_attr(module, "_pg_names")), Ref(api().get_attr(module, "_pg_map")),
                      Ref(api().get_attr(module, "_pg_group_ranks")),
                      Ref(api().get_attr(module, "_pg_backend_config"))};
  api().error_clear();
  // References are held meanwhile: torch may let go of the GIL in rank() and size().
  Ref groups[kMaxGroups], names[kMaxGroups];
  unsigned count = 0;
  Size at = 0;
  Object *group = nullptr, *name = nullptr;
  while (is_dict(tables.names.get()) && count < kMaxGroups && api().dict_next(tables.names.get(), &at, &group, &name)) {
    api().incref(group);
    api().incref(name);
    groups[count].reset(group);
    names[count++].reset(name);
  }
  for (unsigned i = 0; i < count; ++i) record_group(tables, groups[i].get(), names[i].get(), i == 0);
}

}  // namespace torchprof::python
