"""`lowtide run` end to end: the script is left alone, the verdict is right, the report names what happened."""
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from disks import small_disk

pytest.importorskip("torch", reason="PyTorch is not installed: `lowtide run` is tested on training programs")

TRAIN = '''
import sys
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
kept = []
for step in range(1, int(sys.argv[1]) + 1):
    x, y = torch.randn(32, 64), torch.randint(0, 10, (32,))
    optimizer.zero_grad()
    logits = model(x)
    loss = nn.functional.cross_entropy(logits, y)
    loss.backward()
    optimizer.step()
    {line}
'''
LEAK = TRAIN.replace("{line}", "kept.append(torch.ones(2000) * loss.item())")
HEALTHY = TRAIN.replace("{line}", "pass")


def verdicts(document):
    return {v["pool"]: v for v in document["verdicts"]}


def test_a_leak_is_found_with_its_rate(record):
    done, document, _ = record(LEAK, 300)
    assert done.returncode == 0
    leak = verdicts(document)["cpu"]
    assert leak["verdict"] == "leak"
    assert leak["bytes_per_step"] == pytest.approx(8000, rel=0.05)
    low, high = leak["interval"]
    assert low <= 8000 <= high or abs(low - 8000) < 100
    assert any(f["code"].startswith("LT2") and f["severity"] == "error" for f in document["findings"])
    assert "LEAK" in done.stderr and "8.00 KB/step" in done.stderr


def test_a_healthy_run_is_quiet(record):
    done, document, _ = record(HEALTHY, 300)
    assert done.returncode == 0
    assert all(v["verdict"] != "leak" for v in document["verdicts"])
    assert not [f for f in document["findings"] if f["severity"] == "error"]
    assert "LEAK" not in done.stderr


def test_streams_and_arguments_belong_to_the_script(record):
    program = "import sys\nprint(sys.argv[1:])\nprint(sys.stdin.read(), file=sys.stderr)\n"
    done, _, _ = record(program, "--steps", "-o", "x y", "--", options=("-q",), input="hello")
    assert done.stdout == "['--steps', '-o', 'x y', '--']\n"
    assert done.stderr == "hello\n"


@pytest.mark.parametrize("ending, code", [("import sys; sys.exit(7)", 7), ("import os; os._exit(3)", 3), ("raise ValueError('no')", 1),
                                          ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 128 + 9)])
def test_exit_codes_pass_through(record, ending, code):
    done, document, _ = record(HEALTHY + ending + "\n", 20)
    assert done.returncode == code
    assert verdicts(document)["cpu"]["steps_seen"] == 20


def test_a_traceback_is_the_scripts_own(record):
    done, _, _ = record("def inner():\n    raise KeyError('x')\ninner()\n", options=("-q",))
    assert done.returncode == 1
    plain = subprocess.run([sys.executable, "-c", "pass"], capture_output=True)
    assert plain.returncode == 0
    assert "lowtide" not in done.stderr
    assert done.stderr.strip().endswith("KeyError: 'x'")


def test_steps_ends_the_script_cleanly(record):
    program = "import atexit\natexit.register(lambda: print('bye'))\ntry:\n" + "".join(
        f"    {line}\n" for line in HEALTHY.splitlines()) + "finally:\n    print('finally')\n"
    done, document, _ = record(program, 100000, options=("--steps", "50"))
    assert done.returncode == 0
    assert done.stdout.split() == ["finally", "bye"]
    assert verdicts(document)["cpu"]["steps_seen"] == 50


def test_fail_on_serves_as_a_check(record):
    done, _, _ = record(LEAK, 300, options=("--fail-on", "error"))
    assert done.returncode == 1


def test_signals_go_on_to_the_script(lowtide_binary, tmp_path):
    script = tmp_path / "s.py"
    script.write_text("import signal, sys, time\n"
                      "signal.signal(signal.SIGTERM, lambda *a: (print('got it', flush=True), sys.exit(5)))\n"
                      "print('ready', flush=True)\ntime.sleep(60)\n")
    env = {**os.environ, "LOWTIDE_PYTHON": sys.executable}
    run = subprocess.Popen([lowtide_binary, "run", "-q", "-o", tmp_path / "out", script], stdout=subprocess.PIPE, text=True, env=env)
    assert run.stdout.readline() == "ready\n"
    run.send_signal(signal.SIGTERM)
    assert run.stdout.read() == "got it\n"
    assert run.wait(30) == 5


def test_signals_that_the_script_blocks_and_waits_for_reach_it(record):
    # One thread for each library: those of others (OpenBLAS) do not block it, and take it with or without lowtide.
    alone = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    done, _, _ = record(LEAK + "import os, signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})\n"
                        "os.kill(os.getpid(), signal.SIGTERM)\nprint('got', signal.sigwait({signal.SIGTERM}).name)\n", 100, env=alone)
    assert done.returncode == 0 and "got SIGTERM" in done.stdout, done.stderr


def test_messages_that_cannot_be_written_do_not_stop_the_script(lowtide_binary, tmp_path):
    (tmp_path / "program.py").write_text(LEAK + "print('done')\n")
    with open("/dev/full", "w") as full:
        done = subprocess.run([lowtide_binary, "run", "-o", tmp_path / "out", tmp_path / "program.py", "100"], stdout=subprocess.PIPE, stderr=full,
                              env={**os.environ, "LOWTIDE_PYTHON": sys.executable}, timeout=120)
    assert done.returncode == 0 and b"done" in done.stdout
    assert (tmp_path / "out" / "findings.json").exists()


def test_report_repeats_the_run(record, lowtide):
    done, document, folder = record(LEAK, 300)
    again = lowtide("report", folder, "--format", "json")
    assert again.returncode == 1, "findings of severity error are exit code 1"
    assert verdicts(json.loads(again.stdout))["cpu"]["verdict"] == "leak"
    assert "LEAK" in lowtide("report", folder).stdout


