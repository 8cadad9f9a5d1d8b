"""include/lowtide/torch.h: the example, compiled against the installed PyTorch's own LibTorch."""
import json
import os
import pathlib
import signal
import subprocess
import time

import pytest
from libtorch_program import program  # noqa: F401

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
# ruff: noqa: F811


ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def run(program, *arguments):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, env=ENVIRONMENT, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_example_trains_and_clips(program):
    lines = run(program, "200")
    assert any(line.startswith("step 100, loss ") and "rss" in line and "heap" in line for line in lines)
    clipped = int(lines[-1].split()[1].rstrip(","))
    assert clipped > 5 and "skipped 0" in lines[-1]


def test_example_names_what_is_not_finite(program):
    lines = run(program, "100", "--nan")
    assert "step 50: not finite: 0.weight" in lines and "skipped 1" in lines[-1]


def heap_of(document):
    return next(v for v in document["verdicts"] if v["pool"] == "heap")


def test_watched_while_it_lives_and_reported_after_a_kill(program, lowtide, tmp_path):
    folder = tmp_path / "run"
    process = subprocess.Popen([program, "1000000", "--leak", "--slow", "--record", str(folder)], stdout=subprocess.DEVNULL, env=ENVIRONMENT)
    try:
        deadline, seen = time.monotonic() + 60, {}
        while time.monotonic() < deadline:
            time.sleep(1)
            done = lowtide("watch", folder, "--once", "--format", "json")
            seen = json.loads(done.stdout) if done.stdout else {}
            if any(v["pool"] == "heap" and v["verdict"] == "leak" for v in seen.get("verdicts", ())):
                break
        assert process.poll() is None
        live = heap_of(seen)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    # 20 kB of numbers a step, and what autograd keeps for them
    assert live["verdict"] == "leak" and 20_000 < live["bytes_per_step"] < 200_000
    done = lowtide("report", folder, "--format", "json")
    report = json.loads(done.stdout)
    dead = heap_of(report)
    assert dead["verdict"] == "leak" and dead["steps_seen"] >= live["steps_seen"]
    assert "LT201" in [f["code"] for f in report["findings"]]
    assert "LT904" not in [f["code"] for f in report["findings"]]


def test_a_healthy_program_is_called_healthy_under_run(program, lowtide, tmp_path):
    done = lowtide("run", "-q", "-o", tmp_path / "run", "--", program, "1500", env={"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "run" / "findings.json").read_text())
    assert {v["pool"] for v in report["verdicts"]} >= {"heap", "host", "fds"}
    assert not [v for v in report["verdicts"] if v["verdict"] == "leak"], report["verdicts"]


def test_the_independent_reader_reads_its_ring(program, tmp_path):
    from ringfile import RingFile

    run(program, "300", "--record", tmp_path / "run")
    (path,) = (tmp_path / "run").glob("rank0.ring")
    ring = RingFile(path)
    steps = ring.steps()
    assert [s["step"] for s in steps] == list(range(1, 301))
    assert all(s["source"] == 5 for s in steps)
    assert sum(s["heap_bytes"] > 0 for s in steps) > 50
    os.unlink(os.path.realpath(path))


def test_steps_asked_for_end_it(program, lowtide, tmp_path):
    done = lowtide("run", "-q", "--steps", "120", "-o", tmp_path / "run", "--", program, "100000", env={"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0 and "step 100," in done.stdout and "step 200," not in done.stdout


def newest(folder):
    return sorted(pathlib.Path(folder).glob("step-*.safetensors"))[-1]


def test_checkpoints_are_whole_and_resume_bit_for_bit(program, lowtide, tmp_path):
    from lowtide.checkpoint_file import Reader, read_file

    run(program, 400, "--checkpoints", tmp_path / "straight")
    run(program, 250, "--checkpoints", tmp_path / "halves")
    assert "resumed at step 200" in run(program, 400, "--checkpoints", tmp_path / "halves")
    done = lowtide("checkpoint", "verify", tmp_path / "halves", "--format", "json")
    assert done.returncode == 0, done.stdout
    assert len(list((tmp_path / "halves").glob("*.safetensors"))) == 3 and not list((tmp_path / "halves").glob(".tmp-*"))
    with Reader(newest(tmp_path / "straight")) as one, Reader(newest(tmp_path / "halves")) as two:
        assert one.step == two.step == 400 and [t[0] for t in one.tensors] == [t[0] for t in two.tensors]
        assert {"model.0.weight", "optimizer.0.exp_avg", "optimizer.3.step", "optimizer.lr", "rng.torch"} <= set(one.by_name)
        for name in one.by_name:
            assert torch.equal(one.tensor(name), two.tensor(name)), name
    state = read_file(newest(tmp_path / "halves"))
    assert state["run"]["step"] == 400
    model = torch.nn.Sequential(torch.nn.Linear(12, 40), torch.nn.Tanh(), torch.nn.Linear(40, 1))
    model.load_state_dict(state["model"][""])
    x = torch.randn(64, 12)
    assert torch.nn.functional.mse_loss(model(x), x.sum(1, True)) < 0.1


def test_damaged_checkpoints_are_passed_over(program, tmp_path):
    run(program, 300, "--checkpoints", tmp_path / "c")
    for path, at in zip(sorted((tmp_path / "c").glob("*.safetensors"), reverse=True), (-2000, 100)):  # data, then header
        data = bytearray(path.read_bytes())
        data[at] ^= 1
        path.write_bytes(data)
    lines = run(program, 301, "--checkpoints", tmp_path / "c")
    assert "resumed at step 100" in lines and sum("passed over" in line and "checksum" in line for line in lines) == 2


def test_every_truncation_and_random_damage_is_refused(program, tmp_path):
    """Whatever is done to the newest file, the one before it is loaded; never a crash, never a wrong load."""
    import random

    run(program, 200, "--checkpoints", tmp_path / "c")
    path = newest(tmp_path / "c")
    data, dice = path.read_bytes(), random.Random(0)
    for number in range(25):
        damaged = bytearray(data)
        if number % 2:
            damaged[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        else:
            damaged = damaged[:dice.randrange(len(data))]
        path.write_bytes(damaged)
        assert "resumed at step 100" in run(program, 101, "--checkpoints", tmp_path / "c"), number


def test_one_writer_per_folder(program, tmp_path):
    first = subprocess.Popen([program, "100000", "--slow", "--checkpoints", tmp_path / "c"], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
    try:
        first.stdout.readline()
        second = subprocess.run([program, "100", "--checkpoints", tmp_path / "c"], capture_output=True, text=True, env=ENVIRONMENT, timeout=60)
        assert second.returncode != 0 and f"process {first.pid} on" in second.stderr
    finally:
        first.kill()
        first.wait()
    assert "resumed at step" in "".join(run(program, 100, "--checkpoints", tmp_path / "c"))
