"""The mistakes with a wrapped model that one rank can tell alone: one function each, ``check(wrapping, model, ddp,
backwards, step)``, called before the step of the optimizer that owns the model; each returns findings."""
import os

from lowtide.gradients_findings import evidence, finding, place
from lowtide.gradients_rules import listed

BYPASSED = 3        # steps that averaged nothing before it is a finding
WINDOWS = 5         # accumulation windows of the same form before it is a finding
WALKS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 20, 25, 30)  # steps whose graph is walked for unused parameters


def device_facts(torch, device):
    """What tells which physical device this is, also when each rank sees only some of them."""
    if device.type != "cuda":
        return {}
    try:
        properties = torch.cuda.get_device_properties(device)
        return {"uuid": str(getattr(properties, "uuid", "")) or None, "devices": torch.cuda.device_count(),
                "visible": os.environ.get("CUDA_VISIBLE_DEVICES"), "current": torch.cuda.current_device()}
    except Exception:
        return {"visible": os.environ.get("CUDA_VISIBLE_DEVICES")}


def bypassed(wrapping, model, ddp, backwards, step):
    """LT606: gradients came, but no forward went through the wrapper in a way that averages them."""
    if model.syncs or model.untold or not backwards:
        wrapping.stop_spy()
        return []
    if not any(p.grad is not None for p in ddp.module.parameters()):
        return []
    model.bypassed += 1
    wrapping.stop_spy()
    if model.bypass_place == (None, None):
        wrapping.spy_on(model)
    if model.bypassed < BYPASSED or model.bypassed < 0.1 * model.steps:
        return []
    inside = model.inside
    how = ("every backward() since the step before ran inside no_sync()" if inside else
           f"the forward did not go through the wrapper (model.module(...), or a reference to the {model.kind} taken before "
           "it was wrapped)")
    file, line = model.bypass_place
    return [finding(
        "LT606", "error",
        f"DistributedDataParallel is bypassed: in {model.bypassed} of {model.steps} steps the gradients of {model.kind} were "
        f"not averaged between the ranks, because {how}; each rank trains a model of its own",
        zh=f"绕过了 DistributedDataParallel：{model.steps} 步中有 {model.bypassed} 步的梯度没有在 rank 之间平均",
        where=[place(file, line, path="model.module", last_step=step)],
        evidence=[evidence("steps_not_averaged", model.bypassed), evidence("steps", model.steps)],
        help=("leave no_sync() for the last micro-batch before optimizer.step()" if inside else
              "call the wrapped model itself in training: model(x), not model.module(x); methods other than forward need a "
              "forward that dispatches to them"),
        help_zh="训练时调用包装后的模型 model(x)，不要调用 model.module(x)；累积时最后一个微批不要放在 no_sync() 中",
        parts=("bypass", model.kind, model.number))]


def changes_due(steps):
    return steps <= 4 or steps & (steps - 1) == 0 or steps % 100 == 0


def changed(wrapping, model, ddp, backwards, step):
    """LT608: parameters that came, went, were frozen, thawed or moved after the wrap."""
    if not changes_due(model.steps):
        return []
    new, thawed, frozen, moved = [], [], [], []
    for name, p in ddp.module.named_parameters():
        known = model.at_wrap.get(name)
        if known is None or known[0]() is not p:
            new.append(name)
            continue
        if p.requires_grad and not known[1]:
            thawed.append(name)
        if known[1] and not p.requires_grad:
            frozen.append(name)
        if str(p.device) != known[2]:
            moved.append(name)
    out = []
    for names, what, why in (
        (new, "registered or replaced", "the wrapper does not know them and never averages their gradients"),
        (thawed, "unfrozen", "they did not require gradients when the wrapper was made, so it never averages theirs"),
        (frozen, "frozen", "the wrapper still waits for their gradients"),
        (moved, "moved to another device", "the wrapper's buckets are still made for the old one"),
    ):
        if names:
            out.append(finding(
                "LT608", "warning" if names is frozen else "error",
                f"{len(names)} parameter(s) of {model.kind} were {what} after DistributedDataParallel wrapped it: "
                f"{listed(names)}; {why}",
                zh=f"{model.kind} 的 {len(names)} 个参数在被 DistributedDataParallel 包装之后发生了变化：{listed(names)}",
                where=[place(*model.place, path=names[0], last_step=step)],
                evidence=[evidence("parameters", len(names))],
                help="finish the model first (layers, requires_grad, .to(device)), then wrap it, then make the optimizer; after a "
                     "later change wrap it anew",
                help_zh="先完成模型（层、requires_grad、设备），再包装，最后创建优化器；之后若有改动需重新包装",
                parts=("changed", what, model.kind)))
    return out