def test_a_killed_run_is_still_reported(lowtide_binary, lowtide, tmp_path):
    script = tmp_path / "s.py"
    script.write_text(LEAK)
    env = {**os.environ, "LOWTIDE_PYTHON": sys.executable}
    run = subprocess.Popen([lowtide_binary, "run", "-q", "-o", tmp_path / "out", script, "100000000"], env=env)
    deadline = time.time() + 60
    while time.time() < deadline:
        watched = lowtide("report", tmp_path / "out", "--format", "json")
        if watched.returncode != 2 and any(v["steps_seen"] > 400 for v in json.loads(watched.stdout)["verdicts"]):
            break
        time.sleep(0.2)
    pid = int(subprocess.run(["pgrep", "-P", str(run.pid)], capture_output=True, text=True).stdout.split()[0])
    os.kill(run.pid, signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
    run.wait()
    time.sleep(0.3)
    document = json.loads(lowtide("report", tmp_path / "out", "--format", "json").stdout)
    assert verdicts(document)["cpu"]["verdict"] == "leak"


@pytest.mark.parametrize("args, words", [(("missing.py",), "no such script"), (("--", "no-such-command-xyz"), "cannot run"),
                                         ((), "SCRIPT")])
def test_what_cannot_be_run_is_said_in_one_message(lowtide, tmp_path, args, words):
    done = lowtide("run", *args, cwd=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr


def test_a_script_without_torch_is_left_alone(record):
    done, document, _ = record("print('no torch here')\n")
    assert done.returncode == 0 and done.stdout == "no torch here\n"
    assert [f["code"] for f in document["findings"]] == ["LT901"]


def test_a_folder_that_cannot_be_written_does_not_stop_the_script(lowtide, tmp_path):
    script = tmp_path / "s.py"
    script.write_text("print('ran')\n")
    (tmp_path / "file").write_text("")
    done = lowtide("run", "-o", tmp_path / "file" / "out", script)
    assert done.returncode == 0 and done.stdout == "ran\n"
    assert "cannot write into" in done.stderr


def test_a_full_disk_loses_no_record(lowtide, tmp_path):
    with small_disk(tmp_path / "disk", "64k") as disk:
        filler = disk / "filler"
        filler.write_bytes(bytes(56 << 10))
        (tmp_path / "leak.py").write_text(LEAK + "print('done', step)")
        done = lowtide("run", "-o", str(disk / "run"), str(tmp_path / "leak.py"), "120")
        assert (done.returncode, done.stdout) == (0, "done 120\n"), done.stderr
        assert "No space left on device" in done.stderr and "LEAK" in done.stderr and "Traceback" not in done.stderr
        filler.unlink()
        again = lowtide("report", str(disk / "run"))  # from memory, where the record stayed
        assert "LEAK" in again.stdout, again.stderr
        os.unlink(os.readlink(disk / "run" / "rank0.ring"))


def test_memory_for_rings_that_is_full_does_not_stop_the_script(lowtide_binary, tmp_path):
    """A /dev/shm without room: the ring goes into the run's folder."""
    (tmp_path / "leak.py").write_text(LEAK + "print('done', step)")
    line = 'mount -t tmpfs -o size=16k tmpfs /dev/shm && exec "$@"'
    may = subprocess.run(["unshare", "--mount", "bash", "-c", line, "-", "true"], capture_output=True, text=True)
    if may.returncode != 0:
        pytest.skip(f"no right to give a process a /dev/shm of its own: {may.stderr.strip()}")
    done = subprocess.run(["unshare", "--mount", "bash", "-c", line, "-", lowtide_binary, "run", "-o", str(tmp_path / "out"),
                           str(tmp_path / "leak.py"), "120"], capture_output=True, text=True, timeout=240,
                          env={**os.environ, "LOWTIDE_PYTHON": sys.executable})
    assert (done.returncode, done.stdout) == (0, "done 120\n"), done.stderr
    assert verdicts(json.loads((tmp_path / "out" / "findings.json").read_text()))["cpu"]["verdict"] == "leak", done.stderr


def test_a_record_is_not_overwritten_silently(record, lowtide):
    _, _, folder = record(HEALTHY, 5)
    again = lowtide("run", "-o", folder, folder.parent / "program.py", "5")
    assert again.returncode == 2 and "-f" in again.stderr
    assert lowtide("run", "-f", "-o", folder, folder.parent / "program.py", "5").returncode == 0


def test_modules_and_commands(lowtide, tmp_path):
    (tmp_path / "mod.py").write_text("import sys; print(__name__, sys.argv[1:])")
    done = lowtide("run", "-q", "-o", tmp_path / "a", "-m", "mod", "-x", cwd=tmp_path)
    assert done.stdout == "__main__ ['-x']\n"
    done = lowtide("run", "-q", "-o", tmp_path / "b", "--", "echo", "--steps", cwd=tmp_path)
    assert done.stdout == "--steps\n"


def test_sarif_and_html_of_a_run(record, lowtide):
    _, _, folder = record(LEAK, 300)
    sarif = json.loads(lowtide("report", folder, "--format", "sarif").stdout)
    assert sarif["version"] == "2.1.0" and sarif["runs"][0]["results"]
    html = lowtide("report", folder, "--format", "html").stdout
    assert html.lstrip().lower().startswith("<!doctype html>") and "http" + "s://" not in html.split("<body", 1)[0]


def test_chinese(record):
    program = LEAK
    done, _, _ = record(program, 300, options=("--lang", "zh"))
    assert "泄漏" in done.stderr and "LEAK" not in done.stderr
