"""Watches gradients of a script that does not know of it: what ``lowtide run`` installs after torch is imported.

Every backward: the loss of a CPU run is read (half a microsecond; not each time where a step takes less than half a
millisecond) and must be finite. At a rate that adapts so that all of it stays below 0.2 % of the step time: the gradients
are scanned, and backward, clearing and step are counted. What happens in every step is C (``_track.Gate``).
Nothing here raises into user code: the first failure inside switches it off and is counted.
"""
import atexit
import math
import os
import sys
import time
import weakref

from lowtide import _track

_guard = None
SHARE = 0.0005         # of the run's time that checks may take, looks at the events, and canaries: each this much ...
CREDIT = 0.02          # ... after these seconds, which short runs are given so that they are judged at all ...
CREDIT_SHARE = 0.02    # ... at no more than this share of a step
WARM_STEPS = 30        # looked at one by one
MAX_EVERY = 1000       # steps between two full checks at most
LOSS_COST = 0.5e-6     # seconds to read a loss in the host's memory
LOSS_WARM = 5000       # losses read one by one, however short a step is
SLOW_EVERY = 4         # every n-th full check judges each parameter


class Pace:
    """How many steps may pass between two things that cost `cost` seconds each."""

    def __init__(self, most):
        self.most, self.cost, self.every, self.next = most, 0.0, 1, 1

    def spent(self, seconds, step, step_seconds, share):
        self.cost = seconds if not self.cost else 0.8 * self.cost + 0.2 * min(seconds, 10 * self.cost)
        if step_seconds and step > WARM_STEPS:
            self.every = max(1, min(self.most, math.ceil(self.cost / (share * step_seconds))))
        self.next = step + self.every


