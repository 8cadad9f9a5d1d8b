#!/usr/bin/env python3
"""What following and reporting many ranks costs.

usage: ranks.py [--ranks 64] [--rate 100] [--seconds 20] [--files 1000] [--steps 2000] [--lowtide CMD] [--fleet PROGRAM]

A simulator (tests/fleet) writes rings as the ranks' processes would.
1. While `--ranks` ranks take `--rate` steps a second: processor time of `watch` (one look a second) and of `export` (one look
   in five seconds, scraped every second), as a share of one core, beside the simulator's own. Goal: < 5 % each, no sample lost.
2. `lowtide report` over `--files` finished rings of `--steps` steps, wall time and processor time, as a ratio to reading the
   files' bytes once (cat), which is what any reader needs. Goal: < 5 s.
"""
import argparse
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]
TICK = os.sysconf("SC_CLK_TCK")


def processor_seconds(process):
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def follow(args, folder):
    run = folder / "runs" / "train"
    run.mkdir(parents=True)
    fleet = subprocess.Popen([args.fleet, run, f"ranks={args.ranks}", f"rate={args.rate}", "leak=5", "host=here"], stdout=subprocess.PIPE, text=True)
    fleet.stdout.readline()
    watch = subprocess.Popen([*args.lowtide, "watch", "--interval", "1", run], stdout=subprocess.DEVNULL)
    export = subprocess.Popen([*args.lowtide, "export", "--listen", "127.0.0.1:0", run.parent], stderr=subprocess.PIPE, text=True)
    url = re.search(r"http://\S+", export.stderr.readline()).group(0)
    everyone = {"watch": watch, "export": export, "simulator": fleet}
    time.sleep(5)
    before = {name: processor_seconds(process) for name, process in everyone.items()}
    started = time.monotonic()
    while time.monotonic() < started + args.seconds:
        page = urllib.request.urlopen(url, timeout=30).read().decode()
        time.sleep(1)
    taken = time.monotonic() - started
    shares = {name: (processor_seconds(process) - before[name]) / taken for name, process in everyone.items()}
    fleet.send_signal(signal.SIGTERM)
    steps = int(re.search(r"steps (\d+)", fleet.stdout.read()).group(1))
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        page = urllib.request.urlopen(url, timeout=30).read().decode()
        seen = [float(n) for n in re.findall(r"^lowtide_steps_total\{.*\} (\S+)$", page, re.MULTILINE)]
        if seen == [steps] * args.ranks:
            break
        time.sleep(1)
    lost = sum(float(n) for n in re.findall(r'^lowtide_dropped_samples_total\{.*reason="(?:torn|overwritten)"\} (\S+)$', page, re.MULTILINE))
    for process in (watch, export):
        process.terminate()
        process.wait(60)
    print(f"{args.ranks} ranks at {steps / (taken + 5):.0f} steps a second, {taken:.0f} s:")
    for name, share in shares.items():
        goal = "" if name == "simulator" else f"   goal < 5 %: {'met' if share < 0.05 else 'MISSED'}"
        print(f"  {name:<10} {100 * share:5.1f} % of a core{goal}")
    print(f"  {args.ranks * steps:,} samples, {lost:.0f} lost; every rank's last step seen: {seen == [steps] * args.ranks}")


def timed(command):
    started, before = time.monotonic(), os.times()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    after = os.times()
    return time.monotonic() - started, after.children_user + after.children_system - before.children_user - before.children_system


def report(args, folder):
    run = folder / "many"
    run.mkdir()
    subprocess.run([args.fleet, run, f"ranks={args.files}", f"steps={args.steps}", "leak=17", f"entries={args.entries}"],
                   stdout=subprocess.DEVNULL, check=True)
    files = sorted(map(str, run.glob("*.ring")))
    cat = min(timed(["cat", *files])[0] for _ in range(3))
    for form in ("text", "json", "html"):
        command = [*args.lowtide, "report", "--format", form, "-o", str(folder / "out"), str(run)]
        wall, cpu = min(timed(["sh", "-c", '"$@" || [ $? = 1 ]', "-", *command]) for _ in range(2))
        goal = f"   goal < 5 s: {'met' if wall < 5 else 'MISSED'}" if form == "text" else ""
        print(f"report --format {form}, {args.files} ranks of {args.steps} steps: {wall:.1f} s wall, {cpu:.1f} s processor, "
              f"{wall / cat:.1f} x cat{goal}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    built = sorted(ROOT.glob("build/*/ring_fleet"), key=lambda path: path.stat().st_mtime)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--rate", type=float, default=100)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--entries", type=int, default=2048, help="steps that each of the many rings keeps")
    parser.add_argument("--lowtide", type=lambda text: text.split(), default=[shutil.which("lowtide") or "lowtide"])
    parser.add_argument("--fleet", default=built[-1] if built else None)
    args = parser.parse_args()
    if not args.fleet:
        sys.exit("ring_fleet is not built: configure with -DLOWTIDE_TESTS=ON")
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f} before")
    with tempfile.TemporaryDirectory(prefix="lowtide-ranks-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        follow(args, pathlib.Path(folder))
        shutil.rmtree(pathlib.Path(folder) / "runs")
        report(args, pathlib.Path(folder))


if __name__ == "__main__":
    main()
