"""Where a NaN or an infinity came from: reads the autograd graph of a loss before its backward runs.

Each node keeps some of its inputs or its result. Going through the nodes in the order in which the forward made them
(``_sequence_nr``), the first one whose inputs are sound and whose result is not (by the kept result, by what the next
node kept, or by the rule of the operation: log of 0, square root of 0 in backward, division by 0) made the value.
Saved tensors that unpack hooks guard (checkpointing, offloading) are left alone: unpacking would run user code.
"""
import math
import re
import time

import torch

from lowtide import _source

MAX_NODES = 20000
MAX_SECONDS = 2.0

# Operations that can turn finite input into something else, in forward or in backward, and how that is said.
_SINGULAR = {
    "Log": "the logarithm of 0 or of a negative number", "Log2": "the logarithm of 0 or of a negative number",
    "Log10": "the logarithm of 0 or of a negative number", "Log1P": "log1p of -1 or less",
    "Sqrt": "the square root of 0 (its derivative is infinite) or of a negative number",
    "Rsqrt": "one over the square root of 0", "Div": "a division by 0", "Reciprocal": "one over 0",
    "Pow": "a power whose value or derivative is infinite", "Exp": "an exponential that overflows",
    "Expm1": "an exponential that overflows", "Acos": "acos at or beyond 1 (its derivative is infinite)",
    "Asin": "asin at or beyond 1 (its derivative is infinite)", "Atanh": "atanh at or beyond 1",
    "Acosh": "acosh at or below 1", "Std": "a standard deviation of 0 or of one value (its derivative is infinite)",
    "Var": "a variance of one value", "Norm": "a norm of 0", "LinalgVectorNorm": "a norm of 0",
    "Softmax": "a softmax over a row of -inf only", "LogSoftmax": "a log-softmax over a row of -inf only",
    "Logsumexp": "a logsumexp over a row of -inf only", "Mul": "a product that overflows, or 0 times infinity",
    "Atan2": "atan2(0, 0) (its derivative is infinite)", "Lgamma": "lgamma at a pole", "Digamma": "digamma at a pole",
    "Cosh": "a cosh that overflows", "Sinh": "a sinh that overflows", "Tan": "tan at a pole", "Erfinv": "erfinv at 1",
    "Logit": "logit of 0 or 1", "Xlogy": "the logarithm of 0", "Addmm": "a matrix product that overflows",
    "Mm": "a matrix product that overflows", "Bmm": "a matrix product that overflows", "Sum": "a sum that overflows",
    "Cumprod": "a product that overflows", "Prod": "a product that overflows", "Linear": "a matrix product that overflows",
}


def operation(node):
    """"Log" for LogBackward0; the class name for custom Functions ("GateBackward")."""
    match = re.fullmatch(r"(.*?)Backward\d+", node.name().split("::")[-1])
    return match.group(1) if match else node.name().split("::")[-1]


def explain(op):
    return _SINGULAR.get(op, "")


_EDGES = {"self": 0, "input": 0, "other": 1, "target": 1, "mat1": 1}  # what a node kept -> which of its inputs it is
_WITHOUT_EDGE = ("NllLoss", "BinaryCrossEntropy", "MultiMargin")  # weights of classes have no gradient


def _made_by(entry, kept):
    """Nodes that may have made what the node kept by that name. None: no node did, it has no gradient."""
    index = _EDGES.get(kept, 2 if kept == "mat2" and entry.op == "Addmm" else 1 if kept == "mat2" else None)
    if index is None:
        return None if kept.endswith("weight") and entry.op.startswith(_WITHOUT_EDGE) else [c for c in entry.inputs if c is not None]
    child = entry.inputs[index] if index < len(entry.inputs) else None
    return None if child is None else [child]


def on_edge(entry):
    """Can the operation turn finite into something else with the settings that it has here?"""
    return can_break(entry.op) and not (entry.op == "Pow" and _saved(entry).get("exponent_value", 0) >= 1)


def can_break(op):
    return op in _SINGULAR and op not in ("Mul", "Addmm", "Mm", "Bmm", "Sum", "Linear")


class Node:
    __slots__ = ("node", "op", "order", "inputs", "parents", "saved")

    def __init__(self, node):
        self.node, self.op = node, operation(node)
        try:
            self.order = node._sequence_nr()
        except Exception:
            self.order = 0
        self.inputs = []   # nodes that made its inputs
        self.parents = 0
        self.saved = None


def graph(loss, limit=MAX_NODES):
    """Nodes of the graph of `loss` in forward order, and the leaves as {id: tensor}. Reads, never unpacks."""
    root = loss.grad_fn
    nodes, leaves, by_id = [], {}, {}
    if root is None:
        return nodes, leaves
    stack = [root]
    by_id[root] = Node(root)
    while stack and len(by_id) < limit:
        node = stack.pop()
        entry = by_id[node]
        for child, _ in node.next_functions:
            if child is None:
                entry.inputs.append(None)
                continue
            variable = getattr(child, "variable", None)
            if variable is not None:
                leaves[id(variable)] = variable
            if child not in by_id:
                by_id[child] = Node(child)
                stack.append(child)
            by_id[child].parents += 1
            entry.inputs.append(by_id[child])
    nodes = sorted(by_id.values(), key=lambda n: n.order if not hasattr(n.node, "variable") else -1)
    return nodes, leaves


