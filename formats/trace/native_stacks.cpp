#include "formats/trace/native_stacks.h"

#include <algorithm>
#include <filesystem>

#include "formats/io/text.h"
#include "formats/trace/trace.h"

namespace torchprof::formats {
namespace {

constexpr size_t kWidestFunction = 400;  // columns; names of templates may be of any length

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

std::string symbol_text(const Symbol& symbol, const std::string& otherwise) {
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
  const Address address{def.object.value < objects_.size() ? def.object.value : 0, def.function.value, def.pc};
  const auto [it, is_new] = place_of_.try_emplace(address, static_cast<uint32_t>(addresses_.size()));
  if (is_new) addresses_.push_back(address);
  frames_.push_back({.caller = def.caller.value, .place = it->second});
  places_.resize(addresses_.size());
  return true;
}

SymbolFile::Object NativeStacks::object_of(uint32_t object, const Process& process) const {
  const auto text = [&](StringId id) { return std::string(process.string(id)); };
  return {text(objects_[object].build_id), text(objects_[object].path)};
}

// The address of the call: that to which it returns may belong to the next function already.
uint64_t NativeStacks::in_file(const Address& address) const { return address.pc - 1 - objects_[address.object].bias; }

bool NativeStacks::look_up(const Process& process, SymbolFile& known) const {
  const auto has_lines = [](const Place& place) {
    return std::ranges::any_of(place, [](const Symbol& symbol) { return !symbol.file.empty(); });
  };
  const bool may_improve = asks_servers();
  std::map<uint32_t, std::vector<uint64_t>> wanted;  // by object
  for (const Address& address : addresses_) {
    if (address.object == 0) continue;
    const auto& places = known.objects[object_of(address.object, process)];
    const auto place = places.find(in_file(address));
    if (place == places.end() || (may_improve && !has_lines(place->second)))
      wanted[address.object].push_back(in_file(address));
  }
  bool is_more = false;
  for (const auto& [object, addresses] : wanted) {
    const SymbolFile::Object file = object_of(object, process);
    const std::vector<Place> found = formats::find_symbols(file.second, file.first, addresses);
    auto& places = known.objects[file];
    for (size_t i = 0; i < addresses.size(); ++i) {
      if (found[i].empty() || (places.contains(addresses[i]) && !has_lines(found[i]))) continue;
      places[addresses[i]] = found[i];
      is_more = true;
    }
  }
  return is_more;
}

bool NativeStacks::find_symbols(const Process& process, SymbolFile& known, NativeFrames frames) {
  const bool is_more = look_up(process, known);
  is_recorder_.assign(objects_.size(), false);
  is_interpreter_.assign(objects_.size(), false);
  for (uint32_t i = 1; i < objects_.size(); ++i) {
    const std::string name = base_name(object_of(i, process).second);
    is_recorder_[i] = name == "libtorchprof.so";
    is_interpreter_[i] = formats::is_interpreter(name);
  }
  find_functions(process);
  noise_.assign(addresses_.size(), NativeNoise::kNone);
  for (size_t i = 0; i < addresses_.size(); ++i) name_place(i, process, known, frames);
  if (frames == NativeFrames::kFolded) {
    find_starts(process);
    find_script_runs();
  }
  return is_more;
}

void NativeStacks::find_functions(const Process& process) {
  is_script_.assign(addresses_.size(), false);
  for (size_t i = 0; i < addresses_.size(); ++i) {
    const uint32_t function = addresses_[i].function;
    is_script_[i] = function < process.functions.size() && process.functions[function].kind == FunctionKind::kScript;
  }
  for (size_t i = 1; i < frames_.size(); ++i)
    frames_[i].has_python = is_python(frames_[i].place) || frames_[frames_[i].caller].has_python;
}

// Finds the frames of TorchScript's interpreter that call functions of TorchScript, directly or through each other.
void NativeStacks::find_script_runs() {
  for (size_t i = frames_.size(); i-- > 1;) {
    const Frame& frame = frames_[i];
    if (!is_script_[frame.place] && !frame.runs_script) continue;
    Frame& caller = frames_[frame.caller];
    if (frame.caller != 0 && noise_[caller.place] == NativeNoise::kScript) caller.runs_script = true;
  }
}

void NativeStacks::find_starts(const Process& process) {
  std::vector<bool> begins = is_interpreter_;
  for (uint32_t i = 1; i < objects_.size(); ++i)
    if (base_name(object_of(i, process).second).starts_with("libc.so")) begins[i] = true;
  for (size_t i = 1; i < frames_.size(); ++i) {
    const bool is_outermost = frames_[i].caller == 0 || frames_[frames_[i].caller].is_start;
    frames_[i].is_start = is_outermost && begins[addresses_[frames_[i].place].object];
  }
}

void NativeStacks::name_place(size_t place, const Process& process, const SymbolFile& known, NativeFrames frames) {
  const Address& address = addresses_[place];
  std::vector<uint32_t>& texts = places_[place];
  texts.clear();
  if (address.function != 0)
    texts.push_back(intern(python_text(address, process)));
  else if (address.pc == 0)
    texts.push_back(intern("..."));
  else if (address.object == 0)
    texts.push_back(intern(hex(address.pc)));
  if (!texts.empty()) return;
  const SymbolFile::Object file = object_of(address.object, process);
  const std::string name = base_name(file.second);
  const std::string otherwise = printable(name) + '+' + hex(in_file(address) + 1);
  const auto noise = [&](const Symbol& symbol) {
    return frames == NativeFrames::kAll ? NativeNoise::kNone : noise_of(name, symbol.function);
  };
  size_t bindings = 0, script = 0, found = 0;
  const auto add = [&](const Symbol& symbol) {
    ++found;
    const NativeNoise is = noise(symbol);
    if (is == NativeNoise::kInterpreter) ++bindings;
    if (is == NativeNoise::kScript) ++script;
    if (is != NativeNoise::kDispatch) texts.push_back(intern(symbol_text(symbol, otherwise), symbol));
  };
  if (const auto object = known.objects.find(file); object != known.objects.end())
    if (const auto at = object->second.find(in_file(address)); at != object->second.end())
      for (const Symbol& symbol : at->second) add(symbol);
  if (found == 0) add({});
  if (texts.empty())
    noise_[place] = NativeNoise::kDispatch;
  else if (bindings == texts.size())
    noise_[place] = NativeNoise::kInterpreter;
  else if (script == texts.size())
    noise_[place] = NativeNoise::kScript;
}

// "train.py(12): step" with the line that it runs; slices of calls look the same, with the function's first line.
std::string NativeStacks::python_text(const Address& address, const Process& process) {
  if (address.function >= process.functions.size()) return "?";
  const FunctionDef& def = process.functions[address.function];
  std::string_view file = process.string(def.file);
  file.remove_prefix(std::min<size_t>(def.trim, file.size()));
  std::string text(file);
  text.append("(").append(std::to_string(address.pc)).append("): ").append(process.string(def.name));
  return printable(text);
}

uint32_t NativeStacks::intern(const std::string& text, const Symbol& symbol) {
  const auto [it, is_new] = text_of_.try_emplace(text, static_cast<uint32_t>(texts_.size()));
  if (is_new) {
    texts_.push_back(text);
    symbols_.push_back(symbol);
  }
  return it->second;
}

// A caller's number is smaller than those of the frames that it calls.
NativeFrameId NativeStacks::common_caller(NativeFrameId a, NativeFrameId b) const {
  while (a.value != b.value) {
    NativeFrameId& later = a.value > b.value ? a : b;
    later.value = frames_[later.value].caller;
  }
  return a;
}

}  // namespace torchprof::formats
