"""Rows of growth (from lowtide._walk) made into holders: a path as its author would write it, its root, its line."""

import os
import re

from lowtide import _holder_advice, _holder_lines, _holder_place, _source

_GRAPH = {"grad_fn", "next", "saved", "ctx", "variable", "inner", "storage"}
_MADE_BY = {  # attribute of a module -> the methods that put something into it
    "_forward_hooks": {"register_forward_hook"}, "_forward_pre_hooks": {"register_forward_pre_hook"},
    "_backward_hooks": {"register_full_backward_hook", "register_backward_hook"},
    "_backward_pre_hooks": {"register_full_backward_pre_hook"}, "_state_dict_hooks": {"register_state_dict_post_hook"},
    "_buffers": {"register_buffer"}, "_parameters": {"register_parameter"}, "_modules": {"add_module", "register_module"},
}


def rows(raw, steps, rank=0):
    """Holders for `findings.json`, the one that grows fastest first. `raw`: rows of _walk.compare."""
    merged = {}
    for growth in raw:
        row = _row(growth, steps, rank)
        if row is None:
            continue
        key = (_pattern(row["path"]), row["root"])
        if key in merged:
            _merge(merged[key], row)
        else:
            merged[key] = row
    _adopt_mirrors(merged)
    _fold_outer(merged)
    found = sorted(merged.values(), key=lambda r: -r["bytes_per_step"])
    if found:
        least = found[0]["growth_bytes"] * 0.01
        found = [r for r in found if r["growth_bytes"] >= least][:16]
    for row in found:
        try:
            _holder_place.locate(row)
            _holder_advice.advise(row)
        except Exception as error:  # naming the line is a favour, the holder stands without it
            row["trouble"] = str(error)
            error.__traceback__ = None
        for key in [k for k in row if k.startswith("_")]:
            del row[key]
    _source.forget()
    return found


def _pattern(path):
    return re.sub(r"\[[^\]]*\]", "[*]", path)


def _merge(into, row):
    for key in ("retained_bytes", "objects", "bytes_per_step", "growth_bytes", "autograd_nodes"):
        into[key] += row[key]
    if into["path"] != row["path"]:
        into["path"] = _pattern(row["path"])
    into["via_autograd"] = into["via_autograd"] or row["via_autograd"]


def _adopt_mirrors(merged):
    """A library's own table of what the user keeps (PyTorch's cache of shared memory) is no holder of its own."""
    for key in [k for k, row in merged.items() if "torch.multiprocessing.reductions" in row["path"]]:
        if len(merged) > 1:
            del merged[key]


def _fold_outer(merged):
    """`stats[*]` that got a few new entries while `stats[*].logits[*]` grew in an older one is the same growth: told where
    it happens. An object found again under another variable is none at all."""
    for key, outer in list(merged.items()):
        inner = [row for other, row in merged.items()
                 if other != key and other[1] == key[1] and row["_container"] and other[0].startswith((key[0] + ".", key[0] + "["))
                 and row["objects"] > outer["objects"]]
        if not inner:
            continue
        most = max(inner, key=lambda row: row["growth_bytes"])
        if outer["_container"]:
            objects = most["objects"]
            _merge(most, dict(outer, path=most["path"]))
            most["objects"], most["path"] = objects, _pattern(most["path"])
        elif outer["objects"] > 1:
            continue
        del merged[key]


