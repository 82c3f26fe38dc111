// The names of functions, modules and operators as people see them, formatted once each.
//
//   Python function    path(line): name       as torch.profiler writes it; an import prefix is cut from the path
//   import             import torch.nn        what ran while the module was imported (--imports brief)
//   compilation        path(line): compile f  what torch.compile did to compile f (likewise)
//   module call        nn.Module: Linear_0    numbered within a class, in the order of the objects' first calls
//   optimizer step     Optimizer: AdamW_0     likewise
//   C call, operator   the name that was recorded
//
// Equal texts have equal ids, which are the keys of tables. Not thread-safe.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "formats/trace/name_role.h"
#include "formats/trace/trace.h"

namespace torchprof::formats {

using NameId = Id<struct NameTag>;  // dense from 1; 0 is none

// The two names in OpBegin::name: the operator's and its overload's.
struct OperatorName {
  std::string_view name;
  std::string_view overload;  // "" if it has none
};
inline OperatorName split_operator_name(std::string_view recorded) {
  const size_t nul = recorded.find('\0');
  return nul == std::string_view::npos ? OperatorName{recorded, {}}
                                       : OperatorName{recorded.substr(0, nul), recorded.substr(nul + 1)};
}

// "path(line): name"; line 0: the function's first one. `file` and `name`: what its FunctionDef names.
std::string place_text(const FunctionDef& def, uint32_t line, std::string_view file, std::string_view name);

// The parts of such a text. Of any other text the name is all of it, and the file is empty.
struct PlaceParts {
  std::string_view file{};
  std::string_view name{};
  uint32_t line = 0;
};
PlaceParts split_place(std::string_view text);

// Whether a function is the program's: not of an installed package, and not of Python's own library. By a path, and in
// files that others wrote by "path(line): name", where the path may begin with the package: of Python's library and of
// packages those modules are known that programs of torch use most.
bool is_program_file(std::string_view path);
bool is_program_text(std::string_view text);

// The name of a row for annotations that cross others of their thread.
inline constexpr std::string_view kOverlapping = "overlapping annotations";
// A run of the garbage collector; the name is that of torch.profiler (torch/csrc/autograd/profiler_python.cpp).
inline constexpr std::string_view kPythonGc = "Python GC";

class Names {
 public:
  explicit Names(const Process& process);

  NameId function(FunctionId function, ObjectId object);
  NameId string(StringId string);
  NameId operator_name(StringId recorded);  // without its overload name
  // "path(line): name" of a function with this line; 0: its first line.
  NameId place(FunctionId function, uint32_t line);
  NameId intern(std::string text);
  std::string_view text(NameId id) const { return texts_[id.value - 1]; }
  NameRole role(NameId id) const { return roles_[id.value]; }  // of none: kPlain
  // Whether it is the name of a function of the program, by its file.
  bool is_program(NameId id) const { return id.value < is_program_.size() && is_program_[id.value]; }
  // The whole path of the file of such a function; empty: it is none.
  std::string_view file(NameId id) const;
  // Whether its file is of an installed package that is not torch; such a function is none of the program's.
  bool is_installed(NameId id) const { return id.value < is_installed_.size() && is_installed_[id.value]; }
  // Of a function of the program or of such a package; empty: not known (before 3.11).
  std::string_view qualname(NameId id) const;
  size_t size() const { return texts_.size(); }

  uint32_t number(ObjectId object) const { return object.value < numbers_.size() ? numbers_[object.value] : 0; }
  const ObjectDef* object(ObjectId id) const;  // null: none, or never defined

 private:
  NameId format_place(FunctionId id, uint32_t line);

  const Process& process_;
  std::deque<std::string> texts_;
  std::vector<NameRole> roles_{NameRole::kPlain};  // by name
  std::unordered_map<std::string_view, NameId> by_text_;
  std::vector<uint32_t> numbers_;
  std::vector<NameId> functions_, objects_, strings_, operators_;     // caches, by id; 0: not formatted yet
  std::unordered_map<uint64_t, NameId> places_;                       // a cache, by function and line
  std::vector<bool> is_program_, is_installed_;                       // by name
  std::unordered_map<uint32_t, std::string_view> files_, qualnames_;  // likewise
  bool is_text_program_ = true;  // the text of `python -c` is the program's (roles.h)
  NameId unknown_function_, unknown_string_;
};

}  // namespace torchprof::formats
