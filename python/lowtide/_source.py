"""What the user's source says: the statements that can make a variable, an attribute or a container grow, and the calls.

Each file is parsed once, and only where it holds the name that is asked for.
"""

import ast
import os
import sys
import warnings

GROW = {
    "append": 100, "extend": 100, "add": 95, "appendleft": 100, "extendleft": 100, "insert": 95, "put": 90,
    "put_nowait": 90, "setdefault": 95, "update": 85, "push": 90, "write": 70, "__setitem__": 90, "add_param_group": 100,
    "register_buffer": 80, "register_forward_hook": 80, "set": 60, "heappush": 90, "record": 60,
}
SHRINK = {"clear", "pop", "popleft", "popitem", "remove", "discard", "reset", "get_nowait"}


class Store:
    """A statement that may put something into `name`."""

    __slots__ = ("name", "is_attr", "line", "end_line", "score", "kind", "function", "first_line", "owner", "in_loop",
                 "key", "text")

    def __init__(self, **fields):
        for name, value in fields.items():
            setattr(self, name, value)


class Call:
    """A call of a method, `receiver.method(...)`, with the `if` around it."""

    __slots__ = ("receiver", "method", "line", "function", "guard", "in_loop", "keywords", "text")

    def __init__(self, **fields):
        for name, value in fields.items():
            setattr(self, name, value)


def _last_name(node):
    """(name, is_attr, key) of the variable or attribute that an expression denotes: `a.b[0]['k']` -> b."""
    key = None
    while isinstance(node, ast.Subscript):
        if isinstance(node.slice, ast.Constant):
            key = node.slice.value
        node = node.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("setdefault", "get"):
        return _last_name(node.func.value)
    if isinstance(node, ast.Attribute):
        return node.attr, True, key
    if isinstance(node, ast.Name):
        return node.id, False, key
    return None, False, None


def _mentions(node, name, is_attr):
    for child in ast.walk(node):
        if is_attr and isinstance(child, ast.Attribute) and child.attr == name:
            return True
        if not is_attr and isinstance(child, ast.Name) and child.id == name:
            return True
    return False


def _is_empty(node):
    """A literal or a constructor without contents: it starts a holder anew rather than filling it."""
    if isinstance(node, ast.Constant):
        return True
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return all(_is_empty(e) for e in node.elts)
    if isinstance(node, ast.Dict):
        return all(v is not None and _is_empty(v) for v in node.values)
    return isinstance(node, ast.Call) and not node.args and not node.keywords


