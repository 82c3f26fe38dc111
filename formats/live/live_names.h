// The definitions of a spool that grows: where each lies in the file, not what it says. A text is read when it is
// shown, so a million names take eight megabytes. Definitions are never recycled.
//
// Ids that the file has no room for are damage and are left out. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "formats/live/spool_tail.h"
#include "tracer/spool/record.h"

namespace torchprof::formats {

// What of NameRole (trace/name_role.h) is watched, and collectives, also by their kernels. It fits in three bits.
enum class LiveRole : uint8_t { kPlain, kProfilerStep, kOptimizerStep, kCollective, kLoading };

class LiveNames {
 public:
  explicit LiveNames(const SpoolTail& tail) : tail_(tail) {}
  void take(const Portion& definitions);

  LiveRole role(StringId name) const;
  FunctionKind kind(FunctionId function) const;
  StringId callee(CallSiteId site) const { return site.value < sites_.size() ? sites_[site.value] : StringId{}; }
  bool has_role(LiveRole role) const { return (roles_ >> static_cast<unsigned>(role) & 1) != 0; }
  bool has_kind(FunctionKind kind) const { return (kinds_ >> static_cast<unsigned>(kind) & 1) != 0; }

  // As people see them (trace/names.h), but a module with its path instead of its number.
  std::string text(StringId name) const;  // an operator's without its overload
  std::string text(FunctionId function) const;
  std::string text(ObjectId object) const;
  ObjectId stepper(ObjectId object) const;  // ObjectDef::stepper, or itself

  std::string fact(const char* key) const;  // of MetaDef; empty: there is none
  std::optional<int64_t> rank() const;      // trace/distributed.h

  // The latest window that was not given up, and the one before it; null: there is none.
  const WindowDef* window() const { return window_before(UINT32_MAX); }
  const WindowDef* window_before(uint32_t number) const;
  const WindowDef* window_of(uint32_t number) const;  // given up or not

 private:
  void define(const RecordView& record, uint64_t at);
  void define_string(const RecordView& record, uint64_t at);
  void define_window(const WindowDef& def);
  std::string recorded(StringId name) const;
  template <class T>
  T* room_for(std::vector<T>& table, uint32_t id) const;
  template <class R>
  R read(uint64_t at) const;

  const SpoolTail& tail_;
  // By id: offset in the file, with a LiveRole or a FunctionKind in its lowest three bits; 0: not defined.
  std::vector<uint64_t> strings_, functions_, objects_;
  std::vector<StringId> paths_;  // by object
  std::vector<StringId> sites_;
  std::map<std::string, StringId, std::less<>> facts_;
  unsigned roles_ = 0, kinds_ = 0;  // those that there are, one bit each
  std::vector<WindowDef> windows_;  // the latest, in their order
};

}  // namespace torchprof::formats
