#include "formats/native_names.h"

#include <map>

#include "formats/error.h"
#include "formats/symbol_file.h"

namespace torchprof::formats {

void name_native_frames(Trace& trace, NativeFrames frames) {
  struct Known {
    SymbolFile symbols;
    size_t before;
  };
  std::map<std::filesystem::path, Known> files;
  for (const Process& process : trace.processes) {
    if (!process.native) continue;
    const auto file = process.file.parent_path() / "symbols";
    auto it = files.find(file);
    if (it == files.end()) {
      SymbolFile symbols = SymbolFile::read(file);
      const size_t count = symbols.count();
      it = files.emplace(file, Known{std::move(symbols), count}).first;
    }
    process.native->find_symbols(process, it->second.symbols, frames);
  }
  for (const auto& [file, known] : files)
    if (known.symbols.count() != known.before) try {
        known.symbols.write(file);
      } catch (const Error&) {
        // They are found again the next time; what is written now has them.
      }
}

}  // namespace torchprof::formats
