#include <algorithm>
#include <map>
#include <optional>
#include <protozero/pbf_writer.hpp>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "formats/analysis/call_tree.h"
#include "formats/io/text.h"
#include "formats/replay/process_label.h"
#include "formats/symbols/symbol_file.h"
#include "formats/trace/names.h"
#include "formats/write/stacks.h"

namespace torchprof::formats {
namespace {

using protozero::pbf_writer;

// Field numbers of proto/profile.proto (google/pprof). tests/e2e/support/pprof.proto has the same for protoc.
namespace profile {
enum : uint32_t {
  kSampleType = 1,
  kSample = 2,
  kMapping = 3,
  kLocation = 4,
  kFunction = 5,
  kString = 6,
  kTime = 9,
  kDuration = 10,
  kDefaultSampleType = 14
};
}
namespace value_type {
enum : uint32_t { kType = 1, kUnit = 2 };
}
namespace sample {
enum : uint32_t { kLocations = 1, kValues = 2, kLabel = 3 };
}
namespace label {
enum : uint32_t { kKey = 1, kText = 2 };
}
namespace location {
enum : uint32_t { kId = 1, kMapping = 2, kAddress = 3, kLine = 4 };
}
namespace line {
enum : uint32_t { kFunction = 1, kNumber = 2 };
}
namespace mapping {
enum : uint32_t {
  kId = 1,
  kStart = 2,
  kLimit = 3,
  kFile = 5,
  kBuildId = 6,
  kHasFunctions = 7,
  kHasFiles = 8,
  kHasLines = 9,
  kHasInlined = 10
};
}
namespace function {
enum : uint32_t { kId = 1, kName = 2, kSystemName = 3, kFile = 4, kStartLine = 5 };
}

class PprofWriter {
 public:
  explicit PprofWriter(Output& out) : out_(out) { string(""); }

  void head(UnixNs start, int64_t duration_ns) {
    for (const auto& [type, unit] : {std::pair{"time", "nanoseconds"}, std::pair{"calls", "count"},
                                     std::pair{"cuda", "nanoseconds"}, std::pair{"launched", "count"}}) {
      const int64_t type_id = string(type), unit_id = string(unit);
      message(profile::kSampleType, [&](pbf_writer& m) {
        m.add_int64(value_type::kType, type_id);
        m.add_int64(value_type::kUnit, unit_id);
      });
    }
    const int64_t time = string("time");
    std::string fields;
    pbf_writer writer(fields);
    writer.add_int64(profile::kTime, start.value);
    writer.add_int64(profile::kDuration, duration_ns);
    writer.add_int64(profile::kDefaultSampleType, time);
    out_.write(fields);
  }

  // The location of a name that is no native frame.
  uint64_t location(std::string_view name) {
    const auto [it, is_new] = locations_.try_emplace(std::string(name), last_location_ + 1);
    if (!is_new) return it->second;
    const PlaceParts place = split_place(name);
    return add_location({{function(place.name, place.file, place.line), place.line}});
  }

  // The location of a native call. Its lines are the functions inlined there, innermost first.
  uint64_t native_location(const Process& process, uint32_t place) {
    const NativeStacks& stacks = *process.native;
    const NativeStacks::Where where = stacks.where(place);
    std::vector<Line> lines;
    bool has_functions = true, has_lines = true;
    for (const uint32_t text : where.texts) {
      const Symbol& symbol = stacks.symbol(text);
      if (symbol.function.empty()) {  // not known, or a function of Python
        const PlaceParts other = split_place(stacks.texts()[text]);
        lines.push_back({function(other.name, other.file, other.line), other.line});
      } else {
        lines.push_back({function(symbol.function, symbol.file, 0), symbol.line});
      }
      has_functions = has_functions && !symbol.function.empty();
      has_lines = has_lines && symbol.line != 0;
    }
    if (where.object == nullptr) return add_location(lines);
    Mapping& mapping = mapping_of(process, *where.object);
    mapping.has_functions = mapping.has_functions && has_functions;
    mapping.has_lines = mapping.has_lines && has_lines;
    return add_location(lines, mapping.id, where.pc - 1);  // of the call
  }

  // Comes last, when it is known which objects have symbols.
  void write_mappings() {
    for (const auto& entry : mappings_) {
      const Mapping& m = entry.second;
      message(profile::kMapping, [&](pbf_writer& w) {
        w.add_uint64(mapping::kId, m.id);
        w.add_uint64(mapping::kStart, m.start);
        w.add_uint64(mapping::kLimit, m.limit);
        w.add_int64(mapping::kFile, m.file);
        w.add_int64(mapping::kBuildId, m.build_id);
        w.add_bool(mapping::kHasFunctions, m.has_functions);
        w.add_bool(mapping::kHasFiles, m.has_lines);
        w.add_bool(mapping::kHasLines, m.has_lines);
        w.add_bool(mapping::kHasInlined, m.has_lines);
      });
    }
  }

