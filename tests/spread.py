"""How tests are spread over the workers of pytest-xdist: each goes where there is room, but those that share what is made once a file stay together.

--dist loadfile keeps whole files together: at the end one worker has minutes of its file left while the others idle.
"""
import ast
import functools
import pathlib

from xdist.scheduler.loadscope import LoadScopeScheduling


@functools.cache
def sharing(path):
    """The names of a file's functions that take, in whatever way, a fixture that is made once a module."""
    functions = [node for node in ast.parse(pathlib.Path(path).read_text()).body if isinstance(node, ast.FunctionDef)]
    takes = {f.name: {argument.arg for argument in f.args.args} for f in functions}
    shared = {f.name for f in functions if any("scope='module'" in ast.unparse(decorator) for decorator in f.decorator_list)}
    while more := {name for name, arguments in takes.items() if arguments & shared} - shared:
        shared |= more
    return shared


def unit(root, nodeid):
    """What is run by one worker: a test, or all tests of a file that share."""
    file, _, test = nodeid.partition("::")
    return file if test.partition("[")[0] in sharing(str(root / file)) else nodeid


class Spread(LoadScopeScheduling):
    def _split_scope(self, nodeid):
        return unit(self.config.rootpath, nodeid)
