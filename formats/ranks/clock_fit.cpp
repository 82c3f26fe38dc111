#include "formats/ranks/clock_fit.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

namespace torchprof::formats {
namespace {

// How far a clock is ahead: ns at a time, and ns a ns from there.
struct Line {
  double ahead = 0;
  double drift = 0;
  double at(double t) const { return ahead + drift * t; }
};

struct Bound {  // ahead + drift * t is at most, or at least, so much
  double t;
  double ns;
  bool is_most;
  double excess(const Line& line) const { return is_most ? line.at(t) - ns : ns - line.at(t); }
};

// All lines that keep some bounds: a convex polygon.
class Lines {
 public:
  explicit Lines(double most_ahead)
      : corners_{{-most_ahead, -kMostDrift},
                 {most_ahead, -kMostDrift},
                 {most_ahead, kMostDrift},
                 {-most_ahead, kMostDrift}} {}

  // False: none would be left, and all stay.
  bool keep(const Bound& bound) {
    std::vector<Line> kept;
    for (size_t i = 0; i < corners_.size(); ++i) {
      const Line &a = corners_[i], &b = corners_[(i + 1) % corners_.size()];
      const double excess_a = bound.excess(a), excess_b = bound.excess(b);
      if (excess_a <= 0) kept.push_back(a);
      if ((excess_a < 0 && excess_b > 0) || (excess_a > 0 && excess_b < 0)) {
        const double part = excess_a / (excess_a - excess_b);
        kept.push_back({a.ahead + part * (b.ahead - a.ahead), a.drift + part * (b.drift - a.drift)});
      }
    }
    if (kept.empty()) return false;
    corners_ = std::move(kept);
    return true;
  }

  std::pair<double, double> range_at(double t) const {
    const auto [least, most] = std::ranges::minmax_element(corners_, {}, [t](const Line& line) { return line.at(t); });
    return {least->at(t), most->at(t)};
  }

  Line middle() const {
    Line sum;
    for (const Line& corner : corners_) {
      sum.ahead += corner.ahead;
      sum.drift += corner.drift;
    }
    const auto count = static_cast<double>(corners_.size());
    return {sum.ahead / count, sum.drift / count};
  }

  // Between two times.
  bool has(const Line& line, double from, double to) const {
    for (const double t : {from, to}) {
      const auto [least, most] = range_at(t);
      if (line.at(t) < least || line.at(t) > most) return false;
    }
    return true;
  }

 private:
  std::vector<Line> corners_;
};

double middle_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

int64_t time_of(const Meeting& m) { return m.here.end; }
int64_t time_of(const Message& m) { return m.is_from_here ? m.sent : m.received; }

// Some milliseconds off at most.
int64_t guess_of(const std::vector<Meeting>& meetings, const std::vector<Message>& messages) {
  std::vector<int64_t> ahead;
  for (const Meeting& m : meetings) ahead.push_back(m.there.end - m.here.end);
  for (const Message& m : messages) ahead.push_back(m.is_from_here ? m.received - m.sent : m.sent - m.received);
  std::ranges::sort(ahead);
  return ahead[ahead.size() / 2];
}

// The meetings and messages of a stretch of time. Times count from its middle, and what the clock is ahead from a first
// guess, so that doubles are exact enough.
class Piece {
 public:
  Piece(std::vector<Meeting> meetings, std::vector<Message> messages)
      : meetings_(std::move(meetings)), messages_(std::move(messages)), guess_(guess_of(meetings_, messages_)) {
    int64_t first = INT64_MAX, last = INT64_MIN;
    const auto cover = [&](int64_t time) {
      first = std::min(first, time);
      last = std::max(last, time);
    };
    for (const Meeting& m : meetings_) cover(time_of(m));
    for (const Message& m : messages_) cover(time_of(m));
    middle_ = first + (last - first) / 2;
    from_ = since(first);
    to_ = since(last);
  }

