/* A tool as nsys is one: the simulated driver loads it from CUDA_INJECTION64_PATH, NVTX its ranges' library, or the
   loader from LD_PRELOAD. It holds CUPTI's subscription and says on stdout what it is called for. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int InitializeInjection(void) {
  void* cupti = dlopen(getenv("SIM"), RTLD_LAZY);
  int (*subscribe)(void**, void*, void*) = cupti ? (int (*)(void**, void*, void*))dlsym(cupti, "cuptiSubscribe") : NULL;
  void* subscriber = NULL;
  printf("the tool has CUPTI: %d\n", subscribe ? subscribe(&subscriber, NULL, NULL) : -1);
  fflush(stdout);
  return 1;
}

int InitializeInjectionNvtx2(void* get_table) {
  (void)get_table;
  puts("the tool has NVTX");
  fflush(stdout);
  return 1;
}