class AutoGuard(_track.GuardState):
    """The base has what the hooks in C share: counts, the loss's limit, and whether something is to be done."""

    def __init__(self, torch):
        from lowtide import gradients_scan
        from lowtide.gradients_events import Events
        from lowtide.gradients_findings import Sink
        from lowtide.gradients_names import Names, user_place
        from lowtide.gradients_nonfinite import NonFinite

        self.torch, self.user_place = torch, user_place
        self.native, self.dense_memory, self.buffer = gradients_scan._guard, gradients_scan._dense_memory, bytearray(40)
        self.paced = True            # tests look at every step
        self.sink, self.events, self.names = Sink(), Events(self.forget), Names()
        self.nonfinite = NonFinite(self.sink, self.names, self._parameters)
        self.rules = {}
        self.alive = True            # of the base, also: look (a window is open: backward, clearing and step are
        self.loss_every = 1          # counted), step (of the busiest optimizer), force (these gradients are worth a check)
        self.check, self.looks, self.canaries = Pace(MAX_EVERY), Pace(512), Pace(256)
        self.checks = 0
        self.spent = 0.0             # seconds of checks and looks so far
        self.look_spent = 0.0        # seconds of the window that is open
        self.mark = None             # (time, step) of the check before
        self.step_seconds = None
        self.usual = None            # the loss's usual magnitude
        self.limit = 0.0             # a loss beyond it is looked at
        self.good_step = None
        self.site = None
        self.leaf_looks = []
        self.failure = None

    def _parameters(self):
        return [p for watched in self.events.optimizers.values() for p in watched.parameters()]

    # -- backward -----------------------------------------------------------------------------------------------
    def before_backward(self, tensors):
        """A loss that is not as usual, or a window is open."""
        if type(tensors) is self.torch.Tensor and tensors.is_cpu and tensors.numel() == 1:
            value = tensors.item()
            limit = self.limit
            if not -limit < value < limit or self.look:
                self._loss(tensors, value)
        if self.look:
            started = time.perf_counter()
            self._look(tensors if isinstance(tensors, self.torch.Tensor) else None)
            self.look_spent += time.perf_counter() - started
        if self.nonfinite.waiting and isinstance(tensors, self.torch.Tensor):
            self.nonfinite.before_backward(tensors)
            self.waiting = bool(self.nonfinite.waiting)

    def _loss(self, root, value):
        if not math.isfinite(value):
            self._bad_loss(root, value)
            return
        size = abs(value)
        if self.usual is None:
            self.usual = size
        else:
            self.force = size > self.limit  # these gradients are worth a check
            self.usual += 0.05 * (min(size, 3 * self.usual + 1e-12) - self.usual)
        self.limit = 5 * self.usual + 1e-12

    def _look(self, root):
        file, line, _ = self.user_place(sys._getframe(1))
        self.site = (file, line)
        self.events.before_backward(root, self.site)
        if root is not None and len(self.leaf_looks) < 2 and self.step >= (40 if self.leaf_looks else 10):
            self._look_at_leaves(root)

    def after_backward(self):
        started = time.perf_counter()
        self.events.after_backward()
        self.look_spent += time.perf_counter() - started

    def _bad_loss(self, root, value):
        if self.nonfinite.done or self.nonfinite.base is not None:
            return
        file, line, frame = self.user_place(sys._getframe(1))
        exploded = next((r.exploded_at for r in self.rules.values() if r.exploded_at is not None), None)
        self.nonfinite.loss(root, value, self.step + 1, (file, line), frame, exploded, self.step)
        self.waiting = bool(self.nonfinite.waiting)

    # -- step ---------------------------------------------------------------------------------------------------
    def before_step(self, watched):
        """A window is open, or it is time for a check or a canary."""
        step = watched.steps
        if watched.open:
            started = time.perf_counter()
            findings = self.events.before_step(watched)
            self.look = any(w.open for w in self.events.optimizers.values())
            for item in findings:
                self.sink.add(item)
            self._look_ends(started)
        if step >= watched.wake or self.force:
            if step >= watched.next_check or self.force or self._canary_died(watched):
                self._check(watched)
            watched.next_canary = step + self.canaries.every
            watched.wake = min(watched.next_check, watched.next_canary)

    def after_step(self, watched):
        """It is time to open a window."""
        started = time.perf_counter()
        self.events.after_step(watched)
        self.look = self.look or watched.open
        watched.next_look = watched.steps + self.looks.every
        self.look_spent += time.perf_counter() - started

    def _look_ends(self, started):
        spent = self.look_spent + time.perf_counter() - started
        self.look_spent = 0.0
        self.spent += spent
        if self.paced:
            self.looks.spent(spent, self.step, self.step_seconds, self._share())

    def _share(self):
        return CREDIT_SHARE if self.spent < CREDIT else SHARE

    def _canary_died(self, watched):
        """One early parameter's gradient, scanned in about a microsecond: what breaks in backward spreads towards the
        input, so the first layers show it."""
        started = time.perf_counter()
        parameter = watched.canary() if watched.canary is not None else None
        gradient = parameter.grad if parameter is not None else None
        if gradient is None:
            parameter = next((p for p in watched.parameters() if p.grad is not None and p.numel() <= 65536), None)
            watched.canary = weakref.ref(parameter) if parameter is not None else None
            return False
        memory = self.dense_memory(gradient)
        if memory is None:
            return False
        address, count, kind = memory
        died = self.native.scan([address], [count], [kind], self.buffer)[1] != 0
        spent = time.perf_counter() - started
        self.spent += spent
        if self.paced:
            self.canaries.spent(spent, watched.steps, self.step_seconds, self._share())
        return died

    def _check(self, watched):
        from lowtide.gradients_rules import Rules
        from lowtide.gradients_scan import scan

        started = time.perf_counter()
        forced, self.force = self.force, False
        parameters = watched.parameters()
        found = scan(parameters)
        rules = self.rules.get(id(watched))
        if rules is None:
            rules = self.rules[id(watched)] = Rules(parameters, None)
        rules.parameters, rules.describe = parameters, _Describe(self, parameters)
        if not found.indexes:
            self._no_gradients(watched)
        elif found.damaged:
            self._bad_gradients(parameters, found, rules)
        else:
            self.good_step = self.step
            self._judge(rules, found, watched)
        rules.parameters, rules.describe = [], None  # hold nothing of the user's between checks
        self._pace(watched, started, forced)

    def _pace(self, watched, started, forced):
        now = time.perf_counter()
        if self.mark is not None and not forced and self.step > self.mark[1]:
            spent = (started - self.mark[0]) / (self.step - self.mark[1])
            self.step_seconds = spent if self.step_seconds is None else 0.8 * self.step_seconds + 0.2 * spent
        self.mark = (now, self.step)
        self.spent += now - started
        if self.paced and self.checks > 12:
            self.check.spent(now - started, watched.steps, self.step_seconds, self._share())
        watched.next_check = watched.steps + self.check.every
        if self.paced and self.step_seconds and self.backwards > LOSS_WARM:
            self.loss_every = max(1, math.ceil(LOSS_COST / (2 * SHARE * self.step_seconds)))

    def _judge(self, rules, found, watched):
        from lowtide.gradients_rate import idle

        if found.total_norm != 0:
            watched.empty, watched.had_gradient = 0, True
        else:
            self._no_gradients(watched)
        items = rules.judge(self.step, found, self.site) + idle(watched, self.site)
        self.checks += 1
        if self.checks % SLOW_EVERY == 0:
            items += rules.judge_slowly(self.step, found, self.site)
            items += self._never_trained(rules, watched)
        for item in items:
            self.sink.add(item)

    def _no_gradients(self, watched):
        if self.backwards > self.backwards_at_step:
            # Where nothing is looked at, no backward told its line: the step's own then.
            site = self.site or self.user_place(sys._getframe(1))[:2]
            for item in self.events.empty_step(watched, site):
                self.sink.add(item)

    def _bad_gradients(self, parameters, found, rules):
        if self.nonfinite.done or self.nonfinite.base is not None:
            return
        bad, good = [], []
        for place, index in enumerate(found.indexes):
            row = found.row(place)
            (bad if row[3] or row[4] else good).append(parameters[index])
        file, line, frame = self.user_place(sys._getframe(1))
        self.nonfinite.gradients(bad, good, self.step, self.site or (file, line), frame, rules.exploded_at, self.good_step)
        self.waiting = bool(self.nonfinite.waiting)

    # -- parameters that nobody trains ----------------------------------------------------------------------------
    def _never_trained(self, rules, watched):
        from lowtide.gradients_rules import listed
        from lowtide.gradients_findings import evidence, finding, place

        if rules.never_told or not rules.never or self.checks < 2 * SLOW_EVERY or watched.steps < 30:
            return []
        rules.never_told = True
        silent = [i for i in sorted(rules.never) if i < len(rules.parameters)]
        asked = [rules.parameters[i] for i in silent if rules.parameters[i].requires_grad]
        frozen = [rules.parameters[i] for i in silent if not rules.parameters[i].requires_grad]
        out = []
        for group, severity, why, help in (
            (asked, "warning", "never got a gradient: the loss does not depend on them",
             "use them in the forward, look for detach(), .data, no_grad or an argmax on the way, or leave them out of the optimizer"),
            (frozen, "note", "are frozen (requires_grad is False) but were given to the optimizer",
             "give the optimizer only parameters with requires_grad, or unfreeze them"),
        ):
            if group:
                names = [rules.describe.name(p) for p in group]
                out.append(finding(
                    "LT506", severity, f"{len(group)} parameter(s) of {watched.kind} {why}: {listed(names)} "
                    f"({self.step} steps watched)", zh=f"{watched.kind} 中 {len(group)} 个参数从未被训练：{listed(names)}",
                    where=[place(*(self.site or (None, None)), path=names[0], last_step=self.step)],
                    evidence=[evidence("parameters", len(group)), evidence("elements", sum(p.numel() for p in group))],
                    help=help, help_zh="检查前向是否使用这些参数，或是否被 detach()/no_grad 截断", parts=("never", severity)))
        return out

    def _look_at_leaves(self, root):
        """Leaves of the graph that no optimizer updates: they cost a gradient each step, and it is never cleared."""
        from lowtide.gradients_origin import graph
        from lowtide.gradients_rules import listed
        from lowtide.gradients_findings import evidence, finding, place

        known = {id(p) for p in self._parameters()}
        _, leaves = graph(root)
        strange = {key: leaf for key, leaf in leaves.items() if key not in known}
        self.leaf_looks.append(set(strange))
        if len(self.leaf_looks) < 2:
            return
        Parameter = self.torch.nn.Parameter
        kept = {k: v for k, v in strange.items() if k in self.leaf_looks[0] and v.grad is not None}
        for untrained, code, text, help in (
            (True, "LT506", "get a gradient in each backward, but no optimizer updates or clears them",
             "give them to an optimizer, or freeze them with requires_grad_(False): their gradients cost time and memory"),
            (False, "LT508", "are no parameters but require gradients: everything computed from them keeps a graph, and their .grad "
             "grows for ever", "make them with requires_grad=False, or compute from them under no_grad; detach() cuts"),
        ):
            group = [v for v in kept.values() if isinstance(v, Parameter) == untrained]
            if not group:
                continue
            frame = self.user_place(sys._getframe(1))[2]
            names = [self.names.learn(group, frame).of(v) if untrained else f"a tensor of shape {tuple(v.shape)}" for v in group]
            self.sink.add(finding(
                code, "warning", f"{len(group)} tensor(s) {text}: {listed(names)}", zh=f"{len(group)} 个张量每步都得到梯度却没有优化器更新：{listed(names)}",
                where=[place(*(self.site or (None, None)), path=names[0])],
                evidence=[evidence("tensors", len(group)), evidence("gradient_bytes", sum(v.numel() * v.element_size() for v in group), "B")],
                help=help, help_zh="交给优化器，或用 requires_grad_(False) 冻结", parts=("leaf", code)))

    def fail(self, error):
        self.alive = self.look = self.waiting = False
        self.failure = f"{type(error).__name__}: {error}"
        try:
            self.nonfinite.stop()
        except Exception:
            pass