  bool fit() {
    if (!meetings_.empty()) fit_ends();
    for (const Meeting& m : meetings_) {
      bounds_.push_back({since(m.here.end), ahead(m.there.first_end, m.here.last_begin), true});
      bounds_.push_back({since(m.here.end), ahead(m.there.last_begin, m.here.first_end), false});
    }
    for (const Message& m : messages_) {
      if (m.is_from_here)
        bounds_.push_back({since(time_of(m)), ahead(m.received, m.sent), true});
      else
        bounds_.push_back({since(time_of(m)), ahead(m.sent, m.received), false});
    }
    // The likely ones first: a false one then finds them there.
    std::ranges::stable_sort(bounds_, {}, [this](const Bound& b) { return b.excess(line_); });
    Lines lines(kFarthest);
    for (const Bound& bound : bounds_) wrong_ += !lines.keep(bound);
    const auto [least, most] = lines.range_at(0);
    if (most - least > kFarthest / 2 || wrong_ * 20 > bounds_.size()) return false;
    move_into(lines, (most - least) / 2);
    for (const double t : {from_, to_}) {
      const auto [low, high] = lines.range_at(t);
      error_ = std::max({error_, high - line_.at(t), line_.at(t) - low});
    }
    error_ += kWander * (to_ - from_);
    return true;
  }

  ClockCorrection::Point point_at(double t) const {
    const auto ahead = guess_ + std::llround(line_.at(t));
    return {middle_ + std::llround(t) + ahead, ahead};
  }
  double from() const { return from_; }
  double to() const { return to_; }
  double error() const { return error_; }

 private:
  static constexpr double kFarthest = 1e9;  // ns from the guess

  double since(int64_t time) const { return static_cast<double>(time - middle_); }
  double ahead(int64_t there, int64_t here) const { return static_cast<double>(there - here - guess_); }

  // Least squares, in which the deviation of a meeting is taken to be as large as its ends are apart: again and again,
  // since that depends on how far the clock is ahead.
  void fit_ends() {
    constexpr int kTimes = 30;
    constexpr double kLeast = 500;        // ns: as far as any ends are apart
    constexpr double kMedianOf = 0.6745;  // of the absolute values of a normal distribution with deviation 1
    struct Difference {
      double t, ns;
      double apart = 0;
    };
    std::vector<Difference> all;
    std::vector<double> values;
    for (const Meeting& m : meetings_) {
      all.push_back({since(m.here.end), ahead(m.there.end, m.here.end)});
      values.push_back(all.back().ns);
    }
    line_ = {middle_of(values), 0};
    for (int times = 0; times < kTimes; ++times) {
      for (size_t i = 0; i < all.size(); ++i) {
        const MachinePart &here = meetings_[i].here, &there = meetings_[i].there;
        const double off = line_.at(all[i].t);
        const double first = ahead(there.first_end, here.first_end) - off;
        const double last = ahead(there.last_end, here.first_end) - off;
        const auto width = static_cast<double>(here.last_end - here.first_end);
        all[i].apart = kLeast + std::max(width, last) - std::min(0.0, first);
        values[i] = std::abs(all[i].ns - off) / all[i].apart;
      }
      const double scale = std::max(middle_of(values) / kMedianOf, 0.01);
      double w = 0, wt = 0, wtt = 1 / (kDrift * kDrift), wn = 0, wtn = 0;
      for (const Difference& d : all) {
        const double deviation = scale * d.apart, weight = 1 / (deviation * deviation);
        w += weight;
        wt += weight * d.t;
        wtt += weight * d.t * d.t;
        wn += weight * d.ns;
        wtn += weight * d.t * d.ns;
      }
      const double determinant = w * wtt - wt * wt;
      if (!(determinant > 0)) return;
      line_ = {(wn * wtt - wtn * wt) / determinant, (wtn * w - wn * wt) / determinant};
    }
    for (size_t i = 0; i < all.size(); ++i) values[i] = std::abs(all[i].ns - line_.at(all[i].t));
    deviation_ = middle_of(values);
  }

