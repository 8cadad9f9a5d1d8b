"""Shared by the tests of `lowtide lint`: a training loop with two mistakes, and the verb called in an empty folder."""
import json

import pytest

# Two mistakes of rules that are on by default: a loss summed with its graph, and empty_cache() in every step.
TRAIN = """\
import torch
from torch import nn


def train(model, loader, optimizer):
    total = 0
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss
        torch.cuda.empty_cache()
    return total
"""
CLEAN = "import torch\n\nx = torch.zeros(3)\n"


@pytest.fixture
def lint(lowtide, tmp_path, monkeypatch):
    """Calls `lowtide lint ARGS` in an empty folder; `json=True` gives (exit code, findings, stderr)."""
    folder = tmp_path / "project"
    folder.mkdir(exist_ok=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def call(*args, json_output=True, **kwargs):
        extra = ["--output-format", "json"] if json_output else []
        done = lowtide("lint", *args, *extra, cwd=kwargs.pop("cwd", folder), **kwargs)
        if not json_output:
            return done
        return done.returncode, json.loads(done.stdout), done.stderr

    call.folder = folder
    return call


def write(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())


def codes(findings):
    return sorted({f["code"] for f in findings})
