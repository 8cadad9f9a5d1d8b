"""How ranks hang, stop and die: told from outside, the one that did it by name."""
import json
import os
import signal
import subprocess
import time

import pytest
from rank_programs import job, made  # noqa: F401


def test_a_rank_that_does_not_come_is_named_with_its_line(job):
    program = made(after='''
    if step == 20:
        if rank == 0:
            dist.barrier()          # the others never call it
        else:
            def elsewhere():
                time.sleep(9)       # here
            elsewhere()
            sys.exit(0)''')
    done, found = job(program, LOWTIDE_HANG_SECONDS="3")
    hang = next(f for f in found if f["code"] == "LT614")
    assert "rank 1 did not come" in hang["message"] and "barrier" in hang["message"]
    assert hang["where"][0]["line"] in job.of("# here")
    assert "LT614" in done.stderr


LONG = made(before="time.sleep(0.005)").replace("range(steps)", "range(100000)")


def ranks_of(job, run):
    """pid by rank once both have made 64 steps."""
    deadline = time.time() + 90
    while time.time() < deadline and run.poll() is None:
        texts = [path.read_text() for path in job.folder.glob("facts-rank*.jsonl")]
        if len(texts) == 2 and all('"parameters","step":64,' in text for text in texts):
            return {row["rank"]: row["pid"] for row in (json.loads(text.splitlines()[0]) for text in texts)}
        time.sleep(0.1)
    pytest.fail("the ranks did not begin to step")


def test_a_killed_rank_is_named(job):
    run = subprocess.Popen(job.line(LONG, 2), env=job.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.kill(ranks_of(job, run)[1], signal.SIGKILL)
    assert run.wait(60) != 0
    died = [f for f in job.found() if f["code"] == "LT616"]
    assert len(died) == 1 and "rank 1" in died[0]["message"] and died[0]["severity"] == "error"


def test_a_killed_rank_is_told_from_those_that_the_launcher_ended(job):
    """Nobody saw the order: lowtide itself was stopped, and the launcher's SIGTERM came before the other rank could say more."""
    run = subprocess.Popen(job.line(LONG, 2), env=job.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    pids = ranks_of(job, run)
    run.send_signal(signal.SIGSTOP)
    try:
        os.kill(pids[0], signal.SIGSTOP)
        os.kill(pids[0], signal.SIGTERM)
        os.kill(pids[1], signal.SIGKILL)
        os.kill(pids[0], signal.SIGCONT)
        time.sleep(1)
    finally:
        run.send_signal(signal.SIGCONT)
    assert run.wait(60) != 0
    died = [f for f in job.found() if f["code"] == "LT616"]
    assert len(died) == 1 and "rank 1" in died[0]["message"], died


def test_a_crash_in_native_code_is_named(job):
    done, found = job(made(before="if rank == 1 and step == 40: import ctypes; ctypes.string_at(0)"))
    died = [f for f in found if f["code"] == "LT616"]
    assert done.returncode != 0 and len(died) == 1
    assert "rank 1" in died[0]["message"] and "SIGSEGV" in died[0]["message"]


def test_a_stopped_rank_is_named_while_it_is_stopped(job):
    run = subprocess.Popen(job.line(LONG, 2), env=job.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    pid = ranks_of(job, run)[0]
    os.kill(pid, signal.SIGSTOP)
    try:
        deadline, text = time.time() + 20, ""
        while "LT615" not in text and time.time() < deadline:
            time.sleep(0.2)
            text = "".join(path.read_text() for path in job.folder.glob("findings-observer-*.jsonl"))
        assert "rank 0" in text and "LT615" in text
    finally:
        os.kill(pid, signal.SIGCONT)
        time.sleep(1)
        run.terminate()
        run.wait(60)
    assert next(f for f in job.found() if f["code"] == "LT615")["severity"] == "note", "it went on"
