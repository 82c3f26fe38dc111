// The least that a profiler of Python calls can cost before 3.12: PyEval_SetProfile with a callback that does nothing,
// or nothing but read the clock.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

static int nothing(PyObject* object, PyFrameObject* frame, int what, PyObject* argument) {
  (void)object, (void)frame, (void)what, (void)argument;
  return 0;
}

#if defined(__x86_64__)
static int reads_clock(PyObject* object, PyFrameObject* frame, int what, PyObject* argument) {
  static volatile unsigned long long last;
  (void)object, (void)frame, (void)what, (void)argument;
  last = __builtin_ia32_rdtsc();
  return 0;
}
#else
#define reads_clock nothing
#endif

static PyObject* start(PyObject* module, PyObject* clock) {
  (void)module;
  PyEval_SetProfile(PyObject_IsTrue(clock) ? reads_clock : nothing, NULL);
  Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"start", start, METH_O, "Sets a callback on this thread, one that reads the clock or not."},
    {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "empty_profile", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_empty_profile(void) { return PyModule_Create(&module); }
