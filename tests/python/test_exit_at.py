"""`lowtide run --exit-at` and `--resume`: out in order before memory runs out, and on again from the last checkpoint."""
import json
import signal
import subprocess
import time

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

PLAIN = r'''
import atexit, sys, time, torch
atexit.register(lambda: print("tidied", flush=True))
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
print("ready", flush=True)
for step in range(int(sys.argv[1])):
    optimizer.zero_grad()
    model(torch.randn(2, 4)).square().mean().backward()
    optimizer.step()
    time.sleep(0.005)
print("whole", flush=True)
'''

KEEPING = r'''
import os, signal, sys, time, torch
from lowtide.checkpoint import Checkpointer
from lowtide.exit import GracefulExit
folder, last, fault = sys.argv[1], int(sys.argv[2]), sys.argv[3]
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
keeper = Checkpointer(folder, model=model, optimizer=optimizer, every_steps=10, every_seconds=None)
keeper.resume()
leave = GracefulExit(keeper, memory=None)
attempt = int(os.environ.get("LOWTIDE_ATTEMPT", "1"))
print("from", keeper.step_number, flush=True)
if fault == "at once" and attempt > 1:
    sys.exit(9)
while keeper.step_number < last:
    optimizer.zero_grad()
    model(torch.randn(2, 4)).square().mean().backward()
    optimizer.step()
    time.sleep(0.005)
    keeper.step()
    leave.step()
    if fault != "none" and attempt == 1 and keeper.step_number == 35:
        keeper.join()
        os.kill(os.getpid(), signal.SIGKILL)
print("whole", keeper.step_number, flush=True)
'''


def run(tmp_path, source, args, *options, send=None):
    script = tmp_path / "train.py"
    script.write_text(source)
    command = ["lowtide", "run", "-o", str(tmp_path / "run"), *options, str(script), *map(str, args)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    if send:
        assert child.stdout.readline()
        time.sleep(0.5)
        child.send_signal(send)
    try:
        out, err = child.communicate(timeout=240)
    finally:
        child.kill()
    return child.returncode, out, err


def less_than_is_in_use():
    """A share of the machine's memory that is exceeded, however large and however idle it is."""
    with open("/proc/meminfo", encoding="ascii") as file:
        sizes = {line.split(":")[0]: int(line.split()[1]) for line in file}
    return f"{(1 - sizes['MemAvailable'] / sizes['MemTotal']) / 2:.6f}"


def test_a_script_that_knows_nothing_ends_in_order(tmp_path):
    code, out, err = run(tmp_path, PLAIN, [10 ** 6], "--exit-at", less_than_is_in_use())
    assert code == 143, err
    assert "tidied" in out and "whole" not in out and "Traceback" not in err
    assert "% full: the script is asked to end at step" in err


def test_below_the_share_it_runs_to_its_end(tmp_path):
    code, out, err = run(tmp_path, PLAIN, [100], "--exit-at", "0.99")
    assert code == 0 and "whole" in out, err


def test_a_script_that_keeps_checkpoints_goes_on_where_it_was(tmp_path):
    code, out, err = run(tmp_path, KEEPING, [tmp_path / "kept", 10 ** 6, "none"], "--exit-at", less_than_is_in_use(), "--resume", "--restarts", "2")
    assert code == 143, err
    starts = [int(line.split()[1]) for line in out.splitlines() if line.startswith("from")]
    assert len(starts) == 3 and 0 == starts[0] < starts[1] < starts[2]
    assert err.count("starting again") == 2
    for attempt in ("attempt-1", "attempt-2", "."):
        lines = [json.loads(line) for line in (tmp_path / "run" / attempt / "findings-rank0.jsonl").read_text().splitlines()]
        assert [line["code"] for line in lines] == ["LT704"] and "memory" in lines[0]["message"]
        assert (tmp_path / "run" / attempt / "rank0.ring").exists()


def test_a_killed_script_goes_on(tmp_path):
    code, out, err = run(tmp_path, KEEPING, [tmp_path / "kept", 60, "kill"], "--resume")
    assert code == 0 and "starting again (1 of 3)" in err and "exit code 137" in err, err
    assert out.split("\n")[0] == "from 0" and "from 30" in out and "whole 60" in out


def test_without_progress_it_is_not_started_for_ever(tmp_path):
    code, out, err = run(tmp_path, KEEPING, [tmp_path / "kept", 60, "at once"], "--resume", "--restarts", "9")
    assert code == 9 and out.count("from") == 2 and "no step was made" in err, err


def test_who_asks_the_run_to_end_is_obeyed(tmp_path):
    code, out, err = run(tmp_path, KEEPING, [tmp_path / "kept", 10 ** 6, "none"], "--resume", send=signal.SIGTERM)
    assert code == 143 and "starting again" not in err, err


@pytest.mark.parametrize("options", [["--exit-at", "2"], ["--exit-at", "0"], ["--restarts", "3"]])
def test_wrong_options_are_refused(tmp_path, options):
    code, out, err = run(tmp_path, PLAIN, [10], *options)
    assert code == 2 and options[0] in err and not out


def test_a_request_without_anyone_who_looks_is_no_request():
    from lowtide import exit as leaving

    leave = leaving.GracefulExit(signals=(), memory=None)
    assert not leaving.ask("memory")          # made, but its step() is never called
    leave.step()
    assert leaving.ask("leak") and leave.reason == 2
    leave.close()
    assert not leaving.ask("memory")
