"""`lowtide.why(object)`: who holds it. `lowtide.holders()`: who holds what came in since the last call."""

import linecache
import os

from lowtide import _census, _holder_lines, _holders, _source, _walk


class LeakError(AssertionError):
    """Something grows step after step. `holders` are the rows that say what, as in findings.json."""

    def __init__(self, holders, what="memory that grows with every step"):
        self.holders = holders
        super().__init__(f"{what}:\n" + "\n".join(describe(row) for row in holders[:5]))


class Why:
    """The ways in which an object is held, the shortest first. `str()` draws them; `paths` has them as text."""

    def __init__(self, subject, ways):
        self.subject = subject
        self.paths = [way["path"] for way in ways]
        self._ways = ways

    def __bool__(self):
        return bool(self._ways)

    def __repr__(self):
        return f"<lowtide.why: {self.subject}, {len(self._ways)} paths>"

    def __str__(self):
        if not self._ways:
            return f"{self.subject}: no variable, container or running function of Python holds it"
        return "\n\n".join([f"{self.subject} is held by"] + [_draw(way) for way in self._ways])


def why(thing, paths=4):
    """Names what holds `thing` (a tensor or any object that is no plain number or text).

    Walks the process once (about as long as a full garbage collection) and returns a `Why`. The variables of the calling
    function are shown too, last of all, when they are all that holds it.
    Raises RuntimeError where the process cannot be walked.
    """
    _prepare()
    steps = _walk.paths(thing, max(1, int(paths)) + 8)
    ways = []
    for way in steps:
        path, root, wanted = _holders.written(way)
        if way[0]["op"] == "foreign" and len(way) <= 2:
            continue  # the call of this function itself
        ways.append({"path": path, "root": root, "steps": way, "wanted": wanted, "line": _line(way, wanted)})
    _source.forget()
    named = [w for w in ways if w["steps"][0]["op"] != "stack"] or ways
    return Why(_subject(thing), named[:paths])


def holders():
    """Rows (dicts as in findings.json) of what came in and stayed since the last call; the first call only marks.

    Rates are per call: call it every so many steps and divide.
    """
    _prepare()
    if not _started:
        _started.append(_census.Census())
        _raise_trouble(_started[0], _started[0].first(0))
        return []
    state = _started[0]
    rows = state.second(state.step + 1, keep=True)
    _raise_trouble(state, state.trouble is None)
    return rows


_started = []


def _prepare():
    if _walk is None:
        raise RuntimeError("the extension lowtide._walk is missing for this interpreter")
    _census._ready(_census.census)


def _raise_trouble(state, fine):
    if not fine:
        trouble, state.trouble = state.trouble, None
        raise RuntimeError(f"lowtide could not walk this process: {trouble}")


def _subject(thing):
    kind = type(thing).__name__
    shape = getattr(thing, "shape", None)
    if shape is not None and hasattr(thing, "nbytes"):
        return f"{kind} of shape {tuple(shape)}, {thing.nbytes} B"
    return kind


def _line(steps, wanted):
    if not wanted:
        return None, None
    container = any(step["op"] in ("index", "item", "member", "key") for step in steps)
    extra = [wanted["file"]] if wanted.get("file") else []
    path, line, _ = _holder_lines.best(dict(wanted, container=container), extra)
    return path, line


def _draw(way):
    lines = ["┬───", f"│ {way['root']}"]
    steps = way["steps"][1:]
    shown = [step for step in steps if step["op"] != "hop"]
    for i, step in enumerate(shown):
        text = {"attr": ".{}", "item": "[{}]", "index": "[{}]", "local": "{}", "global": "{}", "closure": "{}",
                "default": "{}", "hidden": "<{}>", "via": "<{}>"}.get(step["op"], "[*]").format(step["text"] or "*")
        last = i == len(shown) - 1
        lines.append(f"{'╰→' if last else '├─'} {text}   {step['type']}")
        if not last and step["op"] in ("local", "global", "closure", "attr"):
            lines.append(f"│  {'~' * len(text)}")
    return "\n".join(lines + _code_frame(*way["line"]))


def _code_frame(path, line):
    if not path or not line:
        return []
    frame = [f"   --> {os.path.basename(path)}:{line}"]
    for number in (line - 1, line, line + 1):
        text = linecache.getline(path, number).rstrip()
        if text.strip():
            frame.append(f"   {'>' if number == line else ' '} {number:4} | {text}")
    return frame


def describe(row):
    """A holder row as a few lines of text, with its source line."""
    lines = [f"  {row['path']}  ({row['root']})",
             f"    +{row['bytes_per_step']} B per step, {row['retained_bytes']} B held, {row['type']}"]
    lines += _code_frame(row["file"], row["line"])
    if row.get("help"):
        lines.append(f"    help: {row['help']}")
    return "\n".join(lines)
