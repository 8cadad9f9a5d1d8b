"""The file and line of the user's where a holder grows."""

import os
import sys

from lowtide import _holder_lines, _source

_LOGGING = {"debug", "info", "warning", "error", "critical", "exception", "log"}


def locate(row):
    """Fills in `file` and `line` of a row, and what it says of where the holder is emptied."""
    if row["_first"] == "island":
        path, line = _island_line(row)
    else:
        path, line = _growth_line(row)
    if path and _source.is_library(path):
        # The user's own call of the library is what can be changed; the library's line comes second.
        own_path, own_line = _call_into(row)
        if not own_path:
            entries = _holder_lines.entry_calls(path, line)
            if not entries and os.path.basename(os.path.dirname(path)) == "logging":
                entries = _holder_lines.calls(methods=_LOGGING)
                entries.sort(key=lambda entry: entry[0] != row["_steps"][0].get("file"))
            own_path, own_line = (entries[0][0], entries[0][1].line) if entries else (None, None)
        if own_path:
            row["library_file"], row["library_line"] = path, line
            path, line = own_path, own_line
    row["file"], row["line"] = path, line
    _note_guards(row)


def _growth_line(row):
    wanted = row["_wanted"]
    if not wanted:
        return _call_into(row)
    if wanted.get("made_by"):
        made = [found for found in _holder_lines.calls(methods=wanted["made_by"]) if not _source.is_library(found[0])]
        if made:  # of the variable that has the hooks, if it is called so; else in its file, if that is known
            made.sort(key=lambda found: (found[1].function.endswith("__init__"), found[1].receiver != wanted.get("made_on"),
                                         found[0] != wanted.get("file")))
            return made[0][0], made[0][1].line
    wanted = dict(wanted, container=row["_container"])
    extra = [wanted["file"]] if wanted.get("file") else []
    owner_file = _class_file(wanted.get("owner_class"))
    path, line, _ = _holder_lines.best(wanted, extra + ([owner_file] if owner_file else []))
    if not path and any(step["op"] == "hidden" and step["text"] == "cache" for step in row["_steps"]):
        path, line = _holder_lines.decorated(wanted["name"])
    if not path and wanted["is_attr"]:  # setattr(owner, f"...")
        texts = [step["text"] for step in row["_steps"] if step["op"] in ("local", "global", "closure", "attr")]
        for owner in (texts[-2:-1] or ["self"]) + ["self"]:
            path, line, _ = (path, line, None) if path else _holder_lines.best(dict(wanted, name=f"*{owner}", owner=None))
    return (path, line) if path else _call_into(row)


def _class_file(qualified):
    module = qualified.rsplit(".", 1)[0] if qualified and "." in qualified else None
    while module:
        path = getattr(sys.modules.get(module), "__file__", None)
        if isinstance(path, str):
            return path if path.endswith(".py") else None
        module = module.rsplit(".", 1)[0] if "." in module else None
    return None


def _call_into(row):
    """A call of the user's on the object of a library whose attribute grows: `opt.add_param_group(...)`."""
    names = []
    for step in row["_steps"]:
        if step["op"] in ("local", "global", "closure", "attr") and step["text"]:
            names.append(step)
    for i in range(len(names) - 1, 0, -1):
        owner = names[i].get("owner", "")
        owner_file = _class_file(owner)
        if names[i]["op"] != "attr" or not owner_file or not _source.is_library(owner_file):
            continue
        receiver = names[i - 1]["text"]
        # Nothing in another file knows a variable of a function.
        home = (names[i - 1] if names[i - 1]["op"] in ("local", "closure") else row["_steps"][0]).get("file")
        growing = _growing_methods(owner_file, {n["text"] for n in names[i:]})
        # What grows lies deeper than this attribute: what puts things into the attribute itself is not meant.
        setup = _growing_methods(owner_file, {names[i]["text"]}) if i + 1 < len(names) else set()
        growing -= setup
        for methods in (growing & {"add_param_group"}, growing, None):
            if methods is not None and not methods:
                continue
            found = _holder_lines.calls(receiver=receiver, methods=methods)
            found = [f for f in found if f[0] == home] or found
            found = [f for f in found if f[1].method not in setup and not f[1].method[0].isupper()]
            found = [f for f in found if f[1].method not in ("zero_grad", "step", "to", "train", "eval")] or found
            found = [f for f in found if f[1].method in _source.GROW] or found
            if found:
                return found[0][0], found[0][1].line
    return None, None


def _growing_methods(path, names):
    collected = _source.scan(path, *names)
    methods = set()
    for store in collected.stores if collected else ():
        if store.name in names and store.is_attr and store.score >= 40:
            methods.add(store.function.rsplit(".", 1)[-1])
    methods.discard("__init__")
    methods |= {method.lstrip("_") for method in methods}  # queue.Queue.put() calls self._put()
    if "forward" in methods or "__call__" in methods or "update" in methods:
        methods |= {"__call__", "forward", "update"}
    return methods


def _island_line(row):
    if row["path"].endswith(".saved_tensors"):
        name = row["path"].split("Backward")[0]
        for path in _source.user_files():
            collected = _source.scan(path, name)
            if not collected:
                continue
            span = collected.functions.get(f"{name}.forward")
            saves = [c.line for c in collected.calls if c.method == "save_for_backward"
                     and (span and span[0] <= c.line <= span[1])]
            if saves or span:
                return path, saves[0] if saves else span[0]
    if row["path"].endswith(".grad"):
        found = _holder_lines.calls(keyword="create_graph")
        if found:
            return found[0][0], found[0][1].line
    return None, None


def _note_guards(row):
    """Where the holder is emptied, if only under a condition: `if rank == 0: results.drain()`."""
    wanted = row["_wanted"]
    if not wanted or not row["file"] or row["_first"] == "island":
        return
    places = _holder_lines.emptied(dict(wanted, container=row["_container"]))
    guards = [{"file": path, "line": guard, "what": "emptied only under this condition"}
              for path, line, guard in places if guard]
    if guards:
        row["also"] = guards[:3]