def other_optimizer(wrapping, model, ddp, optimizer, step):
    """LT608: the optimizer updates parameters that are not the wrapped model's."""
    if model.owned or model.total_syncs < 3 or step < 3:
        return []
    mine = sorted(tuple(p.shape) for p in ddp.module.parameters() if p.requires_grad)
    theirs = sorted(tuple(p.shape) for g in optimizer.param_groups for p in g["params"] if p.requires_grad)
    if not mine or (mine != theirs and (model.total_syncs < 30 or step < 30)):
        return []
    known = set().union(*wrapping.optimizers.values())
    if not model.ids.isdisjoint(known):
        return []
    same = mine == theirs
    return [finding(
        "LT608", "error",
        f"no optimizer updates the parameters of the wrapped {model.kind}: in {model.total_syncs} backward passes its gradients "
        f"were averaged, and {type(optimizer).__name__} steps other parameters"
        + (" of the same shapes (a copy, or the model before its parameters were replaced)" if same else ""),
        zh=f"没有优化器更新被包装的 {model.kind} 的参数：{type(optimizer).__name__} 更新的是其他参数",
        where=[place(*model.place, path=f"{type(optimizer).__name__}.param_groups", last_step=step)],
        evidence=[evidence("backwards", model.total_syncs)],
        help="make the optimizer from the wrapped model's parameters, after .to(device) and after the wrap",
        help_zh="在 .to(device) 和包装之后，用包装后模型的参数创建优化器",
        parts=("optimizer", model.kind))]


def unused(wrapping, model, ddp, backwards, step):
    """LT609: parameters without a gradient that the wrapper will wait for."""
    if model.find_unused or model.static or model.steps > 3 or not model.syncs or not backwards:
        return []
    names = [n for n, p in ddp.module.named_parameters()
             if p.requires_grad and p.grad is None and n in model.at_wrap and model.at_wrap[n][1]]
    if not names:
        return []
    return [finding(
        "LT609", "error",
        f"{len(names)} parameter(s) of {model.kind} took no part in the loss of step {step}: {listed(names)}; "
        "DistributedDataParallel waits for their gradients, and its next forward raises (find_unused_parameters is False)",
        zh=f"第 {step} 步有 {len(names)} 个参数未参与损失：{listed(names)}，而 find_unused_parameters 为 False",
        where=[place(*model.place, path=names[0], last_step=step)],
        evidence=[evidence("parameters", len(names))],
        help="use them in the forward, or remove or freeze them before the wrap; where they really take part only at times, "
             "wrap with find_unused_parameters=True",
        help_zh="在前向中使用它们，或在包装前删除或冻结；若确实只在部分步骤参与，使用 find_unused_parameters=True",
        parts=("unused", model.kind))]


def walk_due(model):
    return model.steps + 1 in WALKS and model.walks < 2 * len(WALKS)


def walk(watch, model, root):
    """Counts the parameters of `model` that the graph of `root` does not reach."""
    from lowtide.gradients_origin import graph

    if getattr(root, "grad_fn", None) is None:
        return
    _, leaves = graph(root)
    model.walks += 1
    ddp = model.ddp()
    if any(p.requires_grad and id(p) not in leaves for p in ddp.module.parameters()):
        model.unused_seen += 1


def synced_accumulation(wrapping, model, ddp, backwards, step):
    """LT612: several backwards per step from one place, each of which averages."""
    if not backwards:
        return []  # another optimizer of the same model has stepped already
    repeated = model.syncs >= 2 and backwards == model.syncs and len(model.sites) == 1
    model.windows = model.windows + 1 if repeated else 0
    if model.windows < WINDOWS or model.windows > WINDOWS:
        return []
    file, line = next(iter(model.sites))
    count = model.syncs
    return [finding(
        "LT612", "warning",
        f"gradient accumulation without no_sync(): {count} backward() calls before each step of {model.kind}, and each of them "
        f"averages all gradients between the ranks; {count - 1} of {count} of this traffic is wasted",
        zh=f"梯度累积没有使用 no_sync()：每步 {count} 次 backward() 都进行了全规约，其中 {count - 1} 次是多余的",
        where=[place(file, line, last_step=step)],
        evidence=[evidence("backwards_per_step", count), evidence("windows", model.windows)],
        help="run all but the last micro-batch, forward and backward, inside `with model.no_sync():`",
        help_zh="除最后一个微批外，其余微批的前向与反向都放在 `with model.no_sync():` 中",
        parts=("no_sync", file, line))]


CHECKS = [bypassed, changed, unused, synced_accumulation]
