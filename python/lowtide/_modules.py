"""Steps of a program that only calls modules: no optimizer, no DataLoader, no backward.

For a short while every module call is seen (PyTorch's global hooks); the class of the outermost one is remembered, and
from then on only calls of that class are.
"""
import sys

from lowtide import _marks, _track

SEEN = 2  # calls of the same outermost module before it is taken for the root


class Search:
    def __init__(self, torch):
        hooks = torch.nn.modules.module
        self.depth, self.calls, self.root = 0, 0, None
        self.handles = [hooks.register_module_forward_pre_hook(self.before),
                        hooks.register_module_forward_hook(self.after)]

    def before(self, module, args):
        if self.depth == 0:
            self.outermost = module
        self.depth += 1

    def after(self, module, args, output):
        if self.depth == 0:
            return  # it was entered before we looked
        self.depth -= 1
        if self.depth or module is not self.outermost:
            return
        self.calls = self.calls + 1 if type(module) is self.root else 1
        self.root = type(module)
        _marks.lower_step(_marks.MODULE)
        if self.calls > SEEN or not _track.wants(_marks.MODULE):
            self.stop()
            if _track.wants(_marks.MODULE):
                watch(self.root)

    def stop(self):
        for handle in self.handles:
            handle.remove()


depth = 0


def watch(kind):
    """Calls of `kind` end steps. The class gets a __call__ of its own that stands in for the one it inherits."""
    kind.__call__ = _track.Marked(kind.__call__, _enter, _leave)


def _enter(*args):
    global depth
    depth += 1


def _leave(token, ok, *args):
    global depth
    depth -= 1
    if depth == 0 and _track.wants(_marks.MODULE):
        _marks.lower_step(_marks.MODULE)


def install():
    Search(sys.modules["torch"])
