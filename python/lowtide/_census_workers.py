"""Censuses inside DataLoader workers: what a dataset keeps there is invisible to the process that trains.

A worker counts the batches it fetches. Where its own memory has grown, it takes two censuses some batches apart and
leaves the rows beside those of its rank, with pool `workers`. Rates are per step of the trainer, which takes one batch from
one of the workers. A worker that does not grow pays two reads of /proc/self/statm.
"""

import os
import sys
import time

_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_LEAST_GROWTH = 256 << 10  # bytes of private memory between two looks before a census is worth its pause
_SPAN = 40                 # batches between the two censuses


def install():
    """Makes the workers that are started from now on watch themselves."""
    from lowtide import _track

    worker = sys.modules["torch.utils.data"]._utils.worker
    if not isinstance(worker._worker_loop, _track.Marked):
        worker._worker_loop = _track.Marked(worker._worker_loop, _begin, None)


def _begin(*_):
    """In the worker, before its loop: from here on each fetch of a batch is counted."""
    from lowtide import _track

    fetch = sys.modules["torch.utils.data"]._utils.fetch
    watch = _Watch()
    for kind in (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher):
        kind.fetch = _track.Marked(kind.__dict__["fetch"], None, watch.fetched)


class _Watch:
    def __init__(self):
        self.batches = 0
        self.look_at = 12
        self.private = None
        self.second_at = None
        self.done = False
        self.census = None

    def fetched(self, *_):
        self.batches += 1
        if self.done or self.batches < (self.second_at or self.look_at):
            return
        if self.second_at:
            self._second()
        else:
            self._look()

    def _look(self):
        private = _private_bytes()
        grown = self.private is not None and private - self.private >= _LEAST_GROWTH
        self.private = private
        if not grown:
            self.look_at = self.batches + min(200, max(12, self.batches))
            return
        before = _private_bytes()
        from lowtide import _census

        self.census = _census.Census(scoped=True)
        if self.census.first(self.batches):
            self.second_at = self.batches + _SPAN
        else:
            self.done = True
        _own_up(before)

    def _second(self):
        self.done = True
        before = _private_bytes()
        self.census.second(self.batches)
        rank, (number, workers) = _rank(), _worker_number()
        for row in self.census.rows:
            # A step of the trainer takes a batch of one worker: this one's share of it.
            row["bytes_per_step"] = round(row["bytes_per_step"] / workers)
            row.update(rank=rank, pool="workers", root=f"{row['root']}, in DataLoader worker {number}")
        self.census.write(None, rank, f"-worker{number}-{os.getpid()}")
        self.census = None
        _own_up(before)


def _own_up(before):
    """Gives freed pages back and leaves a line with what the census took in this process: the moment (ns of
    CLOCK_MONOTONIC) and the bytes, for the report to take off the worker's figures."""
    try:
        ctypes = __import__("ctypes")
        ctypes.CDLL(None).malloc_trim(0)
        with open(os.path.join(os.environ["LOWTIDE_RUN_DIR"], f"census-worker-{os.getpid()}.txt"), "a") as file:
            file.write(f"{time.monotonic_ns()} {_private_bytes() - before}\n")
    except (OSError, KeyError, AttributeError, ImportError) as error:
        error.__traceback__ = None


def _rank():
    """The rank of the process whose worker this is."""
    distributed = sys.modules.get("torch.distributed")
    try:
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank()
        if os.environ.get("RANK"):
            return int(os.environ["RANK"])
        identity = sys.modules["multiprocessing.process"].current_process()._identity  # (rank + 1, worker + 1)
        return identity[-2] - 1 if len(identity) > 1 else 0
    except Exception as error:
        error.__traceback__ = None
        return 0


def _private_bytes():
    try:
        with open("/proc/self/statm", "rb") as file:
            fields = file.read().split()
        return (int(fields[1]) - int(fields[2])) * _PAGE
    except (OSError, ValueError, IndexError):
        return 0


def _worker_number():
    # Its number and how many there are.
    info = sys.modules["torch.utils.data"].get_worker_info()
    return (info.id, max(info.num_workers, 1)) if info is not None else (0, 1)
