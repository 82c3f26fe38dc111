// The interned names of one packet sequence of a Perfetto trace: each is written once and then referred to by its id.
// Also arguments (debug annotations) that use them.
//
// Names that have been interned but not written yet come from take_pending(): they must go into a packet before the one
// that refers to them. Texts are made valid UTF-8 without control characters, and cut at kMaxText bytes.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <protozero/pbf_writer.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace torchprof::formats::perfetto {

inline constexpr size_t kMaxText = size_t{32} * 1024;

// The text as a message's string field needs it.
std::string text_field(std::string_view bytes);

class Interning {
 public:
  Interning();

  uint64_t category(std::string_view text) { return intern(categories_, text); }
  uint64_t event_name(std::string_view text) { return intern(event_names_, text); }

  uint64_t function_name(std::string_view text) { return intern(functions_, text); }
  uint64_t source_path(std::string_view text) { return intern(source_paths_, text); }
  uint64_t mapping_path(std::string_view text) { return intern(mapping_paths_, text); }  // a part of a path
  // An entry whose id the caller gives; `fill` writes all of it.
  template <class Fill>
  void define(uint32_t table, Fill fill) {
    protozero::pbf_writer data(pending_);
    protozero::pbf_writer entry(data, table);
    fill(entry);
  }

  uint64_t argument_name(std::string_view text) { return intern(argument_names_, text); }

  // Encoded fields of a TrackEvent: one argument, or one for each member of an object.
  std::string argument(std::string_view key, std::string_view text);
  std::string argument(std::string_view key, int64_t number);
  std::string argument(std::string_view key, double number);
  std::string argument(std::string_view key, bool flag);
  std::string arguments(const nlohmann::ordered_json& object);

  bool has_pending() const { return !pending_.empty(); }
  std::string take_pending() { return std::exchange(pending_, {}); }  // an encoded InternedData

 private:
  struct Table {
    uint32_t field;  // its field in InternedData
    std::unordered_map<std::string, uint64_t> ids;
  };
  uint64_t intern(Table& table, std::string_view text);
  template <class Fill>
  std::string argument_with(std::string_view key, Fill fill);

  Table categories_, event_names_, argument_names_, strings_, functions_, source_paths_, mapping_paths_;
  std::string pending_;
};

}  // namespace torchprof::formats::perfetto
