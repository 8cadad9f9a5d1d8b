"""Runs scripts as `lowtide run` would, but without it: the environment alone makes a process record."""
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys

import pytest
from ringfile import rings

ROOT = pathlib.Path(__file__).resolve().parents[2]


def package():
    """The package under test: the installed one, else the tree's."""
    spec = importlib.util.find_spec("lowtide")
    place = pathlib.Path(spec.origin).parent if spec and spec.origin else ROOT / "python" / "lowtide"
    if not list(place.glob("_track*.so")):
        pytest.skip("lowtide's extension modules are not built here")
    return place


class Recording:
    def __init__(self, folder):
        self.folder = folder
        self.run = folder / "run"
        self.shm = folder / "shm"
        self.run.mkdir()
        self.shm.mkdir()
        self.count = 0

    def environment(self, **more):
        inject = str(package() / "_inject")
        path = os.environ.get("PYTHONPATH")
        return {**os.environ, "PYTHONPATH": inject + (os.pathsep + path if path else ""),
                "LOWTIDE_RUN_DIR": str(self.run), "LOWTIDE_SHM_DIR": str(self.shm), "LOWTIDE_GRADIENTS": "0",
                "OMP_NUM_THREADS": "1", **more}

    def script(self, text):
        self.count += 1
        path = self.folder / f"script{self.count}.py"
        path.write_text(text)
        return path

    def __call__(self, text, *args, command=None, env=None, **kwargs):
        options = {"capture_output": True, "text": True, "timeout": 240, **kwargs}
        line = [*(command or [sys.executable]), str(self.script(text)), *map(str, args)]
        return subprocess.run(line, env=self.environment(**(env or {})), **options)

    def rings(self):
        return rings(self.run)

    def ring(self, name="rank0.ring"):
        found = self.rings()
        assert name in found, f"{sorted(found)} {self.trouble()}"
        return found[name]

    def trouble(self):
        return [path.read_text() for path in self.run.glob("trouble-*.txt")]


@pytest.fixture
def recording(tmp_path):
    yield Recording(tmp_path)
    shutil.rmtree(tmp_path / "shm", ignore_errors=True)
