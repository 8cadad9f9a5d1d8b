"""The LibTorch example, compiled once per test session against the installed PyTorch's own LibTorch."""
import functools
import pathlib
import shutil
import subprocess
import tempfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
_place = tempfile.TemporaryDirectory(prefix="lowtide-libtorch-")  # goes with the process


@functools.cache
def build():
    """(the program's path, None), or (None, why there is none)."""
    import torch

    compiler = shutil.which("g++")
    if compiler is None:
        return None, "no g++"
    home = pathlib.Path(torch.__file__).parent
    if not (home / "include" / "torch" / "csrc" / "api" / "include").is_dir():
        return None, "this PyTorch came without its C++ headers"
    out = pathlib.Path(_place.name) / "train"
    done = subprocess.run(
        [compiler, "-std=c++20", "-O1", "-Wall", "-Wextra", f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
         f"-I{ROOT / 'include'}", "-isystem", f"{home / 'include'}", "-isystem", f"{home / 'include/torch/csrc/api/include'}",
         str(ROOT / "examples/libtorch/train.cc"), f"-L{home / 'lib'}", "-ltorch", "-ltorch_cpu", "-lc10",
         f"-Wl,-rpath,{home / 'lib'}", "-o", str(out)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    ours = [line for line in done.stderr.splitlines() if "warning" in line]
    assert not ours, ours
    return out, None


@pytest.fixture(scope="module")
def program():
    path, missing = build()
    if path is None:
        pytest.skip(missing)
    return path
