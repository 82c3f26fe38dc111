#include "formats/symbols.h"

#include <cxxabi.h>
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace torchprof::formats {
namespace {

std::string demangle(const char* name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(name, nullptr, nullptr, &status), std::free);
  return status == 0 && text ? text.get() : name;
}

// An object file, opened for as long as its addresses are looked up.
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
    const std::string function = symbol_at(address);
    if (place.empty() && !function.empty()) place.emplace_back();
    if (place.empty()) return place;
    // DWARF knows which of several names of one address is meant, but not always the arguments.
    std::string& outermost = place.back().function;
    if (outermost.empty() || (outermost.find('(') == std::string::npos && function.find('(') != std::string::npos))
      outermost = function;
    if (Dwfl_Line* line = dwfl_module_getsrc(module_, address)) {
      int number = 0;
      if (const char* source = dwfl_lineinfo(line, nullptr, &number, nullptr, nullptr, nullptr)) {
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
                                        .find_debuginfo = dwfl_standard_find_debuginfo,
                                        .section_address = dwfl_offline_section_address,
                                        .debuginfo_path = nullptr};
    return them;
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

  std::string symbol_at(uint64_t address) const {
    auto it = std::ranges::upper_bound(symbols_, address, {}, &Range::start);
    // The one that begins last and holds the address; of several that begin together, the first.
    for (int tries = 0; it != symbols_.begin() && tries < 16; ++tries) {
      --it;
      if (address - it->start >= it->size) continue;
      while (it != symbols_.begin() && std::prev(it)->start == it->start && std::prev(it)->size == it->size) --it;
      return demangle(it->name);
    }
    return {};
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

  // Where the innermost one stands is left open: the table of lines says it.
  static void add_inlined(Dwarf_Die& unit, uint64_t address, Place& place) {
    Dwarf_Die* found = nullptr;
    const int count = dwarf_getscopes(&unit, address, &found);
    if (count <= 0) return;
    const std::unique_ptr<Dwarf_Die, void (*)(void*)> owner(found, std::free);
    Dwarf_Die* scopes = nullptr;
    const int depth = dwarf_getscopes_die(found, &scopes);
    if (depth <= 0) return;
    const std::unique_ptr<Dwarf_Die, void (*)(void*)> other_owner(scopes, std::free);
    Symbol called;  // where the next one out calls
    for (int i = 0; i < depth; ++i) {
      const int tag = dwarf_tag(&scopes[i]);
      if (tag != DW_TAG_inlined_subroutine && tag != DW_TAG_subprogram) continue;
      place.push_back({name_of(scopes[i]), called.file, called.line});
      if (tag == DW_TAG_subprogram) return;
      called.file = file_of(unit, number(scopes[i], DW_AT_call_file));
      called.line = static_cast<uint32_t>(number(scopes[i], DW_AT_call_line));
    }
  }

  std::unique_ptr<Dwfl, void (*)(Dwfl*)> dwfl_;
  Dwfl_Module* module_ = nullptr;  // null: it cannot be read, or is another one
  std::vector<Range> symbols_;     // by address
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

}  // namespace torchprof::formats
