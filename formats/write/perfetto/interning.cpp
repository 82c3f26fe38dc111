#include "formats/write/perfetto/interning.h"

#include <nlohmann/json.hpp>
#include <protozero/pbf_writer.hpp>
#include <utility>

#include "formats/io/perfetto_fields.h"
#include "formats/io/text.h"

namespace torchprof::formats::perfetto {

using protozero::pbf_writer;

std::string text_field(std::string_view bytes) { return printable(bytes.substr(0, kMaxText)); }

Interning::Interning()
    : categories_{interned::kCategories, {}},
      event_names_{interned::kEventNames, {}},
      argument_names_{interned::kAnnotationNames, {}},
      strings_{interned::kAnnotationStrings, {}},
      functions_{interned::kFunctionNames, {}},
      source_paths_{interned::kSourcePaths, {}},
      mapping_paths_{interned::kMappingPaths, {}} {}

uint64_t Interning::intern(Table& table, std::string_view text) {
  const auto [it, is_new] = table.ids.try_emplace(text_field(text), table.ids.size() + 1);
  if (is_new) {
    pbf_writer data(pending_);
    pbf_writer entry(data, table.field);
    entry.add_uint64(interned::kId, it->second);
    entry.add_bytes(interned::kName, it->first);
  }
  return it->second;
}

template <class Fill>
std::string Interning::argument_with(std::string_view key, Fill fill) {
  std::string out;
  pbf_writer event(out);
  {
    pbf_writer argument(event, event::kAnnotations);
    argument.add_uint64(annotation::kNameId, intern(argument_names_, key));
    fill(argument);
  }
  return out;
}

std::string Interning::argument(std::string_view key, std::string_view text) {
  return argument_with(key, [&](pbf_writer& a) { a.add_uint64(annotation::kStringId, intern(strings_, text)); });
}

std::string Interning::argument(std::string_view key, int64_t number) {
  return argument_with(key, [&](pbf_writer& a) { a.add_int64(annotation::kInt, number); });
}

std::string Interning::argument(std::string_view key, double number) {
  return argument_with(key, [&](pbf_writer& a) { a.add_double(annotation::kDouble, number); });
}

std::string Interning::argument(std::string_view key, bool flag) {
  return argument_with(key, [&](pbf_writer& a) { a.add_bool(annotation::kBool, flag); });
}

std::string Interning::arguments(const nlohmann::ordered_json& object) {
  using nlohmann::ordered_json;
  std::string out;
  for (const auto& [key, value] : object.items()) {
    if (value.is_string())
      out += argument(key, std::string_view(value.get_ref<const std::string&>()));
    else if (value.is_boolean())
      out += argument(key, value.get<bool>());
    else if (value.is_number_integer())
      out += argument(key, value.get<int64_t>());
    else
      out += argument(key, std::string_view(value.dump(-1, ' ', false, ordered_json::error_handler_t::replace)));
  }
  return out;
}

}  // namespace torchprof::formats::perfetto
