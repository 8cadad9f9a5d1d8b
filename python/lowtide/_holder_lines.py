"""Where in the source growth enters a holder: the append, the `+=`, the assignment.

A holder is matched with the statements of ``_source`` by name, and by the function or class that it belongs to; the one that
fits best is the line. This is reading, not measuring: where several statements fit equally well the first is taken and
`sure` is false.
"""

from lowtide._source import GROW, is_library, scan, user_files


def _fit(store, wanted, path):
    """How well a statement fits a holder; 0: not at all."""
    if store.name != wanted["name"] or store.is_attr != wanted["is_attr"]:
        # A module's global is another module's attribute: `state.history.append(...)`.
        if not (wanted.get("module_global") and store.name == wanted["name"]):
            return 0
    score = store.score
    if wanted.get("first_line") and not store.is_attr:
        same = path == wanted.get("file") and _inside(store, wanted)
        if not same:
            return 0
    if wanted.get("owner") and store.is_attr:
        score += 15 if store.owner == wanted["owner"] else 0
    if wanted.get("key") is not None and store.key is not None:
        score += 10 if store.key == wanted["key"] else -40
    if wanted["container"] and store.kind in ("assign", "self"):
        score -= 25
    if not wanted["container"] and store.kind in GROW:
        score -= 30
    if store.in_loop:
        score += 4
    if store.function.endswith("__init__"):
        score -= 30
    return max(score, 1)


def _inside(store, wanted):
    """Is the statement in the function that owns the variable, or in one that shares it (a closure)?"""
    if store.first_line == wanted["first_line"]:
        return True
    outer = wanted.get("function", "").replace(".<locals>", "")
    if wanted.get("closure"):  # the variable is that of a function around this one
        outer = outer.rpartition(".")[0]
    return bool(outer) and (store.function == outer or store.function.startswith(outer + "."))


def best(wanted, extra_files=(), only=None):
    """(path, line, sure) of the statement that fits, in the files `only` if given; (None, None, False): none does."""
    ranked = []
    files = only or list(dict.fromkeys(list(extra_files) + user_files()))
    for path in files:
        collected = scan(path, wanted["name"].lstrip("*"))
        for store in collected.stores if collected else ():
            fit = _fit(store, wanted, path)
            if fit:
                ranked.append((-(fit - (60 if is_library(path) else 0)), files.index(path), store.line, path))
    ranked.sort()
    if not ranked and (wanted.get("alias") or not wanted["is_attr"]):
        return None, None, False
    # No more than the line that makes it: it goes by other names.
    if (not ranked or -ranked[0][0] <= 20) and not wanted.get("alias"):
        local = wanted.get("first_line") and wanted.get("file")  # nothing in another file knows a variable of a function
        near = [wanted["file"]] if local else files
        for name, is_attr in _aliases(wanted["name"], near):
            path, line, sure = best({"name": name, "is_attr": is_attr, "container": wanted["container"], "alias": True,
                                     "key": wanted.get("key")}, only=near)
            if path and not is_library(path):
                return path, line, sure
    if not ranked:
        return None, None, False
    sure = len(ranked) == 1 or ranked[1][0] > ranked[0][0]
    return ranked[0][3], ranked[0][2], sure


def grows(wanted):
    """Does some statement of the user's add to what has that name (and key): `.append`, `[key] =`, `+=`?"""
    key = wanted.get("key")
    return any(store.name == wanted["name"] and store.is_attr == wanted["is_attr"] and store.score >= 60
               and (store.kind != "item" and store.key == key if isinstance(key, str) else True)
               for path in user_files() for store in getattr(scan(path, wanted["name"]), "stores", ()))


def _aliases(name, files):
    found = []
    for path in files:
        collected = scan(path, name)
        found += [(a, is_attr) for a, is_attr, made_from in (collected.aliases if collected else ())
                  if made_from == name and a and (a, is_attr) not in found]
    return found[:8]


def decorated(name):
    """(path, line) of the first decorator of a function of the user's of that name; (None, None): there is none."""
    for path in user_files():
        collected = scan(path, name)
        for qualified, line in collected.decorators.items() if collected else ():
            if qualified.rsplit(".", 1)[-1] == name:
                return path, line
    return None, None


def entry_calls(path, line):
    """Calls of the user's of the class or function of a library that has this line: [(path, Call)]."""
    collected = scan(path)
    around = [(first, name) for name, (first, end) in collected.functions.items() if first <= line <= end] if collected else []
    if not around:
        return []
    names = max(around)[1].split(".")[-2:]
    return [f for name in names for f in calls(methods={name}) + calls(receiver=name, methods={"__call__"})]


def calls(receiver=None, methods=None, keyword=None):
    """Calls in the user's files: [(path, Call)], those in loops and functions first."""
    found = []
    for path in user_files():
        collected = scan(path, *([receiver] if receiver else methods or [keyword]))
        for call in collected.calls if collected else ():
            if receiver is not None and call.receiver != receiver:
                continue
            if methods is not None and call.method not in methods:
                continue
            if keyword is not None and not call.keywords.get(keyword):
                continue
            found.append((path, call))
    found.sort(key=lambda pair: (not pair[1].in_loop, not pair[1].function, -pair[1].function.count(".")))
    return found


def emptied(wanted):
    """Places that empty a holder, as (path, line, guard): directly, or by calling the method that does."""
    places = []
    for path in user_files():
        collected = scan(path, wanted["name"])
        for name, is_attr, line, function, guard in collected.resets if collected else ():
            if name != wanted["name"] or is_attr != wanted["is_attr"]:
                continue
            if wanted.get("first_line") and not is_attr:
                continue
            method = function.rsplit(".", 1)[-1]
            if method == "__init__" or (not function and guard is None):
                continue
            places.append((path, line, guard))
            for call_path, call in calls(methods={method}):
                places.append((call_path, call.line, call.guard))
    return places