  // Where bounds tell more than the ends, as messages do, what lies in their middle.
  void move_into(const Lines& lines, double half_ns) {
    const Line middle = lines.middle();
    if (meetings_.empty() || half_ns < deviation_) {
      line_ = middle;
      return;
    }
    constexpr int kTimes = 20;
    const Line ends = line_;
    for (int times = 1; !lines.has(line_, from_, to_) && times <= kTimes; ++times) {
      const double part = static_cast<double>(times) / kTimes;
      line_ = {ends.ahead + part * (middle.ahead - ends.ahead), ends.drift + part * (middle.drift - ends.drift)};
    }
  }

  std::vector<Meeting> meetings_;
  std::vector<Message> messages_;
  int64_t guess_;
  int64_t middle_ = 0;
  double from_ = 0, to_ = 0;
  std::vector<Bound> bounds_;
  Line line_;
  double deviation_ = 0;
  double error_ = 0;
  size_t wrong_ = 0;
};

template <class T>
std::vector<T> taken_until(std::vector<T>& all, size_t& at, int64_t end) {
  std::vector<T> taken;
  for (; at < all.size() && time_of(all[at]) < end; ++at) taken.push_back(all[at]);
  return taken;
}

}  // namespace

std::optional<ClockFit> fit_clock(std::vector<Meeting> meetings, std::vector<Message> messages) {
  constexpr size_t kFewest = 3, kFewestOfPiece = 20;
  if (meetings.size() + messages.size() < kFewest) return std::nullopt;
  std::ranges::stable_sort(meetings, {}, [](const Meeting& m) { return time_of(m); });
  std::ranges::stable_sort(messages, {}, [](const Message& m) { return time_of(m); });
  std::vector<Piece> pieces;
  for (size_t meeting = 0, message = 0; meeting < meetings.size() || message < messages.size();) {
    int64_t end = INT64_MAX;
    if (meeting < meetings.size()) end = time_of(meetings[meeting]);
    if (message < messages.size()) end = std::min(end, time_of(messages[message]));
    end += kPiece;
    // Few of them are of the piece before or after.
    const auto left = [&] { return meetings.size() - meeting + messages.size() - message; };
    std::vector<Meeting> of_piece = taken_until(meetings, meeting, end);
    std::vector<Message> sent = taken_until(messages, message, end);
    while (of_piece.size() + sent.size() < kFewestOfPiece && left() > 0) {
      if (message == messages.size() ||
          (meeting < meetings.size() && time_of(meetings[meeting]) < time_of(messages[message])))
        of_piece.push_back(meetings[meeting++]);
      else
        sent.push_back(messages[message++]);
    }
    if (left() < kFewestOfPiece) {
      std::ranges::move(taken_until(meetings, meeting, INT64_MAX), std::back_inserter(of_piece));
      std::ranges::move(taken_until(messages, message, INT64_MAX), std::back_inserter(sent));
    }
    Piece piece(std::move(of_piece), std::move(sent));
    if (piece.fit()) pieces.push_back(std::move(piece));
  }
  if (pieces.empty()) return std::nullopt;
  ClockFit fit;
  const auto add = [&fit](const ClockCorrection::Point& point) {
    if (fit.points.empty() || point.at > fit.points.back().at) fit.points.push_back(point);
  };
  const Piece &first = pieces.front(), &last = pieces.back();
  add(first.point_at(first.from()));
  for (size_t i = 0; i < pieces.size() && pieces.size() > 1; ++i) add(pieces[i].point_at(0));
  add(last.point_at(last.to()));
  for (const Piece& piece : pieces) fit.error_ns = std::max(fit.error_ns, int64_t{std::llround(piece.error())});
  const auto &begin = fit.points.front(), &end = fit.points.back();
  if (end.at > begin.at)
    fit.drift_ppm = 1e6 * static_cast<double>(end.ahead - begin.ahead) / static_cast<double>(end.at - begin.at);
  return fit;
}

}  // namespace torchprof::formats
