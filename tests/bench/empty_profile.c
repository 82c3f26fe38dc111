// The least that a profiler of Python calls can cost before 3.12: PyEval_SetProfile with a callback that does nothing.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

static int nothing(PyObject* object, PyFrameObject* frame, int what, PyObject* argument) {
  (void)object, (void)frame, (void)what, (void)argument;
  return 0;
}

static PyObject* start(PyObject* module, PyObject* none) {
  (void)module, (void)none;
  PyEval_SetProfile(nothing, NULL);
  Py_RETURN_NONE;
}

static PyMethodDef methods[] = {{"start", start, METH_NOARGS, "Sets the empty callback on this thread."},
                                {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "empty_profile", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_empty_profile(void) { return PyModule_Create(&module); }
