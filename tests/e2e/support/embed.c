// embed LIBPYTHON local|global STEP...: a program that finds its Python while it runs. Steps:
//     run TEXT   in the current interpreter
//     new        a subinterpreter, which becomes the current one; `own` (3.12): with a GIL of its own
//     end        ends it; back to the one before
//     again      Py_FinalizeEx() and Py_Initialize()
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct Status {  // PyStatus
  int type;
  const char *function, *message;
  int code;
};
struct Config {  // PyInterpreterConfig
  int use_main_obmalloc, allow_fork, allow_exec, allow_threads, allow_daemon_threads, check_multi_interp_extensions,
      gil;
};

static void* python;

static void* find(const char* name) {
  void* found = dlsym(python, name);
  if (found) return found;
  fprintf(stderr, "embed: no %s\n", name);
  exit(2);
}

int main(int argc, char** argv) {
  void* states[16] = {0};
  int depth = 0;
  python = dlopen(argv[1], RTLD_NOW | (strcmp(argv[2], "local") == 0 ? RTLD_LOCAL : RTLD_GLOBAL));
  if (!python) return fprintf(stderr, "embed: %s\n", dlerror()), 2;
  void (*initialize)(int) = find("Py_InitializeEx");
  int (*finalize)(void) = find("Py_FinalizeEx");
  int (*run)(const char*, void*) = find("PyRun_SimpleStringFlags");
  void* (*swap)(void*) = find("PyThreadState_Swap");
  initialize(0);
  states[0] = ((void* (*)(void))find("PyThreadState_Get"))();
  for (int i = 3; i < argc; ++i) {
    if (strcmp(argv[i], "run") == 0) {
      if (run(argv[++i], NULL) != 0) return 1;
    } else if (strcmp(argv[i], "new") == 0) {
      states[++depth] = ((void* (*)(void))find("Py_NewInterpreter"))();
    } else if (strcmp(argv[i], "own") == 0) {
      const struct Config config = {0, 0, 0, 1, 0, 1, 2};
      const struct Status status =
          ((struct Status(*)(void**, const struct Config*))find("Py_NewInterpreterFromConfig"))(&states[++depth],
                                                                                                &config);
      if (status.type != 0) return fprintf(stderr, "embed: %s\n", status.message), 2;
    } else if (strcmp(argv[i], "end") == 0) {
      ((void (*)(void*))find("Py_EndInterpreter"))(states[depth]);
      swap(states[--depth]);
    } else if (strcmp(argv[i], "again") == 0) {
      finalize();
      initialize(0);
      states[0] = ((void* (*)(void))find("PyThreadState_Get"))();
    }
  }
  return finalize() != 0;
}
