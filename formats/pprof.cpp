#include <algorithm>
#include <charconv>
#include <protozero/pbf_writer.hpp>
#include <string>
#include <unordered_map>
#include <vector>

#include "formats/call_tree.h"
#include "formats/process_label.h"
#include "formats/stacks.h"
#include "formats/text.h"

namespace torchprof::formats {
namespace {

using protozero::pbf_writer;

// Field numbers: proto/profile.proto of google/pprof. tests/e2e/pprof.proto has the same for protoc.
namespace profile {
enum : uint32_t {
  kSampleType = 1,
  kSample = 2,
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
enum : uint32_t { kId = 1, kLine = 4 };
}
namespace line {
enum : uint32_t { kFunction = 1, kNumber = 2 };
}
namespace function {
enum : uint32_t { kId = 1, kName = 2, kSystemName = 3, kFile = 4, kStartLine = 5 };
}

struct Place {  // of "train.py(12): step"; file empty: it is no Python function
  std::string_view function, file;
  int64_t line = 0;
};

Place place_of(std::string_view name) {
  const size_t end = name.find("): ");
  const size_t begin = end == name.npos ? name.npos : name.rfind('(', end);
  int64_t number = 0;
  if (begin == name.npos || begin == 0) return {name, {}};
  const auto [stop, error] = std::from_chars(name.data() + begin + 1, name.data() + end, number);
  if (error != std::errc{} || stop != name.data() + end) return {name, {}};
  return {name.substr(end + 3), name.substr(0, begin), number};
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

  // The number of the function and of its location, made for each name.
  uint64_t location(std::string_view name) {
    const auto [it, is_new] = locations_.try_emplace(std::string(name), locations_.size() + 1);
    const uint64_t id = it->second;
    if (!is_new) return id;
    const Place place = place_of(name);
    const int64_t function_name = string(place.function), file = string(place.file);
    message(profile::kFunction, [&](pbf_writer& m) {
      m.add_uint64(function::kId, id);
      m.add_int64(function::kName, function_name);
      m.add_int64(function::kSystemName, function_name);
      m.add_int64(function::kFile, file);
      m.add_int64(function::kStartLine, place.line);
    });
    message(profile::kLocation, [&](pbf_writer& m) {
      m.add_uint64(location::kId, id);
      pbf_writer l(m, location::kLine);
      l.add_uint64(line::kFunction, id);
      l.add_int64(line::kNumber, place.line);
    });
    return id;
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

  // `locations` innermost first.
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
  std::unordered_map<std::string, uint64_t> locations_;
};

}  // namespace

void write_pprof(const Trace& trace, Processes processes, Output& out) {
  PprofWriter writer(out);
  writer.head(trace.start, trace.end - trace.start);
  for (const Process& process : processes) {
    CallTree tree(process);
    std::vector<uint64_t> known(tree.names() + 1);  // 0: not yet
    for (const CallTree::Thread& thread : tree.threads()) {
      const std::string labels = writer.labels(process_label(process), thread.label);
      std::vector<uint64_t> locations;
      tree.each_path(thread, [&](const std::vector<NameId>& path, const CallTree::Node& node) {
        locations.clear();
        for (const NameId name : path) {
          if (known[name.value] == 0) known[name.value] = writer.location(tree.text(name));
          locations.push_back(known[name.value]);
        }
        std::ranges::reverse(locations);
        writer.sample(locations, node, labels);
      });
    }
  }
}

}  // namespace torchprof::formats
