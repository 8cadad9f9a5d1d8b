"""Counts backward, clearing and step of each optimizer: missing zero_grad, unscaled accumulation, steps without gradients.

Nothing is guessed from norms. One parameter per optimizer (the probe) tells whether its gradient was cleared: after a
step its gradient is a certain tensor at a certain version; if the next backward finds the same tensor at the same
version, nobody cleared it, by whatever means (zero_grad, None, zero_, a new tensor).
"""
import weakref

from lowtide import _track
from lowtide.gradients_findings import evidence, finding, place
from lowtide.gradients_names import source_line

STALE_STEPS = 5      # steps in a row without clearing before it is a finding
WINDOWS = 5          # accumulation windows of the same form before it is a finding
EMPTY_STEPS = 3      # steps in a row that found no gradient
ZERO_STEPS = 12      # the same where there is one and all of it is 0, as in steps without a reward


class Watched(_track.Watch):
    """One optimizer's window: from one step to the next. Its base counts the steps, and knows at which of them something
    is to be done (`wake`, `next_look`) and whether a window is `open`."""

    def __init__(self, optimizer, forget=None):
        self.optimizer = weakref.ref(optimizer, forget)
        self.next_check = self.next_canary = 0
        self.kind = type(optimizer).__name__
        self.probe = None            # weak reference to the probe
        self.canary = None           # weak reference to an early parameter
        self.mark = None             # (identity, version) of the probe's gradient when last seen
        self.cleared = False
        self.backwards = 0
        self.sites, self.scaled, self.after_backward = set(), False, None
        self.stale_run = self.stale = self.clean = 0
        self.stale_norms = []
        self.windows = {"same": 0, "count": 0, "unscaled": 0, "touched": 0}
        self.empty = 0
        self.idle_since, self.idle_checks = None, 0  # step since which the learning rate is 0
        self.had_gradient = False    # at some check before it was not 0
        self.pending = ((None, None), False)

    def parameters(self):
        optimizer = self.optimizer()
        return [p for group in optimizer.param_groups for p in group["params"]] if optimizer is not None else []

    def choose_probe(self):
        """The smallest parameter that has a gradient now (ties: the first)."""
        best = None
        for parameter in self.parameters():
            gradient = parameter.grad
            if gradient is not None and gradient.numel() > 1 and (best is None or gradient.numel() < best.numel()):
                best = parameter
        if best is None:
            best = next((p for p in self.parameters() if p.grad is not None), None)
        self.probe = weakref.ref(best) if best is not None else None
        return best

    def gradient(self):
        parameter = self.probe() if self.probe is not None else None
        return parameter.grad if parameter is not None else None

    def remember(self):
        gradient = self.gradient()
        self.mark = (id(gradient), gradient._version) if gradient is not None else None


