"""What gradient figures mean: exploding, vanishing, non-finite, dead, never trained. Pure judgement, no hooks.

The history is the run's own: a norm counts as exploding when it is above the absolute limit (100) and far above what
this run had before, so that losses that are sums, whose norms are large all along, stay quiet.
"""
import collections
import math

from lowtide.gradients_findings import evidence, finding, place

EXPLODING = 100.0      # L2 norm over all gradients
JUMP = 10.0            # times the 95th percentile of the run's own history
VANISHING = 1e-7       # L2 norm of one weight's gradient
LAYER_RATIO = 1e-6     # smallest weight's norm over the largest's
PATIENCE = 5           # checks in a row before vanishing counts
DEAD_CHECKS = 20       # checks in which a unit's gradient was exactly zero
DEAD_SHARE = 0.5       # of a layer's units
HISTORY = 64


def number(value):
    if value != value:
        return "nan"
    if math.isinf(value):
        return "inf"
    return f"{value:.3g}"


def listed(names, most=4):
    names = list(names)
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


class History:
    """Total norms of the checks so far, newest last."""

    def __init__(self):
        self.norms = collections.deque(maxlen=HISTORY)
        self.first = None

    def add(self, norm):
        if math.isfinite(norm):
            self.first = norm if self.first is None else self.first
            self.norms.append(norm)

    def usual(self):
        """The 95th percentile of the norms so far; None before ten checks."""
        if len(self.norms) < 10:
            return None
        ranked = sorted(self.norms)
        return ranked[int(0.95 * (len(ranked) - 1))]


