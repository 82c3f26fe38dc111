#include "tracer/config/window_spec.h"

#include <csignal>
#include <cstdio>
#include <cstring>
#include <string_view>

namespace torchprof {
namespace {

constexpr char kForms[] =
    "auto, all, steps=10..14, schedule=wait:5,warmup:1,active:3, every=1000steps,for=3steps, after=30s,for=5s, "
    "every=10m,for=5s, range=NAME#3, signal=USR2 or manual";
constexpr uint64_t kMostSteps = uint64_t{1} << 53;  // steps, or ns (104 days): sums of a few do not overflow

bool fail(char* why, size_t size, const char* text) noexcept {
  snprintf(why, size, "%s", text);
  return false;
}

// Takes the digits at the front of `text`. False: there are none, or the number is above kMostSteps.
bool take_number(std::string_view& text, uint64_t& number) noexcept {
  const size_t before = text.size();
  for (number = 0; !text.empty() && text[0] >= '0' && text[0] <= '9'; text.remove_prefix(1)) {
    number = number * 10 + static_cast<uint64_t>(text[0] - '0');
    if (number > kMostSteps) return false;
  }
  return text.size() < before;
}

bool parse_number(std::string_view text, uint64_t& number) noexcept {
  return take_number(text, number) && text.empty();
}

// "3steps" or "5s", "10m", "250ms", "1h". `is_time`: which it was.
bool parse_amount(std::string_view text, uint64_t& amount, bool& is_time) noexcept {
  if (!take_number(text, amount)) return false;
  is_time = text != "steps" && text != "step";
  if (!is_time) return true;
  uint64_t unit = 0;
  if (text == "ms") unit = 1'000'000;
  if (text == "s") unit = 1'000'000'000;
  if (text == "m") unit = 60'000'000'000;
  if (text == "h") unit = 3'600'000'000'000;
  if (unit == 0 || amount > kMostSteps / unit) return false;
  amount *= unit;
  return true;
}

bool starts_with(std::string_view text, std::string_view start) noexcept {
  return text.substr(0, start.size()) == start;
}

// The value of `name` in "name=value,name=value" or "name:value,...". `found` counts the names that were there: the
// caller sees from it whether the list has any others.
bool field(std::string_view list, std::string_view name, char separator, std::string_view& value,
           size_t& found) noexcept {
  while (!list.empty()) {
    const size_t comma = list.find(',');
    const std::string_view item = list.substr(0, comma);
    list = comma == list.npos ? std::string_view{} : list.substr(comma + 1);
    if (item.size() <= name.size() || !starts_with(item, name) || item[name.size()] != separator) continue;
    value = item.substr(name.size() + 1);
    ++found;
    return true;
  }
  return false;
}

size_t count_items(std::string_view list) noexcept {
  size_t count = 1;
  for (const char c : list) count += c == ',';
  return count;
}

bool parse_steps(std::string_view text, WindowSpec& spec) noexcept {
  uint64_t last = 0;
  if (!take_number(text, spec.first)) return false;
  last = spec.first;
  if (!text.empty() && (!starts_with(text, "..") || !parse_number(text.substr(2), last))) return false;
  spec.kind = WindowSpec::Kind::kSteps;
  spec.length = last - spec.first + 1;
  return last >= spec.first;
}

bool parse_schedule(std::string_view text, WindowSpec& spec) noexcept {
  uint64_t wait = 0, warmup = 0, active = 0, skip = 0;
  size_t found = 0;
  const auto take = [&](std::string_view name, uint64_t& number) {
    std::string_view value;
    return !field(text, name, ':', value, found) || parse_number(value, number);
  };
  if (!take("wait", wait) || !take("warmup", warmup) || !take("active", active) || !take("repeat", spec.repeat) ||
      !take("skip_first", skip) || found != count_items(text) || active == 0)
    return false;
  spec.kind = WindowSpec::Kind::kSteps;
  spec.first = skip + wait + warmup;
  spec.length = active;
  spec.period = wait + warmup + active;
  return true;
}

bool parse_periodic(std::string_view text, WindowSpec& spec) noexcept {
  std::string_view every, length, repeat;
  size_t found = 0;
  bool is_time = false, is_length_time = false;
  if (!field(text, "every", '=', every, found) || !field(text, "for", '=', length, found)) return false;
  if (field(text, "repeat", '=', repeat, found) && (!parse_number(repeat, spec.repeat) || spec.repeat == 0))
    return false;
  if (found != count_items(text) || !parse_amount(every, spec.period, is_time) ||
      !parse_amount(length, spec.length, is_length_time) || is_time != is_length_time)
    return false;
  spec.kind = is_time ? WindowSpec::Kind::kTime : WindowSpec::Kind::kSteps;
  spec.first = spec.period;
  return spec.length > 0 && spec.length <= spec.period;
}

bool parse_after(std::string_view text, WindowSpec& spec) noexcept {
  std::string_view after, length;
  size_t found = 0;
  bool is_time = false;
  if (!field(text, "after", '=', after, found) || !parse_amount(after, spec.first, is_time) || !is_time) return false;
  if (field(text, "for", '=', length, found) &&
      (!parse_amount(length, spec.length, is_time) || !is_time || spec.length == 0))
    return false;
  spec.kind = WindowSpec::Kind::kTime;
  return found == count_items(text);
}

bool parse_range(std::string_view text, WindowSpec& spec) noexcept {
  const size_t hash = text.rfind('#');
  std::string_view name = text;
  // "#3" at the end is a number; any other # belongs to the name, as in "Optimizer.step#SGD.step".
  if (uint64_t nth = 0; hash != text.npos && parse_number(text.substr(hash + 1), nth)) {
    if (nth == 0) return false;
    spec.nth = nth;
    name = text.substr(0, hash);
  }
  if (name.empty() || name.size() >= sizeof(spec.range)) return false;
  memcpy(spec.range, name.data(), name.size());
  spec.range[name.size()] = 0;
  spec.kind = WindowSpec::Kind::kRange;
  return true;
}

// Only signals that a program can be sent without harm.
bool parse_signal(std::string_view text, WindowSpec& spec) noexcept {
  struct Name {
    std::string_view name;
    int number;
  };
  static constexpr Name kNames[] = {{"USR1", SIGUSR1}, {"USR2", SIGUSR2}, {"HUP", SIGHUP}, {"WINCH", SIGWINCH},
                                    {"URG", SIGURG},   {"IO", SIGIO},     {"PWR", SIGPWR}};
  if (starts_with(text, "SIG")) text.remove_prefix(3);
  for (const Name& name : kNames) {
    if (text != name.name) continue;
    spec.kind = WindowSpec::Kind::kSignal;
    spec.signal = name.number;
    return true;
  }
  return false;
}

}  // namespace

bool WindowSpec::holds(uint64_t at) const noexcept {
  if (at < first) return false;
  uint64_t since = at - first;
  if (period != 0) {
    if (repeat != 0 && since / period >= repeat) return false;
    since %= period;
  }
  return length == 0 || since < length;
}

uint64_t WindowSpec::next_change(uint64_t at) const noexcept {
  if (at < first) return first;
  const uint64_t index = period != 0 ? (at - first) / period : 0;
  const uint64_t begin = first + index * period;
  if (holds(at)) {
    if (length != 0 && length != period) return begin + length;
    return period == 0 || repeat == 0 ? UINT64_MAX : first + repeat * period;
  }
  if (period == 0 || (repeat != 0 && index + 1 >= repeat)) return UINT64_MAX;
  return begin + period;
}

bool parse_window(const char* text, WindowSpec& spec, char* why, size_t size) noexcept {
  spec = {};
  const std::string_view all = text;
  const size_t equals = all.find('=');
  const std::string_view form = all.substr(0, equals), value = equals == all.npos ? "" : all.substr(equals + 1);
  if (all == "all") return true;
  if (all == "auto") {
    spec.kind = WindowSpec::Kind::kAuto;
    return true;
  }
  if (all == "manual") {
    spec.kind = WindowSpec::Kind::kManual;
    return true;
  }
  if (form == "steps") return parse_steps(value, spec) || fail(why, size, "FIRST..LAST, steps count from 0");
  if (form == "schedule")
    return parse_schedule(value, spec) ||
           fail(why, size, "wait:N,warmup:N,active:N,repeat:N,skip_first:N, of which active is needed and above 0");
  if (form == "every")
    return parse_periodic(all, spec) ||
           fail(why, size,
                "every=1000steps,for=3steps,repeat=5 or every=10m,for=5s (ms, s, m, h), `for` no longer than `every`");
  if (form == "after") return parse_after(all, spec) || fail(why, size, "after=30s,for=5s (ms, s, m, h)");
  if (form == "range") return parse_range(value, spec) || fail(why, size, "range=NAME or range=NAME#3, from 1");
  if (form == "signal")
    return parse_signal(value, spec) || fail(why, size, "signal=USR1, USR2, HUP, WINCH, URG, IO or PWR");
  return fail(why, size, kForms);
}

}  // namespace torchprof
