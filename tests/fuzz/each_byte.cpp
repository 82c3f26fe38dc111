// usage: each_byte SPOOL PART PARTS [all] (or --seeds DIRECTORY, as the fuzzer): the spool, by turns, cut at a byte and
// with a byte flipped, byte after byte, into every command's reader; with `all` both at each byte, for twice as long.
// The bytes are dealt out to PARTS processes. Prints how many inputs there were; what breaks a reader ends this
// program, after a line that names the input.
//
// The fuzzer has sanitizers and chooses its inputs; this leaves no byte of one spool out, without sanitizers.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "tests/fuzz/each_byte.h"

namespace {

// The input that is being tried. It is printed only if it ends this program.
char g_input[64];

void on_crash(int signal) {
  std::signal(signal, SIG_DFL);
  if (write(2, g_input, strlen(g_input)) < 0) _exit(2);
  raise(signal);
}

void try_all(const std::string& bytes, const char* what, size_t at) {
  snprintf(g_input, sizeof(g_input), "%s at byte %zu\n", what, at);
  consume_all(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

}  // namespace

int main(int count, char** arguments) {
  LLVMFuzzerInitialize(&count, &arguments);
  const size_t part = std::stoul(arguments[2]), parts = std::stoul(arguments[3]);
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) std::signal(signal, on_crash);
  std::ifstream file(arguments[1], std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(file), {}};
  const bool is_all = count > 4 && std::string_view(arguments[4]) == "all";
  size_t inputs = 0;
  for (size_t at = part; at < whole.size(); at += parts) {
    const bool is_cut_turn = at / parts % 2 == 0;
    if (is_all || is_cut_turn) {
      try_all(whole.substr(0, at), "cut", at);
      ++inputs;
    }
    if (is_all || !is_cut_turn) {
      std::string flipped = whole;
      flipped[at] = static_cast<char>(~flipped[at]);
      try_all(flipped, "flipped", at);
      ++inputs;
    }
  }
  printf("%zu\n", inputs);
}
