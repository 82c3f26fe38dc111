#include "formats/diff/budget.h"

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "formats/io/error.h"
#include "formats/io/open_file.h"
#include "formats/replay/slice_request.h"

namespace torchprof::formats {
namespace {

using Json = nlohmann::json;

constexpr const char* kKeys = "fail_over, step, total, ops, modules, kernels, cuda, python, memory";

// A value and its place in the file, for messages.
class Entry {
 public:
  Entry(const Json& value, std::string where) : value_(value), where_(std::move(where)) {}

  Entry at(const std::string& key) const { return {value_.at(key), where_ + (where_.ends_with(' ') ? "" : ".") + key}; }
  // Calls `visit` with each key and its entry.
  template <class Visit>
  void each(const char* allowed, Visit visit) const {
    if (!value_.is_object()) fail(std::string("is not an object: {") + allowed + "}");
    for (const auto& item : value_.items()) visit(item.key(), at(item.key()));
  }
  [[noreturn]] void fail(const std::string& why) const {
    throw Error(where_ + (where_.ends_with(' ') ? "" : ": ") + why);
  }

  double number(const char* allowed) const {
    if (!value_.is_number() || !(value_.get<double>() >= 0) || std::isinf(value_.get<double>()))
      fail(shown().append(" is not ").append(allowed));
    return value_.get<double>();
  }
  std::string shown() const {
    if (!value_.is_primitive()) return value_.type_name();  // it may be of any size and depth
    return value_.dump(-1, ' ', true, Json::error_handler_t::replace);
  }
  double ns() const {
    constexpr const char* kAllowed = "a time: \"1.5ms\" (ns, us, ms, s, m), or a number of ms";
    if (!value_.is_string()) return number(kAllowed) * 1e6;
    const auto ns = parse_duration(value_.get<std::string>());
    if (!ns) number(kAllowed);
    return static_cast<double>(*ns);
  }
  double bytes() const {
    constexpr const char* kAllowed = "a size: \"1.5G\" (K, M, G, T), or a number of bytes";
    if (!value_.is_string()) return number(kAllowed);
    const auto& text = value_.get_ref<const std::string&>();
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const std::string unit(end, text.data() + text.size());
    const size_t power = unit.empty() ? 0 : std::string("KMGT").find(unit) + 1;
    if (error != std::errc{} || !(value >= 0) || unit.size() > 1 || (power == 0 && !unit.empty())) number(kAllowed);
    return std::ldexp(value, static_cast<int>(10 * power));
  }

 private:
  const Json& value_;
  std::string where_;
};

Metric metric_of(const std::string& name, const Entry& entry) {
  const auto metric = metric_named(name);
  if (metric) return *metric;
  std::string allowed;
  for (const std::string& each : metric_names()) allowed += (allowed.empty() ? "" : ", ") + each;
  entry.fail("is not a metric: " + allowed);
}

// `has_memory`: operators and modules have a limit of memory, too.
NameBudget name_budget(const Entry& entry, bool has_memory) {
  const char* const kAllowed = has_memory ? "time, calls, allocated" : "time, calls";
  NameBudget budget;
  entry.each(kAllowed, [&](const std::string& key, const Entry& value) {
    if (key == "time")
      budget.time = value.ns();
    else if (key == "calls")
      budget.calls = value.number("a number");
    else if (key == "allocated" && has_memory)
      budget.bytes = value.bytes();
    else
      value.fail(std::string("is not a key of a budget: ") + kAllowed);
  });
  return budget;
}

void add_key(Budget& budget, const std::string& key, const Entry& entry) {
  if (key == "fail_over") {
    entry.each("METRIC: PERCENT", [&budget](const std::string& name, const Entry& value) {
      budget.fail_over[metric_of(name, value)] = value.number("a number of percent");
    });
  } else if (key == "step") {
    budget.names[Metric::kStep]["step"].time = entry.ns();
  } else if (key == "total") {
    budget.names[Metric::kTotal]["operators"].time = entry.ns();
  } else if (key == "memory") {
    entry.each("DEVICE: SIZE", [&budget](const std::string& device, const Entry& value) {
      budget.names[Metric::kMemory][device].bytes = value.bytes();
    });
  } else if (key == "ops" || key == "modules" || key == "kernels" || key == "cuda" || key == "python") {
    entry.each("NAME: {...}", [&](const std::string& name, const Entry& value) {
      budget.names[metric_of(key, entry)][name] = name_budget(value, key == "ops" || key == "modules");
    });
  } else {
    entry.fail(std::string("is not a key of a budget: ") + kKeys);
  }
}

}  // namespace

Budget read_budget(const std::filesystem::path& file) {
  std::string reason;
  const std::optional<std::string> text = read_file(file, reason);
  if (!text) throw Error("budget " + file.string() + ": " + reason);
  // Without this a key that comes twice would silently have its last value.
  std::vector<std::vector<std::string>> open;
  std::string twice;
  const auto watch = [&](int, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) open.emplace_back();
    if (event == Json::parse_event_t::object_end) open.pop_back();
    if (event != Json::parse_event_t::key) return true;
    const auto key = value.get<std::string>();
    for (const std::string& known : open.back())
      if (known == key) twice = key;
    open.back().push_back(key);
    return true;
  };
  Json json;
  try {
    json = Json::parse(*text, watch);
  } catch (const Json::exception& error) {
    const std::string what = error.what();
    throw Error("budget " + file.string() + ": it is not JSON: " + what.substr(what.find("] ") + 2));
  }
  if (!twice.empty()) throw Error("budget " + file.string() + ": the key '" + twice + "' comes twice");
  Budget budget;
  Entry(json, "budget " + file.string() + ": ").each(kKeys, [&budget](const std::string& key, const Entry& entry) {
    add_key(budget, key, entry);
  });
  return budget;
}

}  // namespace torchprof::formats
