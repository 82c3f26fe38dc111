/* exec_stack WAY MAKER SIZE PATH...: starts PATH in a signal's handler on an alternate stack of SIZE bytes and prints
   what became of it, and how many bytes of that stack were touched in all. The stack is shared with the child, so that
   what was touched before the exec can be seen after it. WAY: the function that starts it. MAKER: where it is called:
   here ("spawn": of posix_spawn alone), or in a child of fork or vfork made outside or inside of the handler. The file
   that GONE names is removed first. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *way, *maker, *path, *name;
static char* arguments[] = {"started", "with", "two", NULL};
static int file;
static volatile pid_t child;
static volatile int failed;

static int is(const char* what) { return strcmp(way, what) == 0; }

static void start(void) {
  if (is("execv")) execv(path, arguments);
  if (is("execve")) execve(path, arguments, environ);
  if (is("execvp")) execvp(name, arguments);
  if (is("execvpe")) execvpe(name, arguments, environ);
  if (is("execl")) execl(path, "started", "with", "two", (char*)0);
  if (is("execlp")) execlp(name, "started", "with", "two", (char*)0);
  if (is("execle")) execle(path, "started", "with", "two", (char*)0, environ);
  if (is("fexecve")) fexecve(file, arguments, environ);
  if (is("execveat")) execveat(AT_FDCWD, path, arguments, environ, 0);
  _exit(99);
}

static void on_signal(int number) {
  (void)number;
  if (is("posix_spawn") || is("posix_spawnp")) {
    pid_t pid = 0;
    failed = is("posix_spawn") ? posix_spawn(&pid, path, NULL, NULL, arguments, environ)
                               : posix_spawnp(&pid, name, NULL, NULL, arguments, environ);
    child = pid;
    return;
  }
  pid_t pid = strcmp(maker, "fork inside") == 0 ? fork() : strcmp(maker, "vfork inside") == 0 ? vfork() : 0;
  if (pid == 0) start();
  child = pid;
}

int main(int count, char** all) {
  if (count != 6) return 2;
  if (getenv("GONE")) unlink(getenv("GONE"));
  way = all[1], maker = all[2], path = all[4], name = all[5];
  const size_t size = strtoul(all[3], NULL, 10), page = 4096, room = (size + page - 1) / page * page + page;
  file = open(path, O_RDONLY | O_CLOEXEC);
  /* Of a fork within the handler both go on with it: each with its own, and the parent's is what is measured. */
  const int sharing = strcmp(maker, "fork inside") == 0 ? MAP_PRIVATE : MAP_SHARED;
  char* memory = mmap(NULL, room, PROT_READ | PROT_WRITE, sharing | MAP_ANONYMOUS, -1, 0);
  mprotect(memory, page, PROT_NONE);
  char* bottom = memory + room - size;
  memset(bottom, 0xa5, size);
  stack_t stack = {.ss_sp = bottom, .ss_size = size};
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
  if (sigaltstack(&stack, NULL) != 0 || sigaction(SIGUSR1, &action, NULL) != 0) return perror("sigaltstack"), 3;
  const int is_inside = strstr(maker, "inside") || strcmp(maker, "spawn") == 0;
  pid_t pid = is_inside ? 0 : strcmp(maker, "fork") == 0 ? fork() : vfork();
  if (pid == 0) {
    raise(SIGUSR1);
    if (!is_inside) _exit(98);
    pid = child;
  }
  int status = -1;
  waitpid(pid, &status, 0);
  size_t left = 0;
  while (left < size && (unsigned char)bottom[left] == 0xa5) ++left;
  printf("%s %s: failed %d, status %d\n", way, maker, failed, status);
  fprintf(stderr, "touched %zu\n", size - left);
  return 0;
}
