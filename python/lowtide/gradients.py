"""Gradient diagnostics and clipping in a training loop of one's own.

    gradients = lowtide.Gradients(model)            # clips at 1.0
    ...
    loss.backward()
    report = gradients.clip(loss)                   # one read of the gradients: figures, findings, clip
    optimizer.step()

The pass that finds NaN, largest magnitude and zeros is the one that measures the norm; the gradients are only written
when the norm is above the limit. ``state_dict()`` belongs into the checkpoint (:class:`lowtide.Checkpointer` takes it).
"""
import collections
import math
import sys

import torch

from lowtide.gradients_findings import Sink
from lowtide.gradients_names import Names, user_place
from lowtide.gradients_nonfinite import NonFinite
from lowtide.gradients_rules import EXPLODING, PATIENCE, VANISHING, Rules
from lowtide.gradients_scan import scale, scan

Row = collections.namedtuple("Row", "name norm largest zeros nans infinities elements")
Row.__doc__ = "One parameter's gradient: L2 norm, largest magnitude, counts (zeros is NaN where it was not counted)."


class Report:
    """What one check found. ``total_norm`` is before clipping; ``clipped_to`` is None when nothing was scaled."""

    def __init__(self, scan_, name_of, step):
        self._scan, self._name_of = scan_, name_of
        self.step = step
        self.total_norm = scan_.total_norm
        self.finite = not scan_.damaged
        self.findings = []
        self.clipped_to = None
        self._rows = None

    @property
    def rows(self):
        """A :class:`Row` per parameter with a gradient; made when asked for."""
        if self._rows is None:
            self._rows = [Row(self._name_of(index), *figures, count)
                          for (index, *figures), count in zip(self._scan.rows(), self._scan.counts)]
        return self._rows

    @property
    def nonfinite(self):
        """Names of the parameters whose gradient holds a NaN or an infinity."""
        return [row.name for row in self.rows if row.nans or row.infinities]

    def __repr__(self):
        clip = f", clipped to {self.clipped_to:.3g}" if self.clipped_to is not None else ""
        return f"<gradients at step {self.step}: norm {self.total_norm:.3g}{clip}, {len(self.findings)} finding(s)>"


