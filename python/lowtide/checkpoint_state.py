"""What a training run is made of, captured and put back: models, optimizers, accumulated gradients, every RNG."""
import collections
import random
import sys

import torch

from lowtide.checkpoint_tree import CheckpointError

Skipped = collections.namedtuple("Skipped", "name stored present reason")
Skipped.__doc__ = "A part that a lenient load left as it was: name, stored and present shape (or None), and why."


def rng_state():
    """Python's, NumPy's, PyTorch's CPU generator and one per device that was used."""
    state = {"python": random.getstate(), "torch": torch.get_rng_state()}
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        state["numpy"] = numpy.random.get_state()
    for kind in ("cuda", "xpu", "mps"):
        module = getattr(torch, kind, None)
        try:
            if kind == "mps":
                if torch.backends.mps.is_available():
                    state["mps"] = module.get_rng_state()
            elif module is not None and module.is_available() and module.is_initialized():
                state[kind] = [module.get_rng_state(i) for i in range(module.device_count())]
        except (AttributeError, RuntimeError):
            continue
    return state


def set_rng_state(state):
    random.setstate(state["python"])
    torch.set_rng_state(state["torch"])
    if "numpy" in state:
        import numpy

        numpy.random.set_state(state["numpy"])
    for kind in ("cuda", "xpu"):
        if kind in state and getattr(torch, kind).is_available():
            module = getattr(torch, kind)
            for index, one in enumerate(state[kind][: module.device_count()]):
                module.set_rng_state(one, index)
    if "mps" in state and torch.backends.mps.is_available():
        torch.mps.set_rng_state(state["mps"])


def unwrap(model):
    """The module inside DistributedDataParallel, DataParallel or torch.compile, so that names stay the same."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and type(model).__name__ in ("DistributedDataParallel", "DataParallel"):
            inner = model.module
        if inner is None:
            return model
        model = inner


def gradients_of(model):
    return {name: p.grad for name, p in unwrap(model).named_parameters() if p.grad is not None}


def set_gradients(model, stored):
    for name, parameter in unwrap(model).named_parameters():
        gradient = stored.get(name)
        if gradient is None:
            parameter.grad = None
        else:
            parameter.grad = gradient.to(device=parameter.device, dtype=parameter.dtype).clone()


def _fits(stored, present):
    return isinstance(stored, torch.Tensor) and stored.shape == present.shape


def load_module(module, stored, strict, label):
    """Loads a module's state. Lenient: by name and shape, with a list of what was left out and why."""
    module = unwrap(module)
    if strict:
        try:
            module.load_state_dict(stored)
        except (RuntimeError, KeyError, TypeError) as error:
            raise CheckpointError(f"{label} does not fit the checkpoint: {error}\n"
                                  "  help: load with strict=False to take what fits, with a list of the rest") from None
        return []
    present = module.state_dict()
    skipped, take = [], collections.OrderedDict()
    for name, value in present.items():
        if name not in stored:
            skipped.append(Skipped(f"{label}.{name}", None, _shape(value), "not in the checkpoint"))
        elif isinstance(value, torch.Tensor) and not _fits(stored[name], value):
            skipped.append(Skipped(f"{label}.{name}", _shape(stored[name]), _shape(value), "another shape"))
        else:
            take[name] = stored[name]
    for name, value in stored.items():
        if name not in present:
            skipped.append(Skipped(f"{label}.{name}", _shape(value), None, "not in this model"))
    module.load_state_dict(take, strict=False)
    return skipped


def _shape(value):
    return tuple(value.shape) if isinstance(value, torch.Tensor) else None


def load_optimizer(optimizer, stored, strict, label):
    """Loads an optimizer's state; leniently, each parameter's state is taken where its shapes fit."""
    groups = optimizer.param_groups
    sizes = [len(g["params"]) for g in groups]
    stored_sizes = [len(g["params"]) for g in stored["param_groups"]]
    parameters = [p for g in groups for p in g["params"]]
    numbers = [i for g in stored["param_groups"] for i in g["params"]]
    misfits = []
    if sizes == stored_sizes:
        for number, parameter in zip(numbers, parameters):
            for key, value in stored["state"].get(number, {}).items():
                if isinstance(value, torch.Tensor) and value.dim() > 0 and value.shape != parameter.shape:
                    misfits.append((number, Skipped(f"{label}.state.{number}.{key}", _shape(value), _shape(parameter), "another shape")))
    if sizes == stored_sizes and not misfits:
        optimizer.load_state_dict(stored)
        return []
    if strict:
        raise CheckpointError(f"{label} does not fit the checkpoint: parameter groups of {stored_sizes} stored, {sizes} present"
                              + (f"; {misfits[0][1].name} has shape {misfits[0][1].stored}, the parameter {misfits[0][1].present}" if misfits else "")
                              + "\n  help: load with strict=False: the optimizer then starts afresh where it does not fit")
    if sizes != stored_sizes:
        return [Skipped(label, None, None, f"parameter groups of {stored_sizes} stored, {sizes} present")]
    bad = {number for number, _ in misfits}
    optimizer.load_state_dict({"state": {k: v for k, v in stored["state"].items() if k not in bad}, "param_groups": stored["param_groups"]})
    return [item for _, item in misfits]


def describe(skipped):
    """The list of a lenient load as text."""
    lines = [f"{item.name}: {item.reason}" + (f" (stored {item.stored}, present {item.present})" if item.stored or item.present else "")
             for item in skipped]
    return "\n".join(lines)
