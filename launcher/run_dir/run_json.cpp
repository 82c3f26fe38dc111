#include "launcher/run_dir/run_json.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "formats/io/text.h"

namespace torchprof::launcher {
namespace {

using Json = nlohmann::ordered_json;

enum class Type : uint8_t { kText, kBool, kNumber, kCount, kSmall, kList, kObject };

// "*" stands for any key, or any index of a list.
struct Known {
  std::string_view key;
  Type type;
};
constexpr std::array kKnown = std::to_array<Known>({
    {"align", Type::kText},
    {"collectives", Type::kList},
    {"collectives/*", Type::kText},
    {"command", Type::kList},
    {"command/*", Type::kText},
    {"directory", Type::kText},
    {"end", Type::kText},
    {"exit_status", Type::kSmall},
    {"exported", Type::kBool},
    {"files", Type::kList},
    {"files/*", Type::kText},
    {"host", Type::kText},
    {"launcher", Type::kSmall},
    {"oom_kills", Type::kCount},
    {"processes", Type::kList},
    {"processes/*", Type::kObject},
    {"processes/*/clean_exit", Type::kBool},
    {"processes/*/command", Type::kList},
    {"processes/*/command/*", Type::kText},
    {"processes/*/ended", Type::kText},
    {"processes/*/metadata", Type::kObject},
    {"processes/*/metadata/*", Type::kText},
    {"processes/*/open", Type::kList},
    {"processes/*/open/*", Type::kObject},
    {"processes/*/open/*/deeper", Type::kCount},
    {"processes/*/open/*/last", Type::kNumber},
    {"processes/*/open/*/name", Type::kText},
    {"processes/*/open/*/spans", Type::kList},
    {"processes/*/open/*/spans/*", Type::kObject},
    {"processes/*/open/*/spans/*/name", Type::kText},
    {"processes/*/open/*/spans/*/seconds", Type::kNumber},
    {"processes/*/open/*/tid", Type::kSmall},
    {"processes/*/pid", Type::kSmall},
    {"processes/*/role", Type::kText},
    {"processes/*/running", Type::kBool},
    {"processes/*/stuck_gpu", Type::kList},
    {"processes/*/stuck_gpu/*", Type::kObject},
    {"processes/*/stuck_gpu/*/behind", Type::kCount},
    {"processes/*/stuck_gpu/*/collective", Type::kText},
    {"processes/*/stuck_gpu/*/device", Type::kSmall},
    {"processes/*/stuck_gpu/*/kernel", Type::kText},
    {"processes/*/stuck_gpu/*/seconds", Type::kNumber},
    {"processes/*/stuck_gpu/*/spans", Type::kList},
    {"processes/*/stuck_gpu/*/spans/*", Type::kText},
    {"processes/*/stuck_gpu/*/stream", Type::kSmall},
    {"processes/*/stuck_gpu/*/tid", Type::kSmall},
    {"processes/*/windows", Type::kList},
    {"processes/*/windows/*", Type::kObject},
    {"processes/*/windows/*/closed", Type::kBool},
    {"processes/*/windows/*/reason", Type::kText},
    {"ranks", Type::kText},
    {"seconds", Type::kNumber},
    {"signal", Type::kSmall},
    {"signal_name", Type::kText},
    {"start", Type::kText},
    {"start_ns", Type::kCount},
    {"still_running", Type::kList},
    {"still_running/*", Type::kObject},
    {"still_running/*/command", Type::kList},
    {"still_running/*/command/*", Type::kText},
    {"still_running/*/pid", Type::kSmall},
    {"still_running/*/role", Type::kText},
    {"still_running/*/traced", Type::kBool},
    {"took_ns", Type::kObject},
    {"took_ns/*", Type::kNumber},
    {"version", Type::kSmall},
});
static_assert(std::ranges::is_sorted(kKnown, {}, &Known::key));

bool is_below(const Json& value, int64_t end) {
  if (value.is_number_unsigned()) return value.get<uint64_t>() <= static_cast<uint64_t>(end);
  return value.is_number_integer() && value.get<int64_t>() >= 0;
}

bool fits(const Json& value, Type type) {
  switch (type) {
    case Type::kText:
      return value.is_string();
    case Type::kBool:
      return value.is_boolean();
    case Type::kNumber:
      return value.is_number();
    case Type::kCount:
      return is_below(value, std::numeric_limits<int64_t>::max());
    case Type::kSmall:
      return is_below(value, std::numeric_limits<int32_t>::max());
    case Type::kList:
      return value.is_array();
    case Type::kObject:
      return value.is_object();
  }
  return false;
}

const char* text_of(Type type) {
  switch (type) {
    case Type::kText:
      return "a text";
    case Type::kBool:
      return "true or false";
    case Type::kNumber:
      return "a number";
    case Type::kCount:
    case Type::kSmall:
      return "a whole number in its range";
    case Type::kList:
      return "a list";
    case Type::kObject:
      return "an object";
  }
  return "";
}

const char* text_of(const Json& value) {
  if (value.is_null()) return "null";
  if (value.is_string()) return "a text";
  if (value.is_boolean()) return "true or false";
  return value.is_array() ? "a list" : value.is_object() ? "an object" : "a number";
}

const Known* known(const std::string& key) {
  const auto at = std::ranges::lower_bound(kKnown, std::string_view(key), {}, &Known::key);
  return at != kKnown.end() && at->key == key ? &*at : nullptr;
}

class Drop {
 public:
  std::string first;

  // `pattern`: the path of the value with "*"; `shown`: the path as it is.
  void run(Json& value, const std::string& pattern, const std::string& shown) {
    if (value.is_array()) {
      auto& list = value.get_ref<Json::array_t&>();
      Json::array_t kept;
      for (size_t i = 0; i < list.size(); ++i)
        if (keeps(list[i], pattern, "*", shown, std::to_string(i))) kept.push_back(std::move(list[i]));
      list = std::move(kept);
    } else {
      Json::object_t kept;
      for (auto& [key, member] : value.get_ref<Json::object_t&>())
        if (keeps(member, pattern, key, shown, key)) kept.emplace_back(key, std::move(member));
      value = std::move(kept);
    }
  }

 private:
  static std::string in(const std::string& of, const std::string& name) { return of.empty() ? name : of + '/' + name; }

  bool keeps(Json& value, const std::string& pattern, const std::string& key, const std::string& shown,
             const std::string& name) {
    std::string below = in(pattern, key);
    const Known* type = known(below);
    if (type == nullptr) type = known(below = in(pattern, "*"));
    if (type == nullptr) return true;
    if (!fits(value, type->type)) {
      if (first.empty())
        first = '\'' + formats::shorten(formats::printable(in(shown, name)), kWidest) + "' is " + text_of(value) +
                ", not " + text_of(type->type);
      return false;
    }
    if (value.is_structured()) run(value, below, in(shown, name));
    return true;
  }

  static constexpr size_t kWidest = 80;
};

}  // namespace

std::string newer_version(const Json& info) {
  const int version = info.value("version", kRunVersion);
  return version <= kRunVersion ? ""
                                : "is of version " + std::to_string(version) +
                                      ", this torchprof reads versions up to " + std::to_string(kRunVersion);
}

std::string drop_misfits(Json& info) {
  Drop drop;
  drop.run(info, "", "");
  return drop.first;
}

}  // namespace torchprof::launcher
