"""What kind of holder it is, as a finding's code, and what to change."""


def advise(row):
    code, help_text = _kind(row)
    row["code"] = code
    row["help"] = help_text
    rate = _bytes(row["bytes_per_step"])
    held = _bytes(row["retained_bytes"])
    graph = f", with {row['autograd_nodes']} nodes of the autograd graph" if row["autograd_nodes"] else ""
    where = f" at {row['file'].rsplit('/', 1)[-1]}:{row['line']}" if row["file"] and row["line"] else ""
    row["message"] = f"{row['path']} ({row['root']}) grows by {rate} per step and holds {held}{graph}{where}"


def _kind(row):
    path, root, first = row["path"], row["root"], row["_first"]
    name = (row["_wanted"] or {}).get("name", "it")
    inside = {step["text"] for step in row["_inside"]}
    if first == "island":
        if path.endswith(".saved_tensors"):
            return "LT406", ("a custom Function keeps a view of its own output, which holds the graph node that keeps it: "
                             "save the output itself with ctx.save_for_backward(), and run passes that never call "
                             "backward() under torch.no_grad()")
        if path.endswith(".grad"):
            return "LT407", ("backward(create_graph=True) ties a parameter to its .grad: use "
                             "torch.autograd.grad(loss, parameters, create_graph=True), or set .grad to None afterwards")
        return "LT408", "a reference cycle: break it, or call gc.collect() at epoch ends while gc is off"
    if first == "foreign":
        return "LT403", "held from C or C++ code, not by a variable: look at the library that was given this object"
    if "_hooks" in path or "_hooks" in " ".join(inside):
        return "LT404", "keep the handle that register_..._hook() returns and call handle.remove()"
    if ".state" in path or "param_groups" in path:
        return "LT405", ("an optimizer never forgets what it was given: remove the old group from param_groups and pop "
                         "its parameters from state, or make a new optimizer")
    if "__traceback__" in path or "__traceback__" in inside:
        return "LT409", (f"an exception keeps its frames and all their variables: keep str(error), or "
                         f"error.with_traceback(None), in {name}")
    if row["via_autograd"] and not row["_container"]:
        return "LT401", (f"`{name}` carries the graph of every earlier step: detach what is added "
                         f"(.detach(), or .item() for a number)")
    if row["via_autograd"]:
        return "LT401", (f"what goes into `{name}` carries its graph: store value.detach() or .item(), wrap evaluation in "
                         "torch.no_grad(), and empty it when it has been used")
    if "<saved>" in path and "cycle" in " ".join(step["type"] for step in row["_steps"]):
        return "LT402", ("itertools.cycle keeps every batch of the first pass: write a generator instead, "
                         "`while True: yield from loader`")
    if "<cache>" in path:
        return "LT402", "functools.lru_cache(maxsize=None) never forgets: give it a maxsize"
    if "closure" in root or "default argument" in root:
        return "LT402", f"`{name}` lives as long as its function and is never emptied: bound it, or empty it"
    return "LT402", (f"`{name}` is only ever added to: empty it when its contents have been used (reset the metric, clear "
                     "the list), bound it (collections.deque(maxlen=...)), or keep numbers instead of tensors")


def _bytes(count):
    for unit in ("B", "KiB", "MiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"
