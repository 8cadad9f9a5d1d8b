"""A NaN or an infinity turned up: says which module and operation made it, and on which line.

The operation is read from the loss's graph before its backward runs (gradients_origin). The graph does not know lines.
So the next forward is recorded once (PyTorch's anomaly mode without its checks: a traceback per operation), and the
node that stands at the same place in its graph gives the line. If no further forward comes, the source is searched.
"""
import sys
import traceback

import torch

from lowtide import gradients_origin as origin_of
from lowtide.gradients_findings import evidence, finding, place
from lowtide.gradients_names import is_user_file, source_line
from lowtide.gradients_rules import listed, number

# What breaks in backward alone, the most likely first.
_USUAL = ("Sqrt", "Acos", "Asin", "Std", "Norm", "Atan2", "Rsqrt", "Log", "Div", "Pow")
WAIT = 6  # backward calls to wait for one whose forward was recorded


class Recorder:
    """Switches PyTorch's per-operation tracebacks on for the forwards to come, and off again."""

    def __init__(self):
        self.on = False
        self.before = None

    def start(self):
        if self.on or torch.is_anomaly_enabled():
            return
        self.before = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
        torch.set_anomaly_enabled(True, False)  # no check: it would raise in the user's backward
        self.on = True

    def stop(self):
        if self.on:
            torch.set_anomaly_enabled(*self.before)
            self.on = False

    def __del__(self):  # whoever asked is gone while it was still on
        self.stop()


