"""Censuses of the live process: who holds the memory that came in between two marks.

Runs on the training thread at a step boundary, and follows the rule of all that runs in the user's process: it never
raises, prints nothing, leaves no reference and no traceback behind, and the collector as it found it.
A census reads objects only (tp_traverse and PyTorch's structs); it runs no code of the user's.
"""

import atexit
import json
import os
import sys
import time

from lowtide import _census_native, _holders

try:
    from lowtide import _walk
    _missing = None
except ImportError as refused:  # built without the extension, or for another interpreter
    _walk, _missing = None, str(refused)

_LEAST_STEPS = 8  # between two marks, for rates to mean something
_LEAST_BYTES_PER_STEP = 16  # growth below this is noise of the interpreter's own


class Census:
    """Two or more marks in one process. `first(step)` and `second(step)`; `rows` and `trouble` say what came of it."""

    def __init__(self, scoped=False):
        self.scoped = scoped  # look only at what running functions and the user's own modules reach
        self.mark = None  # a _walk.Heap
        self.step = None
        self.first_step = None
        self.rows = []
        self.raw = []
        self.trouble = None  # why there is no census, in words
        self.seconds = []  # the pauses
        self.info = {}
        self.native = {}
        self.heap = 0

    def first(self, step):
        """Takes the first mark. Returns whether there is one."""
        return self._guarded(self._first, step)

    def second(self, step, keep=False):
        """Takes the second mark and names what came in since the first, as rows for `findings.json`.

        `keep`: the mark stays, and another call compares with it; otherwise another call begins anew.
        """
        self._guarded(self._second, step, keep)
        return self.rows

    def write(self, directory, rank, suffix=""):
        """The rows, with what they cost, as holders-rank<N><suffix>.json in `directory` (LOWTIDE_RUN_DIR)."""
        try:
            directory = directory or os.environ.get("LOWTIDE_RUN_DIR")
            if not directory:
                return None
            path = os.path.join(directory, f"holders-rank{rank}{suffix}.json")
            document = {
                "rank": rank,
                "pid": os.getpid(),
                "first_step": self.first_step,
                "second_step": self.step,
                "holders": self.rows,
                "pauses_seconds": [round(s, 6) for s in self.seconds],
                "census": self.info,
                "trouble": self.trouble,
            }
            with open(path + ".part", "w", encoding="utf-8") as file:
                json.dump(document, file)
            os.replace(path + ".part", path)
            return path
        except BaseException as error:
            self.trouble = f"{type(error).__name__}: {error}"
            error.__traceback__ = None
            return None

    def _guarded(self, function, *arguments):
        try:
            start = time.perf_counter()
            result = function(*arguments)
            self.seconds.append(time.perf_counter() - start)
            return result
        except BaseException as error:  # a census must never stop the run
            self.trouble = f"{type(error).__name__}: {error}"
            error.__traceback__ = None
            return False

    def _first(self, step):
        if not _ready(self):
            return False
        self.native = _census_native.counters()
        self.mark = _walk.take(self.scoped)
        self.heap = _walk.heap_in_use()  # with what the mark takes
        self.step = self.first_step = step
        self.info = self.mark.info()
        return True

    def _second(self, step, keep):
        if not _ready(self):
            return False
        if self.mark is None:
            return self._first(step)
        steps = max(1, step - self.step)
        heap_growth = _walk.heap_in_use() - self.heap
        self.mark, self.raw = _walk.compare(self.mark, _LEAST_BYTES_PER_STEP * steps, 96, self.scoped)
        self.rows = _holders.rows(self.raw, steps, _rank())
        named = sum(row["growth_bytes"] for row in self.rows)
        native = _census_native.counters()
        if not self.scoped:
            self.rows += _census_native.rows(self.native, native, heap_growth, named, steps, _rank())
        self.rows.sort(key=lambda row: -row["growth_bytes"])
        self.info = self.mark.info()
        if not keep:
            self.mark = None  # tens of bytes for each object of the process
        self.native, self.heap = native, _walk.heap_in_use()
        self.step = step
        return True


census = Census()
second = census.second


