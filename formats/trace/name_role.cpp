#include "formats/trace/name_role.h"

namespace torchprof::formats {

NameRole role_of_name(std::string_view text) {
  for (size_t role = 1; role < kNamePrefixes.size() && !text.empty(); ++role)
    if (text.front() == kNamePrefixes[role].front() && text.starts_with(kNamePrefixes[role]))
      return static_cast<NameRole>(role);
  return NameRole::kPlain;
}

}  // namespace torchprof::formats