class AdaptiveLimit:
    """A clipping limit that comes down when the loss oscillates and goes up again when it is calm.

    The loss oscillates when, over the last `window` steps, its steps up and down are more than twice what they usually
    are in this run (median over the windows so far) and most of them change direction. Then the limit is halved, down to
    `limit` / 16. After two calm windows it is raised by a quarter, up to `limit`.
    """

    WINDOW = 20
    LOWEST = 1 / 16

    def __init__(self, limit):
        self.limit = float(limit)
        self.current = float(limit)
        self.losses = []
        self.usual = collections.deque(maxlen=32)  # roughness of the windows so far
        self.calm = 0
        self.lowered = 0

    def feed(self, loss):
        if not math.isfinite(loss):
            return
        self.losses.append(float(loss))
        if len(self.losses) > self.WINDOW:
            self._judge()
            self.losses = self.losses[-1:]

    def _judge(self):
        moves = [b - a for a, b in zip(self.losses, self.losses[1:])]
        level = sum(abs(v) for v in self.losses) / len(self.losses) or 1.0
        rough = math.sqrt(sum(m * m for m in moves) / len(moves)) / level
        turns = sum(1 for a, b in zip(moves, moves[1:]) if a * b < 0) / (len(moves) - 1)
        usual = sorted(self.usual)[len(self.usual) // 2] if len(self.usual) >= 3 else None
        if usual is not None and rough > 2 * usual and rough > 0.03 and turns > 0.4:
            self.current = max(self.limit * self.LOWEST, self.current / 2)
            self.calm = 0
            self.lowered += 1
            return  # an oscillating window does not count as usual
        self.usual.append(rough)
        self.calm += 1
        if self.calm >= 2 and self.current < self.limit:
            self.current = min(self.limit, self.current * 1.25)

    def state_dict(self):
        return {"limit": self.limit, "current": self.current, "losses": list(self.losses), "usual": list(self.usual),
                "calm": self.calm, "lowered": self.lowered}

    def load_state_dict(self, state):
        self.limit, self.current = float(state["limit"]), float(state["current"])
        self.losses = [float(v) for v in state["losses"]]
        self.usual = collections.deque((float(v) for v in state["usual"]), maxlen=32)
        self.calm, self.lowered = int(state["calm"]), int(state["lowered"])


class Gradients:
    """Checks and clips the gradients of `model` (a module, or an iterable of parameters or of (name, parameter)).

    clip       limit of the L2 norm over all gradients; None: never scale
    adapt      lower the limit while the loss oscillates (needs the loss in :meth:`clip`)
    exploding  norms above this and far above the run's own history are reported (LT503)
    vanishing  norms below this for several checks are reported (LT504)
    every      rules that look at each parameter run every so many checks
    sink       where findings go; by default the run folder of ``lowtide run``, or memory (:attr:`findings`)
    """

    def __init__(self, model, *, clip=1.0, adapt=True, exploding=EXPLODING, vanishing=VANISHING, patience=PATIENCE, every=4,
                 sink=None):
        if clip is not None and not clip > 0:
            raise ValueError(f"clip must be a positive number or None, not {clip!r}")
        named = list(model.named_parameters()) if isinstance(model, torch.nn.Module) else [
            item if isinstance(item, tuple) else (f"parameter {i} of shape {tuple(item.shape)}", item) for i, item in enumerate(model)]
        if not named:
            raise ValueError("there are no parameters to watch")
        self.parameters = [p for _, p in named]
        self.names = Names()
        if isinstance(model, torch.nn.Module):
            self.names.add("", model)
        for name, parameter in named:
            self.names.names.setdefault(id(parameter), name)
        self.sink = sink or Sink()
        self.rules = Rules(self.parameters, self, exploding=exploding, vanishing=vanishing, patience=patience)
        self.limit = AdaptiveLimit(clip) if clip is not None else None
        self.adapt, self.every = adapt, every
        self.step = 0
        self.good_step = None
        self._nonfinite = NonFinite(self.sink, self.names, lambda: self.parameters)

    def __call__(self, index):
        return self.names.of(self.parameters[index])

    def owner(self, index):
        return self.names.owner(self.parameters[index])

    @property
    def findings(self):
        """All findings so far, as in findings.json."""
        return list(self.sink.findings.values())

    def before_backward(self, loss):
        """Optional: call it with the loss before ``backward()``; then a NaN is traced to the operation that made it."""
        if self._nonfinite.waiting:
            self._nonfinite.before_backward(loss)
        value = float(loss.detach())
        if not math.isfinite(value):
            file, line, frame = user_place(sys._getframe(1))
            self._nonfinite.loss(loss, value, self.step + 1, (file, line), frame, self.rules.exploded_at, self.good_step)

    def check(self):
        """Scans the gradients as they are and returns a :class:`Report`; changes nothing."""
        report = self._check()
        report._scan.release()
        return report

    def _check(self):
        self.step += 1
        found = scan(self.parameters)
        report = Report(found, self, self.step)
        if found.damaged:
            self._bad(found)
        elif found.indexes:
            self.good_step = self.step
        where = None
        items = self.rules.judge(self.step, found, where)
        if self.step % self.every == 0:
            items += self.rules.judge_slowly(self.step, found, where)
        report.findings = [item for item in items if self.sink.add(item)]
        return report

    def _bad(self, found):
        rows = list(zip(found.indexes, (found.row(i) for i in range(len(found.indexes)))))
        bad = [self.parameters[i] for i, row in rows if row[3] or row[4]]
        good = [self.parameters[i] for i, row in rows if not (row[3] or row[4])]
        file, line, frame = user_place(sys._getframe(2))
        self._nonfinite.gradients(bad, good, self.step, (file, line), frame, self.rules.exploded_at, self.good_step)

    def clip(self, loss=None):
        """Checks, and scales the gradients to the limit if their norm is above it. Non-finite gradients are left as they
        are: skip the step then (``report.finite``). Shards of DTensors go through PyTorch's own clip, which knows the mesh."""
        report = self._check()
        if self.limit is None:
            report._scan.release()
            return report
        if loss is not None and self.adapt:
            self.limit.feed(float(loss.detach()) if isinstance(loss, torch.Tensor) else float(loss))
        if any(hasattr(g, "to_local") for g in report._scan.gradients):
            report.total_norm = float(torch.nn.utils.clip_grad_norm_(self.parameters, self.limit.current).full_tensor())
            report.clipped_to = self.limit.current if report.total_norm > self.limit.current else None
        elif report.finite and report.total_norm > self.limit.current:
            scale(report._scan, self.limit.current / (report.total_norm + 1e-6))
            report.clipped_to = self.limit.current
        report._scan.release()
        return report

    def state_dict(self):
        """Clip state and history: plain numbers."""
        return {"version": 1, "step": self.step, "limit": self.limit.state_dict() if self.limit else None,
                "norms": list(self.rules.history.norms), "exploded_at": self.rules.exploded_at}

    def load_state_dict(self, state):
        self.step = int(state["step"])
        if self.limit is not None and state.get("limit"):
            self.limit.load_state_dict(state["limit"])
        self.rules.history.norms.clear()
        self.rules.history.norms.extend(float(v) for v in state.get("norms", ()))
        self.rules.exploded_at = state.get("exploded_at")