class _Describe:
    """Names a position on demand: most runs never ask."""

    def __init__(self, guard, parameters):
        self.guard, self.parameters = guard, parameters

    def name(self, parameter):
        names = self.guard.names
        if id(parameter) not in names.names:
            frame = self.guard.user_place(sys._getframe(1))[2]
            names.learn(self.parameters, frame)
        return names.of(parameter)

    def __call__(self, index):
        return self.name(self.parameters[index])

    def owner(self, index):
        self.name(self.parameters[index])
        return self.guard.names.owner(self.parameters[index])


def attach(torch):
    """Hooks a new guard in; returns it and a function that takes the hooks out again."""
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    guard = AutoGuard(torch)
    watch = lambda optimizer: guard.events.watch(optimizer)
    original = torch.autograd.backward
    backward = torch.autograd.backward = _track.Marked(
        original, _track.Gate("before backward", guard, guard.before_backward),
        _track.Gate("after backward", guard, guard.after_backward))
    hooks = (register_optimizer_step_pre_hook(_track.Gate("before step", guard, guard.before_step, watch)),
             register_optimizer_step_post_hook(_track.Gate("after step", guard, guard.after_step, watch)))

    def detach():
        guard.alive = guard.look = False
        guard.nonfinite.stop()
        for hook in hooks:
            hook.remove()
        if torch.autograd.backward is backward:
            torch.autograd.backward = original

    return guard, detach


def install():
    """Once per process, after torch was imported. Returns True when it watches. Never raises."""
    global _guard
    try:
        if _guard is None and os.environ.get("LOWTIDE_GRADIENTS") != "0":
            import torch

            _guard, _ = attach(torch)
            atexit.register(_guard.nonfinite.stop)
        return _guard is not None
    except Exception:
        return False
