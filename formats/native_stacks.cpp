#include "formats/native_stacks.h"

#include <filesystem>

#include "formats/text.h"

namespace torchprof::formats {
namespace {

constexpr size_t kWidestFunction = 400;  // columns; names of templates know no bound

std::string hex(uint64_t number) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  do {
    out.insert(out.begin(), kDigits[number & 15]);
    number >>= 4;
  } while (number != 0);
  return "0x" + out;
}

std::string base_name(const std::string& path) { return std::filesystem::path(path).filename(); }

std::string text_of(const Symbol& symbol, const std::string& otherwise) {
  std::string text = symbol.function.empty() ? otherwise : shorten(printable(symbol.function), kWidestFunction);
  if (!symbol.file.empty())
    text.append(" (").append(printable(base_name(symbol.file))).append(":").append(std::to_string(symbol.line)) += ')';
  return text;
}

}  // namespace

bool NativeStacks::define(const RecordView& record) {
  if (record.kind() == Kind::NativeObjectDef) {
    const auto& def = record.as<NativeObjectDef>();
    if (def.id.value != objects_.size()) return false;
    objects_.push_back(def);
    return true;
  }
  const auto& def = record.as<NativeFrameDef>();
  if (def.id.value != frames_.size() || def.caller.value >= def.id.value) return false;
  const Address address{def.object.value < objects_.size() ? def.object.value : 0, def.pc};
  const auto [it, is_new] = place_of_.try_emplace(address, static_cast<uint32_t>(addresses_.size()));
  if (is_new) addresses_.push_back(address);
  frames_.push_back({def.caller.value, it->second});
  places_.resize(addresses_.size());
  return true;
}

SymbolFile::Object NativeStacks::object_of(uint32_t object, std::span<const std::string_view> strings) const {
  const auto text = [&](StringId id) { return std::string(id.value < strings.size() ? strings[id.value] : ""); };
  return {text(objects_[object].build_id), text(objects_[object].path)};
}

// The call, not the address to which it returns: that may belong to the next function.
uint64_t NativeStacks::in_file(const Address& address) const { return address.pc - 1 - objects_[address.object].bias; }

void NativeStacks::find_symbols(std::span<const std::string_view> strings, SymbolFile& known) {
  std::map<uint32_t, std::vector<uint64_t>> wanted;  // by object
  for (const Address& address : addresses_) {
    if (address.object == 0) continue;
    const auto& places = known.objects[object_of(address.object, strings)];
    if (!places.contains(in_file(address))) wanted[address.object].push_back(in_file(address));
  }
  for (const auto& [object, places] : wanted) {
    const SymbolFile::Object file = object_of(object, strings);
    const std::vector<Place> found = formats::find_symbols(file.second, file.first, places);
    for (size_t i = 0; i < places.size(); ++i)
      if (!found[i].empty()) known.objects[file][places[i]] = found[i];
  }
  is_recorder_.assign(objects_.size(), false);
  is_interpreter_.assign(objects_.size(), false);
  for (uint32_t i = 1; i < objects_.size(); ++i) {
    const std::string name = base_name(object_of(i, strings).second);
    is_recorder_[i] = name == "libtorchprof.so";
    is_interpreter_[i] = name.starts_with("python3") || name.starts_with("libpython3");
  }
  for (size_t i = 0; i < addresses_.size(); ++i) places_[i] = texts_of(addresses_[i], strings, known);
}

std::vector<uint32_t> NativeStacks::texts_of(const Address& address, std::span<const std::string_view> strings,
                                             const SymbolFile& known) {
  if (address.pc == 0) return {intern("...")};
  if (address.object == 0) return {intern(hex(address.pc))};
  const SymbolFile::Object file = object_of(address.object, strings);
  const std::string otherwise = printable(base_name(file.second)) + '+' + hex(in_file(address) + 1);
  std::vector<uint32_t> out;
  if (const auto object = known.objects.find(file); object != known.objects.end())
    if (const auto place = object->second.find(in_file(address)); place != object->second.end())
      for (const Symbol& symbol : place->second) out.push_back(intern(text_of(symbol, otherwise), symbol));
  if (out.empty()) out.push_back(intern(otherwise));
  return out;
}

uint32_t NativeStacks::intern(const std::string& text, const Symbol& symbol) {
  const auto [it, is_new] = text_of_.try_emplace(text, static_cast<uint32_t>(texts_.size()));
  if (is_new) {
    texts_.push_back(text);
    symbols_.push_back(symbol);
  }
  return it->second;
}

// A caller's number is smaller than those of what it calls.
NativeFrameId NativeStacks::common_caller(NativeFrameId a, NativeFrameId b) const {
  while (a.value != b.value) {
    NativeFrameId& later = a.value > b.value ? a : b;
    later.value = frames_[later.value].caller;
  }
  return a;
}

}  // namespace torchprof::formats
