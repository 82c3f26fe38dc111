#include "formats/gpu/kernel_names.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "formats/gpu/cpp_name.h"
#include "formats/gpu/kernel_table.h"
#include "formats/gpu/library_kernels.h"
#include "formats/gpu/names.h"
#include "formats/io/ascii.h"

namespace torchprof::formats {
namespace {

using Part = CppName::Part;
using Pieces = std::vector<std::string_view>;

constexpr int kDeepest = 8;  // wrappers and entry points around what is looked for

bool is_identifier(std::string_view name) {
  return !name.empty() && !is_digit(name.front()) && std::ranges::all_of(name, [](char c) {
    return is_upper(c) || is_lower(c) || is_digit(c) || c == '_' || c == '$' || c == '.' || (c & 0x80) != 0;
  });
}

void replace_mark(std::string& text, std::string_view with) {
  const size_t mark = text.find('%');
  if (mark == text.npos) return;
  text.replace(mark, 1, with);
  if (with.empty()) text.erase(mark != 0 && text[mark - 1] == ' ' ? mark - 1 : mark, 1);
}

void add_type(Pieces& types, std::string_view type) {
  if (!type.empty() && std::ranges::find(types, type) == types.end()) types.push_back(type);
}

std::string joined(const Pieces& texts) {
  std::string out;
  for (const std::string_view text : texts) out.append(out.empty() ? "" : ", ").append(text);
  return out;
}

// "softmax fwd (shared)" and "bf16": "softmax fwd<bf16> (shared)".
std::string with_types(std::string text, const std::string& types) {
  if (types.empty() || text.find('<') != text.npos) return text;
  if (const size_t arrow = text.find("->"), behind = arrow + 2; arrow != text.npos) {
    if (arrow != 0 && text[arrow - 1] == ' ') return text.insert(arrow, types);
    return behind == text.size() || text[behind] == ' ' ? text.insert(behind, types) : text;
  }
  return text.insert(std::min(text.find(" ("), text.size()), "<" + types + ">");
}

// Some operations say enough.
std::string without_elementwise(const std::string& text) {
  constexpr std::string_view kElementwise = "elementwise ";
  const bool has_it = text.starts_with("elementwise copy") || text.starts_with("elementwise group_norm");
  return text.substr(has_it ? kElementwise.size() : 0);
}

// Of a cast only the result's type is in the kernel's name. A copy says so in its types; of others it is a remark:
// "elementwise mul cast (strided)" is "elementwise mul (cast, strided)".
std::string with_cast(std::string text) {
  constexpr std::string_view kCast = " cast", kRemark = " (";
  const bool is_copy = text.starts_with("copy");
  const size_t cast = text.find(kCast);
  if (cast == text.npos) return text;
  text.replace(cast, kCast.size(), is_copy ? " any->" : "");
  if (is_copy) return text;
  const size_t remark = text.find(kRemark);
  return remark == text.npos ? text + " (cast)" : text.replace(remark, kRemark.size(), " (cast, ");
}

class Shortener {
 public:
  explicit Shortener(std::string_view name) : name_(name), cpp_(name) {}

  // Empty: it is no kernel's name.
  std::string run() const {
    std::vector<Part> path = cpp_.path(name_);
    for (int depth = 0; depth < kDeepest && is_entry_point(path.back().name); ++depth) {
      const std::string_view argument = first(cpp_.list(path.back().args));
      std::vector<Part> inner = cpp_.path(argument);
      if (element_type(argument).empty() && is_identifier(inner.back().name))
        path = std::move(inner);
      else if (path.size() > 1 && find_known_name(path[path.size() - 2].name) != nullptr)
        path = renamed(std::move(path));
      else
        break;
    }
    const Part& kernel = path.back();
    if (!is_identifier(kernel.name)) return {};
    if (std::string text = library_kernel_name(kernel.name); !text.empty()) return text;
    if (kernel.name.starts_with("flash_")) return flash(kernel);
    const std::string_view library = library_of(path.front().name);
    const std::string text = plain(path, library.empty());
    return library.empty() || text.find(" (") != text.npos ? text : text + " (" + std::string(library) + ")";
  }

 private:
  struct Said {
    std::string text;
    std::string types;
  };

