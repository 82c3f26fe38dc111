#include "launcher/attach/image.h"

#include <elf.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstring>
#include <sstream>

#include "formats/io/process_files.h"

namespace torchprof::launcher {

// Addresses in the process of an object's dynamic tables.
struct Image::Object {
  uint64_t bias = 0;
  uint64_t symbols = 0;
  uint64_t strings = 0;
  uint64_t hash = 0;  // DT_GNU_HASH
};

void Image::look() {
  maps_.clear();
  std::istringstream in(formats::read_process_file(pid_, "maps"));
  for (std::string line; std::getline(in, line);) {
    // 7f00-7f40 r-xp 00001000 00:1f 258    /usr/lib/libc.so.6
    std::istringstream fields(line);
    Mapping mapping;
    std::string access, device, inode;
    char dash = 0;
    fields >> std::hex >> mapping.begin >> dash >> mapping.end >> access >> mapping.offset >> device >> inode;
    fields >> std::ws;
    std::getline(fields, mapping.path);
    mapping.is_code = access.size() > 2 && access[2] == 'x';
    if (mapping.end > mapping.begin) maps_.push_back(std::move(mapping));
  }
}

bool Image::read(uint64_t at, void* to, size_t size) const {
  const iovec local{to, size}, remote{reinterpret_cast<void*>(at), size};
  return process_vm_readv(static_cast<pid_t>(pid_), &local, 1, &remote, 1, 0) == static_cast<ssize_t>(size);
}

bool Image::write(uint64_t at, const void* from, size_t size) const {
  const iovec local{const_cast<void*>(from), size}, remote{reinterpret_cast<void*>(at), size};
  return process_vm_writev(static_cast<pid_t>(pid_), &local, 1, &remote, 1, 0) == static_cast<ssize_t>(size);
}

std::string Image::text(uint64_t at) const {
  std::string out;
  for (char c = 0; out.size() < 512 && read(at + out.size(), &c, 1) && c != 0;) out += c;
  return out;
}

bool Image::find_object(const Mapping& first, Object& object) const {
  const auto header = value<Elf64_Ehdr>(first.begin);
  constexpr size_t kMostSegments = 64;
  if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_phnum > kMostSegments) return false;
  uint64_t dynamic = 0, dynamic_size = 0;
  bool has_bias = false;
  for (size_t i = 0; i < header.e_phnum; ++i) {
    const auto segment = value<Elf64_Phdr>(first.begin + header.e_phoff + i * sizeof(Elf64_Phdr));
    constexpr uint64_t kPage = 4096;
    if (segment.p_type == PT_LOAD && !has_bias) {
      object.bias = first.begin - (segment.p_vaddr - segment.p_offset) / kPage * kPage;
      has_bias = true;
    }
    if (segment.p_type == PT_DYNAMIC) {
      dynamic = segment.p_vaddr;
      dynamic_size = segment.p_memsz;
    }
  }
  if (!has_bias || dynamic == 0) return false;
  // glibc has relocated the addresses in it where it can be written to; musl has not.
  const auto absolute = [&object](uint64_t at) { return at < object.bias ? object.bias + at : at; };
  for (uint64_t at = 0; at + sizeof(Elf64_Dyn) <= dynamic_size; at += sizeof(Elf64_Dyn)) {
    const auto entry = value<Elf64_Dyn>(object.bias + dynamic + at);
    if (entry.d_tag == DT_NULL) break;
    if (entry.d_tag == DT_SYMTAB) object.symbols = absolute(entry.d_un.d_ptr);
    if (entry.d_tag == DT_STRTAB) object.strings = absolute(entry.d_un.d_ptr);
    if (entry.d_tag == DT_GNU_HASH) object.hash = absolute(entry.d_un.d_ptr);
  }
  return object.symbols != 0 && object.strings != 0 && object.hash != 0;
}

Symbol Image::look_up(const Object& object, const char* name) const {
  struct {
    uint32_t buckets, first, filter_words, filter_shift;
  } head{};
  if (!read(object.hash, &head, sizeof(head)) || head.buckets == 0) return {};
  uint32_t hash = 5381;
  for (const char* p = name; *p; ++p) hash = hash * 33 + static_cast<unsigned char>(*p);
  const uint64_t buckets = object.hash + sizeof(head) + uint64_t{head.filter_words} * sizeof(uint64_t);
  const uint64_t chains = buckets + uint64_t{head.buckets} * sizeof(uint32_t);
  uint64_t index = value<uint32_t>(buckets + hash % head.buckets * sizeof(uint32_t));
  if (index < head.first) return {};
  for (size_t tries = 0; tries < 4096; ++tries, ++index) {
    const auto chain = value<uint32_t>(chains + (index - head.first) * sizeof(uint32_t));
    if ((chain | 1) == (hash | 1)) {
      const auto symbol = value<Elf64_Sym>(object.symbols + index * sizeof(Elf64_Sym));
      if (symbol.st_value != 0 && text(object.strings + symbol.st_name) == name)
        return {object.bias + symbol.st_value, symbol.st_size};
    }
    if (chain & 1) break;
  }
  return {};
}

namespace {

bool is_of(const Mapping& mapping, std::string_view file) {
  const size_t slash = mapping.path.rfind('/');
  return slash != std::string::npos && mapping.offset == 0 &&
         (file.empty() || mapping.path.compare(slash + 1, file.size(), file) == 0);
}

}  // namespace

Symbol Image::symbol(std::string_view file, const char* name) const {
  std::string last;
  for (const Mapping& mapping : maps_) {
    Object object;
    if (!is_of(mapping, file) || mapping.path == last || !find_object(mapping, object)) continue;
    last = mapping.path;
    if (const Symbol found = look_up(object, name); found.address != 0) return found;
  }
  return {};
}

std::string Image::object(std::string_view file) const {
  const auto found = std::ranges::find_if(maps_, [file](const Mapping& mapping) { return is_of(mapping, file); });
  return found == maps_.end() ? std::string{} : found->path;
}

const Mapping* Image::at(uint64_t address) const {
  const auto found = std::ranges::find_if(
      maps_, [address](const Mapping& mapping) { return mapping.begin <= address && address < mapping.end; });
  return found == maps_.end() ? nullptr : &*found;
}

}  // namespace torchprof::launcher
