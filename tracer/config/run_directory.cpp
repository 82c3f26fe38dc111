#include "tracer/config/run_directory.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace torchprof {
namespace {

using Text = char[256];

// nullptr: there is no such placeholder.
const char* placeholder_text(char placeholder, Text& text) noexcept {
  switch (placeholder) {
    case '%':
      return "%";
    case 'p':
      snprintf(text, sizeof(text), "%d", static_cast<int>(getpid()));
      return text;
    case 'h':
      text[sizeof(text) - 1] = 0;
      return gethostname(text, sizeof(text) - 1) == 0 ? text : "localhost";
    case 't': {
      const time_t now = time(nullptr);
      tm parts{};
      localtime_r(&now, &parts);
      strftime(text, sizeof(text), "%Y%m%d-%H%M%S", &parts);
      return text;
    }
    default:
      return nullptr;
  }
}

// The value of {NAME}, which begins at `braces` and ends at `close`. nullptr: `error` says why.
const char* variable_in(const char* braces, const char*& close, const char* pattern, ErrorText& error) noexcept {
  close = *braces == '{' ? strchr(braces, '}') : nullptr;
  char name[128];
  const size_t length = close ? static_cast<size_t>(close - braces - 1) : 0;
  if (!close || length >= sizeof(name)) {
    refuse(error, "output '%s': %%q wants a variable: %%q{NAME}", pattern);
    return nullptr;
  }
  memcpy(name, braces + 1, length);
  name[length] = 0;
  const char* value = getenv(name);
  if (!value) refuse(error, "output '%s': variable %s is not set", pattern, name);
  return value;
}

}  // namespace

bool expand_output(const char* pattern, char* out, size_t size, ErrorText& error) noexcept {
  size_t used = 0;
  for (const char* p = pattern; *p; ++p) {
    Text text = {*p};
    const char* piece = text;
    if (*p == '%') {
      if (*++p == 0) return refuse(error, "output '%s': a lone %% at its end: %%%% is a percent sign", pattern);
      const char* last = p;
      piece = *p == 'q' ? variable_in(p + 1, last, pattern, error) : placeholder_text(*p, text);
      if (!piece && *p == 'q') return false;
      if (!piece)
        return refuse(error, "output '%s': %%%c is not a placeholder: %%h, %%p, %%t, %%q{NAME} or %%%%", pattern, *p);
      p = last;
    }
    const size_t length = strlen(piece);
    if (used + length >= size) return refuse(error, "output '%s': the name is too long", pattern);
    memcpy(out + used, piece, length);
    used += length;
  }
  out[used] = 0;
  return true;
}

void write_launched(const char* output, char (&entry)[PATH_MAX + 256]) noexcept {
  utsname host{};
  uname(&host);
  snprintf(entry, sizeof(entry), "%s=%s:%s", kLaunched, host.nodename, output);
}

bool made_by_launcher(const char* output) noexcept {
  const char* value = getenv(kLaunched);
  utsname host;
  if (!value || uname(&host) != 0) return false;
  const size_t length = strlen(host.nodename);
  return strncmp(value, host.nodename, length) == 0 && value[length] == ':' && strcmp(value + length + 1, output) == 0;
}

}  // namespace torchprof