  static std::string_view first(const Pieces& pieces) { return pieces.empty() ? std::string_view{} : pieces.front(); }
  static bool has_scope(const std::vector<Part>& path, std::string_view name) {
    return std::ranges::find(path.begin(), path.end() - 1, name, &Part::name) != path.end() - 1;
  }
  std::string plain(const std::vector<Part>& path, bool has_numbers) const {
    const Part& kernel = path.back();
    const Pieces arguments = cpp_.list(kernel.args);
    if (has_scope(path, "cub") && kernel.name.starts_with("Device")) return cub(kernel);
    if (kernel.name.find("_fft") != kernel.name.npos && kernel.args.find("padding_t") != kernel.args.npos)
      return fft(kernel);
    const KnownName* row = find_known_name(kernel.name);
    // Others may have a kernel of this name.
    const bool is_other = row != nullptr && ((row->op >= 0 && arguments.size() <= static_cast<size_t>(row->op)) ||
                                             (row->text.ends_with("(cublas)") && name_.find("cublas") == name_.npos));
    if (row != nullptr && !is_other) return known(kernel);
    if (has_scope(path, "native") || (has_scope(path, "at") && has_scope(path, "cuda")))
      return with_types(deed_of(kernel.name), std::string(some_type(arguments)));
    return any(kernel, has_numbers);
  }

  // gemvx::kernel<...> is better called gemvx<...>.
  static std::vector<Part> renamed(std::vector<Part> path) {
    path[path.size() - 2].args = path.back().args;
    path.pop_back();
    return path;
  }

  // The type of elements of an argument, or of what the argument is made of: ScanTileState<float, true>.
  std::string_view type_in(std::string_view argument) const {
    if (const std::string_view type = element_type(argument); !type.empty()) return type;
    return element_type(first(cpp_.list(cpp_.path(argument).back().args)));
  }

  // A floating type if there is one, because integers are mostly those of indices.
  static std::string_view some_type(const Pieces& arguments) {
    std::string_view other;
    for (const std::string_view argument : arguments) {
      const std::string_view type = element_type(argument);
      if (is_floating(type)) return type;
      if (other.empty()) other = type;
    }
    return other;
  }

  // The first floating type anywhere inside.
  static std::string_view deep_type(std::string_view text) {
    constexpr std::string_view kBetween = "<>, ()";
    while (!text.empty()) {
      const std::string_view word = text.substr(0, text.find_first_of(kBetween));
      if (const std::string_view type = element_type(word); is_floating(type)) return type;
      text.remove_prefix(std::min(text.size(), word.size() + 1));
    }
    return {};
  }

  bool is_true(const Pieces& arguments, int flag) const {
    const auto says_so = [this](std::string_view argument) {
      const std::string_view name = cpp_.path(argument).back().name;
      return name == "LoadWithCast" || name == "less_equal" || name.starts_with("LogSoftMax");
    };
    const auto i = static_cast<size_t>(flag);
    if (flag == kAnyFlag) return std::ranges::any_of(arguments, says_so);
    return flag >= 0 && i < arguments.size() && (cpp_.value(arguments[i]) == "true" || cpp_.value(arguments[i]) == "1");
  }

  // The types that the row asks for: those of the operands and, if it is another, that of the result.
  static std::string types_of(const KnownName& row, const Pieces& arguments) {
    Pieces in;
    for (size_t i = 0; i < arguments.size() && static_cast<int>(i) < row.ins; ++i)
      add_type(in, element_type(arguments[i]));
    const auto out = static_cast<size_t>(row.out);
    const std::string_view result = row.out >= 0 && out < arguments.size() ? element_type(arguments[out]) : "";
    std::string text = joined(in);
    if (!result.empty() && result != text) text.append("->").append(result);
    return text;
  }

  // The types that a lambda takes. An index, or a pointer to bytes, says nothing, nor does the bool of a mask.
  std::string lambda_types(const Part& lambda) const {
    Pieces types;
    for (const std::string_view parameter : cpp_.parameters(lambda)) {
      if (parameter.find('*') != parameter.npos) return {};
      add_type(types, element_type(parameter));
    }
    if (types.size() > 1) std::erase(types, "bool");
    if (types.size() > 1 && is_floating(types.back())) std::erase(types, "int32");
    return joined(types);
  }

