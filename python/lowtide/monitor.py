"""The loop helper: figures, warnings, clipping, checkpoints and an orderly end around a training loop of one's own.

    monitor = lowtide.Monitor(model=model, optimizer=optimizer, checkpointer=checkpointer)
    for batch in monitor.steps(loader):
        loss = criterion(model(batch))
        optimizer.zero_grad()
        monitor.backward(loss)          # loss.backward(), with NaN traced; the clip at 1.0 runs before optimizer.step()
        optimizer.step()

Under ``lowtide run`` each step is also marked in the recording.
"""
import contextlib
import ctypes
import logging
import os
import sys
import time

import lowtide
from lowtide.exit import GracefulExit
from lowtide.gradients import Gradients
from lowtide.integrations.sinks import send
from lowtide.monitor_lifetimes import LifetimeError, Window, keep

__all__ = ["LifetimeError", "Monitor", "keep"]

log = logging.getLogger("lowtide")
LOG_EVERY = 100
WARM_UP = 200      # steps after which the baseline is taken
GROWTH = (0.2, 0.3)


class _Mallinfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in
                ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")]


def _heap_in_use():
    try:
        call = ctypes.CDLL(None).mallinfo2
        call.restype = _Mallinfo
        info = call()
        return info.uordblks + info.hblkhd
    except (OSError, AttributeError):
        return None


def figures():
    """Absolute bytes by name: rss, heap (C heap in use), and allocated and reserved of each device in use."""
    out = {}
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            out["rss"] = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        pass
    heap = _heap_in_use()
    if heap is not None:
        out["heap"] = heap
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        for index in range(torch.cuda.device_count()):
            if torch.cuda.memory_reserved(index):
                out[f"cuda:{index} allocated"] = torch.cuda.memory_allocated(index)
                out[f"cuda:{index} reserved"] = torch.cuda.memory_reserved(index)
    return out


def human(bytes_):
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if abs(bytes_) >= size:
            return f"{bytes_ / size:.3g} {unit}" if abs(bytes_) < 1000 * size else f"{bytes_ / size:.0f} {unit}"
    return f"{bytes_:.0f} B"


