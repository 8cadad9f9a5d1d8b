"""A signal that ends the process leaves its name in the record, and changes nothing else about the end."""
import os
import pty
import signal
import sys

import pytest
from ringfile import RingFile

CLEAN, SIGNAL = 1, 4

TRAIN = """
import os, signal, sys, threading
import torch
if sys.argv[1:] == ["handler"]:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
if sys.argv[1:] == ["ignored"]:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
w = torch.nn.Parameter(torch.ones(4))
opt = torch.optim.SGD([w], 0.1)
for step in range(20):
    w.sum().backward()
    opt.step()
"""


@pytest.fixture(autouse=True)
def hang_ups_count():
    """Under nohup they are ignored, by the children as well."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def ended(done, folder):
    """(the ring's exit state, its exit code); the report's first line must name the same signal."""
    ring = RingFile(folder / "rank0.ring")
    if ring.exit_state == SIGNAL:
        assert f"exit code {128 - ring.exit_code} ({signal.Signals(-ring.exit_code).name})" in done.stderr
    return ring.exit_state, ring.exit_code


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGSEGV", "SIGABRT", "SIGUSR1"])
def test_the_signal_is_named_and_ends_the_process_as_ever(record, name):
    done, _, folder = record(TRAIN + f"os.kill(os.getpid(), signal.{name})\n")
    assert done.returncode == 128 + getattr(signal, name)
    assert ended(done, folder) == (SIGNAL, -getattr(signal, name))


@pytest.mark.parametrize("crash,name", [("import ctypes; ctypes.string_at(0)", "SIGSEGV"), ("os.abort()", "SIGABRT")])
def test_a_fault_keeps_its_status(record, crash, name):
    done, _, folder = record(TRAIN + crash + "\n")
    assert done.returncode == 128 + getattr(signal, name) and ended(done, folder) == (SIGNAL, -getattr(signal, name))


def test_another_thread_may_be_the_one_that_is_hit(record):
    done, _, folder = record(TRAIN + "signal.pthread_sigmask(signal.SIG_BLOCK, [])\n"
                            "threading.Thread(target=lambda: signal.pthread_kill(threading.get_ident(), signal.SIGTERM)).start()\nsignal.pause()\n")
    assert done.returncode == 128 + 15 and ended(done, folder) == (SIGNAL, -signal.SIGTERM)


@pytest.mark.parametrize("how,code", [("handler", 7), ("ignored", 0)])
def test_the_scripts_own_handler_has_precedence(record, how, code):
    done, _, folder = record(TRAIN + "os.kill(os.getpid(), signal.SIGTERM)\n", how)
    assert done.returncode == code and ended(done, folder)[0] != SIGNAL


def test_the_script_sees_the_default_action(record):
    done, _, folder = record(TRAIN + "print(signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGSEGV))\n")
    assert done.stdout.count("SIG_DFL") == 2 or done.stdout.split() == ["0", "0"]


@pytest.mark.parametrize("signal_name,limit", [("SIGXCPU", True), ("SIGHUP", False)])
def test_a_signal_of_the_kernels_own_ends_the_process(lowtide_binary, tmp_path, signal_name, limit):
    """A limit, a terminal that is closed: they are sent only once."""
    script = tmp_path / "program.py"
    script.write_text(TRAIN + ("import resource\nused = sum(os.times()[:2])\nresource.setrlimit(resource.RLIMIT_CPU, (int(used) + 2, int(used) + 60))\n"
                               "while True: pass\n" if limit else "print('up', flush=True)\nwhile True: signal.pause()\n"))
    child, terminal = pty.fork()
    if child == 0:
        signal.alarm(60)  # lowtide itself would end
        os.environ["LOWTIDE_PYTHON"] = sys.executable
        os.execv(lowtide_binary, [lowtide_binary, "run", "-q", "-o", str(tmp_path / "out"), str(script)])
    if not limit:
        while b"up" not in os.read(terminal, 1024):
            pass
        os.close(terminal)
    _, status = os.waitpid(child, 0)
    ring = RingFile(tmp_path / "out" / "rank0.ring")
    assert (ring.exit_state, ring.exit_code) == (SIGNAL, -getattr(signal, signal_name))
    assert os.waitstatus_to_exitcode(status) in (128 + getattr(signal, signal_name), -getattr(signal, signal_name))


def test_a_childs_signal_is_not_its_parents(record):
    done, _, folder = record(TRAIN + "child = os.fork()\nif child == 0:\n    signal.raise_signal(signal.SIGTERM)\n"
                            "print(os.WTERMSIG(os.waitpid(child, 0)[1]))\n")
    assert done.stdout.split() == ["15"] and ended(done, folder) == (CLEAN, 0)


def test_a_crash_report_of_pythons_own_goes_on(record):
    done, _, folder = record("import faulthandler; faulthandler.enable()\n" + TRAIN + "import ctypes; ctypes.string_at(0)\n")
    assert "Fatal Python error: Segmentation fault" in done.stderr and ended(done, folder) == (SIGNAL, -signal.SIGSEGV)