  std::string labels(std::string_view process, std::string_view thread) {
    std::string fields;
    for (const auto& [key, text] : {std::pair{"process", process}, std::pair{"thread", thread}}) {
      const int64_t key_id = string(key), text_id = string(text);
      pbf_writer writer(fields);
      pbf_writer m(writer, sample::kLabel);
      m.add_int64(label::kKey, key_id);
      m.add_int64(label::kText, text_id);
    }
    return fields;
  }

  // `locations`: innermost first.
  void sample(const std::vector<uint64_t>& locations, const CallTree::Node& node, const std::string& labels) {
    const int64_t values[] = {node.own_ns, static_cast<int64_t>(node.calls), node.gpu_ns,
                              static_cast<int64_t>(node.gpu_calls)};
    std::string fields;
    pbf_writer writer(fields);
    writer.add_packed_uint64(sample::kLocations, locations.begin(), locations.end());
    writer.add_packed_int64(sample::kValues, std::begin(values), std::end(values));
    fields += labels;
    message(profile::kSample, fields);
  }

 private:
  struct Line {
    uint64_t function;
    int64_t number;
  };
  struct Mapping {
    uint64_t id = 0, start = 0, limit = 0;
    int64_t file = 0, build_id = 0;               // ids of strings
    bool has_functions = true, has_lines = true;  // whether all its locations have them
  };

  uint64_t function(std::string_view name, std::string_view file, int64_t start_line) {
    const int64_t name_id = string(name), file_id = string(file);
    const auto [it, is_new] = functions_.try_emplace({name_id, file_id, start_line}, functions_.size() + 1);
    const uint64_t id = it->second;
    if (!is_new) return id;
    message(profile::kFunction, [&](pbf_writer& m) {
      m.add_uint64(function::kId, id);
      m.add_int64(function::kName, name_id);
      m.add_int64(function::kSystemName, name_id);
      m.add_int64(function::kFile, file_id);
      m.add_int64(function::kStartLine, start_line);
    });
    return id;
  }

  uint64_t add_location(const std::vector<Line>& lines, uint64_t mapping = 0, uint64_t address = 0) {
    const uint64_t id = ++last_location_;
    message(profile::kLocation, [&](pbf_writer& m) {
      m.add_uint64(location::kId, id);
      if (mapping != 0) {
        m.add_uint64(location::kMapping, mapping);
        m.add_uint64(location::kAddress, address);
      }
      for (const Line& one : lines) {
        pbf_writer l(m, location::kLine);
        l.add_uint64(line::kFunction, one.function);
        l.add_int64(line::kNumber, one.number);
      }
    });
    return id;
  }

  Mapping& mapping_of(const Process& process, const NativeObjectDef& object) {
    Mapping& m = mappings_[{&process, object.id.value}];
    if (m.id != 0) return m;
    m.id = mappings_.size();
    m.start = object.start;
    m.limit = object.end;
    m.file = string(process.string(object.path));
    const std::string_view build_id = process.string(object.build_id);
    m.build_id = string(build_id.empty() ? std::string() : hex_of(build_id));
    return m;
  }

  int64_t string(std::string_view text) {
    const auto [it, is_new] = strings_.try_emplace(printable(text), static_cast<int64_t>(strings_.size()));
    if (is_new) message(profile::kString, it->first);
    return it->second;
  }
  void message(uint32_t field, const std::string& bytes) {
    std::string head;
    pbf_writer(head).add_bytes(field, bytes);
    out_.write(head);
  }
  template <class Fill>
  void message(uint32_t field, Fill fill) requires std::is_invocable_v<Fill, pbf_writer&> {
    std::string bytes;
    {
      pbf_writer writer(bytes);
      fill(writer);
    }
    message(field, bytes);
  }

  Output& out_;
  std::unordered_map<std::string, int64_t> strings_;
  std::map<std::tuple<int64_t, int64_t, int64_t>, uint64_t> functions_;  // by name, file and first line
  std::map<std::pair<const Process*, uint32_t>, Mapping> mappings_;      // by process and object
  std::unordered_map<std::string, uint64_t> locations_;                  // by name
  uint64_t last_location_ = 0;
};

}  // namespace

void write_pprof(const Trace& trace, Processes processes, Output& out) {
  PprofWriter writer(out);
  writer.head(trace.start, trace.end - trace.start);
  for (const Process& process : processes) {
    Replay replay(process);
    CallTree tree(process, replay, CallTree::Native::kByAddress);
    replay.run();
    std::vector<uint64_t> known(tree.names() + 1);  // by name; 0: not made yet
    for (const CallTree::Thread& thread : tree.threads()) {
      const std::string labels = writer.labels(process_label(process), thread.label);
      std::vector<uint64_t> locations;
      tree.each_path(thread, [&](const std::vector<NameId>& path, const CallTree::Node& node) {
        locations.clear();
        for (const NameId name : path) {
          if (known[name.value] == 0) {
            const std::optional<uint32_t> place = tree.place(name);
            known[name.value] = place ? writer.native_location(process, *place) : writer.location(tree.text(name));
          }
          locations.push_back(known[name.value]);
        }
        std::ranges::reverse(locations);
        writer.sample(locations, node, labels);
      });
    }
  }
  writer.write_mappings();
}

}  // namespace torchprof::formats