def first(step):
    """The first mark of this process's census. A run that ends before the second takes it as it exits."""
    if not _registered:
        _registered.append(getattr(sys.modules.get("__main__"), "__file__", None))
        atexit.register(_last_chance)
    return census.first(step)


_registered = []  # the script's path, once there is a mark


def _last_chance():
    # Variables of functions are gone by now; those of modules are still there, but the interpreter has taken the
    # script's path from its module, which tells where in the source to look.
    main = sys.modules.get("__main__")
    restored = isinstance(_registered[0], str) and main is not None and not hasattr(main, "__file__")
    try:
        if restored:
            main.__file__ = _registered[0]
        track = getattr(sys.modules.get("lowtide._bootstrap"), "track", None)
        step = track.figures()["step"] if track is not None else 0
        if census.mark is not None and not census.rows and step - census.step >= _LEAST_STEPS:
            census.second(step)
            write()
    except BaseException as error:
        error.__traceback__ = None
    finally:
        if restored:
            main.__dict__.pop("__file__", None)


def write(directory=None):
    """Writes the rows to holders-rank<N>.json in the run's directory. Returns the path, or None."""
    return census.write(directory, _rank())


def _rank():
    try:
        bootstrap = sys.modules.get("lowtide._bootstrap")
        return int(bootstrap._rank()[0]) if bootstrap is not None else int(os.environ.get("RANK", "0"))
    except Exception as error:
        error.__traceback__ = None
        return 0


_learnt = [False]


def _ready(state):
    if _walk is None:
        state.trouble = f"the extension lowtide._walk is missing for this interpreter: {_missing}"
        return False
    if not _learnt[0] and "torch" in sys.modules and hasattr(sys.modules["torch"], "autograd"):
        _learnt[0] = True
        why = _walk.learn(_probes(sys.modules["torch"]))
        if why:
            state.trouble = why
    return True


def _no_hook(*_):
    return None


def _probes(torch):
    """Tensors of known contents, by which _walk finds where this PyTorch keeps what."""
    with torch.enable_grad():
        tensor = torch.empty(12347, dtype=torch.uint8, device="cpu")
        other = torch.empty(23459, dtype=torch.uint8, device="cpu")
        storage = tensor.untyped_storage()
        left = torch.ones(3, dtype=torch.float32, device="cpu", requires_grad=True)
        right = torch.ones(3, dtype=torch.float32, device="cpu", requires_grad=True)
        result = left * right
        view = result.view(-1)
        node = result.grad_fn
        leaf = torch.ones(3, dtype=torch.float32, device="cpu", requires_grad=True)
        leaf.grad = torch.zeros(3, dtype=torch.float32, device="cpu")
        hooked = torch.ones(3, dtype=torch.float32, device="cpu", requires_grad=True)
        hooked.register_hook(_no_hook)
        if hasattr(hooked, "register_post_accumulate_grad_hook"):
            hooked.register_post_accumulate_grad_hook(_no_hook)
        hooked_node = (hooked * 2).grad_fn
        hooked_node.register_hook(_no_hook)
        if hasattr(hooked_node, "register_prehook"):
            hooked_node.register_prehook(_no_hook)
    inputs = [edge[0] for edge in node.next_functions]
    base = getattr(torch._C, "TensorBase", None) or torch._C._TensorBase
    return {
        "tensor_type": base,
        "storage_type": torch._C.StorageBase,
        "function_type": torch._C._FunctionBase,
        "tensor": tensor,
        "tensor_impl": tensor._cdata,
        "storage": storage,
        "storage_impl": storage._cdata,
        "bytes": 12347,
        "other": other,
        "other_storage_impl": other.untyped_storage()._cdata,
        "other_bytes": 23459,
        "grad_fn": node,
        "next0": inputs[0],
        "next1": inputs[1],
        "result": result,
        "result_impl": result._cdata,
        "view": view,
        "view_impl": view._cdata,
        "hooked": hooked,
        "hooked_impl": hooked._cdata,
        "hooked_node": hooked_node,
        "left": left,
        "left_impl": left._cdata,
        "leaf": leaf,
        "leaf_impl": leaf._cdata,
        "grad_impl": leaf.grad._cdata,
    }
