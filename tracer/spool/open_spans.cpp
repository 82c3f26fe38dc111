#include "tracer/spool/open_spans.h"

#include <algorithm>

#include "tracer/spool/call_run.h"

namespace torchprof {

void OpenSpans::fold(std::span<const std::byte> records, const ClockSample& base, bool is_next) noexcept {
  RecordCursor cursor(records);
  RecordView record;
  std::span<const uint64_t> begins;  // of the spans that are restated next
  for (;;) {
    if (begins.empty()) fold_calls(cursor, base);
    if (ShortRecord plain; begins.empty() && cursor.next_plain(plain)) {
      last_ = {base.ticks.value + plain.time()};
      add_plain(plain, last_);
      continue;
    }
    if (!cursor.next(record)) return;
    if (record.kind() == Kind::PythonLine) continue;  // opens nothing, and has no time
    Ticks time = last_ = record.time(base);
    if (record.kind() == Kind::Restate) {
      begins = record.begins();
      if (!is_next) count_ = deeper_ = 0;
      continue;
    }
    if (!begins.empty()) {
      time = Ticks{begins.front()};
      begins = begins.subspan(1);
      if (is_next) continue;
    }
    add(record, time);
  }
}

bool OpenSpans::fold_run(RecordCursor& cursor, const ClockSample& base) noexcept {
  const CallRun run(cursor.rest(), calls_);
  if (run.words() == 0 || run.ended() > count_ || count_ - run.ended() + run.open() > kMost) return false;
  CallRun::Checksum checksum;
  const size_t left = count_ - run.ended();
  for (size_t i = count_; i-- > left;) {
    if (spans_[i].kind != Kind::PythonFrame) return false;
    checksum.end(spans_[i].function.value);
  }
  for (size_t i = run.open(); i-- > 0;) checksum.begin(ShortRecord{calls_[i]}.value());
  if (!(checksum == run)) return false;
  count_ = left;
  for (size_t i = run.open(); i-- > 0;) push_call(ShortRecord{calls_[i]}, base);
  last_ = {base.ticks.value + run.last().time()};
  cursor.skip_words(run.words());
  return true;
}

void OpenSpans::fold_calls(RecordCursor& cursor, const ClockSample& base) noexcept {
  if (deeper_ != 0) return;
  while (fold_run(cursor, base)) {
  }
  // The kind and the value; an end and its begin differ in the kind alone.
  constexpr uint64_t kWhat = 0xff | ShortRecord::kMaxValue << 8;
  constexpr uint64_t kBegins = kShortKindOf<PythonBegin>, kEnds = kBegins ^ kShortKindOf<PythonEnd>;
  uint64_t* top = calls_;
  const uint64_t* end = calls_ + (kMost - count_);
  uint64_t last = 0;
  cursor.take_words([&](ShortRecord record) {
    const bool begins = record.kind() == kBegins;
    const bool ends_top = ((*top ^ record.bits) & kWhat) == kEnds;
    if (!((begins | ends_top) & (top != (begins ? end : calls_)))) [[unlikely]] {
      if (record.kind() == kShortLine) return true;
      if (top != calls_ || !ends_last(record)) return false;
      ++end;
    } else {
      top[1] = record.bits;  // that of an end is overwritten
      top += 2 * ptrdiff_t{begins} - 1;
    }
    last = record.bits;
    return true;
  });
  if (last != 0) last_ = {base.ticks.value + ShortRecord{last}.time()};
  for (const uint64_t* call = calls_; call != top;) push_call(ShortRecord{*++call}, base);
}

void OpenSpans::push_call(ShortRecord record, const ClockSample& base) noexcept {
  Span* span = push(Kind::PythonFrame, {base.ticks.value + record.time()});
  span->function = {record.value()};
  span->object = {};
}

bool OpenSpans::ends_last(ShortRecord record) noexcept {
  if (record.kind() != kShortKindOf<PythonEnd> || count_ == 0) return false;
  const Span& span = spans_[count_ - 1];
  if (span.kind != Kind::PythonFrame || span.function.value != record.value()) return false;
  --count_;
  return true;
}

void OpenSpans::add_plain(ShortRecord record, Ticks time) noexcept {
  switch (record.long_kind()) {
    case Kind::PythonBegin:
      if (Span* span = push(Kind::PythonFrame, time)) span->function = {record.value()}, span->object = {};
      return;
    case Kind::PythonEnd:
      return end_python({record.value()});
    case Kind::CCallBegin:
      if (Span* span = push(Kind::CCallBegin, time)) span->call = {record.value()};
      return;
    case Kind::CCallBeginAt:
      if (Span* span = push(Kind::CCallBeginAt, time)) span->site = {record.value()};
      return;
    case Kind::OpEndHere:
      return end_op_here(record.value());
    default:
      return;
  }
}

void OpenSpans::add(const RecordView& record, Ticks time) noexcept {
  switch (record.kind()) {
    case Kind::PythonBegin:
    case Kind::PythonFrame:
      // Both have the same fields.
      if (Span* span = push(Kind::PythonFrame, time)) {
        span->function = record.as<PythonFrame>().function;
        span->object = record.as<PythonFrame>().object;
      }
      return;
    case Kind::CCallBegin:
      if (Span* span = push(Kind::CCallBegin, time)) span->call = record.as<CCallBegin>().name;
      return;
    case Kind::CCallBeginAt:
      if (Span* span = push(Kind::CCallBeginAt, time)) span->site = record.as<CCallBeginAt>().site;
      return;
    case Kind::OpBegin:
      if (Span* span = push(Kind::OpBegin, time)) span->op = record.as<OpBegin>();
      return;
    case Kind::PythonEnd:
      return end_python(record.as<PythonEnd>().function);
    case Kind::CCallEnd:
      return end_c_call();
    case Kind::OpEnd:
      return end_op([key = record.as<OpEnd>().key](const OpBegin& op) { return op.key == key; });
    case Kind::OpEndHere:
      return end_op_here(record.as<OpEndHere>().key);
    case Kind::PythonSync:
      deeper_ = 0;
      for (size_t i = count_; i-- > 0;)
        if (spans_[i].kind != Kind::OpBegin) take(i);
      return;
    case Kind::ThreadEnd:
      count_ = deeper_ = 0;
      has_ended_ = true;
      return;
    default:
      return;
  }
}

OpenSpans::Span* OpenSpans::push(Kind kind, Ticks begin) noexcept {
  if (count_ == kMost) [[unlikely]] {
    deeper_ += kind != Kind::OpBegin;
    return nullptr;
  }
  Span& span = spans_[count_++];
  span.kind = kind;
  span.begin = begin;
  return &span;
}

size_t OpenSpans::write(const Span& span, std::byte* out) noexcept {
  const auto put = [out](auto record, Kind kind) {
    record.header = RecordHeader::make(kind, sizeof(record) / 8, 0);
    std::memcpy(out, &record, sizeof(record));
    return sizeof(record);
  };
  if (span.kind == Kind::OpBegin) return put(span.op, Kind::OpBegin);
  if (span.kind == Kind::CCallBegin) return put(CCallBegin{{}, span.call, 0}, Kind::CCallBegin);
  if (span.kind == Kind::CCallBeginAt) return put(CCallBeginAt{{}, span.site, 0}, Kind::CCallBeginAt);
  return put(PythonFrame{{}, span.function, span.object}, Kind::PythonFrame);
}

void OpenSpans::take(size_t i) noexcept {
  if (i + 1 != count_) [[unlikely]]
    std::copy(spans_ + i + 1, spans_ + count_, spans_ + i);
  --count_;
}

void OpenSpans::end_python(FunctionId function) noexcept {
  if (deeper_ > 0) [[unlikely]] {
    --deeper_;
    return;
  }
  const auto is_it = [function](const Span& span) {
    return span.kind == Kind::PythonFrame && span.function == function;
  };
  size_t i = count_;
  while (i > 0 && !is_it(spans_[i - 1])) --i;
  if (i == 0) return;
  // The ends of frames and calls above it are lost, so these end too; operators stay.
  for (size_t k = count_; k-- >= i;)
    if (spans_[k].kind != Kind::OpBegin) take(k);
}

void OpenSpans::end_c_call() noexcept {
  if (deeper_ > 0) [[unlikely]] {
    --deeper_;
    return;
  }
  size_t i = count_;
  while (i > 0 && spans_[i - 1].kind == Kind::OpBegin) --i;
  if (i > 0 && is_c_call(spans_[i - 1])) take(i - 1);
}

template <class Is>
void OpenSpans::end_op(Is is) noexcept {
  for (size_t i = count_; i-- > 0;) {
    if (spans_[i].kind != Kind::OpBegin || !is(spans_[i].op)) continue;
    return take(i);
  }
}

void OpenSpans::end_op_here(uint32_t low_key) noexcept {
  end_op([low_key](const OpBegin& op) { return (op.key & ShortRecord::kMaxValue) == low_key && !is_nvtx_key(op.key); });
}

}  // namespace torchprof
