"""How often the user's training loop goes round while the optimizer steps once.

With gradient accumulation, or where batches are skipped, a step of the optimizer is several iterations of the loop that
its author counts in. In a few windows of some steps (the recorder says when) the loop's own counter is read: the variable
of ``for step in range(...)`` or ``enumerate(...)``, ``step += 1`` of a ``while``, or the batches that a DataLoader gave.
Loops of libraries are passed over: their steps are the optimizer's. What is found is left in the ring file's header.
"""
import ast
import os
import statistics
import sys

from lowtide import _source, _track

_MOST_BYTES = 200_000  # of a source file: parsing takes some 45 times as much memory, and 35 ms
_MOST_FRAMES = 64
_LIKE_OTHERS = 0.25  # a window whose ratio differs by more from the median saw something else: an epoch's end, a pause

_loops = {}  # file -> its loops, innermost last
_began = None  # (steps, epoch, [(loop, count), ...]) at the begin of the window
_windows = []  # (steps, iterations, place)


class Loop:
    """``first`` and ``last``: its lines; ``owner``: first line of the function that it is in, 0: none; ``counter``: the
    variable that grows by one in each iteration, None: there is none; ``batches``: it may be a DataLoader that is gone through."""

    def __init__(self, node, owner, path, counter, batches):
        self.first, self.last, self.owner, self.path = node.lineno, node.end_lineno, owner, path
        self.counter, self.batches = counter, batches

    @property
    def place(self):
        return f"{os.path.basename(self.path)}:{self.first}"


def after_fork():
    global _began
    _began = None
    _windows.clear()


def look(marks):
    """At the begin and the end of a window. ``marks`` is the process's ``_marks.State``."""
    global _began
    steps = marks.steps
    began, now = _began, (steps, marks.epoch, _counts(sys._getframe(1), marks))
    if began is None or steps - began[0] > 100:
        _began = now
        return
    _began = None
    window = _iterations(began, now)
    if window is not None:
        _windows.append(window)
    _tell()


def _iterations(began, now):
    """The innermost loop that went round at least once a step. None where loops around it went on: it began anew."""
    steps = now[0] - began[0]
    if now[1] != began[1]:
        return None
    before = {id(loop): count for loop, count in began[2]}
    for i, (loop, count) in enumerate(now[2]):
        grown = count - before.get(id(loop), count)
        if grown < steps:
            continue
        around = now[2][i + 1:]
        same = all(before.get(id(outer)) == outer_count for outer, outer_count in around)
        return (steps, grown, loop.place) if same else None
    return None


def _tell():
    if len(_windows) < 2:
        return
    middle = statistics.median(iterations / steps for steps, iterations, _ in _windows)
    alike = [w for w in _windows if abs(w[1] / w[0] - middle) <= _LIKE_OTHERS * middle]
    if len(alike) < 2:
        return
    _track.note_loop(sum(w[0] for w in alike), sum(w[1] for w in alike), alike[-1][2])


def _counts(frame, marks):
    """(loop, how far it is) of the loops around this step, the innermost first."""
    found, seen = [], 0
    while frame is not None and seen < _MOST_FRAMES:
        code = frame.f_code
        if not _source.is_library(code.co_filename):
            for loop in reversed(_loops_of(frame)):
                owner = code.co_firstlineno if code.co_name != "<module>" else 0
                if loop.owner != owner or not loop.first <= (frame.f_lineno or 0) <= loop.last:
                    continue
                count = _value(frame, loop.counter) if loop.counter else None
                if count is None and loop.batches and marks.loader:
                    count = marks.batches
                if count is not None:
                    found.append((loop, count))
        frame, seen = frame.f_back, seen + 1
    return found


def _value(frame, name):
    if frame.f_code.co_name == "<module>":
        value = frame.f_globals.get(name)
    else:
        try:
            from lowtide import _walk
        except ImportError:  # this interpreter's frames are not known
            return None
        value = _walk.variable(frame, name)
    return value if type(value) is int else None


def _loops_of(frame):
    path = frame.f_code.co_filename
    if path not in _loops:
        _loops[path] = []
        try:
            if os.path.getsize(path) <= _MOST_BYTES:
                with open(path, encoding="utf-8", errors="replace") as file:
                    _collect(_source.parse(file.read()), 0, path, _loops[path])
        except (OSError, SyntaxError, ValueError, RecursionError):
            pass
    return _loops[path]


def _collect(node, owner, path, loops):
    for child in ast.iter_child_nodes(node):
        inner = owner
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            inner = min([child.lineno] + [decorator.lineno for decorator in child.decorator_list])
        elif isinstance(child, ast.For):
            counter = _counter_of_for(child.target, child.iter)
            loops.append(Loop(child, owner, path, counter, batches=counter is None))
        elif isinstance(child, ast.While):
            loops.append(Loop(child, owner, path, _counter_of_while(child), batches=False))
        elif isinstance(child, (ast.ClassDef, ast.Lambda)):
            inner = -1  # a frame of its own, without a loop that steps
        _collect(child, inner, path, loops)


def _counter_of_for(target, over):
    """`step` of ``for step in range(n)``, ``for step, _ in enumerate(x)``, ``zip(range(n), x)``, also within ``tqdm(...)``."""
    if not isinstance(over, ast.Call):
        return None
    called = getattr(over.func, "attr", getattr(over.func, "id", ""))
    first = target.elts[0] if isinstance(target, ast.Tuple) and target.elts else None
    if called in ("range", "trange"):
        counts = len(over.args) < 3 and not any(isinstance(arg, ast.Starred) for arg in over.args)
        return target.id if counts and isinstance(target, ast.Name) else None
    if called == "count":  # itertools'
        return target.id if len(over.args) < 2 and not over.keywords and isinstance(target, ast.Name) else None
    if called == "enumerate":
        return first.id if isinstance(first, ast.Name) else None
    if called == "zip":
        return _counter_of_for(first, over.args[0]) if first is not None and over.args else None
    return _counter_of_for(target, over.args[0]) if over.args else None


def _counter_of_while(loop):
    """The one variable that each iteration adds one to."""
    counters = [line.target.id for line in loop.body
                if isinstance(line, ast.AugAssign) and isinstance(line.op, ast.Add) and isinstance(line.target, ast.Name)
                and isinstance(line.value, ast.Constant) and line.value.value == 1]
    return counters[0] if len(set(counters)) == len(counters) == 1 else None
