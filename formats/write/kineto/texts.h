// Parts of Kineto's events that come often: each is made once and kept. A part is appended to an event as it is, and
// ends before the comma of the next argument. Empty: there is none.
//
// Sizes are bounded, so that an event always fits into one reservation of Output; longer parts are cut or left out.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "formats/io/output.h"
#include "formats/io/text.h"
#include "formats/replay/replay.h"
#include "formats/trace/names.h"
#include "formats/trace/nvtx.h"
#include "formats/values/collectives.h"
#include "formats/values/inputs.h"

namespace torchprof::formats::kineto {

inline constexpr size_t kMaxNameBytes = size_t{32} * 1024;  // of a name in JSON
inline constexpr size_t kMaxSliceBytes = 1024;              // of a slice without its name and the parts below
inline constexpr size_t kMaxOverload = 64;                  // within kMaxSliceBytes; a byte becomes six at most
inline constexpr size_t kMaxInputsBytes = size_t{24} * 1024;
inline constexpr size_t kMaxCallerBytes = 1000;  // of a file's name before it is JSON: \u0000 takes six bytes
inline constexpr size_t kMaxModuleBytes = 500;   // of each of a module's names, likewise
static_assert(kMaxNameBytes + kMaxSliceBytes + kMaxInputsBytes +
                  std::max(6 * kMaxCallerBytes + 40, 12 * kMaxModuleBytes + 80) <=
              Output::kMaxReserve);              // a slice with a caller has no module
static_assert(kMaxNvtxBytes < kMaxInputsBytes);  // a range of NVTX has no inputs

inline std::string json_name(std::string_view name) { return json_string_within(name, kMaxNameBytes); }

// The parts of one process. A returned text is valid until the function is called again.
class Texts {
 public:
  Texts(const Process& process, Names& names, std::string pid)
      : process_(process), names_(names), pid_(std::move(pid)) {
    for (const FunctionDef& def : process.functions)
      if (def.id && def.kind == FunctionKind::kImport) find_file(def);
  }

  // {"ph":"X","cat":"cpu_op","name":"aten::add","pid":1,"tid":      made once for each name and category
  const std::string& head_of(const Slice& s) {
    const bool is_op = s.kind == SliceKind::kOperator;
    const bool is_annotation = is_op && torchprof::is_annotation(s.scope);
    auto& heads = heads_[is_annotation ? 2 : is_op ? 1 : 0];
    if (s.name.value >= heads.size()) heads.resize(std::max<size_t>(names_.size() + 1, heads.size() * 2));
    std::string& head = heads[s.name.value];
    if (head.empty()) {
      head = R"({"ph":"X","cat":")";
      head.append(is_annotation ? "user_annotation" : is_op ? "cpu_op" : "python_function");
      head.append(R"(","name":)").append(json_name(names_.text(s.name)));
      head.append(R"(,"pid":)").append(pid_).append(R"(,"tid":)");
    }
    return head;
  }

  // Made once for each encoding.
  std::string_view inputs_of(const Slice& s) {
    if (!s.inputs || s.inputs.value >= process_.strings.size()) return {};
    if (s.inputs.value >= inputs_.size()) inputs_.resize(process_.strings.size());
    std::string& text = inputs_[s.inputs.value];
    if (text.empty()) text = inputs_json(process_.string(s.inputs), kMaxInputsBytes);
    return text;
  }

  // Empty if there is no room besides `taken` bytes of inputs.
  std::string_view collective_of(const Slice& s, size_t taken) {
    const std::string_view text = collective_text(s.collective);
    return text.size() + taken <= kMaxInputsBytes ? text : std::string_view{};
  }
  std::string_view collective_text(StringId collective) {
    if (!collective) return {};
    std::string& text = collectives_[collective.value];
    if (text.empty()) text = collective_json(process_.string(collective));
    return text.size() <= kMaxInputsBytes ? text : std::string_view{};
  }

