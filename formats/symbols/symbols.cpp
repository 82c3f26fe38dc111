#include "formats/symbols/symbols.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <unordered_map>
#include <vector>

#include "formats/symbols/demangle.h"

namespace torchprof::formats {
namespace {

// An object file, open while its addresses are looked up.
class Object {
 public:
  Object(const std::string& file, const std::string& build_id) : dwfl_(dwfl_begin(&callbacks()), dwfl_end) {
    if (!dwfl_) return;
    dwfl_report_begin(dwfl_.get());
    Dwfl_Module* module = dwfl_report_elf(dwfl_.get(), "program", file.c_str(), -1, 0, true);
    dwfl_report_end(dwfl_.get(), nullptr, nullptr);
    if (!module || (!build_id.empty() && !has_build_id(module, build_id))) return;
    module_ = module;
    read_symbols();
  }

  Place at(uint64_t address) {
    if (!module_) return {};
    Place place;
    Dwarf_Addr bias = 0;
    if (Dwarf_Die* unit = dwfl_module_addrdie(module_, address, &bias)) add_inlined(*unit, address - bias, place);
    const Range* const symbol = symbol_at(address);
    const std::string function = symbol ? demangle(symbol->name) : std::string();
    if (place.empty() && symbol) place.emplace_back();
    if (place.empty()) return place;
    // Of several names for one address DWARF has the right one, but not always with its arguments, and a lambda without
    // the function it is in.
    std::string& outermost = place.back().function;
    const bool is_plain = outermost.find('(') == std::string::npos || outermost == "operator()";
    if (outermost.empty() || (is_plain && function.find('(') != std::string::npos)) outermost = function;
    if (Dwfl_Line* line = dwfl_module_getsrc(module_, address)) {
      int number = 0;
      Dwarf_Addr begin = 0;
      const char* const source = dwfl_lineinfo(line, &begin, &number, nullptr, nullptr, nullptr);
      // For code without debug information (_start) elfutils gives the line of the code before it.
      if (source && (!symbol || begin >= symbol->start)) {
        place.front().file = source;
        place.front().line = static_cast<uint32_t>(std::max(number, 0));
      }
    }
    return place;
  }

 private:
  struct Range {
    uint64_t start;
    uint64_t size;
    const char* name;  // of the module
  };

  static const Dwfl_Callbacks& callbacks() {
    static const Dwfl_Callbacks them = {.find_elf = dwfl_build_id_find_elf,
                                        .find_debuginfo = find_debug_information,
                                        .section_address = dwfl_offline_section_address,
                                        .debuginfo_path = nullptr};
    return them;
  }

  // A debuginfod server that does not answer is waited for once, not for each object.
  static int find_debug_information(Dwfl_Module* module, void** data, const char* name, Dwarf_Addr base,
                                    const char* file, const char* link, GElf_Word checksum, char** found) {
    const auto begin = std::chrono::steady_clock::now();
    const int fd = dwfl_standard_find_debuginfo(module, data, name, base, file, link, checksum, found);
    if (fd < 0 && asks_servers() && std::chrono::steady_clock::now() - begin >= server_timeout())
      unsetenv("DEBUGINFOD_URLS");
    return fd;
  }
  static std::chrono::seconds server_timeout() {  // debuginfod-client-config(7)
    const char* const text = std::getenv("DEBUGINFOD_TIMEOUT");
    const long seconds = text ? std::atol(text) : 0;
    return std::chrono::seconds(seconds > 0 ? seconds : 90);
  }

  static bool has_build_id(Dwfl_Module* module, const std::string& wanted) {
    const unsigned char* bytes = nullptr;
    GElf_Addr where = 0;
    const int size = dwfl_module_build_id(module, &bytes, &where);
    return size == static_cast<int>(wanted.size()) && std::memcmp(bytes, wanted.data(), wanted.size()) == 0;
  }

  // dwfl_module_addrinfo would read the whole table for each address.
  void read_symbols() {
    const int count = dwfl_module_getsymtab(module_);
    for (int i = 0; i < count; ++i) {
      GElf_Sym symbol;
      GElf_Addr address = 0;
      GElf_Word section = 0;
      const char* name = dwfl_module_getsym_info(module_, i, &symbol, &address, &section, nullptr, nullptr);
      const int type = GELF_ST_TYPE(symbol.st_info);
      const bool is_code = type == STT_FUNC || type == STT_GNU_IFUNC || (type == STT_NOTYPE && symbol.st_size > 0);
      if (!name || !*name || !is_code || section == SHN_UNDEF) continue;
      symbols_.push_back({address, symbol.st_size, name});
    }
    std::ranges::stable_sort(symbols_, {}, &Range::start);
  }

  const Range* symbol_at(uint64_t address) const {
    auto it = std::ranges::upper_bound(symbols_, address, {}, &Range::start);
    // The symbol that begins last and holds the address; of several with the same range, the first.
    for (int tries = 0; it != symbols_.begin() && tries < 16; ++tries) {
      --it;
      if (address - it->start >= it->size) continue;
      while (it != symbols_.begin() && std::prev(it)->start == it->start && std::prev(it)->size == it->size) --it;
      return &*it;
    }
    return nullptr;
  }

