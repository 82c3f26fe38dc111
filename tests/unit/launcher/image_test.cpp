// Another process's objects and symbols, read from its memory: here our own, whose loader says what is right.
#include "launcher/attach/image.h"

#include <dlfcn.h>
#include <doctest/doctest.h>
#include <elf.h>
#include <link.h>
#include <unistd.h>

#include <cstring>
#include <set>

namespace image_test {

using namespace torchprof::launcher;

namespace {

// The names of all functions and objects that libc exports, by its own hash table.
std::set<std::string> names_of_libc() {
  std::set<std::string> names;
  const auto visit = [](dl_phdr_info* info, size_t, void* out) {
    const char* const slash = info->dlpi_name ? strrchr(info->dlpi_name, '/') : nullptr;
    if (!slash || strncmp(slash, "/libc.so", 8) != 0) return 0;
    const ElfW(Sym)* symbols = nullptr;
    const char* strings = nullptr;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
      if (info->dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
      for (auto* d = reinterpret_cast<const ElfW(Dyn)*>(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr); d->d_tag; ++d) {
        if (d->d_tag == DT_SYMTAB) symbols = reinterpret_cast<const ElfW(Sym)*>(d->d_un.d_ptr);
        if (d->d_tag == DT_STRTAB) strings = reinterpret_cast<const char*>(d->d_un.d_ptr);
      }
    }
    // The strings lie right behind the symbols.
    const auto* const end = reinterpret_cast<const ElfW(Sym)*>(strings);
    for (const ElfW(Sym)* s = symbols; s && s + 1 <= end; ++s) {
      const int type = ELF64_ST_TYPE(s->st_info);
      if (s->st_value != 0 && (type == STT_FUNC || type == STT_OBJECT))
        static_cast<std::set<std::string>*>(out)->insert(strings + s->st_name);
    }
    return 1;
  };
  dl_iterate_phdr(visit, &names);
  return names;
}

}  // namespace

TEST_CASE("symbols of a process lie where its loader finds them") {
  const Image image(static_cast<uint32_t>(getpid()));
  REQUIRE(image.is_there());
  void* const libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
  REQUIRE(libc);
  const std::set<std::string> names = names_of_libc();
  REQUIRE(names.size() > 1000);
  size_t others = 0;  // a name may have several versions, of which each is right
  for (const std::string& name : names) {
    const uint64_t found = image.symbol("libc.so", name.c_str()).address;
    const auto wanted = reinterpret_cast<uint64_t>(dlsym(libc, name.c_str()));
    if (wanted == 0 || found == wanted) continue;
    Dl_info info;
    INFO(name);
    const bool is_function = dladdr(reinterpret_cast<void*>(found), &info) != 0 && info.dli_sname;
    CHECK((found != 0 && is_function));
    ++others;
  }
  CHECK(others < names.size() / 10);
  for (const char* const missing : {"", "no_such_function", "mallo", "mallocs"})
    CHECK(image.symbol("libc.so", missing).address == 0);
  CHECK(image.symbol("no such file", "malloc").address == 0);
}

TEST_CASE("memory of a process is read and written, and what is not mapped is not") {
  Image image(static_cast<uint32_t>(getpid()));
  uint64_t here = 0x1122334455667788;
  const auto at = reinterpret_cast<uint64_t>(&here);
  CHECK(image.value<uint64_t>(at) == here);
  const uint64_t other = 42;
  CHECK(image.write(at, &other, sizeof(other)));
  CHECK(*const_cast<volatile uint64_t*>(&here) == 42);
  CHECK_FALSE(image.read(8, &here, sizeof(here)));
  CHECK_FALSE(image.write(8, &other, sizeof(other)));
  REQUIRE(image.at(at));
  CHECK(image.at(at)->begin <= at);
  CHECK_FALSE(image.at(8));
  CHECK(image.object("libc.so").find("/libc.so") != std::string::npos);
}

TEST_CASE("a process that is not there has nothing") {
  const Image image(0x7fffffff);
  CHECK_FALSE(image.is_there());
  CHECK(image.symbol("", "malloc").address == 0);
  CHECK(image.object("libc.so").empty());
}

}  // namespace image_test