  // What a functor says: a class, or a lambda in a function, or a wrapper around another one.
  Said functor(std::string_view piece, int depth) const {
    if (const auto number = cpp_.value(piece); !number.empty() && is_digit(number.front()))
      return {std::string(number), ""};
    const std::vector<Part> path = cpp_.path(piece);
    auto lambda = std::ranges::find_if(path, &Part::is_lambda);
    const bool is_lambda = lambda != path.begin() && lambda != path.end();
    const Part* outer = is_lambda ? &*std::prev(lambda) : &path.back();
    const Part* call = outer->name.starts_with("operator") ? outer : nullptr;
    if (call != nullptr && call != &path.front()) --outer;
    Part named = *outer;
    if (named.name == "functor" && outer != &path.front()) named.name = std::prev(outer)->name;  // __fill::functor
    Said said = say(named, call, depth);
    if (!is_lambda) return said;
    // A function whose lambdas are told apart by how much they take.
    replace_mark(said.text, std::to_string(cpp_.parameters(path.back()).size()));
    std::string numbers;
    for (; lambda != path.end(); ++lambda) {
      if (!lambda->is_lambda()) continue;
      numbers.append(numbers.empty() ? "" : ".").append(std::to_string(lambda->number()));
      if (const auto text = lambda_text(outer->name, numbers); !text.empty()) said.text = text;
    }
    const std::string types = path.back().is_lambda() ? lambda_types(path.back()) : "";
    const bool is_index = types.starts_with("int") && types.find(',') == types.npos;
    if (!types.empty() && (said.types.empty() || !is_index) && !has_own_types(*outer)) said.types = types;
    return said;
  }
  // Whether its lambda is only a part of it, so that its types say nothing.
  static bool has_own_types(const Part& function) {
    const KnownName* row = find_known_name(function.name);
    return row != nullptr && (row->op >= 0 || row->ins != 0);
  }

  Said say(const Part& part, const Part* call, int depth) const {
    const Pieces arguments = cpp_.list(part.args);
    const KnownName* row = find_known_name(part.name);
    if (row == nullptr) return {deed_of(part.name), std::string(some_type(arguments))};
    Said said{std::string(is_true(arguments, row->flag) ? row->otherwise : row->text), types_of(*row, arguments)};
    const auto op = static_cast<size_t>(row->op);
    if (row->op >= 0 && op < arguments.size() && depth < kDeepest) {
      const Said inner = functor(arguments[op], depth + 1);
      replace_mark(said.text, inner.text);
      // "foreach % scalar": the operation is the next argument.
      if (op + 1 < arguments.size() && said.text.find('%') != said.text.npos)
        replace_mark(said.text, functor(arguments[op + 1], depth + 1).text);
      if (said.types.empty()) said.types = inner.types;
    } else if (call != nullptr && row->op < 0) {
      const Pieces of_call = cpp_.list(call->args);
      replace_mark(said.text, of_call.empty() ? "" : functor(of_call.front(), depth + 1).text);
    }
    if (said.types.empty()) said.types = some_type(arguments);
    if (row->ins == kNoTypes) said.types.clear();
    return said;
  }

  std::string known(const Part& kernel) const {
    if (kernel.name == "splitKreduce_kernel") return split_k(kernel);
    Said said = say(kernel, nullptr, 0);
    replace_mark(said.text, "");
    // cuDNN's number for what it makes of float: 0 float, 2 TF32, for products that take no other type. With half and
    // bfloat16 it is always 0.
    if (kernel.args.find("(cudnnKernelDataType_t)2") != kernel.args.npos) said.types = "fp32->tf32";
    if (said.types.empty() && find_known_name(kernel.name)->ins != kNoTypes) said.types = deep_type(kernel.args);
    return with_types(with_cast(without_elementwise(said.text)), said.types);
  }

  // cuBLAS adds up what blocks have multiplied: argument 8 is the type of their sums, 9 that of the result.
  std::string split_k(const Part& kernel) const {
    const Pieces arguments = cpp_.list(kernel.args);
    if (arguments.size() < 10) return with_types("splitK reduce", std::string(some_type(arguments)));
    return with_types("splitK reduce",
                      types_of({.name = "", .text = "", .ins = 1, .out = 1}, {arguments.begin() + 8, arguments.end()}));
  }

  // flash_fwd_kernel<Flash_fwd_kernel_traits<head size, block, block, warps, ..., type>, dropout, causal, ...>; with
  // split keys the first flag is "causal".
  std::string flash(const Part& kernel) const {
    const KnownName* row = find_known_name(kernel.name);
    const Pieces arguments = cpp_.list(kernel.args);
    const auto traits = std::ranges::find_if(arguments, [](auto a) { return a.find("kernel_traits<") != a.npos; });
    if (row == nullptr || traits == arguments.end()) return any(kernel, true);
    const Pieces of_traits = cpp_.list(cpp_.path(*traits).back().args);
    std::string out = with_types(std::string(row->text), std::string(deep_type(*traits)));
    out.append(" d").append(cpp_.value(first(of_traits)));
    const Pieces flags(std::next(traits), arguments.end());
    const bool is_split = kernel.name == "flash_fwd_splitkv_kernel";
    if (flags.size() < 4) return out;
    if (is_true(flags, is_split ? 0 : 1)) out += " causal";
    if (!is_split && is_true(flags, 0)) out += " dropout";
    return out;
  }

