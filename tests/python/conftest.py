"""Shared by the end-to-end tests: where the binary is, how to run it, where the shared material lies."""
import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"


def find_binary():
    """LOWTIDE_BINARY (a developer's build), else the binary beside this interpreter, else the one in PATH."""
    beside = pathlib.Path(sys.executable).parent / "lowtide"
    return os.environ.get("LOWTIDE_BINARY") or (str(beside) if beside.exists() else shutil.which("lowtide"))


@pytest.fixture(scope="session")
def lowtide_binary():
    path = find_binary()
    assert path, "no lowtide binary: run `make test`, or set LOWTIDE_BINARY to a developer's build"
    return path


@pytest.fixture
def lowtide(lowtide_binary):
    """Calls `lowtide ARGS...` and returns the completed process (text, captured)."""

    def call(*args, **kwargs):
        options = {"capture_output": True, "text": True, "timeout": 300, **kwargs}
        options["env"] = {**os.environ, "NO_COLOR": "1", "LOWTIDE_PYTHON": sys.executable, **(kwargs.get("env") or {})}
        return subprocess.run([lowtide_binary, *map(str, args)], **options)

    return call


@pytest.fixture
def record(lowtide, tmp_path):
    """Runs a program given as text under `lowtide run`; returns (process, findings.json as a dict, folder)."""

    def call(program, *args, options=(), **kwargs):
        script = tmp_path / "program.py"
        script.write_text(program)
        folder = tmp_path / "out"
        done = lowtide("run", "-o", folder, *options, script, *args, **kwargs)
        path = folder / "findings.json"
        return done, json.loads(path.read_text()) if path.exists() else None, folder

    return call


@pytest.fixture(scope="session")
def shared():
    """The folder of shared test material; skips, saying so, where it is absent."""
    if not SHARED.is_dir():
        pytest.skip(f"{SHARED.name}/ is not beside the checkout: tests on shared material are left out")
    return SHARED


def verdict_of(document, pool):
    """The verdict row of `pool`, rank 0; None when the pool was not judged."""
    return next((v for v in document["verdicts"] if v["pool"] == pool and v["rank"] == 0), None)
