#include "formats/gpu/inductor.h"

#include <filesystem>

#include "formats/io/open_file.h"
#include "formats/io/text.h"

namespace torchprof::formats {
namespace {

constexpr size_t kLongestText = 2000;
constexpr size_t kLargestModule = size_t{32} << 20;

// What stands between `before` and `after` in a line; empty if one of them is missing.
std::string_view between(std::string_view line, std::string_view before, std::string_view after) {
  const size_t begin = line.find(before);
  if (begin == std::string_view::npos) return {};
  line.remove_prefix(begin + before.size());
  const size_t end = line.find(after);
  return end == std::string_view::npos ? std::string_view{} : line.substr(0, end);
}

std::string limited(std::string_view text) { return printable(text.substr(0, kLongestText)); }

void read_comment(std::string_view line, InductorKernel& kernel) {
  if (const std::string_view nodes = between(line, "Source Nodes: [", "]"); !nodes.empty())
    kernel.source_nodes = limited(nodes);
  if (const std::string_view aten = between(line, "Original ATen: [", "]"); !aten.empty())
    kernel.original_aten = limited(aten);
  constexpr std::string_view kPath = "# kernel path: ", kFile = "# File: ", kCode = ", code: ";
  if (line.starts_with(kPath)) kernel.file = limited(line.substr(kPath.size()));
  if (!line.starts_with(kFile)) return;
  line.remove_prefix(kFile.size());
  const std::string place = limited(line.substr(0, line.find(kCode)));
  if (kernel.lines.find(place) != std::string::npos || kernel.lines.size() > kLongestText) return;
  kernel.lines.append(kernel.lines.empty() ? "" : "; ").append(place);
}

}  // namespace

InductorKernels inductor_kernels(std::string_view module_text) {
  InductorKernels kernels;
  InductorKernel next;
  bool has_comment = false;
  while (!module_text.empty()) {
    const size_t length = module_text.find('\n');
    const std::string_view line = module_text.substr(0, length);
    module_text.remove_prefix(length == std::string_view::npos ? module_text.size() : length + 1);
    if (line.starts_with('#')) {
      read_comment(line, next);
      has_comment = true;
    } else if (has_comment) {
      const std::string_view name = line.substr(0, line.find(" = async_compile."));
      const bool is_kernel = name.size() < line.size() && name.find_first_of(" '\"#(") == std::string_view::npos;
      if (is_kernel && !name.empty()) kernels.try_emplace(std::string(name), std::move(next));
      next = {};
      has_comment = false;
    }
  }
  return kernels;
}

const InductorKernel* InductorModules::find(std::string_view module_file, std::string_view kernel) {
  auto module = modules_.find(module_file);
  if (module == modules_.end()) {
    std::error_code error;
    const std::filesystem::path path(module_file);
    const bool is_small = std::filesystem::file_size(path, error) <= kLargestModule && !error;
    module = modules_.emplace(module_file, is_small ? inductor_kernels(read_file(path)) : InductorKernels()).first;
  }
  const auto found = module->second.find(kernel);
  return found == module->second.end() ? nullptr : &found->second;
}

std::string inductor_json(const InductorKernel& kernel) {
  std::string out;
  const auto add = [&out](std::string_view key, const std::string& value) {
    if (!value.empty()) out.append(",\"").append(key).append("\":").append(json_string(value));
  };
  add("kernel_file", kernel.file);
  add("Source nodes", kernel.source_nodes);
  add("Original ATen", kernel.original_aten);
  add("Source lines", kernel.lines);
  return out;
}

}  // namespace torchprof::formats
