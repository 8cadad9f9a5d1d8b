"""One pass over the gradients of a list of parameters: norm, largest magnitude, zeros, NaNs, infinities of each.

Dense CPU gradients go to the native pass (``_guard.scan``, one read of the memory). Others (devices, sparse, odd
strides) go to ``torch._foreach_norm`` and one transfer for all of them.
"""
import array
import math

import torch

try:
    from lowtide import _guard
except ImportError:  # the extension was built for another interpreter
    _guard = None

FIGURES = 5  # doubles per gradient: NORM, LARGEST, ZEROS, NANS, INFINITIES
NORM, LARGEST, ZEROS, NANS, INFINITIES = range(FIGURES)
_TYPES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3}


class Scan:
    """What one pass found. ``figures`` holds FIGURES doubles for each of ``indexes`` (positions in the parameters)."""

    __slots__ = ("total_norm", "damaged", "indexes", "figures", "gradients", "native", "counts")

    def __init__(self):
        self.total_norm = 0.0   # L2 over all gradients; NaN as soon as one of them is not finite
        self.damaged = 0        # gradients that hold a NaN or an infinity
        self.indexes = []
        self.figures = None
        self.gradients = []
        self.counts = []
        self.native = None      # (addresses, counts, types) of the float32 ones, when all were native: what a clip scales

    def release(self):
        """Lets go of the gradients; the figures stay. What keeps a report must not keep the memory."""
        self.gradients, self.native = [], None

    def row(self, place):
        return self.figures[place * FIGURES:(place + 1) * FIGURES]

    def rows(self):
        """(position in the parameters, norm, largest, zeros, NaNs, infinities) of each gradient."""
        figures = self.figures
        for place, index in enumerate(self.indexes):
            yield (index, *figures[place * FIGURES:(place + 1) * FIGURES])


def _dense_memory(gradient):
    """(address, elements, type) where the native pass may read, else None."""
    kind = _TYPES.get(gradient.dtype)
    if kind is None or type(gradient) is not torch.Tensor or not gradient.is_cpu or gradient.layout is not torch.strided:
        return None
    if not gradient.is_contiguous() and not (
        gradient.dim() == 4 and gradient.is_contiguous(memory_format=torch.channels_last)
    ):
        return None
    return gradient.data_ptr(), gradient.numel(), kind


def _local(gradient):
    """A plain dense tensor with the gradient's values: the local shard of a DTensor, the values of a sparse one."""
    if hasattr(gradient, "to_local"):
        gradient = gradient.to_local()
    if gradient.layout is torch.sparse_coo:
        gradient = gradient.coalesce()._values()
    return gradient


def _foreach(gradients, figures, places):
    """Fills `figures` for gradients of one device with two fused kernels and one transfer."""
    tensors = [_local(g).detach() for g in gradients]
    tensors = [t if t.is_floating_point() or t.is_complex() else t.float() for t in tensors]
    full = [t if t.numel() else t.new_zeros(1) for t in tensors]
    with torch.no_grad():
        wide = {"dtype": torch.float64} if full[0].device.type == "cpu" else {"dtype": torch.float32}
        norms = torch._foreach_norm(full, 2, **wide) if not full[0].is_complex() else [t.abs().norm() for t in full]
        peaks = torch._foreach_norm(full, math.inf) if not full[0].is_complex() else [t.abs().amax() for t in full]
        both = torch.stack([*(n.double() if n.device.type == "cpu" else n.float() for n in norms),
                            *(p.double() if p.device.type == "cpu" else p.float() for p in peaks)]).tolist()
    for i, place in enumerate(places):
        norm, peak = both[i], both[len(places) + i]
        finite = math.isfinite(peak)
        if finite and not math.isfinite(norm):  # finite values whose squares overflow
            norm = peak * float((full[i].double() / (peak or 1)).norm())
        figures[place * FIGURES:(place + 1) * FIGURES] = array.array(
            "d", (norm, peak if finite else math.nan, math.nan, 0.0 if not math.isnan(peak) else 1.0,
                  1.0 if math.isinf(peak) else 0.0))


def scan(parameters):
    """Scans the ``.grad`` of each of `parameters` (those without one are left out) and returns a :class:`Scan`."""
    out = Scan()
    addresses, counts, types = [], [], []
    others = {}
    indexes, gradients = out.indexes, out.gradients
    for index, parameter in enumerate(parameters):
        gradient = parameter.grad
        if gradient is None:
            continue
        memory = _dense_memory(gradient) if _guard is not None else None
        if memory is None:
            others.setdefault((str(gradient.device), gradient.dtype), []).append((len(indexes), gradient))
        else:
            addresses.append(memory[0])
            counts.append(memory[1])
            types.append(memory[2])
        out.counts.append(gradient.numel())
        indexes.append(index)
        gradients.append(gradient)
    size = len(indexes)
    if not others:
        out.figures = array.array("d", bytes(8 * FIGURES * size))
        if size:
            out.total_norm, out.damaged, _ = _guard.scan(addresses, counts, types, out.figures)
        if not any(types):
            out.native = addresses, counts, types
        return out
    return _mixed(out, size, addresses, counts, types, others)


def _mixed(out, size, addresses, counts, types, others):
    figures = out.figures = array.array("d", bytes(8 * FIGURES * size))
    other_places = {place for group in others.values() for place, _ in group}
    if addresses:
        part = array.array("d", bytes(8 * FIGURES * len(addresses)))
        _guard.scan(addresses, counts, types, part)
        native_places = [p for p in range(size) if p not in other_places]
        for i, place in enumerate(native_places):
            figures[place * FIGURES:(place + 1) * FIGURES] = part[i * FIGURES:(i + 1) * FIGURES]
    for group in others.values():
        _foreach([g for _, g in group], figures, [p for p, _ in group])
    out.damaged = sum(1 for p in range(size) if figures[p * FIGURES + NANS] or figures[p * FIGURES + INFINITIES])
    out.total_norm = math.nan if out.damaged else math.sqrt(sum(figures[p * FIGURES] ** 2 for p in range(size)))
    return out


def scale(found, factor):
    """Multiplies every gradient that `found` (a :class:`Scan`) covers by `factor`, in place."""
    if found.native is not None and _guard is not None:
        _guard.scale(*found.native, factor)
        # The version counter is autograd's only witness of a write that it did not see.
        torch.autograd.graph.increment_version(found.gradients)
        return
    with torch.no_grad():
        groups = {}
        for gradient in found.gradients:
            groups.setdefault((gradient.device, gradient.dtype, type(gradient), gradient.layout), []).append(gradient)
        for (_, _, kind, layout), group in groups.items():
            if kind is torch.Tensor and layout is torch.strided:
                torch._foreach_mul_(group, factor)
            else:
                for gradient in group:
                    gradient.mul_(factor)