  // cub::DeviceScanKernel<policy, float const*, float*, ...>
  std::string cub(const Part& kernel) const {
    Pieces arguments = cpp_.list(kernel.args);
    if (arguments.size() > 1 && arguments[0].find("olicy") != arguments[0].npos) arguments.erase(arguments.begin());
    std::string text = "cub " + deed_of(kernel.name.substr(6));
    Pieces types;
    const bool is_sort = kernel.name.find("Sort") != kernel.name.npos;
    std::string_view counted;
    for (const std::string_view argument : arguments) {
      const std::vector<Part> path = cpp_.path(argument);
      const KnownName* row = find_known_name(path.back().name);
      if (row != nullptr) {
        const Said said = functor(argument, 0);
        if (text.find(" " + said.text) == text.npos) text.append(" ").append(said.text);
        if (said.text == "nonzero") counted = type_in(first(cpp_.list(path.back().args)));
      } else if (types.size() < (is_sort ? 2 : 1) && !type_in(argument).starts_with("uint")) {
        add_type(types, type_in(argument));
      }
    }
    if (!counted.empty()) types = {counted};
    // Operands and results: "float const*, float*".
    std::string texts = joined(types);
    if (!is_sort && arguments.size() > 1 && arguments[0].ends_with('*') && arguments[1].ends_with('*'))
      texts = types_of({.name = "", .text = "", .ins = 1, .out = 1}, arguments);
    return with_types(std::move(text), texts);
  }

  // cuFFT's kernels: vector_fft_r2c<64u, EPT<8u>, ..., float>
  std::string fft(const Part& kernel) const {
    const Pieces arguments = cpp_.list(kernel.args);
    const std::string_view size = cpp_.value(first(arguments));
    return std::string(kernel.name) + "<" + std::string(some_type(arguments)) + "> " + std::string(size) + " (cufft)";
  }

  // The general rule: the kernel's own name and its arguments, but for long ones; too many of them lose their numbers,
  // and then all but the types.
  std::string any(const Part& kernel, bool has_numbers) const {
    constexpr size_t kLongest = 32, kLongestName = 24;
    Pieces all, words, types;
    for (std::string_view argument : cpp_.list(kernel.args)) {
      if (argument.starts_with("&(")) argument = argument.substr(2, argument.size() - 3);  // a function
      const std::string_view type = element_type(argument), value = cpp_.value(argument);
      const std::string_view name = cpp_.path(argument).back().name;
      if (!value.empty() && (is_digit(value.front()) || value.front() == '-')) {
        if (has_numbers) all.push_back(value);
      } else if (!type.empty()) {
        for (Pieces* list : {&all, &words, &types}) add_type(*list, type);
      } else if (value == "true" || value == "false") {
        if (!has_numbers) continue;
        all.push_back(value);
        words.push_back(value);
      } else if (is_identifier(name) && name.size() <= kLongestName && !is_plumbing(name)) {
        all.push_back(name);
        words.push_back(name);
      }
    }
    if (types.empty())
      for (Pieces* list : {&all, &words, &types}) add_type(*list, deep_type(kernel.args));
    for (const Pieces& list : {all, words, types})
      if (const std::string text = joined(list); !text.empty() && text.size() <= kLongest)
        return std::string(kernel.name) + "<" + text + ">";
    return std::string(kernel.name);
  }
  // Classes that only carry types and sizes.
  static bool is_plumbing(std::string_view name) {
    constexpr std::array<std::string_view, 5> kEndings{"raits", "olicy", "arams", "arams_", "onfig"};
    return std::ranges::any_of(kEndings, [name](std::string_view ending) { return name.ends_with(ending); });
  }

  std::string_view name_;
  CppName cpp_;
};

// NVIDIA's compiler names the static kernels of a file "__nv_static_32__b4148644_10_onerank_cu_fdf47990__ZN..."
std::string readable(std::string_view name) {
  const size_t mangled = name.starts_with("__nv_static_") ? name.find("__Z") : name.npos;
  return mangled != name.npos ? kernel_name(name.substr(mangled + 1)) : std::string(name);
}

}  // namespace

std::string short_kernel_name(std::string_view name) {
  if (name.empty()) return {};
  const std::string whole = readable(name);
  // Without brackets and scopes there is nothing to cut but the words of libraries.
  const bool is_cpp = whole.find_first_of("<(") != whole.npos || whole.find("::") != whole.npos;
  std::string text = is_cpp ? Shortener(whole).run() : library_kernel_name(whole);
  // What tells least goes first: "(nvjet sm90)", "(nvjet)", nothing.
  if (const size_t last = text.rfind(' '); text.size() > name.size() && text.ends_with(')') && text[last + 1] != '(')
    text.replace(last, text.npos, ")");
  if (text.size() > name.size()) text.erase(std::min(text.find(" ("), text.size()));
  return text.empty() || text.size() > name.size() ? std::string(name) : text;
}

}  // namespace torchprof::formats
