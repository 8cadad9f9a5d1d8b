"""Devices without one: a library that reports blocks to PyTorch's libc10 as the CUDA allocator does, and a driver's library
that answers as NVML does. What `lowtide run` makes of both."""
import json
import os
import pathlib
import shutil
import subprocess

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

STANDIN = pathlib.Path(__file__).resolve().parents[1] / "standin"
TRAIN = '''
import ctypes, sys, time, types
import torch
device = ctypes.CDLL(sys.argv[1])
device.device_malloc.argtypes = device.device_free.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int]
torch.cuda.get_device_properties = lambda index: types.SimpleNamespace(total_memory=1 << 30, name=f"Test GPU {index}")
torch.cuda.get_per_process_memory_fraction = lambda index: 0.5
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
leaks, seconds, used = sys.argv[2] == "leak", float(sys.argv[3]), sys.argv[4]
for step in range(1, 301):
    device.device_malloc(0x10000000, 8 << 20, 0)          # a step's activations
    if leaks:
        device.device_malloc(0x20000000 + step * 4096, 1 << 20, 0)
    if used != "-":
        open(used, "w").write(str((3 << 30) + (8 << 20)))
    optimizer.zero_grad()
    model(torch.randn(2, 4)).square().mean().backward()
    optimizer.step()
    device.device_free(0x10000000, 8 << 20, 0)
    time.sleep(seconds / 300)
'''


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler: the stand-in for the device's allocator cannot be built")
    folder = tmp_path_factory.mktemp("standin")
    torch_lib = pathlib.Path(torch.__file__).parent / "lib"
    for source, target, extra in (("standin_device.cc", "libdevice.so", ["-L", torch_lib, "-lc10", f"-Wl,-rpath,{torch_lib}"]),
                                  ("standin_nvml.cc", "libnvidia-ml.so.1", [])):
        subprocess.run([compiler, "-std=c++17", "-shared", "-fPIC", "-O1", "-o", folder / target, STANDIN / source, *extra], check=True)
    return folder


def run(libraries, tmp_path, kind, seconds=3, used="-", env=None):
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    done = subprocess.run(["lowtide", "run", "-o", tmp_path / "run", script, libraries / "libdevice.so", kind, str(seconds), used],
                          capture_output=True, text=True, timeout=240, env={**os.environ, **(env or {})})
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "run" / "findings.json").read_text())
    return {row["pool"]: row for row in document["verdicts"]}, document, done.stderr


def test_a_leak_on_a_device_and_when_it_is_full(libraries, tmp_path):
    verdicts, document, text = run(libraries, tmp_path, "leak")
    row = verdicts["cuda:0"]
    assert row["verdict"] == "leak" and row["watch"]
    assert abs(row["bytes_per_step"] - (1 << 20)) < 0.02 * (1 << 20)
    # Half of the device's 1 GiB is this process's share: 512 MiB less what 300 steps and the peak take.
    assert abs(row["steps_to_oom"] - (512 - 300 - 8)) <= 12, row
    assert "LT201" in {f["code"] for f in document["findings"]}


def test_a_healthy_device(libraries, tmp_path):
    verdicts, document, text = run(libraries, tmp_path, "healthy")
    assert verdicts["cuda:0"]["verdict"] == "healthy"
    assert "device-other:0" not in verdicts  # no driver was there to ask


def test_what_the_driver_counts_besides(libraries, tmp_path):
    used = tmp_path / "used"
    verdicts, document, text = run(libraries, tmp_path, "healthy", seconds=8, used=str(used),
                                   env={"LD_LIBRARY_PATH": str(libraries), "STANDIN_GPU_USED": str(used)})
    assert verdicts["device-other:0"]["verdict"] in ("insufficient", "healthy")
    lines = [line.split(",") for line in next((tmp_path / "run").glob("driver-*.csv")).read_text().splitlines()]
    assert len(lines) >= 2
    figures = [(line[2], line[3], line[4]) for line in lines[1:]]
    at_first, then = ("0", str(1 << 30), str(80 << 30)), ("0", str((3 << 30) + (8 << 20)), str(80 << 30))
    assert figures[-1] == then and set(figures) <= {at_first, then}  # the driver may be asked before the program begins
    assert "device-other:0" in text, text


SILENT = '''
import sys, time, types
import torch
held = {"bytes": 8 << 20, "peak": 64 << 20}
torch.version.cuda = "13.0"
torch.cuda.is_initialized = lambda: True
torch.cuda.device_count = lambda: 1
torch.cuda.memory_stats_as_nested_dict = lambda index: {
    "allocated_bytes": {"all": {"current": held["bytes"], "peak": held["peak"]}},
    "reserved_bytes": {"all": {"current": 1 << 29}}, "allocation": {"all": {"current": 40}}}
torch.cuda.get_device_properties = lambda index: types.SimpleNamespace(total_memory=1 << 30, name="Test GPU")
torch.cuda.get_per_process_memory_fraction = lambda index: 1.0
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(300):
    held["bytes"] += int(sys.argv[1])
    optimizer.zero_grad()
    model(torch.randn(2, 4)).square().mean().backward()
    optimizer.step()
    time.sleep(0.005)
    if sys.argv[2:] and step == 150:
        torch.cuda.memory_stats_as_nested_dict = None
'''


@pytest.mark.parametrize("grows, verdict", [(1 << 20, "leak"), (0, "healthy")])
def test_an_allocator_that_reports_no_blocks_is_asked_for_its_totals(tmp_path, lowtide, grows, verdict):
    (tmp_path / "train.py").write_text(SILENT)
    done = lowtide("run", "-o", str(tmp_path / "run"), str(tmp_path / "train.py"), str(grows))
    assert done.returncode == 0, done.stderr
    row = {r["pool"]: r for r in json.loads((tmp_path / "run" / "findings.json").read_text())["verdicts"]}["cuda:0"]
    assert row["verdict"] == verdict, row
    if grows:
        assert abs(row["bytes_per_step"] - grows) < 0.05 * grows
        assert abs(row["steps_to_oom"] - (1024 - 308)) < 20, row


def test_an_allocator_that_stops_answering_does_not_disturb_the_script(tmp_path, lowtide):
    (tmp_path / "train.py").write_text(SILENT)
    done = lowtide("run", "-o", str(tmp_path / "run"), str(tmp_path / "train.py"), str(1 << 20), "stops")
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    assert "cuda:0" in {r["pool"] for r in json.loads((tmp_path / "run" / "findings.json").read_text())["verdicts"]}
