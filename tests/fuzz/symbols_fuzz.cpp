// libFuzzer: whatever a file of symbols holds, what is read of it is written, and read again, as it is.
// tests/fuzz/run builds it.
#include <fstream>
#include <sstream>

#include "formats/io/output.h"
#include "formats/symbols/symbol_file.h"
#include "tests/fuzz/target.h"

using namespace torchprof;

void write_seeds(const std::filesystem::path& directory) {
  formats::SymbolFile file;
  file.objects[{std::string("\x01\x02\xff", 3), "/usr/lib/libtorch.so"}][0x1f] = {{"inlined(int)", "a.h", 7},
                                                                                  {"outer()", "b.cpp", 12}};
  file.objects[{"", "/no build id"}][1] = {{"f", "", 0}};
  file.write(directory / "symbols");
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const formats::SymbolFile first = formats::SymbolFile::read(file_of(data, size));
  static const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("symbols_fuzz." + std::to_string(getpid()));
  first.write(path);
  const formats::SymbolFile second = formats::SymbolFile::read(path);
  std::filesystem::remove(path);
  if (first.count() != second.count()) abort();
  return 0;
}