  // ,"CallFrom":"train.py:12"         of a C call; made once for each place
  // ,"File":"torch/nn/__init__.py"    of an import
  std::string_view caller_of(const Slice& s) {
    if (s.kind == SliceKind::kPython) return s.name.value < files_.size() ? files_[s.name.value] : std::string_view{};
    if (!s.site || s.site.value >= process_.call_sites.size()) return {};
    if (s.site.value >= callers_.size()) callers_.resize(process_.call_sites.size());
    std::string& text = callers_[s.site.value];
    const CallSiteDef& site = process_.call_sites[s.site.value];
    if (text.empty() && site.function.value < process_.functions.size()) {
      const FunctionDef& def = process_.functions[site.function.value];
      std::string_view file = process_.string(def.file);
      file.remove_prefix(std::min<size_t>(def.trim, file.size()));
      file = file.substr(0, kMaxCallerBytes);
      text.append(R"(,"CallFrom":)").append(json_string(std::string(file) + ":" + std::to_string(site.line)));
    }
    return text;
  }

  // Made once for each recorded name. Kineto has no argument for it: torch 2.14 makes it a part of the name,
  // "aten::add.Tensor", if it is asked to capture overload names.
  std::string_view overload_of(const Slice& s) {
    if (s.kind != SliceKind::kOperator || s.recorded.value >= process_.strings.size()) return {};
    const std::string_view overload = split_operator_name(process_.string(s.recorded)).overload;
    if (overload.empty()) return {};
    if (s.recorded.value >= overloads_.size()) overloads_.resize(process_.strings.size());
    std::string& text = overloads_[s.recorded.value];
    if (text.empty()) text = ",\"Overload name\":" + json_string(overload.substr(0, kMaxOverload));
    return text;
  }

  // Made once for each line.
  std::string_view place_of(const MemoryEvent& m) {
    std::string& text = places_[names_.place(m.function, m.line).value];
    if (text.empty()) text = json_name(names_.text(names_.place(m.function, m.line)));
    return text;
  }

  // Made once for each module:
  //
  //   operators   ,"Module":"nn.Module: Linear_0","Module path":"head.0"
  //   its calls   ,"Module path":"head.0","Module root":"nn.Module: Net_0"
  std::string_view module_of(const Slice& s) {
    const bool is_op = s.kind == SliceKind::kOperator;
    if (!s.module || (!is_op && (s.kind != SliceKind::kPython || s.object != s.module))) return {};
    return module_text(s.module, is_op);
  }
  std::string_view module_text(ObjectId module, bool is_op) {
    auto& modules = modules_[is_op];
    if (module.value >= process_.objects.size()) return {};
    if (module.value >= modules.size()) modules.resize(process_.objects.size());
    std::string& text = modules[module.value];
    if (!text.empty()) return text;
    const ObjectId root = process_.root(module);
    if (is_op) text.append(R"(,"Module":)").append(module_name(module));
    if (!root) return text;
    text.append(R"(,"Module path":)").append(json_string(process_.path(module).substr(0, kMaxModuleBytes)));
    if (!is_op) text.append(R"(,"Module root":)").append(module_name(root));
    return text;
  }

 private:
  void find_file(const FunctionDef& import) {
    const NameId name = names_.function(import.id, {});
    std::string_view file = process_.string(import.file);
    file.remove_prefix(std::min<size_t>(import.trim, file.size()));
    if (file.empty()) return;
    if (name.value >= files_.size()) files_.resize(name.value + 1);
    files_[name.value] = R"(,"File":)" + json_string(file.substr(0, kMaxCallerBytes));
  }
  std::string module_name(ObjectId module) {
    return json_string(names_.text(names_.function({}, module)).substr(0, kMaxModuleBytes));
  }

  const Process& process_;
  Names& names_;
  const std::string pid_;
  std::vector<std::string> heads_[3];                      // by name: Python, cpu_op, user_annotation
  std::vector<std::string> modules_[2];                    // arguments, by module: of its calls, of operators
  std::vector<std::string> inputs_;                        // by the encoding's string id
  std::unordered_map<uint32_t, std::string> collectives_;  // by the encoding's string id
  std::vector<std::string> callers_;                       // by call site
  std::vector<std::string> files_;                         // of imports, by name
  std::vector<std::string> overloads_;                     // by OpBegin::name
  std::unordered_map<uint32_t, std::string> places_;       // by name
};

}  // namespace torchprof::formats::kineto
