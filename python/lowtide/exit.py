"""Leaving in order: on a signal, near the memory's end, or on a certain leak, at a step boundary that all ranks share.

    leave = lowtide.GracefulExit(checkpointer)
    for batch in loader:
        ...
        leave.step()          # saves and raises SystemExit(143) when it is time

The signal handler sets a flag and nothing else; a second signal ends the process as it would have without us.
"""
import os
import signal
import sys
import threading
import time
import weakref

from lowtide.gradients_findings import Sink, evidence, finding

SIGNALS = ("SIGTERM", "SIGUSR1")   # kill and most schedulers; SLURM's --signal=USR1@120
FRACTION = 0.85
CHECK_SECONDS = 1.0                # between two looks at the memory
_active = weakref.WeakSet()        # those that will be asked at the next step
REASONS = {0: "", 1: "memory", 2: "leak", 3: "asked", 4: "signal"}


def ask(why):
    """Asks every :class:`GracefulExit` of this process for the end (``lowtide run --exit-at`` does). False: there is none
    that is still asked at steps."""
    found = [leave for leave in list(_active) if leave.calls]
    for leave in found:
        leave.request(why)
    return bool(found)


def _read(path):
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _field(text, name):
    for line in text.splitlines():
        if line.startswith(name):
            digits = "".join(c for c in line[len(name):] if c.isdigit())
            return int(digits) if digits else None
    return None


def _cgroup_folders():
    """This process's cgroups, innermost first, as (folder, limit file, usage file, cache field)."""
    for line in _read("/proc/self/cgroup").splitlines():
        number, controllers, path = (line.split(":", 2) + ["", "", ""])[:3]
        if number == "0" and controllers == "":
            root, files = "/sys/fs/cgroup", ("memory.max", "memory.current", "inactive_file ")
        elif "memory" in controllers.split(","):
            root, files = "/sys/fs/cgroup/memory", ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file ")
        else:
            continue
        folder = root + path.rstrip("/")
        while folder.startswith(root):
            yield (folder, *files)
            if folder == root:
                break
            folder = os.path.dirname(folder)


def memory_use():
    """[(limit's name, bytes in use, bytes of the limit)]: host, the tightest cgroup, each device that is in use. Page cache
    that the kernel can take back does not count."""
    out = []
    info = _read("/proc/meminfo")
    total, available = _field(info, "MemTotal:"), _field(info, "MemAvailable:")
    if total and available is not None:
        out.append(("host", (total - available) * 1024, total * 1024))
    best = None
    for folder, limit_file, usage_file, cache in _cgroup_folders():
        limit, usage = _read(f"{folder}/{limit_file}").strip(), _read(f"{folder}/{usage_file}").strip()
        if limit.isdigit() and usage.isdigit() and 0 < int(limit) < 1 << 60:
            used = max(0, int(usage) - (_field(_read(f"{folder}/memory.stat"), cache) or 0))
            if best is None or used / int(limit) > best[1] / best[2]:
                best = ("cgroup", used, int(limit))
    if best:
        out.append(best)
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        for index in range(torch.cuda.device_count()):
            if torch.cuda.memory_reserved(index):
                free, whole = torch.cuda.mem_get_info(index)
                # What the caching allocator holds free serves the next request: it is not in use.
                idle = torch.cuda.memory_reserved(index) - torch.cuda.memory_allocated(index)
                out.append((f"cuda:{index}", whole - free - idle, whole))
    return out


def tightest():
    """(fraction in use, limit's name, bytes in use, bytes of the limit) of the limit that is closest."""
    return max(((used / limit, name, used, limit) for name, used, limit in memory_use()), default=(0.0, "", 0, 0))


