#include "formats/read/drawing.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <string_view>
#include <vector>

#include "formats/replay/range_helpers.h"
#include "formats/trace/names.h"

namespace torchprof::formats {
namespace {

class Drawing {
 public:
  explicit Drawing(ReadEvents& read) : read_(read), helpers_(read.names.texts.size()) {}

  void run() {
    uint32_t thread = UINT32_MAX;
    for (ReadSlice& s : read_.slices) {
      if (read_.thread_rows[s.row] != thread) close_until(std::numeric_limits<int64_t>::max());
      thread = read_.thread_rows[s.row];
      if (s.is_async) continue;
      close_until(s.begin);
      if (s.is_annotation)
        begin_range(s);
      else if (!s.is_operator)
        begin_call(s);
      nests_ = nests_ && (open_.empty() || s.end() <= open_.back()->end());
      open_.push_back(&s);
    }
  }

 private:
  bool is_call_of_c(const ReadSlice& s) const { return read_.names.texts[s.name]->starts_with("<built-in "); }

  // "path(line): name"
  bool is_helper(const ReadSlice& s) {
    int8_t& known = helpers_[s.name];
    if (known == 0) {
      const std::string_view text = *read_.names.texts[s.name];
      const PlaceParts place = split_place(text);
      known = !place.file.empty() && is_range_helper(place.name, place.file) ? 1 : -1;
    }
    return known > 0;
  }

  ReadCut& cut_of(ReadSlice& s) {
    if (s.external == 0) {
      read_.cuts.emplace_back();
      s.external = static_cast<uint32_t>(read_.cuts.size());
    }
    return read_.cuts[s.external - 1];
  }

  void close_until(int64_t t) {
    while (nests_ && !open_.empty() && open_.back()->end() <= t) open_.pop_back();
    if (nests_) return;
    std::erase_if(open_, [t](const ReadSlice* o) { return o->end() <= t; });
    nests_ = std::ranges::is_sorted(open_, std::greater(), [](const ReadSlice* o) { return o->end(); });
  }

  // From here on open slices may end before `t`; those before it do not.
  std::vector<ReadSlice*>::iterator before(int64_t t) {
    return nests_ ? std::ranges::partition_point(open_, [t](const ReadSlice* o) { return o->end() >= t; })
                  : open_.begin();
  }

  void begin_range(ReadSlice& range) {
    const auto crosses = [&](const ReadSlice* o) { return !o->is_apart && o->end() < range.end(); };
    const auto first = std::find_if(before(range.end()), open_.end(), crosses);
    if (first == open_.end()) return;
    const bool is_in_call = !(*first)->is_operator && (is_helper(**first) || is_call_of_c(**first));
    range.is_apart = !is_in_call;
    if (!is_in_call) return;
    for (auto it = first; it != open_.end(); ++it)
      if (!(*it)->is_operator && crosses(*it)) cut_of(**it).at_end = (*it)->end() - range.begin;
  }

  void begin_call(ReadSlice& call) {
    for (auto it = before(call.end()); it != open_.end(); ++it) {
      ReadSlice* const range = *it;
      if (!range->is_annotation || range->is_apart || range->end() >= call.end()) continue;
      const bool is_in_helper = std::any_of(
          it + 1, open_.end(), [&](const ReadSlice* o) { return !o->is_operator && o->end() > range->end(); });
      if (is_in_helper || is_helper(call) || is_call_of_c(call)) {
        int64_t& cut = cut_of(call).at_begin;
        cut = std::max(cut, range->end() - call.begin);
      } else {
        range->is_apart = 1;
      }
    }
  }

  ReadEvents& read_;
  std::vector<ReadSlice*> open_;  // in the order of their begins
  bool nests_ = true;             // none ends after one that began before it
  std::vector<int8_t> helpers_;   // by name: 1 yes, -1 no, 0 not looked up yet
};

}  // namespace

void draw(ReadEvents& read) {
  if (!read.is_ours) Drawing(read).run();
}

}  // namespace torchprof::formats
