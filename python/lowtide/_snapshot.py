"""Memory snapshots of a live process, for ``lowtide snapshot FILE``.

    memory = lowtide.snapshot()      near the top of the script, before the model is built
    ...
    memory.save()                    whenever wanted; an out-of-memory error saves by itself

What PyTorch's own calls leave to the user is chosen here: enough events for many steps, Python stacks (the C++ ones cost
a hundred times more to write), a file per rank that is whole or absent, and a file at the moment of an out-of-memory
error, before the exception unwinds and frees what was held.
"""
import itertools
import os
import pickle
import sys
import threading

_MOST_OOM_FILES = 3  # a loop that catches the error and tries again must not fill the disk
_said = set()
_current = None


def _say_once(what):
    if what not in _said:
        _said.add(what)
        print(f"lowtide: {what}", file=sys.stderr)


def _rank():
    for name in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"):
        value = os.environ.get(name, "")
        if value.isdigit():
            return int(value)
    return 0


class Snapshots:
    """What ``lowtide.snapshot()`` returns. `active` is False where nothing can be recorded; then all calls do nothing."""

    def __init__(self, folder, max_entries, stacks, on_oom):
        self.folder = os.fspath(folder)
        self.files = []
        self.active = False
        self._numbers = itertools.count()
        self._oom_files = 0
        self._lock = threading.Lock()
        self._start(max_entries, stacks, on_oom)

    def _start(self, max_entries, stacks, on_oom):
        try:
            import torch
        except ImportError:
            return _say_once("snapshot(): PyTorch is not installed; nothing is recorded")
        record = getattr(getattr(torch.cuda, "memory", None), "_record_memory_history", None)
        if record is None:
            return _say_once("snapshot(): this PyTorch cannot record memory history (2.1 or later can); nothing is recorded")
        if not torch.cuda.is_available():
            return _say_once("snapshot(): no CUDA device; nothing is recorded, and training goes on as without it")
        try:
            record("all", context="all", stacks=stacks, max_entries=max_entries)
        except Exception as error:  # an older signature, a driver that refuses: training goes on
            return _say_once(f"snapshot(): recording could not be turned on ({error}); nothing is recorded")
        self.active = True
        if on_oom:
            try:
                torch._C._cuda_attachOutOfMemoryObserver(self._out_of_memory)
            except Exception as error:
                _say_once(f"snapshot(): out-of-memory errors will not be saved ({error})")

    def _out_of_memory(self, device, size, device_total, device_free):
        if self._oom_files < _MOST_OOM_FILES:
            self._oom_files += 1
            self.save(f"oom-{self._oom_files}")

    def save(self, name=None):
        """Writes ``FOLDER/NAME-rank<N>.pickle`` and returns its path; None when nothing is recorded or it failed."""
        if not self.active:
            return None
        with self._lock:
            try:
                return self._write(name or f"snapshot-{next(self._numbers)}")
            except Exception as error:  # a full disk must not end the run
                _say_once(f"snapshot(): the file could not be written ({error})")
                return None

    def _write(self, name):
        import torch

        os.makedirs(self.folder, exist_ok=True)
        path = os.path.join(self.folder, f"{name}-rank{_rank()}.pickle")
        taken = torch.cuda.memory._snapshot()
        beside = f"{path}.{os.getpid()}.part"
        try:
            with open(beside, "wb") as file:
                pickle.dump(taken, file, protocol=4)
            os.replace(beside, path)
        except BaseException:
            try:
                os.unlink(beside)
            except OSError:
                pass
            raise
        if path not in self.files:
            self.files.append(path)
        return path

    def stop(self):
        """Turns recording off."""
        global _current
        if not self.active:
            return
        self.active = False
        if _current is self:
            _current = None
        try:
            import torch

            torch.cuda.memory._record_memory_history(None)
        except Exception as error:
            _say_once(f"snapshot(): recording could not be turned off ({error})")

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        self.save()
        self.stop()
        return False


def snapshot(folder="lowtide-snapshots", *, max_entries=1_000_000, stacks="python", on_oom=True):
    """Records the CUDA allocator's history from here on; see the module's text.

    folder       where files go, made when the first is written
    max_entries  events kept (about 100 bytes of host memory each, and stacks); the oldest go first
    stacks       "python", or "all" with C++ frames (files grow threefold, and take minutes to write)
    on_oom       save when an allocation fails, at most three times

    Called again it returns the recording that runs. Never raises for want of CUDA or PyTorch: it says so once on
    standard error, and the object it returns does nothing.
    """
    global _current
    if _current is None or not _current.active:
        _current = Snapshots(folder, max_entries, stacks, on_oom)
    return _current
