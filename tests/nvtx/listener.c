/* A tool as Nsight is one: writes each push and pop that it is told of as a line to the file that LISTENER_FILE names.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef void (*function)(void);
static int file = -1;
static _Thread_local int depth;

static int push(const char* text) {
  dprintf(file, "%ld push %s\n", syscall(SYS_gettid), text);
  return depth++;
}
static int pop(void) {
  dprintf(file, "%ld pop\n", syscall(SYS_gettid));
  return --depth;
}

int InitializeInjectionNvtx2(const void* (*get_export_table)(uint32_t)) {
  const struct {
    size_t size;
    int (*table)(int, function***, unsigned*);
  }* callbacks = get_export_table(1);
  function** table;
  unsigned count;
  if (!callbacks || !callbacks->table(1, &table, &count) || count != 16) return 0;
  for (int module = 2; module <= 6; ++module) {
    function** other;
    if (!callbacks->table(module, &other, &count)) return 0;
  }
  file = open(getenv("LISTENER_FILE"), O_WRONLY | O_CREAT | O_APPEND, 0600);
  *table[9] = (function)push;
  *table[11] = (function)pop;
  return 1;
}
