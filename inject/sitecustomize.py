"""The second way in, for a process that LD_PRELOAD did not reach. torchprof puts this folder on PYTHONPATH.

Loads libtorchprof.so (a second time does nothing), takes itself out of sys.path and sys.modules, and hands over to the
program's own sitecustomize, so that the program sees what it would see without us. usercustomize is not touched.
"""
import sys


def _enter(folder):
    import _frozen_importlib
    import _imp

    library = folder.rpartition("/")[0] + "/libtorchprof.so"
    try:
        _imp.create_dynamic(_frozen_importlib.ModuleSpec("_torchprof", None, origin=library))
    except Exception as error:  # whatever it is, the program must start
        sys.stderr.write("torchprof: cannot load %s: %s; this process is not profiled\n" % (library, error))


def _leave(folder):
    sys.path[:] = [entry for entry in sys.path if entry != folder]
    sys.path_importer_cache.pop(folder, None)
    sys.modules.pop("sitecustomize", None)


_folder = __file__.rpartition("/")[0]
_enter(_folder)
_leave(_folder)
# The program's own, if it has one. Otherwise the same ImportError that site expects without us.
import sitecustomize  # noqa: E402,F401