def _row(growth, steps, rank):
    path, root, wanted = written(growth["path"])
    if not path or growth["path"][0]["text"].split(".")[0] == "lowtide":
        return None  # our own modules
    amount = growth["amount"]
    first = growth["path"][0]["op"]
    if first == "island":
        path, root = _island(growth)
    container = bool(growth.get("container"))
    if container and growth["path"] and growth["slots"] > 1:
        if growth["path"][-1]["op"] == "item":
            path = re.sub(r"\[[^\]]*\]$", "[*]", path)
        path = re.sub(r"(?<=\D)\d+$", "*", path)  # attributes with a number in their names, one for each
        if wanted and wanted.get("table"):
            wanted["made_by"] = _MADE_BY[wanted["table"]]
    below = _below(growth, steps) if first != "island" else None
    if below:
        path, wanted, container = path + below[0] + "[*]", below[1], True
    retained = growth.get("holder_retained" if growth.get("container") else "sample_retained", 0)
    if first == "foreign":
        retained = max(retained, growth["bytes"])  # of all of them: nothing that is known holds them together
    return {
        "rank": rank,
        "pool": _pool(amount),
        "path": path,
        "root": root,
        "type": below[2] if below else growth.get("holder_type") if container else growth.get("sample_type") or growth.get("holder_type"),
        "retained_bytes": retained,
        "objects": max(growth["members"], 0),
        "bytes_per_step": round(growth["bytes"] / steps),
        "growth_bytes": growth["bytes"],
        "file": None,
        "line": None,
        "via_autograd": amount["autograd"] > 0,
        "autograd_nodes": max(amount["autograd"], 0),
        "_wanted": wanted,
        "_container": container,
        "_steps": growth["path"] + (growth["below"] if below else []),
        "_inside": growth["inside"],
        "_types": growth["types"],
        "_sample": growth.get("sample_type") or "",
        "_first": first,
    }


def _below(growth, steps):
    """(path, what to look for, type) from a few large objects down to the container in them that the source appends to:
    `stats[*]` of an object per epoch is `stats[*].logits[*]`, where a step adds. None: there is none such."""
    labels = growth.get("below")
    if not labels or labels[-1]["op"] not in ("attr", "item") or growth["members"] * 8 > steps:
        return None
    path, _, _ = written([{"op": "island", "text": ""}] + labels)
    wanted = written(growth["path"] + labels)[2]
    known = wanted and (wanted["is_attr"] if labels[-1]["op"] == "attr" else isinstance(wanted.get("key"), str))
    return (path, wanted, labels[-1]["type"]) if known and _holder_lines.grows(wanted) else None


def _pool(amount):
    best = max(((v, k) for k, v in amount.items() if k.startswith("cuda:")), default=(0, ""))
    if best[0] > amount["cpu"] and best[0] > 0:
        return best[1]
    if amount["shared"] > amount["cpu"] / 2 > 0:
        return "shm"
    return "cpu" if amount["cpu"] > 0 else "heap"


def _island(growth):
    """What to call something that no variable reaches: the class of what ties the knot."""
    names = [name for name, _ in growth["types"]] + [growth.get("sample_type", "")]
    custom = [n for n in names if n.startswith("torch.autograd.function.") and n.endswith("Backward")]
    if custom:
        name = custom[0].rsplit(".", 1)[-1]
        return f"{name}.saved_tensors", f"unreachable: cycle through the graph node of custom Function {name[:-8]}"
    if growth["amount"]["autograd"] > 0 and "AccumulateGrad" in names:
        what = "Parameter" if any(n.endswith("Parameter") for n in names) else "Tensor"
        return f"<{what}>.grad", "unreachable: cycle parameter <-> .grad made by backward(create_graph=True)"
    if growth["amount"]["autograd"] > 0:
        return f"<{growth.get('sample_type')}>", "unreachable: cycle in the autograd graph"
    return f"<{growth.get('sample_type')}>", "unreachable: cycle that waits for the garbage collector"