class Events:
    """Fed by the hooks; every method is cheap and returns findings (most often none)."""

    def __init__(self, forget=None):
        self.optimizers = {}
        self.forget = forget         # is told the id of an optimizer that is gone

    def watch(self, optimizer):
        key = id(optimizer)
        watched = self.optimizers.get(key)
        if watched is None:
            # A new dictionary: a loop over the old one may be under way where the reference dies.
            def forget(_):
                self.optimizers = {k: w for k, w in self.optimizers.items() if k != key}
                if self.forget is not None:
                    self.forget(key)
            watched = self.optimizers[key] = Watched(optimizer, forget)
        return watched

    # -- backward -----------------------------------------------------------------------------------------------
    def before_backward(self, root, site):
        """`root`: the loss; `site`: (file, line) of the call. Only while a window is open."""
        for watched in self.optimizers.values():
            if not watched.open:
                continue
            gradient = watched.gradient()
            if gradient is None or watched.mark is None or (id(gradient), gradient._version) != watched.mark:
                watched.cleared = True
            watched.pending = (site, _is_scaled(root))

    def after_backward(self):
        for watched in self.optimizers.values():
            if not watched.open:
                continue
            gradient = watched.gradient()
            mark = (id(gradient), gradient._version) if gradient is not None else None
            if mark is not None and mark != watched.mark:  # this backward reached the optimizer's parameters
                watched.backwards += 1
                site, scaled = watched.pending
                watched.sites.add(site)
                watched.scaled |= scaled
                watched.after_backward = float(gradient.detach().norm()) if gradient.numel() <= 65536 and gradient.is_cpu and watched.backwards > 1 else None
            watched.mark = mark

    # -- step ---------------------------------------------------------------------------------------------------
    def before_step(self, watched):
        """Closes the window that the step before opened."""
        out = []
        if not watched.open:
            return out
        watched.open = False
        gradient = watched.gradient()
        if gradient is None:
            return out
        if watched.backwards:
            if watched.cleared:
                watched.clean += 1
                watched.stale_run = 0
            else:
                watched.stale += 1
                watched.stale_run += 1
                watched.stale_norms.append(float(gradient.detach().norm()) if gradient.is_cpu else 0.0)
            out += self._missing_zero_grad(watched)
            out += self._unscaled(watched, gradient)
        return out

    def after_step(self, watched):
        """Opens a window."""
        if watched.gradient() is None:
            watched.choose_probe()
        watched.remember()
        watched.open = watched.mark is not None
        watched.cleared = False
        watched.backwards = 0
        watched.sites, watched.scaled, watched.after_backward = set(), False, None

    # -- judgement ----------------------------------------------------------------------------------------------
    def _missing_zero_grad(self, watched):
        seen = watched.stale + watched.clean
        always = watched.stale_run >= STALE_STEPS and watched.clean == 0
        often = seen >= 20 and watched.stale >= 0.4 * seen
        late = watched.stale_run >= 4 * STALE_STEPS
        if not (always or often or late):
            return []
        file, line = next(iter(sorted(watched.sites)), (None, None))
        norms = watched.stale_norms
        share = "in none of" if watched.clean == 0 else f"in only {watched.clean} of"
        return [finding(
            "LT501", "error" if always or late else "warning",
            f"gradients are not cleared: zero_grad() (or grad = None) came {share} the {seen} steps of {watched.kind} "
            f"watched, so every parameter's .grad is a running sum over the batches"
            + (f"; the norm of one went from {norms[0]:.3g} to {norms[-1]:.3g}" if len(norms) > 1 and norms[0] else ""),
            zh=f"梯度没有清零：观察的 {seen} 步中 {watched.clean} 步调用过 zero_grad()，.grad 是历次批次之和",
            where=[place(file, line, path="*.grad of all parameters")],
            evidence=[evidence("steps_not_cleared", watched.stale), evidence("steps_cleared", watched.clean)],
            help="call optimizer.zero_grad() once per step, before loss.backward(); with gradient accumulation once per "
                 "optimizer.step()",
            help_zh="每个优化步在 loss.backward() 之前调用一次 optimizer.zero_grad()",
            parts=("zero_grad", file, line))]

    def _unscaled(self, watched, gradient):
        windows, count = watched.windows, watched.backwards
        # One call site again and again is accumulation; several sites are several losses.
        if count < 2 or len(watched.sites) != 1 or not watched.cleared or watched.scaled:
            windows.update(same=0, count=count, unscaled=0, touched=0)
            return []
        windows["same"] = windows["same"] + 1 if windows["count"] == count else 1
        windows["count"] = count
        now = float(gradient.detach().norm()) if gradient.is_cpu and gradient.numel() <= 65536 else None
        before = watched.after_backward
        if now is None or not before or abs(now / before - 1) < 1e-3:
            windows["unscaled"] += 1
        elif now * count <= 1.01 * before:
            windows.update(same=0, unscaled=0)  # divided between backward and step: by their number, or by that of the tokens
            return []
        else:
            windows["touched"] += 1
        if windows["same"] < WINDOWS:
            return []
        clipped = windows["touched"] > 0
        file, line = next(iter(watched.sites))
        return [finding(
            "LT502", "warning" if windows["unscaled"] else "note",
            f"gradient accumulation is not scaled: {count} backward() calls before each step of {watched.kind}, and neither "
            f"the loss nor the gradient is divided by {count}: the step is {count} times that of one batch of the whole size"
            + (" (something, a clip most likely, scales the gradients in some steps)" if clipped else ""),
            zh=f"梯度累积没有缩放：每步之前有 {count} 次 backward()，但损失没有除以 {count}",
            where=[place(file, line)],
            evidence=[evidence("backwards_per_step", count), evidence("windows", windows["same"])],
            help=f"divide the loss: (loss / {count}).backward(); with losses that are sums over tokens, divide the gradients "
                 "by the number of tokens of all micro-batches",
            help_zh=f"把损失除以累积次数：(loss / {count}).backward()",
            parts=("unscaled", file, line))]

    def empty_step(self, watched, site):
        """A step that found no gradient although a backward ran since the last one."""
        watched.empty += 1
        zero = any(p.grad is not None for p in watched.parameters())
        if watched.empty < (ZERO_STEPS if zero else EMPTY_STEPS) or (zero and watched.had_gradient):
            return []
        file, line = site or (None, None)
        return [finding(
            "LT509", "warning",
            f"{watched.kind}.step() found no gradient in {watched.empty} steps in a row although backward() ran: zero_grad() "
            "stands between backward() and step(), or the loss does not reach this optimizer's parameters",
            zh=f"{watched.kind}.step() 连续 {watched.empty} 次没有梯度：zero_grad() 放在了 backward() 与 step() 之间，或损失与这些参数无关",
            where=[place(file, line)],
            evidence=[evidence("steps", watched.empty)],
            help="order: zero_grad(), forward, backward(), step(); if the order is right, look for detach(), .item(), no_grad "
                 "or a parameter that was replaced after the optimizer was made",
            help_zh="顺序应为 zero_grad()、forward、backward()、step()；否则检查 detach()、no_grad 或优化器创建后被替换的参数",
            parts=("empty", file, line))]


def _is_scaled(root):
    """Whether the loss was divided or multiplied last: `loss / n`, `loss * w`, a GradScaler's scale of such a loss."""
    node = getattr(root, "grad_fn", None)
    for _ in range(3):
        if node is None:
            return False
        name = node.name()
        if name.startswith(("DivBackward", "MulBackward")):
            return True
        if not name.startswith(("AddBackward", "SubBackward", "ToCopyBackward", "NegBackward", "SqueezeBackward", "CloneBackward")):
            return False
        node = node.next_functions[0][0]
    return False


def describe_site(site):
    file, line = site or (None, None)
    text = source_line(file, line)
    return f"{file}:{line}: {text}" if text else f"{file}:{line}"
