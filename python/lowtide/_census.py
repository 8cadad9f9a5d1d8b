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
_MOST_ROWS = 96
_TWO_PAUSES_FROM = 500_000  # objects: below it the second census takes less than a tenth of a second anyway


class Census:
    """Two or more marks in one process. `first(step)` and `second(step)`; `rows` and `trouble` say what came of it."""

    def __init__(self, scoped=False):
        self.scoped = scoped  # look only at what running functions and the user's own modules reach
        self.mark = None  # a _walk.Heap
        self.pending = None  # a _walk.Pending: the comparison of a second mark, whose arithmetic goes on
        self._between = ()  # what was counted as it began
        self.step = None
        self.first_step = None
        self.rows = []
        self.raw = []
        self.trouble = None  # why there is no census, in words
        self.at_exit = False  # the second was taken as the script ended, without the variables of its functions
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

    def begin(self, step):
        """As `second`, but for a large process the arithmetic is done beside the program, between two pauses.

        Returns None when all is done, or a function that says when `finish()` can be called without a wait.
        """
        if self.mark is None or self.mark.info()["objects"] < _TWO_PAUSES_FROM:
            self.second(step)
            return None
        return self._guarded(self._begin, step) or None

    def finish(self):
        """Names what the mark of `begin` shows, as far as it is still there. Returns None."""
        self._guarded(self._finish)

    def taken_beside(self):
        """Bytes that the arithmetic of `begin` has taken: (in mappings of its own, in the C heap)."""
        return self.pending.taken_bytes() if self.pending is not None else (0, 0)

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
                "at_exit": self.at_exit,
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
        heap_growth = _walk.heap_in_use() - self.heap
        mark, self.raw = _walk.compare(self.mark, self._least_bytes(step), _MOST_ROWS, self.scoped)
        self._tell(mark, step, heap_growth, _census_native.counters())
        self.mark = mark if keep else None  # tens of bytes for each object of the process
        return True

    def _begin(self, step):
        if not _ready(self):
            return None
        _make_frames()
        self._between = step, _walk.heap_in_use() - self.heap, _census_native.counters()
        self.pending = _walk.compare_later(self.mark, self._least_bytes(step), _MOST_ROWS, self.scoped)
        return self.pending.ready

    def _finish(self):
        pending, self.pending, self.mark = self.pending, None, None
        mark, self.raw, gone = pending.finish()
        self._tell(mark, *self._between, gone)
        if gone > sum(row["growth_bytes"] for row in self.rows):
            self.trouble = "what had grown was gone when it was to be named: the function that held it had returned, or the script ended"

    def _steps(self, step):
        return max(1, step - self.step)

    def _least_bytes(self, step):
        return _LEAST_BYTES_PER_STEP * self._steps(step)

    def _tell(self, mark, step, heap_growth, native, gone=0):
        steps = self._steps(step)
        self.rows = _holders.rows(self.raw, steps, _rank())
        _census_native.name_callbacks(self.rows, self.native, native)
        named = gone + sum(row["growth_bytes"] for row in self.rows)
        if not self.scoped:
            self.rows += _census_native.rows(self.native, native, heap_growth, named, steps, _rank())
        self.rows.sort(key=lambda row: -row["growth_bytes"])
        self.info = mark.info()
        self.native, self.heap = native, _walk.heap_in_use()
        self.step = step


def _make_frames():
    """Gives each function that this thread runs its frame object, by which this call of it is told from the next one. Not
    those of other threads: they go on meanwhile, and CPython 3.11 was seen to hand out what is no frame (one that is just
    giving its variables back)."""
    frame = sys._getframe()
    while frame is not None:
        frame = frame.f_back


census = Census()
second = census.second


def first(step):
    """The first mark of this process's census. A run that ends before the second takes it as it exits."""
    if not _registered:
        _registered.append(getattr(sys.modules.get("__main__"), "__file__", None))
        atexit.register(_at_exit)
    return census.first(step)


def last_chance():
    """A run that is about to end takes its second mark now, if it has a first one and no holders yet."""
    if census.pending is not None:
        census.finish()
        write()
        return
    track = getattr(sys.modules.get("lowtide._bootstrap"), "track", None)
    step = track.figures()["step"] if track is not None else 0
    if census.mark is not None and not census.rows and step - census.step >= _LEAST_STEPS:
        census.second(step)
        write()


_registered = []  # the script's path, once there is a mark


def after_fork():
    """In a child the marks are the parent's, and so is the file that would be written."""
    census.pending = census.mark = None


def _at_exit():
    # Variables of functions are gone by now; those of modules are still there, but the interpreter has taken the
    # script's path from its module, which tells where in the source to look.
    main = sys.modules.get("__main__")
    restored = isinstance(_registered[0], str) and main is not None and not hasattr(main, "__file__")
    try:
        if restored:
            main.__file__ = _registered[0]
        census.at_exit = True
        last_chance()
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