class GracefulExit:
    """Watches for a reason to leave; agrees on it with the other ranks; saves; ends the process.

    checkpointer  saved (durably) before the end; None: nothing is saved
    memory        fraction of the tightest limit at which to leave; None: never for that
    signals       names of signals that ask for it
    exit_code     143, as a shell reports SIGTERM, or your own
    agree_every   ranks compare notes every so many calls of :meth:`step`; all ranks must make the same calls
    """

    def __init__(self, checkpointer=None, *, memory=FRACTION, signals=SIGNALS, exit_code=143, agree_every=1, sink=None):
        if memory is not None and not 0 < memory < 1:
            raise ValueError(f"memory must be a fraction between 0 and 1, not {memory!r}")
        text = os.environ.get("LOWTIDE_EXIT_AT", "")
        self.memory = float(text) if text and memory is not None else memory
        self.checkpointer, self.exit_code, self.agree_every = checkpointer, exit_code, max(1, int(agree_every))
        self.sink = sink or Sink()
        self.reason = 0
        self.detail = ""
        self.calls = 0
        self.saved = None
        self._next_look = 0.0
        self._before = {}
        self._hear(signals)
        _active.add(self)

    def _hear(self, signals):
        if threading.current_thread() is not threading.main_thread():
            return  # handlers can be set in the main thread alone; request() works everywhere
        for name in signals:
            number = getattr(signal, name, None)
            if number is not None:
                self._before[number] = signal.signal(number, self._handle)

    def _handle(self, number, frame):
        # Nothing else may happen here: locks may be held, a backward may be under way.
        if self.reason == 4:
            signal.signal(number, self._before.get(number) or signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        self.reason, self.detail = 4, signal.Signals(number).name

    def request(self, why="asked"):
        """Asks for the end at the next boundary, from any thread."""
        self.reason, self.detail = max(self.reason, {"memory": 1, "leak": 2}.get(why, 3)), str(why)

    def close(self):
        """Puts the signal handlers back."""
        _active.discard(self)
        for number, handler in self._before.items():
            if signal.getsignal(number) == self._handle:
                signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        self._before = {}

    def should_stop(self):
        """True, on all ranks in the same call, once one of them has a reason. For loops of one's own (validation too)."""
        self.calls += 1
        now = time.monotonic()
        if self.memory is not None and now >= self._next_look and not self.reason:
            self._next_look = now + CHECK_SECONDS
            fraction, name, used, limit = tightest()
            if fraction >= self.memory:
                self.reason = 1
                self.detail = f"{name} at {100 * fraction:.1f} % of {limit / 1e9:.2f} GB"
        if self.calls % self.agree_every:
            return False
        agreed = self._agree(self.reason)
        if agreed > self.reason:
            self.reason, self.detail = agreed, "another rank: " + REASONS.get(agreed, "?")
        return agreed > 0

    def step(self):
        """After each step: leaves when it is time (raises SystemExit after the save)."""
        if self.should_stop():
            self.leave()

    def leave(self):
        """Saves, notes why, raises SystemExit(exit_code)."""
        why = f"{REASONS.get(self.reason, 'asked')}: {self.detail}"
        ok = None
        if self.checkpointer is not None:
            reason = {1: "memory", 2: "leak"}.get(self.reason, "exit")
            ok = self.saved = self.checkpointer.save(reason=reason, wait=True)
        step = getattr(self.checkpointer, "step_number", self.calls)
        saved = "nothing was saved (no checkpointer)" if ok is None else (
            f"saved as {self.checkpointer.last_saved}" if ok else f"the save FAILED: {self.checkpointer.last_error}")
        self.sink.add(finding(
            "LT704", "note" if ok else "warning", f"left in order at step {step} ({why}); {saved}; exit code {self.exit_code}",
            zh=f"在第 {step} 步有序退出（{why}）", evidence=[evidence("step", step)],
            help="start the script again: it resumes from there" if ok else "give GracefulExit a checkpointer",
            help_zh="重新启动脚本即可从该处恢复", parts=("left",)))
        self.close()
        raise SystemExit(self.exit_code)

    def _agree(self, reason):
        dist = sys.modules.get("torch.distributed")
        if dist is None or not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
            return reason
        import torch

        word = torch.tensor([reason], device="cuda" if dist.get_backend() == "nccl" else "cpu")
        dist.all_reduce(word, op=dist.ReduceOp.MAX)
        return int(word.item())
