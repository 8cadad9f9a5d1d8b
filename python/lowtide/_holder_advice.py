"""What kind of holder it is, as a finding's code, and what to change."""
import re
import sys

_HOOKS = re.compile(r"_hooks\b")
_OF_OPTIMIZER = re.compile(r"\.param_groups\b|\.state(?:\[[^\]]*\])?(?:\['\w+'\])?$")  # not lists of the author's in it


def advise(row):
    row["code"], row["help"], row["help_zh"] = _kind(row)
    describe(row)


def describe(row):
    """The row in one sentence."""
    rate = _bytes(row["bytes_per_step"])
    held = _bytes(row["retained_bytes"])
    graph = f", with {row['autograd_nodes']} nodes of the autograd graph" if row["autograd_nodes"] else ""
    where = f" at {row['file'].rsplit('/', 1)[-1]}:{row['line']}" if row["file"] and row["line"] else ""
    row["message"] = f"{row['path']} ({row['root']}) grows by {rate} per step and holds {held}{graph}{where}"


def _kind(row):
    """Code, and what to change in English and Chinese."""
    path, root, first = row["path"], row["root"], row["_first"]
    name = (row["_wanted"] or {}).get("name", "it")
    if path.endswith(re.sub(r"\d+$", "*", name)):
        name = re.sub(r"\d+$", "*", name)
    inside = {step["text"] for step in row["_inside"]}
    if first == "island":
        return _island(path)
    if first == "foreign":
        return ("LT403", "held from C or C++ code, not by a variable: look at the library that was given this object",
                "由 C 或 C++ 代码持有，而非变量：请检查接收该对象的库")
    if _HOOKS.search(path) or any(_HOOKS.search(text) for text in inside):
        return ("LT404", "keep the handle that register_..._hook() returns and call handle.remove()",
                "保存 register_..._hook() 返回的句柄，并调用 handle.remove()")
    if _OF_OPTIMIZER.search(path) and any(_is_optimizer(step.get("owner", "")) for step in row["_steps"]):
        return ("LT405", "an optimizer never forgets what it was given: remove the old group from param_groups and pop "
                         "its parameters from state, or make a new optimizer",
                "优化器不会忘记交给它的参数：从 param_groups 移除旧组并从 state 弹出其参数，或新建优化器")
    if "__traceback__" in path or "__traceback__" in inside or any(kind == "traceback" for kind, _ in row["_types"]):
        return ("LT409", f"an exception keeps its frames and all their variables: keep str(error), or "
                         f"error.with_traceback(None), in `{name}`",
                f"异常会保留其栈帧及全部变量：在 `{name}` 中只保存 str(error) 或 error.with_traceback(None)")
    if row["via_autograd"] and not row["_container"]:
        return ("LT401", f"`{name}` carries the graph of every earlier step: detach what is added "
                         f"(.detach(), or .item() for a number)",
                f"`{name}` 带着之前每一步的计算图：请对加入的值调用 .detach()（若为数值则用 .item()）")
    if row["via_autograd"]:
        return ("LT401", f"what goes into `{name}` carries its graph: store value.detach() or .item(), wrap evaluation in "
                         "torch.no_grad(), and empty it when it has been used",
                f"放入 `{name}` 的值带着计算图：请存 value.detach() 或 .item()，评估时使用 torch.no_grad()，用完后清空")
    return _added(path, root, name, row)


def _is_link(qualified):
    """Is what grew an object of a class of the user's, which may hold the one before? Not a tensor or list made anew."""
    return "." in qualified and not qualified.startswith(("torch.", "numpy.", "pandas."))


def _is_optimizer(qualified):
    """Is this class one of PyTorch's optimizers, or made from one?"""
    module, _, name = qualified.rpartition(".")
    kind = getattr(sys.modules.get(module), name, None)
    mro = kind.__mro__ if isinstance(kind, type) else ()
    return any(base.__module__ == "torch.optim.optimizer" and base.__name__ == "Optimizer" for base in mro) or (
        not mro and "optim" in qualified.lower())


def _island(path):
    if path.endswith(".saved_tensors"):
        return ("LT406", "a custom Function keeps a view of its own output, which holds the graph node that keeps it: "
                         "save the output itself with ctx.save_for_backward(), and run passes that never call "
                         "backward() under torch.no_grad()",
                "自定义 Function 保存了其输出的视图，而该视图又持有保存它的图节点：请用 ctx.save_for_backward() 保存输出本身，"
                "不调用 backward() 的前向请放在 torch.no_grad() 下")
    if path.endswith(".grad"):
        return ("LT407", "backward(create_graph=True) ties a parameter to its .grad: use "
                         "torch.autograd.grad(loss, parameters, create_graph=True), or set .grad to None afterwards",
                "backward(create_graph=True) 会使参数与其 .grad 互相引用：请改用 "
                "torch.autograd.grad(loss, parameters, create_graph=True)，或之后将 .grad 置为 None")
    return ("LT408", "a reference cycle: break it, or call gc.collect() at epoch ends while gc is off",
            "引用环：请打断它；若关闭了 gc，则在每轮结束时调用 gc.collect()")


def _added(path, root, name, row):
    """What is only ever added to, without a graph."""
    if "<saved>" in path and "cycle" in " ".join(step["type"] for step in row["_steps"]):
        return ("LT402", "itertools.cycle keeps every batch of the first pass: write a generator instead, "
                         "`while True: yield from loader`",
                "itertools.cycle 会保存第一遍的所有批次：请改写生成器 `while True: yield from loader`")
    if "<cache>" in path:
        return ("LT402", "functools.lru_cache(maxsize=None) never forgets: give it a maxsize",
                "functools.lru_cache(maxsize=None) 从不遗忘：请设置 maxsize")
    if "..." in path or (not row["objects"] and _is_link(row["_sample"])):
        return ("LT402", f"each of them keeps the one before it alive: cut the chain in `{name}` (set the link to None) where "
                         "the older ones are no longer needed",
                f"每一个都使前一个保持存活：在不再需要较旧对象处切断 `{name}` 中的链（将链接置为 None）")
    if not row["objects"]:
        return ("LT402", f"`{name}` is made anew from itself and more, larger each time (torch.cat, np.concatenate, +=): keep "
                         f"what is needed, `{name}[-k:]`, or empty it when it has been used",
                f"`{name}` 每次都由自身与新内容拼接而成、越来越大（torch.cat、np.concatenate、+=）：只保留需要的部分 `{name}[-k:]`，"
                "或用完后清空")
    if root.startswith(("closure variable", "default argument")) and not (row["_wanted"] or {}).get("is_attr"):
        return ("LT402", f"`{name}` lives as long as its function and is never emptied: bound it, or empty it",
                f"`{name}` 与其函数同寿且从不清空：请限制其大小或清空它")
    tensors = row["pool"] != "heap"
    return ("LT402", f"`{name}` is only ever added to: empty it when its contents have been used (reset the metric, clear "
                     "the list), bound it (collections.deque(maxlen=...)), or "
                     + ("keep numbers instead of tensors" if tensors else "write its contents to a file"),
            f"`{name}` 只增不减：内容用完后清空它（重置指标、清空列表），限制其大小（collections.deque(maxlen=...)），"
            + ("或只保存数值而非张量" if tensors else "或将内容写入文件"))


def _bytes(count):
    for unit in ("B", "KiB", "MiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"
