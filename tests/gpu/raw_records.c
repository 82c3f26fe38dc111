/* Saves the activity records of a process as CUPTI delivers them, for tests of the decoder: named in
   CUDA_INJECTION64_PATH, it enables the kinds that torchprof does and writes to $RAW_RECORDS, as long as that stays
   below $RAW_RECORDS_MOST bytes (200,000 if unset):

       uint32 cuptiGetVersion(), then for each record: uint32 bytes, uint32 bytes of its name, the record, the name

   A record reaches to the begin of the next one. Names are those of kernels and devices; pointers in records mean
   nothing. CUPTI is the one that is mapped ("libcupti.so*"), or $CUPTI_LIBRARY. Functions and numbers: cupti.h.

   The file must not exist: of the processes that have the variables the first has the records, and no other one writes
   over them. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kSize = 1 << 20, kDevice = 8, kKernel = 10, kKernelName = 104, kDeviceName = 136 };
static int (*next_record)(uint8_t*, size_t, uint8_t**);
static int (*flush_all)(uint32_t);
static FILE* out;
static size_t written, most = 200000;
static uint32_t version;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void request(uint8_t** buffer, size_t* size, size_t* records) {
  *buffer = aligned_alloc(8, kSize);
  *size = *buffer ? kSize : 0;
  *records = 0;
}

static const char* name_of(const uint8_t* record, uint32_t kind) {
  const char* name = NULL;
  if (kind == kKernel) memcpy(&name, record + kKernelName, sizeof(name));
  if (kind == kDevice) memcpy(&name, record + kDeviceName, sizeof(name));
  return name;
}

static void save(const uint8_t* record, size_t bytes) {
  uint32_t kind;
  memcpy(&kind, record, sizeof(kind));
  const char* name = name_of(record, kind);
  const uint32_t head[2] = {(uint32_t)bytes, name ? (uint32_t)strlen(name) : 0};
  if (written + sizeof(head) + head[0] + head[1] > most) return;
  written += sizeof(head) + head[0] + head[1];
  fwrite(head, sizeof(head), 1, out);
  fwrite(record, bytes, 1, out);
  if (name) fwrite(name, head[1], 1, out);
}

static void completed(void* context, uint32_t stream, uint8_t* buffer, size_t size, size_t valid) {
  (void)context, (void)stream, (void)size;
  uint8_t *record = NULL, *before = NULL;
  pthread_mutex_lock(&lock);
  while (valid && next_record(buffer, valid, &record) == 0) {
    if (before) save(before, (size_t)(record - before));
    before = record;
  }
  if (before) save(before, (size_t)(buffer + valid - before));
  pthread_mutex_unlock(&lock);
  free(buffer);
}

static void at_exit(void) {
  flush_all(1);
  pthread_mutex_lock(&lock);
  fflush(out);
}

static int is_cupti(struct dl_phdr_info* info, size_t size, void* path) {
  (void)size;
  const char* slash = strrchr(info->dlpi_name, '/');
  if (slash && strncmp(slash + 1, "libcupti.so", 11) == 0) *(char**)path = strdup(info->dlpi_name);
  return *(char**)path != NULL;
}

int InitializeInjection(void) {
  char* path = NULL;
  dl_iterate_phdr(is_cupti, &path);
  if (!path) path = getenv("CUPTI_LIBRARY");
  void* cupti = path ? dlopen(path, RTLD_LAZY) : NULL;
  const char* file = getenv("RAW_RECORDS");
  if (!cupti) {
    fprintf(stderr, "raw_records: %s\n", path ? dlerror() : "no CUPTI is mapped, and CUPTI_LIBRARY names none");
    return 0;
  }
  if (!file || !(out = fopen(file, "wbx"))) {
    fprintf(stderr, "raw_records: RAW_RECORDS=%s: %s\n", file ? file : "", file ? strerror(errno) : "it names no file");
    return 0;
  }
  int (*get_version)(uint32_t*) = (int (*)(uint32_t*))dlsym(cupti, "cuptiGetVersion");
  int (*register_callbacks)(void*, void*) = (int (*)(void*, void*))dlsym(cupti, "cuptiActivityRegisterCallbacks");
  int (*enable)(uint32_t) = (int (*)(uint32_t))dlsym(cupti, "cuptiActivityEnable");
  next_record = (int (*)(uint8_t*, size_t, uint8_t**))dlsym(cupti, "cuptiActivityGetNextRecord");
  flush_all = (int (*)(uint32_t))dlsym(cupti, "cuptiActivityFlushAll");
  if (getenv("RAW_RECORDS_MOST")) most = strtoul(getenv("RAW_RECORDS_MOST"), NULL, 10);
  get_version(&version);
  fwrite(&version, sizeof(version), 1, out);
  register_callbacks((void*)request, (void*)completed);
  static const uint32_t kinds[] = {1, 2, 4, 5, 8, 9, 10, 17, 20, 22, 36, 38, 49, 50};
  for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); ++i) enable(kinds[i]);
  atexit(at_exit);
  return 1;
}
