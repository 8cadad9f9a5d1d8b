"""Rings of many ranks, written by tests/fleet/ring_fleet.cc."""
import os
import pathlib
import re
import signal
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def find():
    """LOWTIDE_RING_FLEET, else the newest one in a build folder; None when there is none."""
    named = os.environ.get("LOWTIDE_RING_FLEET")
    built = sorted(ROOT.glob("build/*/ring_fleet"), key=lambda path: path.stat().st_mtime)
    return named or (str(built[-1]) if built else None)


class Fleet:
    """Ranks that record into ``folder`` until ``stop`` (with ``rate=0`` and ``steps=N``: at once)."""

    def __init__(self, folder, **options):
        program = find()
        if not program:
            pytest.skip("ring_fleet is not built: configure with -DLOWTIDE_TESTS=ON")
        folder.mkdir(parents=True, exist_ok=True)
        self.process = subprocess.Popen([program, folder, *(f"{name}={value}" for name, value in options.items())],
                                        stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "ready\n"

    def stop(self):
        """Ends them; the number of steps that each wrote."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self):
        rest = self.process.stdout.read()
        self.process.wait(60)
        return int(re.search(r"steps (\d+)", rest).group(1))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def simulate(folder, **options):
    """Finished ranks; returns the folder."""
    with Fleet(folder, rate=0, **options) as fleet:
        fleet.wait()
    return folder


def samples(text):
    """A metrics page in text format as {(name, frozenset of label pairs): value}."""
    found = {}
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        match = re.fullmatch(r'(\w+)(?:\{(.*)\})? (\S+)', line)
        assert match, f"not a sample: {line}"
        labels = re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', match.group(2) or "")
        key = match.group(1), frozenset(labels)
        assert key not in found, f"twice: {line}"
        found[key] = float(match.group(3))
    return found


def value(page, name, **labels):
    """The one sample of ``name`` whose labels include ``labels``."""
    wanted = {(key, str(text)) for key, text in labels.items()}
    hits = [v for (n, have), v in page.items() if n == name and wanted <= have]
    assert len(hits) == 1, f"{len(hits)} samples of {name} {labels}"
    return hits[0]
