"""Data that resumes in the middle of an epoch, sample for sample.

``Resumable(loader)`` iterates as the loader does and knows its place. Its state is the epoch, the batches handed out and
the RNGs as they were when the epoch began. To resume, those RNGs are put back, the loader is started as it was then (the
sampler and the workers draw the same seeds) and the batches already seen are passed over. That is exact for any dataset
with the same number of workers. ``PerSample(dataset, seed)`` makes it exact for any number of workers: each sample's
randomness depends on (seed, epoch, index) alone; batches already seen are then skipped without being read.
"""
import contextlib
import hashlib
import random
import sys

import torch

from lowtide.checkpoint_state import rng_state, set_rng_state


class PerSample(torch.utils.data.Dataset):
    """A map-style dataset whose ``random``, ``numpy.random`` and ``torch`` draws in ``__getitem__`` depend on
    (seed, epoch, index) alone, whichever worker makes the sample."""

    def __init__(self, dataset, seed=0):
        self.dataset, self.seed = dataset, int(seed)
        # Shared with worker processes, persistent ones too, which keep a copy of everything else.
        self._epoch = torch.zeros(1, dtype=torch.int64).share_memory_()

    def __len__(self):
        return len(self.dataset)

    def set_epoch(self, epoch):
        self._epoch[0] = int(epoch)

    def __getitem__(self, index):
        key = f"{self.seed}/{int(self._epoch[0])}/{index}".encode()
        seed = int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little") >> 1
        with _seeded(seed):
            return self.dataset[index]


@contextlib.contextmanager
def _seeded(seed):
    """Seeds the three generators for a block and puts them back after it."""
    numpy = sys.modules.get("numpy")
    before = random.getstate(), torch.get_rng_state(), numpy.random.get_state() if numpy is not None else None
    random.seed(seed)
    torch.manual_seed(seed)
    if numpy is not None:
        numpy.random.seed(seed & 0xFFFFFFFF)
    try:
        yield
    finally:
        random.setstate(before[0])
        torch.set_rng_state(before[1])
        if numpy is not None:
            numpy.random.set_state(before[2])


class _Tail:
    """A batch sampler without its first batches."""

    def __init__(self, inner, skip):
        self.inner, self.skip = inner, skip

    def __iter__(self):
        # Not a generator: samplers draw their seed at the first `next`, and that must be now.
        iterator = iter(self.inner)
        for _ in range(self.skip):
            if next(iterator, None) is None:
                break
        return iterator

    def __len__(self):
        return max(0, len(self.inner) - self.skip)


class Resumable:
    """Wraps a DataLoader (or any iterable that starts anew with each ``iter``). One epoch per iteration."""

    def __init__(self, loader):
        self.loader = loader
        self.epoch = 0            # epochs begun before the current one
        self.batches = 0          # handed out in the current epoch
        self._start = None        # RNGs at the beginning of the current epoch
        self._resume = None       # a state to go on from at the next iteration
        self._inside = False

    def __len__(self):
        return len(self.loader)

    def __getattr__(self, name):
        if name.startswith("__") or name == "loader":
            raise AttributeError(name)
        return getattr(self.loader, name)

    def _set_epoch(self):
        for thing in (getattr(self.loader, "sampler", None), getattr(getattr(self.loader, "batch_sampler", None), "sampler", None),
                      getattr(self.loader, "dataset", None)):
            setter = getattr(thing, "set_epoch", None)
            if callable(setter):
                setter(self.epoch)

    def __iter__(self):
        resume, self._resume = self._resume, None
        if resume is None:
            self._start, self.batches = rng_state(), 0
            self._set_epoch()
            iterator = iter(self.loader)
        else:
            iterator = self._go_on(resume)
        self._inside = True
        for batch in iterator:
            self.batches += 1
            yield batch
        self._inside = False
        self.epoch += 1
        self.batches = 0

    def _go_on(self, state):
        self.epoch, self._start = state["epoch"], state["start"]
        self._set_epoch()
        now = rng_state()  # where the run stood when it was saved: restored before the first new batch
        inner = state.get("inner")
        if inner is not None and hasattr(self.loader, "load_state_dict"):
            self.loader.load_state_dict(inner)
            iterator = iter(self.loader)
        else:
            set_rng_state(self._start)
            iterator = self._skipped(state["batches"])
        self.batches = state["batches"]
        set_rng_state(now)
        return iterator

    def _skipped(self, count):
        loader = self.loader
        dataset = getattr(loader, "dataset", None)
        if isinstance(dataset, PerSample) and getattr(loader, "batch_sampler", None) is not None:
            # Samples do not depend on one another: leave the ones already seen unread.
            real = loader.batch_sampler
            object.__setattr__(loader, "batch_sampler", _Tail(real, count))  # DataLoader refuses a plain assignment
            try:
                return iter(loader)  # takes the sampler's iterator now
            finally:
                object.__setattr__(loader, "batch_sampler", real)
        iterator = iter(loader)
        for _ in range(count):
            next(iterator, None)
        return iterator

    def state_dict(self):
        """Where the run is. Call it between batches, in the process that iterates."""
        if self._resume is not None:
            return self._resume
        state = {"epoch": self.epoch, "batches": self.batches if self._inside else 0,
                 "start": self._start if self._inside and self.batches else None}
        inner = getattr(self.loader, "state_dict", None)
        if self._inside and callable(inner):  # torchdata's StatefulDataLoader knows better
            state["inner"] = inner()
        return state

    def load_state_dict(self, state):
        """The next iteration goes on from there."""
        self.epoch, self.batches = int(state["epoch"]), int(state["batches"])
        self._inside = False
        self._resume = dict(state) if state["start"] is not None else None