class Rules:
    """Judges one scan after another. `describe` turns a parameter's position into its name."""

    def __init__(self, parameters, describe, *, exploding=EXPLODING, vanishing=VANISHING, patience=PATIENCE):
        self.parameters, self.describe = parameters, describe
        self.exploding, self.vanishing, self.patience = exploding, vanishing, patience
        self.history = History()
        self.exploded_at = None
        self.checks = 0
        self.low = {}         # position -> checks in a row below `vanishing`
        self.unequal = 0
        self.never = set(range(len(parameters)))  # positions that never had a gradient
        self.never_told = False
        self.zero_units = {}  # position -> [mask of units whose gradient was always zero, checks]
        self.previous = {}    # position -> norm at the check before

    def judge(self, step, scan, where=None):
        """Findings of this check; each says the same thing once (the sink removes repeats)."""
        self.checks += 1
        out = []
        if scan.damaged:
            return out  # the caller asks where it came from
        exploding = self._exploding(step, scan, where)
        if exploding:
            out.append(exploding)
        else:
            self.history.add(scan.total_norm)
        return out

    def judge_slowly(self, step, scan, where=None):
        """The rules that look at each parameter; for every few checks."""
        out = []
        rows = list(scan.rows())
        self.never.difference_update(row[0] for row in rows)
        if not scan.damaged:
            out += self._vanishing(step, rows, scan, where)
            out += self._dead(step, scan, where)
            self.previous = {row[0]: row[1] for row in rows}
        return out

    def _exploding(self, step, scan, where):
        norm, usual = scan.total_norm, self.history.usual()
        if norm <= self.exploding:
            return None
        # Without a history only what no sum over a batch explains.
        if (usual is not None and norm <= JUMP * usual) or (usual is None and norm <= 1e3 * self.exploding):
            return None
        self.exploded_at = step if self.exploded_at is None else self.exploded_at
        rows = sorted(scan.rows(), key=lambda row: -row[1])[:3]
        worst = [f"{self.describe(row[0])} ({number(row[1])})" for row in rows]
        earlier = f" (first at step {self.exploded_at})" if self.exploded_at < step else ""
        before = f"; 95 % of the norms before that were no explosion were below {number(usual)}" if usual is not None else ""
        return finding(
            "LT503", "warning",
            f"exploding gradient at step {step}: norm {number(norm)}{before}{earlier}; largest in {', '.join(worst)}",
            zh=f"第 {self.exploded_at} 步梯度爆炸：范数 {number(norm)}，最大的是 {worst[0]}",
            where=[place(*(where or (None, None)), path=self.describe(rows[0][0]), first_step=self.exploded_at)],
            evidence=[evidence("norm", norm), evidence("usual_norm", usual or math.nan), evidence("limit", self.exploding)],
            help="clip: torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0) between backward and optimizer.step() "
                 "(lowtide.Gradients does it with a limit that adapts); then lower the learning rate, or the gain with "
                 f"which {self.describe(rows[0][0])} is initialised",
            help_zh="在 backward 与 optimizer.step() 之间裁剪梯度（如 clip_grad_norm_(..., 1.0)），再降低学习率或初始化增益",
            parts=("exploding",))

    def _vanishing(self, step, rows, scan, where):
        weights = [row for row in rows if self.parameters[row[0]].dim() >= 2 and row[1] > 0]
        lows = []
        for row in weights:
            self.low[row[0]] = self.low.get(row[0], 0) + 1 if row[1] < self.vanishing else 0
            if self.low[row[0]] >= self.patience:
                lows.append(row)
        largest = max((row[1] for row in weights), default=0.0)
        # All of them small together is a run that has arrived, not layers that are starved.
        lows = [row for row in lows if largest > 100 * row[1]]
        ratio = [row for row in weights if row[1] < LAYER_RATIO * largest]
        self.unequal = self.unequal + 1 if ratio else 0
        starved = lows or (ratio if self.unequal >= self.patience else [])
        if not starved or self.exploded_at is not None:  # saturated units are what an explosion leaves behind
            return []
        worst = min(starved, key=lambda row: row[1])
        top = max(weights, key=lambda row: row[1])
        names = [self.describe(row[0]) for row in sorted(starved, key=lambda row: row[1])]
        return [finding(
            "LT504", "warning",
            f"vanishing gradient: {listed(names)} got at most {number(max(r[1] for r in starved))} "
            f"(smallest {number(worst[1])}) in {self.patience} checks in a row up to step {step}, while "
            f"{self.describe(top[0])} got {number(top[1])}: these layers hardly learn",
            zh=f"梯度消失：{listed(names)} 的梯度范数低至 {number(worst[1])}，而 {self.describe(top[0])} 为 {number(top[1])}",
            where=[place(*(where or (None, None)), path=names[0], last_step=step)],
            evidence=[evidence("norm", worst[1]), evidence("largest_norm", top[1]), evidence("limit", self.vanishing)],
            help="shorten the way back: residual connections, normalisation, ReLU or GELU in place of sigmoid or tanh, "
                 "another initialisation; in half precision use a GradScaler or bfloat16",
            help_zh="加残差连接或归一化，换用 ReLU/GELU，调整初始化；半精度时使用 GradScaler 或 bfloat16",
            parts=("vanishing",))]

    def _dead(self, step, scan, where):
        """Units (entries of a bias, rows of a weight) whose gradient was exactly zero in every check."""
        out = []
        for row, gradient in zip(scan.rows(), scan.gradients):
            parameter, zeros = self.parameters[row[0]], row[3]
            if parameter.dim() not in (1, 2) or parameter.shape[0] < 4 or parameter.shape[0] > 65536:
                continue
            if zeros != zeros or gradient.layout != parameter.layout or "Embedding" in self.describe.owner(row[0]):
                continue
            width = parameter.numel() // parameter.shape[0]
            if zeros < width:
                self.zero_units.pop(row[0], None)
                continue
            dead = (gradient.detach() == 0) if parameter.dim() == 1 else (gradient.detach() == 0).all(1)
            known = self.zero_units.get(row[0])
            known = self.zero_units[row[0]] = [dead if known is None else known[0] & dead, 1 if known is None else known[1] + 1]
            if known[1] >= DEAD_CHECKS:
                share = float(known[0].float().mean())
                if share >= DEAD_SHARE:
                    out.append((row[0], share, int(known[0].sum())))
        if not out:
            return []
        out.sort(key=lambda item: -item[1])
        names = [f"{self.describe(i)} ({count} of {self.parameters[i].shape[0]})" for i, _, count in out]
        return [finding(
            "LT507", "warning",
            f"dead units: the gradient of {listed(names)} was exactly zero in {DEAD_CHECKS} checks in a row up to step "
            f"{step}: what follows these units (a ReLU that is never positive, most often) passes nothing back",
            zh=f"神经元坏死：{listed(names)} 的梯度在连续 {DEAD_CHECKS} 次检查中恒为零",
            where=[place(*(where or (None, None)), path=self.describe(out[0][0]), last_step=step)],
            evidence=[evidence("dead_share", out[0][1]), evidence("dead_units", out[0][2])],
            help="lower the learning rate, check that the biases do not start far below zero and that the inputs are "
                 "normalised; LeakyReLU or GELU do not die",
            help_zh="降低学习率，检查偏置初值与输入归一化；可换用 LeakyReLU 或 GELU",
            parts=("dead",))]