def sound(tensor):
    """False when the tensor holds a NaN or an infinity. Allocates next to nothing."""
    if not tensor.is_floating_point() or tensor.numel() == 0:
        return True
    with torch.no_grad():
        tensor = tensor.detach()
        if tensor.numel() <= 1 << 16:
            return bool(torch.isfinite(tensor).all())
        low, high = torch.aminmax(tensor)
        return math.isfinite(float(low)) and math.isfinite(float(high))


def _saved(entry):
    """{name: value} of what the node kept, without what hooks guard."""
    if entry.saved is None:
        entry.saved = {}
        for name in dir(entry.node):
            if not name.startswith("_raw_saved_"):
                continue
            try:
                raw = getattr(entry.node, name)
                if not hasattr(raw, "unpack_hook") or raw.unpack_hook is not None:
                    continue
                value = getattr(entry.node, name.replace("_raw", "", 1))
                if isinstance(value, torch.Tensor):
                    entry.saved[name[len("_raw_saved_"):]] = value
            except Exception:
                continue  # released, or changed in place since
        if entry.op == "Pow":
            try:
                entry.saved["exponent_value"] = float(entry.node._saved_exponent)
            except Exception:
                pass
    return entry.saved


def _low_high(tensor):
    with torch.no_grad():
        low, high = torch.aminmax(tensor.detach())
        return float(low), float(high)


def _holds_zero(tensor):
    with torch.no_grad():
        return tensor.numel() > 0 and bool((tensor.detach() == 0).any())


def _breaks_forward(entry):
    """By the operation's own rule: its result is not finite although its inputs are."""
    op, saved = entry.op, _saved(entry)
    x = saved.get("self")
    if op in ("Log", "Log2", "Log10") and x is not None and x.numel():
        return _low_high(x)[0] <= 0
    if op == "Log1P" and x is not None and x.numel():
        return _low_high(x)[0] <= -1
    if op in ("Div", "Atan2") and saved.get("other") is not None and op == "Div":
        return _holds_zero(saved["other"])
    if op == "Xlogy" and saved.get("other") is not None and saved["other"].numel():
        return _low_high(saved["other"])[0] <= 0
    if op == "Pow" and x is not None and saved.get("exponent_value", 1) < 0:
        return _holds_zero(x)
    return False


def _breaks_backward(entry):
    """The derivative is infinite where the forward was finite."""
    op, saved = entry.op, _saved(entry)
    x, result = saved.get("self"), saved.get("result")
    if op in ("Sqrt", "Std", "Norm", "LinalgVectorNorm") and result is not None:
        return op in ("Sqrt", "Std") and _holds_zero(result)
    if op == "Pow" and x is not None and 0 < saved.get("exponent_value", 1) < 1:
        return _holds_zero(x)
    if op in ("Acos", "Asin") and x is not None and x.numel():
        low, high = _low_high(x)
        return low <= -1 or high >= 1
    if op == "Atan2" and x is not None and saved.get("other") is not None:
        return bool(((x.detach() == 0) & (saved["other"].detach() == 0)).any())
    return False


class Origin:
    """What made the first bad value. ``kind``: "operation", "input", "weight", "suspects", "unknown"."""

    def __init__(self, kind, node=None, detail="", near=None, nodes=(), ordinal=0, twins=0):
        self.kind, self.node, self.detail, self.near = kind, node, detail, near
        self.op = node.op if node is not None else ""
        self.ordinal, self.twins = ordinal, twins   # the n-th of `twins` nodes of this operation in forward order
        self.suspects = nodes

    def same_in(self, nodes):
        """The node of a later graph of the same form that stands where this one stood."""
        alike = [n for n in nodes if n.op == self.op]
        if not alike:
            return None
        return alike[self.ordinal] if len(alike) == self.twins else alike[0]


_VIEWS = {"T", "Transpose", "Permute", "View", "UnsafeView", "Expand", "ReshapeAlias", "Alias", "ToCopy", "AccumulateGrad",
          "torch::autograd::AccumulateGrad", "AsStrided", "Unsqueeze", "Squeeze", "Select", "Slice"}


def _only_leaves(entry):
    """Whether the node shows a leaf (a weight, most often) as it is: such a node makes no bad values."""
    if getattr(entry.node, "variable", None) is not None:
        return True
    return entry.op in _VIEWS and all(child is None or _only_leaves(child) for child in entry.inputs)


def _too_small_to_overflow(entry):
    """A matrix product whose factors are known, and far too small for its result to be infinite."""
    if entry.op not in ("Addmm", "Mm", "Bmm"):
        return False
    saved = _saved(entry)
    left, right = saved.get("mat1", saved.get("self")), saved.get("mat2")
    leaves = [child.node.variable for below in entry.inputs if below is not None for child in [below, *below.inputs]
              if child is not None and getattr(child.node, "variable", None) is not None and child.node.variable.dim() == 2]
    right = right if right is not None else leaves[0] if leaves else None
    if left is None or right is None or not left.numel() or not right.numel() or not (sound(left) and sound(right)):
        return False
    with torch.no_grad():
        most = float(left.detach().abs().max()) * float(right.detach().abs().max()) * left.shape[-1]
    return most < 1e-3 * torch.finfo(left.dtype).max


