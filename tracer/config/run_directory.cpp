#include "tracer/config/run_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace torchprof {
namespace {

using Text = char[256];

// What says which job a process belongs to, the most lasting first: of the batch system, of Ray, of torchrun (in its
// workers; "none" is what it says where nobody has named the job).
constexpr const char* kJobVariables[] = {"SLURM_JOB_ID", "PBS_JOBID", "RAY_JOB_ID", "TORCHELASTIC_RUN_ID"};

// The machine between two starts; where its number cannot be read, its name alone.
const char* machine_text(Text& text) noexcept {
  text[sizeof(text) - 1] = 0;
  if (gethostname(text, sizeof(text) - 1) != 0) strcpy(text, "localhost");
  char boot[9] = "";
  const int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  const size_t used = strlen(text);
  if (fd >= 0 && read(fd, boot, 8) == 8) snprintf(text + used, sizeof(text) - used, "-%s", boot);
  if (fd >= 0) close(fd);
  return text;
}

// One name, whatever the variable holds.
const char* job_text(Text& text) noexcept {
  for (const char* const name : kJobVariables) {
    const char* value = getenv(name);
    if (!value || !*value || strcmp(value, "none") == 0) continue;
    snprintf(text, sizeof(text), "%s", value);
    for (char* c = text; *c; ++c)
      if (*c == '/' || static_cast<unsigned char>(*c) <= ' ') *c = '_';
    return strcmp(text, ".") == 0 || strcmp(text, "..") == 0 ? "_" : text;
  }
  // A pod's host name is its own.
  if (!getenv("KUBERNETES_SERVICE_HOST")) return machine_text(text);
  text[sizeof(text) - 1] = 0;
  return gethostname(text, sizeof(text) - 1) == 0 ? text : "pod";
}

// nullptr: there is no such placeholder.
const char* placeholder_text(char placeholder, Text& text) noexcept {
  switch (placeholder) {
    case '%':
      return "%";
    case 'p':
      snprintf(text, sizeof(text), "%d", static_cast<int>(getpid()));
      return text;
    case 'u':
      snprintf(text, sizeof(text), "%u", static_cast<unsigned>(getuid()));
      return text;
    case 'h':
      text[sizeof(text) - 1] = 0;
      return gethostname(text, sizeof(text) - 1) == 0 ? text : "localhost";
    case 'j':
      return job_text(text);
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

// A placeholder in a pattern: its letter, and what {NAME} or {NAME:-INSTEAD} say after a q.
struct Placeholder {
  char letter;
  char name[128];
  const char* instead;  // nullptr: none
  size_t instead_length;
  const char* end;  // its last character
};

// `at`: behind the %. Whether it is known at all is not looked at.
bool read_placeholder(const char* at, const char* pattern, Placeholder& out, ErrorText& error) noexcept {
  out = {};
  out.letter = *at;
  out.end = at;
  if (*at == 0) return refuse(error, "output '%s': a lone %% at its end: %%%% is a percent sign", pattern);
  if (*at != 'q') return true;
  const char* close = at[1] == '{' ? strchr(at, '}') : nullptr;
  const char* name = at + 2;
  size_t length = close ? static_cast<size_t>(close - name) : 0;
  for (size_t i = 0; i + 1 < length && !out.instead; ++i)
    if (name[i] == ':' && name[i + 1] == '-') {
      out.instead = name + i + 2;
      out.instead_length = length - i - 2;
      length = i;
    }
  if (!close || length >= sizeof(out.name))
    return refuse(error, "output '%s': %%q wants a variable: %%q{NAME} or %%q{NAME:-INSTEAD}", pattern);
  memcpy(out.name, name, length);
  out.end = close;
  return true;
}

bool refuse_letter(char letter, const char* pattern, ErrorText& error) noexcept {
  return refuse(error, "output '%s': %%%c is not a placeholder: %%h, %%j, %%p, %%t, %%u, %%q{NAME} or %%%%", pattern,
                letter);
}

}  // namespace

bool expand_output(const char* pattern, char* out, size_t size, ErrorText& error) noexcept {
  size_t used = 0;
  for (const char* p = pattern; *p; ++p) {
    Text text = {*p};
    const char* piece = text;
    size_t length = 1;
    if (*p == '%') {
      Placeholder placeholder;
      if (!read_placeholder(p + 1, pattern, placeholder, error)) return false;
      p = placeholder.end;
      piece = placeholder.letter == 'q' ? getenv(placeholder.name) : placeholder_text(placeholder.letter, text);
      // As in a shell, an empty one counts as none where something stands instead.
      const bool is_instead = placeholder.instead && (!piece || !*piece);
      if (is_instead) piece = placeholder.instead;
      if (!piece && placeholder.letter == 'q')
        return refuse(error, "output '%s': variable %s is not set", pattern, placeholder.name);
      if (!piece) return refuse_letter(placeholder.letter, pattern, error);
      length = is_instead ? placeholder.instead_length : strlen(piece);
    }
    if (used + length >= size) return refuse(error, "output '%s': the name is too long", pattern);
    memcpy(out + used, piece, length);
    used += length;
  }
  out[used] = 0;
  return true;
}

bool is_shared_output(const char* pattern, ErrorText& error) noexcept {
  for (const char* p = pattern; *p; ++p) {
    if (*p != '%') continue;
    Placeholder placeholder;
    if (!read_placeholder(p + 1, pattern, placeholder, error)) return false;
    p = placeholder.end;
    Text text;
    if (placeholder.letter == 'p' || placeholder.letter == 't')
      return refuse(error,
                    "output '%s': with %%%c each process would have a directory of its own, and no two would be one "
                    "run; %%j is the job, %%h the host, %%u the user",
                    pattern, placeholder.letter);
    if (placeholder.letter != 'q' && !placeholder_text(placeholder.letter, text))
      return refuse_letter(placeholder.letter, pattern, error);
  }
  return true;
}

void write_launched(const char* output, char (&entry)[PATH_MAX + 256]) noexcept {
  utsname host{};
  uname(&host);
  snprintf(entry, sizeof(entry), "%s=%s:%s", kLaunched, host.nodename, output);
}

bool is_armed_by_environment() noexcept {
  const char* value = getenv(kLaunched);
  return !value || !*value;
}

bool made_by_launcher(const char* output) noexcept {
  const char* value = getenv(kLaunched);
  utsname host;
  if (!value || uname(&host) != 0) return false;
  const size_t length = strlen(host.nodename);
  return strncmp(value, host.nodename, length) == 0 && value[length] == ':' && strcmp(value + length + 1, output) == 0;
}

bool is_started_by_attached(const char* output) noexcept {
  const char* value = getenv(kAttached);
  return value && strcmp(value, output) == 0;
}

namespace {

enum class Held { kYes, kNo, kNotKnown };

Held look_at_lock(const char* output) noexcept {
  char spools[PATH_MAX];
  if (snprintf(spools, sizeof(spools), "%s/spool", output) >= static_cast<int>(sizeof(spools))) return Held::kNotKnown;
  const int directory = open(spools, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return errno == ENOENT ? Held::kNo : Held::kNotKnown;
  const bool is_free = flock(directory, LOCK_SH | LOCK_NB) == 0;
  const Held held = is_free ? Held::kNo : errno == EWOULDBLOCK ? Held::kYes : Held::kNotKnown;
  close(directory);
  return held;
}

}  // namespace

bool is_attach_over(const char* output) noexcept { return look_at_lock(output) != Held::kYes; }

bool is_attach_certainly_over(const char* output) noexcept { return look_at_lock(output) == Held::kNo; }

}  // namespace torchprof