def written(steps):
    """(path, root, what to look for in the source) of a list of steps."""
    path, root, wanted = [], "", None
    skip_item = in_thread_local = False
    for i, step in enumerate(steps):
        op, name = step["op"], step["text"]
        if i == 0:
            root = _root(step)
            continue
        if op == "via" and name in _GRAPH:
            break  # from here on it is PyTorch's graph: the tensor by which it is entered is the holder
        if skip_item and op == "item":  # model._modules['2'] is written model[2], and ['body'] .body
            skip_item = False
            bare = name.strip("'\"")
            path.append(f"[{bare}]" if bare.isdigit() else f".{bare}")
            if not bare.isdigit():
                wanted = {"name": bare, "is_attr": True, "owner": None, "table": steps[i - 1]["text"]}
            continue
        skip_item = False
        if op == "hidden" and name == "thread attributes":
            in_thread_local = True  # local.<thread attributes>[<weak reference to a thread's mark>]['seen']
            continue
        if in_thread_local and op in ("item", "hop"):
            if op == "hop" or name.startswith("<"):
                continue
            in_thread_local = False
            path.append(f".{name.strip(chr(39))}")
            wanted = {"name": name.strip("'"), "is_attr": True, "owner": None}
            root += ", thread-local"
            continue
        if op in ("local", "closure", "default"):
            path = [name]
            what = {"local": "local", "closure": "closure variable", "default": "default argument"}[op]
            root = _code_root(what, step)
            wanted = {"name": name, "is_attr": False, "first_line": step.get("first_line"), "file": step.get("file"),
                      "function": step.get("owner", "")}
            if op == "closure":
                wanted["first_line"] = wanted["first_line"] or 0
                wanted["closure"] = True
        elif op == "global":
            module = steps[0]["text"] if i == 1 else step.get("owner", "")
            file = steps[0].get("file", "") or ""
            if module == "__main__":
                module = os.path.splitext(os.path.basename(file))[0] or module
            path = [f"{module}.{name}"]
            root = f"module {module}, global {name}"
            wanted = {"name": name, "is_attr": False, "file": file, "module_global": True}
        elif op == "attr":
            if name in ("_modules", "_parameters", "_buffers") and i + 1 < len(steps):
                skip_item = True
                if i + 1 < len(steps) and steps[i + 1]["op"] == "hop":
                    skip_item = True
                continue
            path.append(f".{name}")
            held = wanted or {}
            wanted = {"name": name, "is_attr": True, "owner": step.get("owner", "").rsplit(".", 1)[-1],
                      "owner_class": step.get("owner", "")}
            if name.endswith("_hooks") and name in _MADE_BY:
                wanted.update(made_by=_MADE_BY[name], made_on=held.get("name"), file=held.get("file"))
        elif op == "item":
            path.append(f"[{name}]")
            if wanted:
                wanted = dict(wanted, key=_constant(name))
        elif op in ("index", "member", "key"):
            path.append("[*]")
        elif op == "hidden" and step.get("type") == "collections.OrderedDict" and name in ("Parameter", "Tensor"):
            path.append("._backward_hooks")
            held = wanted or {}
            wanted = {"name": "_backward_hooks", "is_attr": True, "owner": None, "made_by": {"register_hook"},
                      "made_on": held.get("name"), "file": held.get("file")}
        elif op in ("hidden", "via"):
            path.append(f".<{name}>")
    return _collapse(path) or root, root, wanted


def _constant(text):
    if len(text) > 1 and text[0] in "'\"" and text[-1] == text[0]:
        return text[1:-1]
    return int(text) if text.lstrip("-").isdigit() else None


def _collapse(path):
    """A linked chain, `.next.next.next`, is shown as one link and dots."""
    for length in (1, 2, 3):
        i = 1
        while i + 3 * length <= len(path):
            unit = path[i:i + length]
            count = 1
            while path[i + count * length:i + (count + 1) * length] == unit:
                count += 1
            if count >= 3 and unit != ["[*]"]:
                path[i + length:i + count * length] = ["..."]
            i += 1
    return "".join(path)


def _root(step):
    op, file = step["op"], os.path.basename(step.get("file", "") or "")
    if op == "module":
        return f"module {step['text']}"
    if op == "frame":
        return f"function {step.get('owner')}() at {file}:{step.get('line', 0)}"
    if op == "stack":
        return f"loop or call in {step.get('owner')}() at {file}:{step.get('line', 0)}"
    if op in ("class", "globals"):
        return f"{op} {step['text']}"
    return {"thread": "thread state", "foreign": "held from C or C++", "island": "unreachable"}.get(op, op)


def _code_root(what, step):
    where = f"{os.path.basename(step.get('file', ''))}:{step.get('line') or step.get('first_line', 0)}"
    return f"{what} `{step['text']}` of {step.get('owner')}() at {where}"