def _maker(entry):
    """The node itself if it can turn finite into not finite, else the nearest one below that can and kept nothing."""
    frontier, seen = [entry], set()
    while frontier and len(seen) < 32:
        able = [n for n in frontier if n.op in _SINGULAR and not _too_small_to_overflow(n)]
        if able:
            return max(able, key=lambda n: n.order)
        seen.update(id(n) for n in frontier)
        frontier = [c for n in frontier for c in n.inputs
                    if c is not None and id(c) not in seen and getattr(c.node, "variable", None) is None]
    return entry


def _nearest_leaf(entry, wanted):
    """The parameter closest below a node: names the module that the operation follows."""
    frontier, seen = [entry], set()
    while frontier and len(seen) < 400:
        following = []
        for item in frontier:
            for child in item.inputs:
                if child is None or id(child) in seen:
                    continue
                seen.add(id(child))
                variable = getattr(child.node, "variable", None)
                if variable is not None and (not wanted or id(variable) in wanted):
                    return variable
                following.append(child)
        frontier = following
    return None


def _origin(kind, entry, nodes, parameters, detail=""):
    alike = [n for n in nodes if n.op == entry.op]
    return Origin(kind, entry, detail or explain(entry.op), _nearest_leaf(entry, parameters), (),
                  alike.index(entry), len(alike))


def find(loss, parameters=(), backward=False):
    """The :class:`Origin` of a loss that is not finite, or (`backward`) of a backward that will not be."""
    nodes, leaves = graph(loss)
    deadline = time.perf_counter() + MAX_SECONDS
    for leaf in leaves.values():
        if not sound(leaf):
            return Origin("weight", detail="", near=leaf)
        if time.perf_counter() > deadline:
            break
    for entry in nodes:
        if time.perf_counter() > deadline:
            break
        if getattr(entry.node, "variable", None) is not None:
            continue
        if backward:
            if _breaks_backward(entry) or _breaks_forward(entry):
                return _origin("operation", entry, nodes, parameters)
            continue
        saved = {k: v for k, v in _saved(entry).items() if isinstance(v, torch.Tensor)}
        bad = [k for k, v in saved.items() if not sound(v)]
        results = [k for k in bad if k.startswith(("result", "out"))]
        inputs = [k for k in bad if k not in results]
        if inputs:
            made_by = [c for c in _made_by(entry, inputs[0]) or () if not _only_leaves(c)]
            if made_by:
                guilty = _maker(max(made_by, key=lambda n: (can_break(n.op), n.order)))
                if guilty.op not in _SINGULAR and None in guilty.inputs:
                    return _origin("input", guilty, nodes, parameters, "one of its operands was not finite already")
                return _origin("operation", guilty, nodes, parameters)
            return _origin("input", entry, nodes, parameters, f"its {inputs[0]} was not finite already")
        if results or _breaks_forward(entry):
            return _origin("operation", _maker(entry), nodes, parameters)
    last = [n for n in nodes if getattr(n.node, "variable", None) is None]
    suspects = [n for n in last if on_edge(n)]
    if suspects:
        return Origin("suspects", suspects[-1], explain(suspects[-1].op), _nearest_leaf(suspects[-1], parameters),
                      suspects[-3:], 0, 0)
    return _origin("unknown", last[-1], nodes, parameters) if last else Origin("unknown")


_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')


def recorded_places(node):
    """(file, line, function) of the forward call that made the node, innermost last; needs anomaly mode's record."""
    lines = (node.metadata or {}).get("traceback_") or []
    return [(m.group(1), int(m.group(2)), m.group(3)) for m in (_FRAME.search(text) for text in lines) if m]


_BINARY = {"Div": "Div", "Pow": "Pow", "Reciprocal": "Div"}
_CALLS = {"LinalgVectorNorm": ("norm", "vector_norm"), "LogSoftmax": ("log_softmax", "cross_entropy"),
          "Sqrt": ("sqrt", "sqrt_"), "Div": ("div", "div_", "true_divide")}


def lines_that_spell(op, files):
    """(file, line) of the places in source files that call the operation: what can be said when no forward was recorded."""
    import ast
    import linecache

    names = _CALLS.get(op, (op.lower(), op.lower() + "_"))
    out = []
    for file in files:
        try:
            tree = _source.parse("".join(linecache.getlines(file)))
        except (SyntaxError, ValueError, RecursionError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                called = getattr(node.func, "attr", getattr(node.func, "id", ""))
                if called in names:
                    out.append((file, node.lineno))
            elif isinstance(node, ast.BinOp) and type(node.op).__name__ == _BINARY.get(op):
                out.append((file, node.lineno))
    return sorted(set(out))
