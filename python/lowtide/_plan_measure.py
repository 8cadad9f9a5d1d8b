"""Runs a script for `lowtide plan --measure` and notes what one training step really holds.

    python _plan_measure.py SCRIPT [ARGS]        (started by lowtide, with LOWTIDE_RUN_DIR set)

After each of the first optimizer steps it writes ``plan-rank<N>.json`` into the run's folder: parameters, bytes of weights,
gradients and optimizer states, the shape of the model's first input, and the model's configuration if it has one. The
peak itself is in the ring that lowtide records anyway. The script's standard output goes to standard error, since lowtide's
own answer is on standard output. Whatever fails in here is left out; the script goes on.
"""
import json
import os
import runpy
import sys

_MOST_STEPS = 3
_state = {"steps": 0, "model": None, "shape": None, "token_input": False, "autocast": False}


def _local(tensor):
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def _bytes(tensors):
    """Bytes of the tensors, each storage once."""
    seen, total = set(), 0
    for tensor in tensors:
        tensor = _local(tensor)
        key = (str(tensor.device), tensor.untyped_storage().data_ptr(), tensor.storage_offset(), tensor.numel())
        if key not in seen:
            seen.add(key)
            total += tensor.numel() * tensor.element_size()
    return total


def _tensors(value):
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _tensors(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _tensors(inner)


def config_of(model):
    """The configuration of a module or of what it wraps, as a dict of plain values; {} when there is none."""
    for _ in range(8):
        config = getattr(model, "config", None)
        if config is not None:
            if hasattr(config, "to_dict"):
                config = config.to_dict()
            if not isinstance(config, dict):
                config = {k: v for k, v in vars(config).items() if not k.startswith("_")} if hasattr(config, "__dict__") else {}
            if config:
                return json.loads(json.dumps(config, default=str))
        inner = getattr(model, "module", None) or getattr(model, "_orig_mod", None) or getattr(model, "base_model", None)
        if inner is None or inner is model:
            return {}
        model = inner
    return {}


def _autocast(torch):
    try:
        return torch.is_autocast_enabled() or torch.is_autocast_enabled("cpu")
    except TypeError:  # PyTorch before 2.4 takes no device
        return torch.is_autocast_enabled() or torch.is_autocast_cpu_enabled()


def _first_call(module, args):
    """The first module called is the outermost one (its own arguments may go by name, which this hook does not see); the
    first tensor that any module is then given has the batch's shape."""
    if _state["shape"] is not None or not module.training:
        return
    import torch

    if _state["model"] is None and next(module.parameters(), None) is not None:
        _state["model"], _state["autocast"] = module, _autocast(torch)
    given = next(_tensors(args), None)
    if _state["model"] is not None and given is not None and given.dim() > 0:
        _state["shape"] = list(given.shape)
        _state["token_input"] = not given.is_floating_point() and given.dim() >= 2


def _report(optimizer):
    model = _state["model"]
    trained = [p for group in optimizer.param_groups for p in group["params"]]
    parameters = list(dict.fromkeys(model.parameters())) if model is not None else trained
    states = _bytes(t for s in optimizer.state.values() for t in _tensors(s))
    return {
        "steps": _state["steps"], "optimizer": type(optimizer).__name__,
        "parameters": sum(p.numel() for p in parameters),
        "trainable": sum(p.numel() for p in parameters if p.requires_grad),
        "parameter_bytes": _bytes(parameters),
        "weight_bytes": _bytes([*parameters, *(model.buffers() if model is not None else ())]),
        "gradient_bytes": _bytes(p.grad for p in parameters if p.grad is not None), "optimizer_bytes": states,
        "device": str(parameters[0].device) if parameters else "cpu", "input": _state["shape"],
        "token_input": _state["token_input"], "autocast": _state["autocast"],
        "checkpointing": bool(getattr(model, "is_gradient_checkpointing", False)),
        "name": type(model).__name__ if model is not None else "model", "config": config_of(model) if model is not None else {},
    }


def _after_step(optimizer, *_):
    _state["steps"] += 1
    if _state["steps"] > _MOST_STEPS:
        return
    try:
        path = os.path.join(os.environ["LOWTIDE_RUN_DIR"], f"plan-rank{os.environ.get('RANK', '0')}.json")
        with open(path + ".part", "w", encoding="utf-8") as file:
            json.dump(_report(optimizer), file)
        os.replace(path + ".part", path)
    except Exception as error:
        print(f"lowtide plan: a step could not be measured ({type(error).__name__}: {error})", file=sys.stderr)


def _install():
    try:
        from torch.nn.modules.module import register_module_forward_pre_hook
        from torch.optim.optimizer import register_optimizer_step_post_hook

        register_optimizer_step_post_hook(_after_step)
        try:
            register_module_forward_pre_hook(_first_call)
        except Exception:
            pass
    except Exception as error:
        print(f"lowtide plan: only the peak can be measured here ({type(error).__name__}: {error})", file=sys.stderr)


def _main():
    os.dup2(2, 1)
    sys.argv = sys.argv[1:]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    _install()
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    _main()
