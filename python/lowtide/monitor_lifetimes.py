"""Declared lifetimes: a tensor made in a step dies with it, unless it was declared.

``keep(ema, why="teacher")`` declares what lives across steps: a module, an optimizer, a tensor, a container or an object.
In a strict step (``with monitor.step(strict=True)``) every other tensor that was made in it and is still held by something
older than the step is an error that names the holder. A variable of the loop's own function may keep its last value: it is
overwritten in the next step, and counted only if the tensor is still there after that.

The check walks Python's objects (tens of milliseconds): it is meant for the first steps of a run, or for a test.
"""
import gc
import sys
import types
import weakref

import torch

from lowtide.gradients_names import _variables, is_user_file

_declared = []   # (weak reference or the object itself, why)


class LifetimeError(RuntimeError):
    """A tensor outlived its step; ``holders`` lists (path, shape, bytes)."""

    def __init__(self, holders, step):
        self.holders = holders
        lines = [f"  {path}: a tensor of shape {shape} ({size} B)" for path, shape, size in holders[:8]]
        super().__init__(f"{len(holders)} tensor(s) made in step {step} outlive it:\n" + "\n".join(lines)
                         + "\n  help: keep a number (.item()) or a detached copy, drop it before the step ends, or declare what "
                           "holds it: lowtide.keep(holder, why=\"...\")")


def keep(thing, *, why):
    """Declares that `thing`, and the tensors it comes to hold, live across steps; returns it. `why` is for the reader."""
    if not why:
        raise ValueError("say why: lowtide.keep(thing, why=\"...\")")
    try:
        _declared.append((weakref.ref(thing), why))
    except TypeError:  # lists and dicts have no weak references
        _declared.append((thing, why))
    return thing


def declared():
    out = []
    for item, why in list(_declared):
        thing = item() if isinstance(item, weakref.ref) else item
        if thing is None:
            _declared.remove((item, why))
        else:
            out.append((thing, why))
    return out


def _is_tensor(value):
    return issubclass(type(value), torch.Tensor)


def _tensors_in(thing, seen, depth=0):
    """ids of the tensors that `thing` holds by plain containers and attributes."""
    if id(thing) in seen or depth > 12:
        return
    seen.add(id(thing))
    if _is_tensor(thing):
        if thing.is_leaf and thing.grad is not None:
            seen.add(id(thing.grad))
        return
    if isinstance(thing, dict):
        children = list(thing.values())
    elif isinstance(thing, (list, tuple, set, frozenset)) or type(thing).__name__ == "deque":
        children = list(thing)
    elif isinstance(thing, (str, bytes, int, float, type, types.ModuleType, types.FunctionType)) or thing is None:
        return
    else:
        children = list(getattr(thing, "__dict__", {}).values())
    for child in children:
        _tensors_in(child, seen, depth + 1)


class Window:
    """From the beginning of a step to its end."""

    def __init__(self, number, allowed=()):
        self.number, self.allowed = number, list(allowed)
        objects = gc.get_objects()
        self.before = {id(o) for o in objects}
        self.made = []

    def close(self, frame, earlier=None):
        """Holders of tensors that outlive the step: [(path, shape, bytes)]. `earlier`: the window before this one."""
        gc.collect()
        objects = gc.get_objects()
        young = [o for o in objects if id(o) not in self.before and _is_tensor(o)]
        permitted = self._permitted(objects)
        suspects = [t for t in young if id(t) not in permitted]
        late = [t for t in (r() for r in (earlier.made if earlier else ())) if t is not None and id(t) not in permitted]
        held = []
        for tensor in suspects:
            holder = self._older_holder(tensor, {id(objects), id(young), id(suspects), id(late)})
            if holder is not None:
                held.append((_path_to(holder, frame), tuple(tensor.shape), tensor.numel() * tensor.element_size()))
        for tensor in late:
            held.append((_variable_of(tensor, frame), tuple(tensor.shape), tensor.numel() * tensor.element_size()))
        self.made = [weakref.ref(t) for t in suspects]
        self.before = set()
        return held

    def _permitted(self, objects):
        seen = set()
        for thing, _ in declared():
            _tensors_in(thing, seen)
        for thing in self.allowed:
            _tensors_in(thing, seen)
        for thing in objects:
            kind = type(thing)
            if issubclass(kind, torch.optim.Optimizer):
                _tensors_in(thing.state, seen)
                _tensors_in(thing.param_groups, seen)
            elif issubclass(kind, torch.nn.Parameter) and thing.grad is not None:
                seen.add(id(thing.grad))
        return seen

    def _older_holder(self, tensor, own):
        """The container, made before the step, by which the tensor is held; None when only the step's own things hold it."""
        frontier, seen = [tensor], {id(tensor)} | own
        for _ in range(5):
            following = []
            for item in frontier:
                for holder in gc.get_referrers(item):
                    if id(holder) in seen or holder is frontier or holder is following or isinstance(holder, types.FrameType):
                        continue
                    seen.add(id(holder))
                    if _is_tensor(holder) or isinstance(holder, (weakref.ref, types.ModuleType)):
                        continue
                    if holder is sys.modules.get("__main__", types).__dict__ or _is_globals(holder):
                        continue  # a script's variables are like a function's: the next step overwrites them
                    if id(holder) in self.before:
                        return holder
                    following.append(holder)
            frontier = following
        return None


def _is_globals(holder):
    return type(holder) is dict and "__name__" in holder and "__builtins__" in holder


def _path_to(holder, frame):
    """How the user would write it: ``history[*]``, ``self.outputs[*]``."""
    owner = None
    for referrer in gc.get_referrers(holder):
        if getattr(referrer, "__dict__", None) is holder:
            owner = referrer
    suffix = "[*]" if owner is None else ".*"
    target = owner if owner is not None else holder
    level = [("", None)]
    for scope in _scopes(frame):
        level = list(scope.items())
        seen = set()
        for _ in range(4):
            following = []
            for name, value in level:
                if value is target:
                    return name + (suffix if owner is None else suffix)
                if id(value) in seen or name.startswith("__"):
                    continue
                seen.add(id(value))
                if type(value) is dict:
                    following += [(f"{name}[{k!r}]", v) for k, v in list(value.items())[:200]]
                elif type(value) in (list, tuple):
                    following += [(f"{name}[{i}]", v) for i, v in enumerate(value[:200])]
                elif not isinstance(value, (types.ModuleType, type, types.FunctionType, types.BuiltinFunctionType)) and not _is_tensor(value):
                    following += [(f"{name}.{k}", v) for k, v in list(getattr(value, "__dict__", {}).items())[:200]]
            level = following
    return f"a {type(target).__name__} that no variable nearby names"


def _scopes(frame):
    while frame is not None:
        if is_user_file(frame.f_code.co_filename) or frame.f_code.co_filename.startswith("<"):
            yield dict(_variables(frame))
            yield {k: v for k, v in frame.f_globals.items() if not k.startswith("__")}
        frame = frame.f_back


def _variable_of(tensor, frame):
    for scope in _scopes(frame):
        for name, value in scope.items():
            if value is tensor:
                return f"variable {name} (since the step before)"
    return "something that keeps it since the step before"
