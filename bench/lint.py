#!/usr/bin/env python3
"""`lowtide lint` against CPython's own parser and its peers, in one run, on the same files, on one core.

usage: lint.py [--binary lowtide] [--peers PYTHON] [--rounds 3] [FOLDER...]

FOLDERs default to the standard library and, where it is installed, PyTorch's own Python files. PYTHON is an interpreter
that has torchfix, torch-preflight or both installed (`pip install torchfix torch-preflight` into a fresh environment).
Single-core figures are CPU seconds of the whole process (best of the rounds), so that a busy machine does not blur
them; the two-thread figure is wall time and wants two idle cores. Slow peers get a sample, and lowtide the same one.
Prints one JSON object; `ratios` are what the goals speak of.
"""
import argparse
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time

PARSE = """
import ast, sys, warnings
warnings.simplefilter("ignore")
sys.setrecursionlimit(5000)
for name in open(sys.argv[1]).read().split("\\0"):
    with open(name, "rb") as file:
        text = file.read()
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        pass
"""


def timed(command, cores, env):
    """(CPU seconds, wall seconds, output) of a process that may use `cores`."""
    started = time.perf_counter()
    process = subprocess.Popen(["taskset", "-c", ",".join(map(str, cores)), *map(str, command)], env=env,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    output = process.stdout.read()
    _, _, usage = os.wait4(process.pid, 0)
    return usage.ru_utime + usage.ru_stime, time.perf_counter() - started, output


def best(rounds, command, cores, env, before=lambda: None, wall=False):
    figures = []
    for _ in range(rounds):
        before()
        figures.append(timed(command, cores, env)[1 if wall else 0])
    return min(figures)


def default_folders():
    folders = [pathlib.Path(sysconfig.get_paths()["stdlib"])]
    for base in {sysconfig.get_paths()["purelib"], sysconfig.get_paths()["platlib"]}:
        if (pathlib.Path(base) / "torch").is_dir():
            folders.append(pathlib.Path(base) / "torch")
    return folders


def python_files(folders):
    found = []
    for folder in folders:
        for base, names, files in os.walk(folder):
            names[:] = [n for n in names if n not in {"site-packages", "__pycache__"}]
            found += [os.path.join(base, name) for name in sorted(files) if name.endswith(".py")]
    return found


def count_lines(files):
    return sum(pathlib.Path(name).read_bytes().count(b"\n") for name in files)


def peer_figures(python, lint, files, cores, env, rounds):
    """Lines per second of lowtide and of each peer that is there, on one sample."""
    torch_files = [name for name in files if "/torch/" in name and os.path.getsize(name) < 60_000]
    sample = random.Random(1).sample(torch_files or files, min(40, len(torch_files or files)))
    lines = count_lines(sample)
    figures = {"sample_files": len(sample), "sample_lines": lines,
               "lowtide": lines / best(rounds, [*lint, "--no-cache", "-j1", *sample], cores, env)}
    for name, options in (("torchfix", ["--select=ALL"]), ("torch-preflight", ["check"])):
        program = pathlib.Path(python).parent / name
        if not program.exists():
            figures[name] = None
            continue
        seconds, _, output = timed([program, *options, *sample], cores, env)
        figures[name] = lines / seconds if "Traceback" not in output else None
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=pathlib.Path)
    parser.add_argument("--binary", default=shutil.which("lowtide"))
    parser.add_argument("--peers", default="")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    folders = args.folders or default_folders()
    files = python_files(folders)
    lines = count_lines(files)
    available = sorted(os.sched_getaffinity(0))
    one, two = available[:1], available[:2]
    with tempfile.TemporaryDirectory() as scratch:
        env = {**os.environ, "XDG_CACHE_HOME": scratch, "NO_COLOR": "1"}
        names = pathlib.Path(scratch, "names")
        names.write_text("\0".join(files))
        script = pathlib.Path(scratch, "parse.py")
        script.write_text(PARSE)
        lint = [args.binary, "lint", "--isolated", "--no-respect-gitignore", "--select", "ALL", "--exit-zero", "--output-format", "concise"]
        tail = timed([*lint, *folders], one, env)[2].splitlines()[-6:]
        checked = max((int(n.replace(",", "")) for line in tail for n in re.findall(r"([\d,]+) files?\b", line)), default=0)
        seconds = {
            "ast_parse": best(args.rounds, [sys.executable, script, names], one, env),
            "interpreter_start": best(args.rounds, [sys.executable, "-c", "import ast"], one, env),
            "cold": best(args.rounds, [*lint, "--no-cache", "-j1", *folders], one, env),
        }
        time.sleep(3)  # a file system that counts in seconds
        timed([*lint, "-j1", *folders], one, env)
        seconds["warm"] = best(args.rounds, [*lint, "-j1", *folders], one, env)
        walls = {"threads_1": [], "threads_2": []}
        for _ in range(args.rounds):  # alternating: a busy neighbour hits both
            for jobs in (1, 2):
                walls[f"threads_{jobs}"].append(timed([*lint, "--no-cache", f"-j{jobs}", *folders], two, env)[1])
        seconds.update({name: min(values) for name, values in walls.items()})
        peers = peer_figures(args.peers, lint, files, one, env, args.rounds) if args.peers else {}
    ast_seconds = seconds["ast_parse"] - seconds["interpreter_start"]
    ratios = {"cold_vs_ast_parse": ast_seconds / seconds["cold"], "warm_vs_ast_parse": ast_seconds / seconds["warm"],
              "two_threads_vs_one": seconds["threads_1"] / seconds["threads_2"]}
    for name in ("torchfix", "torch-preflight"):
        if peers.get(name):
            ratios[f"cold_vs_{name}"] = peers["lowtide"] / peers[name]
    print(json.dumps({"files": len(files), "files_checked": checked, "lines": lines, "seconds": seconds,
                      "lines_per_second": {"ast_parse": lines / ast_seconds, "cold": lines / seconds["cold"], "warm": lines / seconds["warm"]},
                      "peers_lines_per_second": peers, "ratios": ratios}, indent=1))


if __name__ == "__main__":
    main()
