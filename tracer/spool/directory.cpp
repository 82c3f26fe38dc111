#include "tracer/spool/directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdio>
#include <cstring>

namespace torchprof {
namespace {

bool is_directory(const char* path) noexcept {
  struct stat status {};
  if (lstat(path, &status) != 0) return false;
  if (S_ISDIR(status.st_mode)) return true;
  errno = ENOTDIR;
  return false;
}

}  // namespace

bool make_spool_directory(const char* path) noexcept {
  const char* last = strrchr(path, '/');
  const void* before = last ? memrchr(path, '/', static_cast<size_t>(last - path)) : nullptr;
  const ptrdiff_t above = before ? static_cast<const char*>(before) - path : 0;
  char partial[PATH_MAX];
  if (strlen(path) >= sizeof(partial)) {
    errno = ENAMETOOLONG;
    return false;
  }
  strcpy(partial, path);
  for (char* p = partial + 1;; ++p) {
    if (*p != '/' && *p != 0) continue;
    const char end = *p;
    *p = 0;
    if (mkdir(partial, p - partial > above ? 0700 : 0777) != 0 && errno != EEXIST) return false;
    if (!end) break;
    *p = end;
  }
  return is_directory(path);
}

bool find_spool_directory(const char* path) noexcept {
  if (is_directory(path)) return true;
  if (errno != ENOENT) return false;
  const char* last = strrchr(path, '/');
  char info[PATH_MAX];
  const int size = snprintf(info, sizeof(info), "%.*s/run.json", static_cast<int>(last - path), path);
  if (size >= static_cast<int>(sizeof(info))) errno = ENAMETOOLONG;
  if (size >= static_cast<int>(sizeof(info)) || access(info, F_OK) != 0) return false;
  return (mkdir(path, 0700) == 0 || errno == EEXIST) && is_directory(path);
}

}  // namespace torchprof
