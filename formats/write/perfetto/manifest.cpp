#include "formats/write/perfetto/manifest.h"

#include "formats/io/text.h"

namespace torchprof::formats {

std::string perfetto_manifest(const std::vector<std::pair<std::string, const Process*>>& files) {
  // It is known by its first characters.
  std::string out =
      "{\"perfetto_manifest\": {\n  \"version\": 1,\n  \"trace_time\": {\"clock\": \"REALTIME\"},\n  \"files\": [";
  for (size_t i = 0; i < files.size(); ++i) {
    const auto& [name, process] = files[i];
    const std::string_view host = process->host.empty() ? std::string_view("unknown") : process->host;
    out.append(i == 0 ? "\n" : ",\n").append("    {\"path\": ").append(json_string(name));
    out.append(", \"machine\": {\"name\": ").append(json_string(host)).append("}}");
  }
  return out + "\n  ]\n}}\n";
}

}  // namespace torchprof::formats
