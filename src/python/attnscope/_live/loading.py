"""FILE.py:NAME(key=value, …): imports the file, and calls what is named in it. Nothing else of the file is called."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import sys
import sysconfig

from .faults import Unusable


class Target:
    """A Python file, a name in it, and arguments as plain literals."""

    def __init__(self, text):
        self.text = text
        file, _, call = text.rpartition(".py:")
        self.file = os.path.abspath(file + ".py")
        try:
            node = ast.parse(call.strip(), mode="eval").body
            self.args, self.kwargs, self.is_called = [], {}, isinstance(node, ast.Call)
            if self.is_called:
                self.args = [ast.literal_eval(value) for value in node.args]
                self.kwargs = {keyword.arg: ast.literal_eval(keyword.value) for keyword in node.keywords}
                node = node.func
            self.path = []
            while isinstance(node, ast.Attribute):
                self.path.insert(0, node.attr)
                node = node.value
            self.path.insert(0, node.id)
        except (SyntaxError, ValueError, AttributeError, TypeError):
            raise Unusable(f"expected FILE.py:NAME or FILE.py:NAME(key=value, …) with plain literals, found {call!r}") from None

    def load(self):
        """What the named thing is, or gives when it is called."""
        module = _imported(self.file)
        found = module
        for name in self.path:
            if not hasattr(found, name):
                known = [own for own in vars(found) if not own.startswith("_") and callable(getattr(found, own))]
                near = f"; it has {', '.join(known[:8])}" if known else ""
                raise Unusable(f"{os.path.basename(self.file)} has no {name}{near}")
            found = getattr(found, name)
        self.found = found
        return self.again()

    def again(self, **more):
        """Calls what was found once more, where it is something to call."""
        found = self.found
        is_module = hasattr(found, "named_modules") and not isinstance(found, type)
        if self.is_called or callable(found) and not is_module:
            return found(*self.args, **{**self.kwargs, **more})
        return found


def _imported(file):
    """Runs the file as a module: inside its package where its directory is one, so that relative imports work."""
    directory, name = os.path.dirname(file), os.path.basename(file)[:-3]
    while os.path.isfile(os.path.join(directory, "__init__.py")):
        name = f"{os.path.basename(directory)}.{name}"
        directory = os.path.dirname(directory)
    if directory not in sys.path:
        sys.path.insert(0, directory)
    importlib.invalidate_caches()
    if "." in name:
        return importlib.import_module(name)
    sys.modules.pop(name, None)
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def forget(before):
    """Drops the modules that were imported since `before` and are the person's own, so that a reload reads them anew."""
    libraries = {os.path.realpath(sysconfig.get_path(key)) + os.sep for key in ("stdlib", "platstdlib", "purelib", "platlib")}
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__file__", None)
        is_own = file is not None and not name.startswith(("_attnscope", "attnscope")) and not any(
            os.path.realpath(file).startswith(library) for library in libraries)
        if is_own:
            del sys.modules[name]


def own_files(before):
    """Files of the person's code that were imported since `before`."""
    files = set()
    for name in set(sys.modules) - before:
        file = getattr(sys.modules.get(name), "__file__", None)
        if file and file.endswith(".py") and "-packages" + os.sep not in file and not name.startswith("_attnscope") \
                and not file.startswith(os.path.dirname(os.__file__) + os.sep):
            files.add(os.path.abspath(file))
    return sorted(files)
