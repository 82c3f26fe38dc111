// The records of one track in time order, chunk by chunk. Pages that have been read are given back to the kernel.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>

#include "formats/trace/trace.h"

namespace torchprof::formats {

// visit(record) for each record of a chunk but those that only state again what was open (Restate), until it is false.
template <class Visit>
void visit_records(const ChunkView& chunk, Visit visit) {
  RecordCursor cursor(chunk.records);
  size_t restated = 0;
  for (RecordView record; cursor.next(record);) {
    if (record.kind() == Kind::Restate) restated = record.begins().size() + 1;
    if (restated > 0)
      --restated;
    else if (!visit(record))
      return;
  }
}

inline bool is_of_python_frames(Kind kind) {
  return kind == Kind::PythonBegin || kind == Kind::PythonEnd || kind == Kind::PythonFrame || kind == Kind::PythonSync;
}

class TrackCursor {
 public:
  TrackCursor(const SpoolReader& spool, const Track& track) : spool_(&spool), track_(&track) { advance(); }

  bool done() const { return done_; }
  Ticks time() const { return time_; }
  const RecordView& record() const { return record_; }
  const ClockSample& base() const { return base_; }
  // Nothing is missing before this record's chunk: no chunk was recycled or is damaged there.
  bool is_next() const { return is_next_; }
  // It is the first of its chunk.
  bool is_first() const { return is_first_; }

  void advance() {
    is_first_ = false;
    while (!cursor_ || !cursor_->next(record_)) {
      if (cursor_) spool_->release(spool_->chunks()[track_->chunks[next_ - 1]]);
      if (next_ == track_->chunks.size()) {
        done_ = true;
        return;
      }
      const ChunkView& chunk = spool_->chunks()[track_->chunks[next_++]];
      base_ = chunk.base;
      is_next_ = chunk.sequence == sequence_;
      sequence_ = chunk.sequence + 1;
      is_first_ = true;
      cursor_.emplace(chunk.records);
    }
    // A track is in time order. Where damage or a clock that stepped says otherwise, time stands still.
    time_ = std::max(time_, record_.time(base_));
  }

 private:
  const SpoolReader* spool_;
  const Track* track_;
  size_t next_ = 0;
  std::optional<RecordCursor> cursor_;
  ClockSample base_{};
  RecordView record_;
  Ticks time_{};
  uint32_t sequence_ = 0;  // that the next chunk has if none is missing
  bool is_next_ = true;
  bool is_first_ = false;
  bool done_ = false;
};

}  // namespace torchprof::formats