  static std::string name_of(Dwarf_Die& function) {
    Dwarf_Attribute attribute;
    const char* name = nullptr;
    for (const unsigned kind : {DW_AT_linkage_name, DW_AT_MIPS_linkage_name})
      if (!name) name = dwarf_formstring(dwarf_attr_integrate(&function, kind, &attribute));
    if (name) return demangle(name);
    name = dwarf_diename(&function);
    return name ? name : "";
  }

  static std::string file_of(Dwarf_Die& unit, Dwarf_Word number) {
    Dwarf_Files* files = nullptr;
    size_t count = 0;
    if (dwarf_getsrcfiles(&unit, &files, &count) != 0 || number >= count) return {};
    const char* name = dwarf_filesrc(files, number, nullptr, nullptr);
    return name ? name : "";
  }

  static Dwarf_Word number(Dwarf_Die& die, unsigned attribute) {
    Dwarf_Attribute found;
    Dwarf_Word value = 0;
    return dwarf_formudata(dwarf_attr(&die, attribute, &found), &value) == 0 ? value : 0;
  }

  struct Function {
    Dwarf_Addr begin, end;  // one of its ranges
    Dwarf_Die die;
  };

  // The functions of a unit by address, including those inside others, as lambdas are. dwarf_getscopes() does not find
  // those: it only looks into functions that hold the address.
  const std::vector<Function>& functions_of(Dwarf_Die& unit) {
    const auto [it, is_new] = functions_.try_emplace(dwarf_dieoffset(&unit));
    if (!is_new) return it->second;
    std::vector<Dwarf_Die> todo{unit};
    while (!todo.empty()) {
      Dwarf_Die die = todo.back();
      todo.pop_back();
      Dwarf_Die child;
      for (int rc = dwarf_child(&die, &child); rc == 0; rc = dwarf_siblingof(&child, &child)) {
        if (dwarf_tag(&child) == DW_TAG_subprogram) add_ranges(child, it->second);
        if (dwarf_haschildren(&child) == 1) todo.push_back(child);
      }
    }
    std::ranges::sort(it->second, {}, &Function::begin);
    return it->second;
  }

  static void add_ranges(Dwarf_Die& die, std::vector<Function>& functions) {
    Dwarf_Addr base = 0, begin = 0, end = 0;
    for (ptrdiff_t at = 0; (at = dwarf_ranges(&die, at, &base, &begin, &end)) > 0;)
      functions.push_back({begin, end, die});
  }

  // File and line of the innermost function stay empty: the line table has them.
  void add_inlined(Dwarf_Die& unit, uint64_t address, Place& place) {
    const std::vector<Function>& functions = functions_of(unit);
    const auto after = std::ranges::upper_bound(functions, address, {}, &Function::begin);
    if (after == functions.begin() || std::prev(after)->end <= address) return;
    std::vector<Dwarf_Die> calls{std::prev(after)->die};  // outermost first
    for (Dwarf_Die scope = calls.front(); find_scope(scope, address);)
      if (dwarf_tag(&scope) == DW_TAG_inlined_subroutine) calls.push_back(scope);
    Symbol called;  // the call in the next function out
    for (size_t i = calls.size(); i-- > 0;) {
      place.push_back({name_of(calls[i]), called.file, called.line});
      called.file = file_of(unit, number(calls[i], DW_AT_call_file));
      called.line = static_cast<uint32_t>(number(calls[i], DW_AT_call_line));
    }
  }

  // Replaces `scope` by the block or inlined call in it that has the address.
  static bool find_scope(Dwarf_Die& scope, uint64_t address) {
    Dwarf_Die child;
    for (int rc = dwarf_child(&scope, &child); rc == 0; rc = dwarf_siblingof(&child, &child)) {
      const int tag = dwarf_tag(&child);
      if ((tag != DW_TAG_inlined_subroutine && tag != DW_TAG_lexical_block) || dwarf_haspc(&child, address) != 1)
        continue;
      scope = child;
      return true;
    }
    return false;
  }

  std::unique_ptr<Dwfl, void (*)(Dwfl*)> dwfl_;
  Dwfl_Module* module_ = nullptr;                                   // null: not readable, or not the file that ran
  std::vector<Range> symbols_;                                      // by address
  std::unordered_map<Dwarf_Off, std::vector<Function>> functions_;  // by unit
};

}  // namespace

std::vector<Place> find_symbols(const std::string& file, const std::string& build_id,
                                std::span<const uint64_t> addresses) {
  Object object(file, build_id);
  std::vector<Place> places;
  places.reserve(addresses.size());
  for (const uint64_t address : addresses) places.push_back(object.at(address));
  return places;
}

bool asks_servers() {
  const char* const urls = std::getenv("DEBUGINFOD_URLS");
  return urls && *urls;
}

}  // namespace torchprof::formats
