#include "formats/analysis/step_parts.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <tuple>
#include <utility>

#include "formats/io/cells.h"
#include "formats/io/median.h"
#include "formats/io/sum.h"
#include "formats/ranks/calls.h"
#include "formats/replay/thread_stack.h"
#include "formats/trace/name_role.h"

namespace torchprof::formats {
namespace {

void find_outliers(std::vector<StepParts>& steps) {
  constexpr size_t kFewest = 5;  // fewer steps have no outliers
  if (steps.size() < kFewest) return;
  std::vector<int64_t> ns;
  ns.reserve(steps.size());
  for (const StepParts& s : steps) ns.push_back(s.step.end - s.step.begin);
  const int64_t middle = median_of(ns);
  for (int64_t& each : ns) each = std::abs(each - middle);
  const double deviation = 1.48 * static_cast<double>(median_of(ns));
  for (StepParts& s : steps) {
    const auto more = static_cast<double>(difference(s.step.end - s.step.begin, middle));
    s.is_outlier = more > 4 * deviation && more > 0.2 * static_cast<double>(middle);
  }
}

constexpr size_t kKinds = 3;  // of pieces that have an activity by their name

bool is_optimizer(std::string_view annotation) {
  const NameRole role = role_of_name(annotation);
  return role == NameRole::kOptimizerStep || role == NameRole::kZeroGrad;
}

// What of `all` is not in `inner`.
Intervals without(Intervals all, Intervals inner) {
  all.settle();
  inner.settle();
  Intervals result;
  auto next = inner.all().begin();
  for (const auto& [begin, end] : all.all()) {
    int64_t at = begin;
    while (next != inner.all().end() && next->second <= begin) ++next;
    for (auto in = next; in != inner.all().end() && in->first < end; ++in) {
      result.add(at, in->first);
      at = std::max(at, in->second);
    }
    result.add(at, end);
  }
  return result;
}

}  // namespace

int64_t PartTimes::sum() const { return std::accumulate(ns_.begin(), ns_.end(), int64_t{0}); }

PartTimes& PartTimes::operator+=(const PartTimes& other) {
  for (size_t i = 0; i < kStepParts; ++i) add_to(ns_[i], other.ns_[i]);
  return *this;
}

PartTimes PartTimes::operator/(int64_t n) const {
  PartTimes result = *this;
  for (int64_t& ns : result.ns_) ns /= n;
  return result;
}

PartTimes typical_parts(std::span<const StepParts> steps) {
  PartTimes result;
  if (steps.size() > 1) steps = steps.subspan(1);
  if (steps.empty()) return result;
  std::vector<const StepParts*> by_length;
  for (const StepParts& s : steps) by_length.push_back(&s);
  const auto length = [](const StepParts* s) { return s->step.end - s->step.begin; };
  std::ranges::sort(by_length, {}, length);
  const size_t quarter = by_length.size() / 4;
  PartTimes sum;
  for (size_t i = quarter; i < by_length.size() - quarter; ++i) sum += by_length[i]->ns;
  const auto whole = static_cast<double>(std::max<int64_t>(1, sum.sum()));
  const auto median = static_cast<double>(length(by_length[by_length.size() / 2]));
  for (size_t i = 0; i < kStepParts; ++i) {
    const auto part = static_cast<StepPart>(i);
    result[part] = static_cast<int64_t>(static_cast<double>(sum[part]) / whole * median);
  }
  return result;
}

std::string parts_text(const PartTimes& parts) {
  const int64_t whole = parts.sum();
  if (whole <= 0) return {};
  std::vector<std::pair<int64_t, std::string_view>> largest;
  int64_t other = 0;
  for (size_t i = 0; i < kStepParts; ++i) {
    const int64_t ns = parts.all()[i];
    if (ns >= whole / 100)
      largest.emplace_back(ns, kStepPartTexts[i].title);
    else
      add_to(other, ns);
  }
  std::ranges::stable_sort(largest, std::greater<>(), &std::pair<int64_t, std::string_view>::first);
  std::string text;
  for (const auto& [ns, title] : largest)
    text.append(text.empty() ? "" : ", ").append(title).append(" ").append(percent_text(ns, whole));
  if (other >= whole / 100) text.append(", other ").append(percent_text(other, whole));
  return text;
}

Activity StepPartsCollector::activity_of(const Piece& piece, std::string_view name) {
  if (piece.kind == Kind::kCollector) return Activity::kCollecting;
  if (piece.kind == Kind::kOther) return Activity::kProgram;
  const size_t at = piece.name * kKinds + static_cast<size_t>(piece.kind);
  if (at >= by_name_.size()) by_name_.resize(std::max(at + 1, by_name_.size() * 2));
  Activity& activity = by_name_[at];
  if (activity == Activity::kUnseen)
    activity = piece.kind == Kind::kPython ? activity_of_python(name)
                                           : activity_of_operation(name, piece.kind == Kind::kAnnotation);
  return activity;
}

void StepPartsCollector::slice(const Slice& s, std::string_view name) {
  const auto around = std::span(s.around, s.depth);
  const bool is_op = s.kind == SliceKind::kOperator;
  add({.kind = is_op                         ? (is_annotation(s.scope) ? Kind::kAnnotation : Kind::kOperator)
               : s.kind == SliceKind::kGc    ? Kind::kCollector
               : s.kind == SliceKind::kBlind ? Kind::kOther
                                             : Kind::kPython,
       .thread = s.row,
       .name = s.name.value,
       .begin = s.begin.value,
       .end = s.end.value,
       .is_outermost = s.depth == 0,
       .is_in_operator = is_op && std::ranges::any_of(around, [](const Span& span) { return span.is_real_op(); })},
      name);
}

void StepPartsCollector::add(const Piece& piece, std::string_view name) {
  if (piece.thread >= threads_.size()) threads_.resize(piece.thread + size_t{1});
  Thread& thread = threads_[piece.thread];
  const int64_t begin = piece.begin, end = piece.end;
  if (piece.is_outermost) thread.open.add(begin, end);
  const bool is_operation = piece.kind == Kind::kOperator || piece.kind == Kind::kAnnotation;
  thread.operations += is_operation;
  switch (activity_of(piece, name)) {
    case Activity::kLoading:
      return thread.loading.add(begin, end);
    case Activity::kCompiling:
      return thread.compiling.add(begin, end);
    case Activity::kCollecting:
      return thread.collecting.add(begin, end);
    case Activity::kWaiting:
      return thread.waiting.add(begin, end);
    case Activity::kCollective:
      return (is_operation && is_backend_range(name) ? communication_ : collective_calls_).add(begin, end);
    case Activity::kOperator:
      if (!piece.is_in_operator) operators_.add(begin, end);  // the outermost covers those inside
      if (piece.kind == Kind::kPython) thread.passes.add(begin, end);
      return;
    default:
      if (piece.kind == Kind::kAnnotation && is_optimizer(name)) thread.optimizer.add(begin, end);
      if (piece.kind == Kind::kPython && role_of_name(name) == NameRole::kModule) thread.passes.add(begin, end);
  }
}

void StepPartsCollector::work(int64_t begin, int64_t end, bool is_kernel, std::string_view name) {
  const bool is_nccl = is_kernel && is_communication_kernel(name);
  has_nccl_ = has_nccl_ || is_nccl;
  (is_nccl ? communication_ : is_kernel ? kernels_ : copies_).add(begin, end);
}

StepPartsCollector::Thread StepPartsCollector::main_thread(const std::vector<StepSpan>& steps) {
  Thread* main = nullptr;
  std::tuple<bool, bool, uint64_t> most;
  int64_t all = 0;
  for (const StepSpan& s : steps) add_to(all, s.end - s.begin);
  for (Thread& t : threads_) {
    t.open.settle();
    int64_t covered = 0;
    for (const StepSpan& s : steps) add_to(covered, t.open.length(s.begin, s.end));
    const std::tuple score(t.operations != 0 && covered >= all / 10 * 9, t.operations != 0, t.operations);
    if (main != nullptr && score <= most) continue;
    most = score;
    main = &t;
  }
  return main == nullptr ? Thread() : std::move(*main);
}

std::vector<StepParts> StepPartsCollector::finish(const std::vector<StepSpan>& steps) {
  Thread main = main_thread(steps);
  main.optimizer = without(std::move(main.optimizer), std::move(main.passes));
  // Where kernels do the work a call only starts them.
  (has_nccl_ ? main.open : communication_).add(collective_calls_);
  std::vector<std::pair<StepPart, Intervals*>> order;
  const bool has_gpu = !kernels_.empty() || !copies_.empty();
  if (!has_gpu)
    order = {{StepPart::kLoading, &main.loading},       {StepPart::kCompiling, &main.compiling},
             {StepPart::kCollecting, &main.collecting}, {StepPart::kOptimizer, &main.optimizer},
             {StepPart::kCompute, &operators_},         {StepPart::kCommunication, &communication_}};
  else
    order = {{StepPart::kCompute, &kernels_},         {StepPart::kCommunication, &communication_},
             {StepPart::kCopies, &copies_},           {StepPart::kLoading, &main.loading},
             {StepPart::kCompiling, &main.compiling}, {StepPart::kCollecting, &main.collecting},
             {StepPart::kOptimizer, &main.optimizer}};
  order.emplace_back(StepPart::kWaiting, &main.waiting);
  if (has_gpu) order.emplace_back(StepPart::kOperators, &operators_);
  order.emplace_back(StepPart::kHost, &main.open);
  // Each set includes the ones before it, so that a part is the difference of two lengths.
  for (size_t i = 1; i < order.size(); ++i) order[i].second->add(*order[i - 1].second);
  for (const auto& [part, intervals] : order) intervals->settle();
  std::vector<StepParts> result;
  for (const StepSpan& step : steps) {
    int64_t before = 0;
    StepParts& parts = result.emplace_back(StepParts{.step = step});
    for (const auto& [part, intervals] : order) {
      const int64_t all = intervals->length(step.begin, step.end);
      parts.ns[part] = all - std::exchange(before, all);
    }
    parts.ns[StepPart::kIdle] = difference(step.end - step.begin, before);
  }
  find_outliers(result);
  return result;
}

}  // namespace torchprof::formats
