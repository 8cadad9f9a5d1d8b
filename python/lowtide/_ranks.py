"""Watches one rank of a distributed program, and leaves facts that the outside compares between ranks.

Begins when a process group of more than one rank is made; until then nothing of it is imported. What one rank can tell
alone becomes a finding at once (``findings-rank<N>.jsonl``). What only a comparison can tell (the same data on two
ranks, parameters that differ) is written as facts, one JSON object a line, into ``facts-rank<N>-<host>-<pid>.jsonl`` of
the run's folder: at most MOST_FACTS lines, at steps that are the same on all ranks. No collective is ever added to the
user's program.

    LOWTIDE_RANKS=0     watches nothing of this
"""
import json
import os
import socket
import sys
import time

from lowtide import _bootstrap, _marks, _track

MOST_FACTS = 2000

watch = None  # the one of this process


class Facts:
    """Appends facts to this rank's file. Never raises."""

    def __init__(self, folder, rank):
        self.path = os.path.join(folder, f"facts-rank{rank}-{_bootstrap.host_name()}-{os.getpid()}.jsonl") if folder else None
        self.lines = 0
        self.kept = []  # without a folder (tests)

    def write(self, kind, **fields):
        self.lines += 1
        if self.lines > MOST_FACTS and kind != "end":
            return
        row = {"kind": kind, **fields}
        if self.path is None:
            self.kept.append(row)
            return
        try:
            fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
            try:
                os.write(fd, (json.dumps(row, separators=(",", ":"), default=str) + "\n").encode("utf-8", "replace"))
            finally:
                os.close(fd)
        except (OSError, ValueError):
            pass


class Watch(_track.RankState):
    """What the parts share: the step, the counters, where findings and facts go. The fields of the base are counted in C:
    backwards, and what a usual step leaves (src/python/track_ranks.cc)."""

    def __init__(self, torch, rank, world, folder=None, sink=None):
        from lowtide.gradients_findings import Sink

        self.torch, self.rank, self.world = torch, rank, world
        self.facts = Facts(folder, rank)
        self.sink = sink or Sink(folder or "")
        if folder:
            self.sink.path = os.path.join(folder, f"findings-ranks-rank{rank}.jsonl")
        self.counts = {}  # of collectives over all ranks
        self.parts = []
        self.handles = []
        self.ended = False
        self.backend = None

    def step(self):
        """The number of the step that is under way, as the ring counts."""
        return _marks.state.steps + 1

    def call(self, part, name, *args):
        """One part's hook: what fails switches that part off and is counted."""
        if part.alive:
            try:
                return getattr(part, name)(*args)
            except Exception as error:
                part.alive = False
                part.failure = f"{type(error).__name__}: {error}"
                _track.lose_mark()
        return None

    def before_step(self, optimizer):
        step = self.step()
        self.wrapping.settle()
        for part in self.parts[:-1]:  # the last one only counts waits
            self.call(part, "before_step", optimizer, step)
        self.begun = False
        self.call(self.wrapping, "go_on_quietly", optimizer, step)

    def add(self, item):
        self.sink.add(item)

    def end(self):
        if self.ended:
            return
        self.ended = True
        self.wrapping.settle()
        for part in self.parts:
            self.call(part, "end")
        error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        self.facts.write("end", step=_marks.state.steps, backwards=self.backwards, joined=_join_used,
                         error=f"{type(error).__name__}: {error}"[:300] if error is not None else None)
        self.sink.flush()


_join_used = False


def _noted_join(*args):
    global _join_used
    _join_used = True


def begin():
    """Called when a process group was made. Returns True when this rank is watched. Never raises."""
    global watch
    try:
        torch = sys.modules["torch"]
        distributed = torch.distributed
        if watch is not None or os.environ.get("LOWTIDE_RANKS") == "0" or distributed.get_world_size() < 2:
            return watch is not None
        watch = Watch(torch, distributed.get_rank(), distributed.get_world_size(), os.environ.get("LOWTIDE_RUN_DIR"))
        attach(watch)
        _introduce(watch, distributed)
        return True
    except Exception:
        _track.lose_mark()
        return False


def attach(watch):
    """Hooks the parts in, each by one line."""
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    from lowtide import _ranks_data, _ranks_parameters, _ranks_time, _ranks_wrapped

    wrapped = watch.wrapping = _ranks_wrapped.Wrapping(watch)
    watch.parts = [
        _ranks_data.Data(watch, wrapped),                # LT601 LT602 LT603 LT604 LT605
        wrapped,                                         # LT606 LT608 LT609 LT611 LT612
        _ranks_parameters.Parameters(watch, wrapped),    # LT607 LT619
        _ranks_time.Waits(watch, wrapped),               # LT613, and what LT614 to LT616 need
    ]
    for part in watch.parts:
        watch.call(part, "install")
    watch.handles.append(register_optimizer_step_pre_hook(
        _track.Gate("rank step", watch, watch.before_step, _marks.state)))


def _introduce(watch, distributed):
    from lowtide import _ranks_stacks

    number, file = _ranks_stacks.install(os.environ.get("LOWTIDE_RUN_DIR"), watch.rank)
    try:
        backend = watch.backend = str(distributed.get_backend())
    except Exception:
        backend = None
    watch.facts.write("rank", rank=watch.rank, world=watch.world, local_rank=_bootstrap._number("LOCAL_RANK", "SLURM_LOCALID"),
                      host=socket.gethostname(), pid=os.getpid(), backend=backend, stack_signal=number, stack_file=file,
                      wall=time.time())


def alone():
    """At the first step of a process that a launcher made one of several, and that never joined the others."""
    if watch is not None or os.environ.get("LOWTIDE_RANKS") == "0":
        return
    world = _bootstrap._number("WORLD_SIZE")
    rank = _bootstrap._number("RANK")
    if rank is not None and (world or 0) > 1:
        Facts(os.environ.get("LOWTIDE_RUN_DIR"), rank).write(
            "alone", rank=rank, world=world, host=socket.gethostname(), pid=os.getpid())


def after_fork():
    global watch
    watch = None


def at_exit():
    if watch is None:
        return
    watch.end()
    try:
        if "gloo" in (watch.backend or "") and not _bootstrap.in_multiprocessing_child():
            from lowtide import _ranks_exit

            _ranks_exit.let_go()
    except Exception:
        pass
