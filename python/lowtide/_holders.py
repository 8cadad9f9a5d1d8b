"""Rows of growth (from lowtide._walk) made into holders: a path as its author would write it, its root, its line."""

import os


def rows(raw, steps, rank=0):
    merged = {}
    for growth in raw:
        row = _row(growth, steps, rank)
        if row is None:
            continue
        key = (row["path"], row["root"])
        if key in merged:
            _merge(merged[key], row)
        else:
            merged[key] = row
    return sorted(merged.values(), key=lambda r: -r["bytes_per_step"])


def _merge(into, row):
    for key in ("retained_bytes", "objects", "bytes_per_step", "growth_bytes"):
        into[key] += row[key]
    into["via_autograd"] = into["via_autograd"] or row["via_autograd"]


def _row(growth, steps, rank):
    path, root = written(growth["path"], growth)
    amount = growth["amount"]
    return {
        "rank": rank,
        "pool": _pool(amount),
        "path": path,
        "root": root,
        "type": growth.get("holder_type") if growth.get("container") else growth.get("sample_type") or growth.get("holder_type"),
        "retained_bytes": growth.get("holder_retained", 0) if growth.get("container") else growth.get("sample_retained", 0),
        "objects": max(growth["members"], 0),
        "bytes_per_step": round(growth["bytes"] / steps),
        "growth_bytes": growth["bytes"],
        "file": None,
        "line": None,
        "via_autograd": amount["autograd"] > 0,
    }


def _pool(amount):
    best = max(((v, k) for k, v in amount.items() if k.startswith("cuda:")), default=(0, ""))
    if best[0] > amount["cpu"] and best[0] > 0:
        return best[1]
    return "cpu" if amount["cpu"] > 0 else "heap"


def written(steps, growth=None):
    """(path, root) of a list of steps: the path in Python's notation, and what it starts from in words."""
    text, root = "", ""
    for i, step in enumerate(steps):
        op, name = step["op"], step["text"]
        if i == 0:
            root = _root(step)
        elif op == "local":
            text, root = name, _code_root("local", step)
        elif op == "global":
            module = steps[0]["text"]
            stem = os.path.splitext(os.path.basename(steps[0].get("file", "")))[0] if module == "__main__" else module
            text, root = f"{stem or module}.{name}", f"module {stem or module}, global {name}"
        elif op == "closure":
            text, root = name, _code_root("closure variable", step)
        elif op == "default":
            text, root = name, _code_root("default argument", step)
        elif op == "attr":
            text += f".{name}"
        elif op == "item":
            text += f"[{name}]"
        elif op in ("index", "member", "key"):
            text += "[*]"
        elif op == "hidden":
            text += f".<{name}>"
        elif op == "via":
            text += f".<{name}>"
    return text or root, root


def _root(step):
    op = step["op"]
    if op == "module":
        return f"module {step['text']}"
    if op in ("frame", "stack"):
        return f"{'function' if op == 'frame' else 'loop or call in'} {step.get('owner')}() at {os.path.basename(step.get('file', ''))}:{step.get('line', 0)}"
    if op in ("class", "globals"):
        return f"{op} {step['text']}"
    return {"thread": "thread state", "foreign": "held from C or C++", "island": "unreachable"}.get(op, op)


def _code_root(what, step):
    where = f"{os.path.basename(step.get('file', ''))}:{step.get('line') or step.get('first_line', 0)}"
    return f"{what} `{step['text']}` of {step.get('owner')}() at {where}"
