// RUN/spool/control: what `torchprof ctl` asks of all processes of a run at once, on whatever host they run. One line
// each:
//
//     window 1795692451134794624 steps=200..204               steps 200 to 204 are to be recorded
//     window 1795692451134794624 steps=200..204 ranks=0,4..7  the same, by these ranks alone
//     drop 1795692451134794624                                what that line asked for is not wanted any more
//
// The number names the request: when it was made, in ns since 1970. Lines are appended, each with one write(2) and its
// newline; nobody changes or removes any. So every process reads the same requests, also one that starts later, and
// needs no clock: a step has the same number in all ranks of a job. What follows the last newline is not there yet, and
// a line that a reader does not understand is passed over: later versions may have other lines, and words behind these.
//
// The answer of a process that is meant is a fact in its own spool (MetaDef), "control." and the number of the request:
// "taken at 150", "late at 203" or "full at 150", with the step that it was in. Late: it has come to the first of these
// steps, so it records none of them, and the others should not either. Full: it waits for as many other windows as it
// can remember.
//
// Pure: no allocation, nothing is thrown.
#pragma once

#include <charconv>
#include <cstdint>
#include <string_view>

namespace torchprof {

struct ControlLine {
  enum class Kind : uint8_t { kNone, kUnknown, kWindow, kDrop };  // kNone: empty

  Kind kind = Kind::kNone;
  uint64_t id = 0;
  uint64_t first = 0, last = 0;  // of a window: its steps
  std::string_view ranks{};      // of a window, in the text that was parsed: "0,4..7"; empty: all
};

inline constexpr std::string_view kControlFact = "control.";  // the key, before the request's number
inline constexpr std::string_view kControlTaken = "taken", kControlLate = "late", kControlFull = "full";
// A line that was not understood, as it was read.
inline constexpr std::string_view kControlUnknownFact = "control.unknown";

namespace detail {
inline bool take_text(std::string_view& text, std::string_view expected) noexcept {
  if (!text.starts_with(expected)) return false;
  text.remove_prefix(expected.size());
  return true;
}
inline bool take_number(std::string_view& text, uint64_t& number) noexcept {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}
// "0,4..7": whether it is such a list, and has the rank.
inline bool take_ranks(std::string_view text, uint64_t rank, bool& has_rank) noexcept {
  has_rank = false;
  do {
    uint64_t first = 0;
    if (!take_number(text, first)) return false;
    uint64_t last = first;
    if (take_text(text, "..") && !take_number(text, last)) return false;
    has_rank = has_rank || (first <= rank && rank <= last);
  } while (take_text(text, ","));
  return text.empty();
}
}  // namespace detail

inline constexpr uint64_t kNoRank = UINT64_MAX;  // of a process that is no rank

// Whether the line is for this process. No list has kNoRank in it.
inline bool is_for_rank(const ControlLine& line, uint64_t rank) noexcept {
  bool has_rank = false;
  return line.ranks.empty() || (rank != kNoRank && detail::take_ranks(line.ranks, rank, has_rank) && has_rank);
}

// `text`: a line without its newline.
inline ControlLine parse_control_line(std::string_view text) noexcept {
  using Kind = ControlLine::Kind;
  if (text.empty()) return {};
  ControlLine line{Kind::kUnknown};
  const bool is_window = detail::take_text(text, "window ");
  if (!is_window && !detail::take_text(text, "drop ")) return line;
  if (!detail::take_number(text, line.id)) return line;
  if (is_window) {
    if (!detail::take_text(text, " steps=") || !detail::take_number(text, line.first)) return line;
    if (!detail::take_text(text, "..") || !detail::take_number(text, line.last)) return line;
    // The step after the last one must be a number, too.
    if (line.last < line.first || line.last == UINT64_MAX) return line;
    if (bool ignored = false; detail::take_text(text, " ranks=")) {
      if (!detail::take_ranks(text, 0, ignored)) return line;
      line.ranks = text;
      text = {};
    }
  }
  if (text.empty()) line.kind = is_window ? Kind::kWindow : Kind::kDrop;
  return line;
}

}  // namespace torchprof