class _Collector(ast.NodeVisitor):
    def __init__(self):
        self.stores, self.calls, self.resets = [], [], []
        self.functions = {}  # name -> (first line, end line)
        self.decorators = {}  # name -> line of the first decorator
        self.aliases = []  # (name, is_attr, name of the variable that it is made from)
        self._scope, self._first, self._owner, self._loops, self._guards = [], [0], [None], [0], []

    def _visit_function(self, node):
        qualified = ".".join(self._scope + [node.name])
        first = min([node.lineno] + [d.lineno for d in node.decorator_list])
        self.functions[qualified] = (node.lineno, node.end_lineno)
        for decorator in node.decorator_list:
            self.decorators.setdefault(qualified, decorator.lineno)
            self.visit(decorator)
        self._scope.append(node.name)
        self._first.append(first)
        self._loops.append(0)
        for child in node.body:
            self.visit(child)
        self._loops.pop()
        self._first.pop()
        self._scope.pop()

    visit_FunctionDef = visit_AsyncFunctionDef = _visit_function

    def visit_ClassDef(self, node):
        self._scope.append(node.name)
        self._owner.append(node.name)
        for child in node.body:
            self.visit(child)
        self._owner.pop()
        self._scope.pop()

    def _visit_loop(self, node):
        self._loops[-1] += 1
        self.generic_visit(node)
        self._loops[-1] -= 1

    visit_For = visit_AsyncFor = visit_While = _visit_loop

    def visit_If(self, node):
        self.visit(node.test)
        self._guards.append(node.lineno)
        for child in node.body:
            self.visit(child)
        self._guards.pop()
        for child in node.orelse:
            self.visit(child)

    def _store(self, target, node, score, kind):
        name, is_attr, key = _last_name(target)
        if name is None:
            return
        self.stores.append(Store(
            name=name, is_attr=is_attr, line=node.lineno, end_line=node.end_lineno, score=score, kind=kind, key=key,
            function=".".join(self._scope), first_line=self._first[-1], owner=self._owner[-1],
            in_loop=self._loops[-1] > 0, text=""))

    def _assign(self, target, value, node):
        if isinstance(target, (ast.Tuple, ast.List)):
            values = value.elts if isinstance(value, (ast.Tuple, ast.List)) else [None] * len(target.elts)
            for part, part_value in zip(target.elts, values if len(values) == len(target.elts) else [None] * 99):
                self._assign(part, part_value, node)
            return
        if isinstance(target, ast.Starred):
            target = target.value
        name, is_attr, _ = _last_name(target)
        if value is not None and not isinstance(target, ast.Subscript):
            in_class = bool(self._scope) and self._scope[-1] == self._owner[-1]
            self.aliases += [(name, is_attr or in_class, other.id) for other in ast.walk(value)
                             if isinstance(other, ast.Name) and other.id != name]
            whole = value
            while isinstance(whole, ast.Subscript):
                whole = whole.value
            if isinstance(whole, ast.Attribute) and not is_attr and not in_class:  # `state = self.state[p]`
                self.aliases.append((name, False, whole.attr))
        if isinstance(target, ast.Subscript):
            self._store(target, node, 90, "item")
        elif value is not None and _is_empty(value):
            self.resets.append((name, is_attr, node.lineno, ".".join(self._scope), self._guards[-1] if self._guards else None))
            self._store(target, node, 5, "start")
        elif value is not None and name and _mentions(value, name, is_attr):
            self._store(target, node, 88, "self")
        else:
            self._store(target, node, 40, "assign")

    def visit_Assign(self, node):
        for target in node.targets:
            self._assign(target, node.value, node)
        self.generic_visit(node)

    def visit_AnnAssign(self, node):
        if node.value is not None:
            self._assign(node.target, node.value, node)
        self.generic_visit(node)

    def visit_NamedExpr(self, node):
        self._assign(node.target, node.value, node)
        self.generic_visit(node)

    def visit_AugAssign(self, node):
        self._store(node.target, node, 92, "augmented")
        self.generic_visit(node)


    def visit_Call(self, node):
        function = node.func
        keywords = {k.arg: k.value.value for k in node.keywords if k.arg and isinstance(k.value, ast.Constant)}
        guard = self._guards[-1] if self._guards else None
        if isinstance(function, ast.Attribute):
            receiver, _, _ = _last_name(function.value)
            if function.attr in GROW:
                self._store(function.value, node, GROW[function.attr], function.attr)
            if function.attr in SHRINK:
                name, is_attr, _ = _last_name(function.value)
                self.resets.append((name, is_attr, node.lineno, ".".join(self._scope), guard))
            if function.attr == "heappush" and node.args:
                self._store(node.args[0], node, 90, "heappush")
            self.calls.append(Call(receiver=receiver, method=function.attr, line=node.lineno, guard=guard,
                                   function=".".join(self._scope), in_loop=self._loops[-1] > 0, keywords=keywords,
                                   text=ast.unparse(function)))
        elif isinstance(function, ast.Name):
            if function.id == "setattr" and len(node.args) > 1 and isinstance(node.args[1], ast.Constant):
                self._store(ast.Attribute(value=node.args[0], attr=str(node.args[1].value)), node, 60, "setattr")
            elif function.id == "setattr" and len(node.args) > 1:  # a name made up as it runs
                self._store(ast.Attribute(value=node, attr=f"*{_last_name(node.args[0])[0]}"), node, 60, "setattr")
            self.calls.append(Call(receiver=function.id, method="__call__", line=node.lineno, guard=guard,
                                   function=".".join(self._scope), in_loop=self._loops[-1] > 0, keywords=keywords,
                                   text=function.id))
        self.generic_visit(node)


_files = {}
_texts = {}


def _text(path):
    if path not in _texts:
        _texts[path] = b""
        try:
            if os.path.getsize(path) <= 4 << 20:
                with open(path, "rb") as file:
                    _texts[path] = file.read()
        except OSError:
            pass
    return _texts[path]


def parse(text):
    """The tree of a source text, in silence: what there is to warn of in it (escape sequences) Python has said before."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)


def scan(path, *needles):
    """The statements of a file, parsed once and only if it contains one of the words; None: nothing to be had."""
    if needles and not any(needle.encode() in _text(path) for needle in needles):
        return None
    if path not in _files:
        _files[path] = None
        try:
            collector = _Collector()
            collector.visit(parse(_text(path)))
            _files[path] = collector
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            pass
    return _files[path]


def forget():
    """Gives back what was kept of the sources."""
    _files.clear()
    _texts.clear()


_installed = {}
_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep


def is_library(path):
    """Is it code that was installed rather than written here: in site-packages, or beside packages' .dist-info?"""
    if (not path or path.startswith("<") or "site-packages" in path or "dist-packages" in path
            or "/lib/python3" in path or path.startswith(_OURS)):
        return True
    folder = os.path.dirname(path)
    if folder not in _installed:
        top = folder
        while os.path.exists(os.path.join(top, "__init__.py")):
            top = os.path.dirname(top)
        try:
            _installed[folder] = any(name.endswith(".dist-info") for name in os.listdir(top))
        except OSError:
            _installed[folder] = False
    return _installed[folder]


def user_files():
    """Source files of the modules that are no library's, the script first."""
    found = []
    modules = dict(sys.modules)
    for name in ["__main__", "__mp_main__"] + list(modules):
        path = getattr(modules.get(name), "__file__", None)
        if isinstance(path, str) and path.endswith(".py") and not is_library(path) and path not in found:
            found.append(path)
    return found[:200]
