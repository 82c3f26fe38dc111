#include "formats/advice/finding.h"

#include "formats/io/source_line.h"
#include "formats/timeline/timeline.h"
#include "formats/trace/names.h"

namespace torchprof::formats {

std::string source_of(const Timeline& timeline, std::string_view place) {
  const std::string_view file = timeline.file_of(place);
  if (file.empty()) return {};
  std::string text = source_line(std::string(file), split_place(place).line, timeline.begin);
  for (const std::string_view head : {"def ", "async def ", "class ", "@"})
    if (text.starts_with(head)) return {};
  return text;
}

}  // namespace torchprof::formats