class Monitor:
    """model, optimizer   for clipping and gradient findings; without an optimizer call ``gradients.clip()`` yourself
    gradients             a :class:`lowtide.Gradients`, None for the default (clip at 1.0), False for none
    checkpointer          its ``step()`` and ``end_epoch()`` are called here
    leave                 a :class:`lowtide.GracefulExit`, None for the default when there is a checkpointer, False for none
    log_every, warm_up, growth
                          a line of figures every so many steps; the baseline is the lowest level after `warm_up` steps, and
                          levels above it by these fractions are warned about
    sinks                 objects with ``add_scalar(name, value, step)`` (TensorBoard) or ``log(dict, step=)`` (W&B)
    progress              True: a tqdm bar; None: when tqdm is installed and stderr is a terminal
    """

    def __init__(self, model=None, optimizer=None, *, gradients=None, checkpointer=None, leave=None, log_every=LOG_EVERY,
                 warm_up=WARM_UP, growth=GROWTH, sinks=(), progress=None, emit=None):
        self.optimizer, self.checkpointer = optimizer, checkpointer
        if gradients is None and model is not None:
            gradients = Gradients(model)
        self.gradients = gradients or None
        if leave is None and checkpointer is not None:
            leave = GracefulExit(checkpointer)
        self.leave = leave or None
        if checkpointer is not None and self.gradients is not None and checkpointer.parts.get("gradients") is None:
            checkpointer.parts["gradients"] = self.gradients  # the clip's state belongs to the checkpoint
        self.log_every, self.warm_up, self.growth = log_every, warm_up, tuple(sorted(growth))
        self.sinks, self.progress = list(sinks), progress
        self._emit = emit or log.info
        self.number = checkpointer.step_number if checkpointer is not None else 0
        self.warnings = []
        self.baseline = {}
        self._low = {}
        self._told = {}
        self._loss = None
        self._report = None
        self._time = time.perf_counter()
        self._logged = self.number
        self._window = None
        self._open = False
        self._hook = None
        if self.gradients is not None and optimizer is not None:
            self._hook = optimizer.register_step_pre_hook(self._before_step)

    def close(self):
        """Takes the hook out and puts the signal handlers back."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None
        if self.leave is not None:
            self.leave.close()

    # -- the loop -----------------------------------------------------------------------------------------------
    def steps(self, loader, epochs=1):
        """Yields the batches of `epochs` passes; after each the step's end is handled: marks, log, save, exit."""
        if self.checkpointer is not None and self.checkpointer.loader is not None and self.checkpointer.loader.loader is loader:
            loader = self.checkpointer.loader  # the one that knows its place
        first = self.checkpointer.epoch if self.checkpointer is not None else 0
        for _ in range(first, epochs):
            for batch in self._bar(loader):
                yield batch
                del batch
                self.end_step()
            if self.checkpointer is not None:
                self.checkpointer.end_epoch()

    def _bar(self, loader):
        wanted = self.progress if self.progress is not None else sys.stderr is not None and sys.stderr.isatty()
        if wanted:
            with contextlib.suppress(ImportError):
                from tqdm import tqdm

                return tqdm(loader)
        return loader

    @contextlib.contextmanager
    def step(self, strict=False):
        """One step of a loop without :meth:`steps`. Strict: a tensor that outlives the step undeclared raises
        :class:`LifetimeError` with its holder named."""
        window = Window(self.number + 1, [self]) if strict else None
        yield self
        if window is not None:
            frame = sys._getframe(1)
            while frame is not None and frame.f_code.co_filename == contextlib.__file__:
                frame = frame.f_back
            held = window.close(frame, self._window)
            self._window = window
            if held:
                raise LifetimeError(held, self.number + 1)
        self.end_step()

    def backward(self, loss, **kwargs):
        """``loss.backward()``; a loss that is not finite is traced to its operation first."""
        self._loss = loss.detach()
        if self.gradients is not None:
            self.gradients.before_backward(loss)
        loss.backward(**kwargs)

    def _before_step(self, optimizer, args, kwargs):
        self._report = self.gradients.clip(self._loss)
        for item in self._report.findings:
            self._warn(f"{item['code']} {item['message']}")

    def end_step(self):
        """What happens at a step's end; :meth:`steps` and :meth:`step` call it."""
        self.number += 1
        lowtide.step()
        if self.number % self.log_every == 0:
            self._log()
        if self.checkpointer is not None:
            self.checkpointer.step()
        if self.leave is not None:
            self.leave.step()

    # -- figures ------------------------------------------------------------------------------------------------
    def _log(self):
        now = time.perf_counter()
        values = figures()
        rate = (self.number - self._logged) / max(now - self._time, 1e-9)
        self._time, self._logged = now, self.number
        parts = [f"step {self.number}"] + [f"{name} {human(value)}" for name, value in values.items()]
        if self._loss is not None:
            values["loss"] = float(self._loss)
            parts.append(f"loss {values['loss']:.4g}")
        if self._report is not None:
            values["gradient norm"] = self._report.total_norm
            parts.append(f"gradient norm {self._report.total_norm:.3g}")
        values["steps/s"] = rate
        self._emit(", ".join([*parts, f"{rate:.3g} steps/s"]))
        for sink in self.sinks:
            send(sink, {f"lowtide/{name.replace(' ', '_')}": value for name, value in values.items()}, self.number)
        self._watch({k: v for k, v in values.items() if k in ("rss", "heap") or k.endswith("allocated")})

    def _watch(self, levels):
        """Baseline after warm-up; warns when the lower edge (the lowest of the last three lines) has left it behind."""
        if self.number < self.warm_up:
            return
        for name, value in levels.items():
            recent = self._low.setdefault(name, [])
            recent.append(value)
            del recent[:-3]
            if name not in self.baseline or value < self.baseline[name]:
                self.baseline[name] = value
                continue
            above = min(recent) / max(self.baseline[name], 1) - 1
            for limit in self.growth:
                if len(recent) == 3 and above > limit > self._told.get(name, 0):
                    self._told[name] = limit
                    self._warn(f"{name} is at {human(value)}, {100 * above:.0f} % above its baseline of {human(self.baseline[name])} "
                               f"(step {self.number}): `lowtide run` tells whether it is a leak, and who holds it")

    def _warn(self, text):
        self.warnings.append(text)
        log.warning("lowtide: %s", text)
