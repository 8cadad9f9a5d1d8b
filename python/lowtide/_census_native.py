"""What grows without a Python object: PyTorch's compilation units and compile caches, and memory nobody names.

Each counter is read at both marks. The bytes are what the C heap grew by less what the census named; a counter that grew
says whose they are.
"""

import atexit
import sys

from lowtide import _holder_advice, _holder_lines

_JIT_CALLS = {"trace", "script", "trace_module", "freeze"}


def counters():
    """{name: count} of native registries that only ever grow; cheap to read, and absent where not imported."""
    found = {"atexit": atexit._ncallbacks()} if hasattr(atexit, "_ncallbacks") else {}
    state = sys.modules.get("torch.jit._state")
    try:
        if state is not None:
            found["torch.jit"] = len(state._python_cu.get_functions())
        utils = sys.modules.get("torch._dynamo.utils")
        if utils is not None:
            found["torch.compile"] = int(utils.counters["stats"].get("unique_graphs", 0))
    except Exception as error:
        error.__traceback__ = None
    return found


def rows(before, after, heap_growth, named_bytes, steps, rank):
    """Holder rows for registries that grew, with the bytes of the C heap that no object accounts for."""
    left = max(0, heap_growth - named_bytes)
    found = []
    for name, count in after.items():
        if name == "atexit":
            continue  # its functions are objects: see name_callbacks
        grown = count - before.get(name, 0)
        if grown <= 0 or left < 64 * steps:
            continue
        path, line = _call(name)
        found.append({
            "rank": rank, "pool": "heap", "path": name,
            "root": "native: functions that PyTorch has compiled, held by no Python object",
            "type": f"{name} function", "retained_bytes": left, "objects": grown,
            "bytes_per_step": round(left / steps), "growth_bytes": left, "file": path, "line": line,
            "via_autograd": False, "autograd_nodes": 0, "code": "LT410",
            "help": f"{name} keeps whatever it compiles until the process ends: compile once, before the loop, and use "
                    "the result again",
            "help_zh": f"{name} 会把编译结果一直保留到进程结束：请在循环之前编译一次并重复使用",
            "message": f"{grown} functions were compiled by {name} in {steps} steps; PyTorch keeps them for ever",
        })
        left = 0
    if not found and left > max(heap_growth // 2, 4096 * steps):
        found.append({
            "rank": rank, "pool": "heap", "path": "unattributed", "root": "native: held from C or C++ only",
            "type": "memory", "retained_bytes": left, "objects": 0, "bytes_per_step": round(left / steps),
            "growth_bytes": left, "file": None, "line": None, "via_autograd": False, "autograd_nodes": 0, "code": "LT403",
            "help": "no Python object, tensor or graph node holds this: look for a C or C++ extension called in the loop",
            "help_zh": "没有 Python 对象、张量或图节点持有它：请检查循环中调用的 C 或 C++ 扩展",
            "message": f"the C heap grew by {left} bytes in {steps} steps that no object accounts for",
        })
    return found


def name_callbacks(rows, before, after):
    """What is held from C alone, one object for each function that was given to atexit meanwhile, is held by those."""
    grown = after.get("atexit", 0) - before.get("atexit", 0)
    for row in rows if grown >= 4 else ():
        if row.get("code") != "LT403" or not row["path"].startswith("held from C") or abs(row["objects"] - grown) > max(2, grown // 4):
            continue
        found = _holder_lines.calls(receiver="atexit", methods={"register"})
        row["file"], row["line"] = (found[0][0], found[0][1].line) if found else (None, None)
        row["path"], row["root"] = "atexit callbacks", "atexit: functions and arguments kept until the process ends"
        row["help"] = "atexit.register() in a loop keeps each function and its arguments until the process ends: register one function once"
        row["help_zh"] = "循环中的 atexit.register() 会把每个函数及其参数保留到进程结束：只注册一次一个函数"
        _holder_advice.describe(row)


def _call(name):
    if name == "torch.compile":
        found = _holder_lines.calls(methods={"compile"})
    else:
        found = [f for f in _holder_lines.calls(methods=_JIT_CALLS) if "jit" in f[1].text or f[1].receiver is None]
        found = found or _holder_lines.calls(methods=_JIT_CALLS)
    return (found[0][0], found[0][1].line) if found else (None, None)
