"""include/lowtide/torch.h: the example, compiled against the installed PyTorch's own LibTorch."""
import os
import pathlib
import shutil
import subprocess

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++")
    home = pathlib.Path(torch.__file__).parent
    if not (home / "include" / "torch" / "csrc" / "api" / "include").is_dir():
        pytest.skip("this PyTorch came without its C++ headers")
    out = tmp_path_factory.mktemp("libtorch") / "train"
    done = subprocess.run(
        [compiler, "-std=c++20", "-O1", f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}", f"-I{ROOT / 'include'}",
         f"-I{home / 'include'}", f"-I{home / 'include/torch/csrc/api/include'}", str(ROOT / "examples/libtorch/train.cc"), f"-L{home / 'lib'}",
         "-ltorch", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{home / 'lib'}", "-o", str(out)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return out


def run(program, *arguments):
    done = subprocess.run([program, *arguments], capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_example_trains_and_clips(program):
    lines = run(program, "200")
    assert any(line.startswith("step 100, loss ") and "rss" in line and "heap" in line for line in lines)
    clipped = int(lines[-1].split()[1].rstrip(","))
    assert clipped > 5 and "skipped 0" in lines[-1]


def test_example_names_what_is_not_finite(program):
    lines = run(program, "100", "nan")
    assert "step 50: not finite: 0.weight" in lines and "skipped 1" in lines[-1]
