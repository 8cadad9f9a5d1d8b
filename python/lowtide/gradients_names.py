"""Names for parameters and places in the user's code, found when there is something to say about them."""
import gc
import os
import sys

import torch
from torch import nn

_OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_LIBRARIES = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep)
_STDLIB = os.path.dirname(os.path.abspath(os.__file__)) + os.sep


def is_user_file(name):
    """Whether a frame of this file is the user's: not lowtide's, PyTorch's, an installed library's or generated."""
    if name.startswith("<") or name.startswith(_OWN) or name.startswith(_TORCH):
        return False
    return not name.startswith(_STDLIB) and not any(part in name for part in _LIBRARIES)


def user_place(frame=None):
    """(file, line, frame) of the innermost frame that is the user's, or of the innermost one outside PyTorch."""
    frame = frame or sys._getframe(1)
    fallback = None
    while frame is not None:
        name = frame.f_code.co_filename
        if is_user_file(name):
            return name, frame.f_lineno, frame
        if fallback is None and not name.startswith((_OWN, _TORCH, "<")):
            fallback = (name, frame.f_lineno, frame)
        frame = frame.f_back
    return fallback or (None, None, None)


def source_line(file, line):
    import linecache

    return linecache.getline(file, line).strip() if file and line else ""


def _variables(frame):
    """The frame's variables as (name, value) pairs, without leaving references behind (before 3.13 the snapshot that
    f_locals makes stays with the frame and would keep the user's tensors alive)."""
    snapshot = frame.f_locals
    pairs = list(snapshot.items())
    if frame.f_code.co_flags & 1 and sys.version_info < (3, 13) and sys.gettrace() is None:
        snapshot.clear()
    return pairs


def _is_module(value):
    return issubclass(type(value), nn.Module)


def _modules_near(frame):
    """(expression, module) of modules that the frames from `frame` outwards can name."""
    seen_globals = set()
    while frame is not None:
        if is_user_file(frame.f_code.co_filename):
            variables = _variables(frame)
            if id(frame.f_globals) not in seen_globals:
                seen_globals.add(id(frame.f_globals))
                variables += list(frame.f_globals.items())
            for name, value in variables:
                if _is_module(value):
                    yield name, value
                elif name == "self" or (not name.startswith("__") and type(type(value)) is type and
                                        is_user_file(getattr(sys.modules.get(type(value).__module__), "__file__", None) or "<")):
                    for key, inner in list(getattr(value, "__dict__", {}).items()):
                        if _is_module(inner):
                            yield f"{name}.{key}", inner
                        elif type(inner) in (list, tuple, dict):
                            items = inner.items() if type(inner) is dict else enumerate(inner)
                            for k, item in list(items)[:64]:
                                if _is_module(item):
                                    yield f"{name}.{key}[{k!r}]", item
                elif type(value) in (list, tuple, dict) and len(value) <= 64:
                    for k, item in list(value.items() if type(value) is dict else enumerate(value)):
                        if _is_module(item):
                            yield f"{name}[{k!r}]", item
        frame = frame.f_back


class Names:
    """id(parameter) -> name ("model.head.weight") and id -> class of the module that owns it."""

    def __init__(self):
        self.names, self.owners, self.roots = {}, {}, {}

    def add(self, prefix, module):
        if id(module) in self.roots:
            return
        self.roots[id(module)] = prefix
        for path, child in module.named_modules():
            for key, parameter in child._parameters.items():
                if parameter is not None and id(parameter) not in self.names:
                    self.names[id(parameter)] = ".".join(p for p in (prefix, path, key) if p)
                    self.owners[id(parameter)] = type(child).__name__

    def learn(self, parameters, frame=None):
        """Names `parameters`: by the variables near `frame`, else by a walk over the collector's objects (tens of
        milliseconds; once)."""
        missing = {id(p) for p in parameters} - self.names.keys()
        if not missing:
            return self
        found = {}
        for name, module in _modules_near(frame):
            found.setdefault(id(module), (name, module))
        # The module with the most parameters first: "model.head", not "head".
        for name, module in sorted(found.values(), key=lambda nm: -sum(1 for _ in nm[1].parameters())):
            self.add(name, module)
        missing -= self.names.keys()
        if missing:
            self._from_collector(missing)
        for number, parameter in enumerate(parameters):
            self.names.setdefault(id(parameter), f"parameter {number} of shape {tuple(parameter.shape)}")
        return self

    def _from_collector(self, missing):
        modules = [o for o in gc.get_objects() if _is_module(o)]
        modules = [m for m in modules if any(id(p) in missing for p in m._parameters.values() if p is not None) or m._modules]
        children = {id(c) for m in modules for c in m._modules.values() if c is not None}
        for module in modules:
            if id(module) not in children and any(id(p) in missing for p in module.parameters()):
                self.add(type(module).__name__, module)

    def of(self, parameter):
        return self.names.get(id(parameter), f"parameter of shape {tuple(parameter.shape)}")

    def owner(self, parameter):
        return self.owners.get(id(parameter), "")