class NonFinite:
    """One report per run: made at once, made better when the next forward gives the line."""

    def __init__(self, sink, names, optimizer_parameters):
        self.sink, self.names, self.optimizer_parameters = sink, names, optimizer_parameters
        self.recorder = Recorder()
        self.origin = None
        self.base = None
        self.waiting = 0
        self.done = False

    def loss(self, loss, value, step, site, frame, exploded_at, last_good):
        """The loss is not finite; its graph is still whole."""
        if self.done or self.base is not None:
            return
        parameters = self.optimizer_parameters()
        found = origin_of.find(loss, {id(p) for p in parameters})
        self._learn(parameters, found, frame)
        self.base = {"what": f"the loss is {number(value)}", "zh": f"损失为 {number(value)}", "step": step, "site": site,
                     "exploded_at": exploded_at, "last_good": last_good, "bad": [], "files": _files(frame)}
        self._report(found)
        self._wait_for_line(found)

    def gradients(self, bad, good, step, site, frame, exploded_at, last_good):
        """Gradients are not finite although the loss was: made in backward. `bad`, `good`: parameters."""
        if self.done or self.base is not None:
            return
        self.names.learn([*bad, *good], frame)
        self.base = {"what": f"the gradients of {listed(self.names.of(p) for p in bad)} are not finite although the loss is",
                     "zh": f"损失有限，但 {listed(self.names.of(p) for p in bad)} 的梯度不是有限值", "step": step, "site": site,
                     "exploded_at": exploded_at, "last_good": last_good, "bad": [self.names.of(p) for p in bad],
                     "files": _files(frame), "good_ids": {id(p) for p in good}, "bad_ids": {id(p) for p in bad}}
        found = origin_of.Origin("unknown")
        self._report(found)
        self._wait_for_line(found)

    def _learn(self, parameters, found, frame):
        self.names.learn(list(parameters), frame)

    def _wait_for_line(self, found):
        self.origin = found
        if found.kind in ("weight",):
            self.done = True
            return
        self.waiting = WAIT
        self.recorder.start()
        if not self.recorder.on:
            self.done = True

    def before_backward(self, loss):
        """A later loss: the one whose forward was recorded gives the line."""
        if not self.waiting:
            return
        self.waiting -= 1
        nodes, _ = origin_of.graph(loss)
        if any(origin_of.recorded_places(n.node) for n in nodes[-50:]):
            self._settle(nodes)
        if not self.waiting or self.done:
            self.stop()

    def stop(self):
        self.waiting = 0
        self.done = True
        self.recorder.stop()

    def _settle(self, nodes):
        self.done = True
        found = self.origin
        if found.node is None:
            found = self.origin = self._by_pattern(nodes)
            if found is None:
                return
        node = found.same_in(nodes)
        places = origin_of.recorded_places(node.node) if node is not None else []
        self._report(found, places)

    def _by_pattern(self, nodes):
        """Made in backward: below the guilty operation every parameter is bad; above it all are sound."""
        bad, good = self.base["bad_ids"], self.base["good_ids"]
        below = {}
        for entry in nodes:  # forward order: inputs come before
            variable = getattr(entry.node, "variable", None)
            mine = {id(variable)} if variable is not None else set()
            for child in entry.inputs:
                if child is not None:
                    mine |= below.get(id(child), set())
            below[id(entry)] = mine if len(mine) < 4096 else set()
        suspects = [n for n in nodes if origin_of.on_edge(n) and below[id(n)] & bad and not below[id(n)] & good]
        if not suspects:
            return None
        certain = [n for n in suspects if origin_of._breaks_backward(n) or origin_of._breaks_forward(n)]
        usual = [n for n in suspects if n.op in _USUAL]
        entry = certain[-1] if certain else max(usual, key=lambda n: (-_USUAL.index(n.op), n.order)) if usual else suspects[-1]
        others = [n for n in suspects if n is not entry]
        alike = [n for n in nodes if n.op == entry.op]
        return origin_of.Origin("operation" if certain or len(usual) == 1 else "suspects", entry, origin_of.explain(entry.op),
                                origin_of._nearest_leaf(entry, set()), [entry, *others[-2:]], alike.index(entry), len(alike))

    # -- the text -----------------------------------------------------------------------------------------------
    def _report(self, found, recorded=()):
        base = self.base
        user = [p for p in recorded if is_user_file(p[0])]
        spot = user[-1][:2] if user else None
        guess = []
        if spot is None and found.op:
            guess = origin_of.lines_that_spell(found.op, base["files"])
        what, zh = self._cause(found, spot, guess)
        since = ""
        if base["exploded_at"] is not None:
            since = f", after the gradient exploded at step {base['exploded_at']} (see LT503)"
        elif base["last_good"] is not None and base["step"] - base["last_good"] > 1:
            since = f" (last seen finite at step {base['last_good']})"
        where = [place(*spot, first_step=base["step"])] if spot else []
        where += [place(f, n, first_step=base["step"]) for f, n in guess[:3]]
        where.append(place(*(base["site"] or (None, None)), first_step=base["step"]))
        near = self.names.of(found.near) if found.near is not None else None
        if near:
            where[0]["object_path"] = near
        self.sink.add(finding(
            "LT505", "error", f"not a finite number at step {base['step']}{since}: {base['what']}; {what}",
            zh=f"第 {base['step']} 步出现非有限值：{base['zh']}；{zh}", where=where,
            evidence=[evidence("step", base["step"]), evidence("gradients_not_finite", len(base["bad"]))],
            help=self._help(found), help_zh="先修正产生它的运算（如加 eps、clamp），再裁剪梯度；发现后从上一个检查点恢复",
            parts=("nonfinite",)))

    def _cause(self, found, spot, guess):
        near = f" after {self.names.of(found.near)}" if found.near is not None else ""
        owner = self.names.owner(found.near) if found.near is not None else ""
        near += f" ({owner})" if owner else ""
        at = f" in `{source_line(*spot)}`" if spot else ""
        if not spot and guess:
            at = ", called at line " + " or ".join(str(n) for _, n in guess[:3])
        op = found.op.lower()
        if found.kind == "operation":
            return f"first made by {op}{at}: {found.detail or 'its result is not finite'}{near}", f"最先由 {op} 产生{at}"
        if found.kind == "input":
            return (f"it came in with the data, or with another tensor that has no gradient: {op}{at} was given it, {found.detail}",
                    f"来自输入数据或其他没有梯度的张量，首先进入 {op}{at}")
        if found.kind == "weight":
            name = self.names.of(found.near)
            with torch.no_grad():
                bad = int((~torch.isfinite(found.near.detach())).sum())
            share = f"{bad:,} of its {found.near.numel():,} values"
            return (f"the weight {name} ({owner}) was not finite already ({share}): an earlier update wrote it, or it was so from the "
                    "start, as it was made or loaded", f"权重 {name} 已非有限值（{found.near.numel():,} 个中的 {bad:,} 个）")
        if found.kind == "suspects":
            names = listed(dict.fromkeys(n.op.lower() for n in found.suspects)) or op
            return f"most likely made by {names}{at}: {found.detail}{near}", f"很可能由 {names} 产生{at}"
        return "what made it could not be read from the graph", "无法从计算图判断来源"

    def _help(self, found):
        if found.kind == "input":
            return ("check the data and the labels: torch.isfinite(batch).all() in the Dataset; drop or repair such samples; where it is "
                    "computed (advantages, class weights), guard the division or the logarithm in it")
        if found.kind == "weight":
            return ("check the weights as they are loaded; if they were sound then, clip the gradients and lower the learning rate, and "
                    "go back to a checkpoint from before")
        if self.base["exploded_at"] is not None:
            return ("the explosion came first: clip and lower the learning rate (see LT503), and go back to a checkpoint from before "
                    f"step {self.base['exploded_at']}")
        return ("keep the operation off its edge (add an eps, clamp the input, or use the fused function: "
                "binary_cross_entropy_with_logits, log_softmax, logsumexp); the weights are spoilt from the next step on: "
                "go back to a checkpoint from before")


def _files(frame):
    """The user's source files that the running frames show, and those of the functions that they define."""
    frame = frame or sys._getframe(1)
    files = []
    for item, _ in traceback.walk_stack(frame):
        name = item.f_code.co_filename
        if is_user_file(name) and name not in files:
            files.append(name)
    for module in list(sys.modules.values()):
        name = getattr(module, "__file__", None)
        if isinstance(name, str) and name.endswith(".py") and is_user_file(name) and name not in files and len(files) < 20:
            files.append(name)
    return files
