#include "formats/native/names.h"

#include <map>

#include "formats/io/error.h"
#include "formats/symbols/symbol_file.h"

namespace torchprof::formats {

void name_native_frames(Trace& trace, NativeFrames frames) {
  struct Known {
    SymbolFile symbols;
    bool is_more = false;
  };
  std::map<std::filesystem::path, Known> files;
  for (const Process& process : trace.processes) {
    if (!process.native) continue;
    const auto file = process.file.parent_path() / "symbols";
    auto it = files.find(file);
    if (it == files.end()) it = files.emplace(file, Known{SymbolFile::read(file)}).first;
    if (process.native->find_symbols(process, it->second.symbols, frames)) it->second.is_more = true;
  }
  for (const auto& [file, known] : files)
    if (known.is_more) try {
        known.symbols.write(file);
      } catch (const Error&) {
        // Without the file they are looked up again next time; this export has them all the same.
      }
}

}  // namespace torchprof::formats
