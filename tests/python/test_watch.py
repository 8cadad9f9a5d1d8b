"""`lowtide watch`: what it shows of a run that goes on, of one that has ended, and how it leaves the terminal."""
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: `lowtide watch` is tested on training runs")

# Trains until a file called "stop" appears.
PROGRAM = '''
import pathlib, sys, time
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Linear(64, 10)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
kept = []
stop = pathlib.Path(sys.argv[1])
for step in range(200000):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(torch.randn(32, 64)), torch.randint(0, 10, (32,)))
    loss.backward()
    optimizer.step()
    kept.append(torch.ones(2000) * loss.item())
    if step > 200:
        time.sleep(0.005)
    if stop.exists():
        break
'''


@pytest.fixture
def live_run(lowtide_binary, tmp_path):
    """A run that goes on: (its folder, a function that ends it)."""
    script, stop = tmp_path / "train.py", tmp_path / "stop"
    script.write_text(PROGRAM)
    folder = tmp_path / "lowtide-runs" / "train-1"
    process = subprocess.Popen([lowtide_binary, "run", "-q", "--no-holders", "-o", folder, script, stop], cwd=tmp_path,
                               env={**os.environ, "LOWTIDE_PYTHON": sys.executable})

    def end():
        stop.touch()
        assert process.wait(120) == 0

    deadline = time.monotonic() + 120
    while not list(folder.glob("rank*.ring")) and time.monotonic() < deadline:
        time.sleep(0.05)
    yield folder, end
    stop.touch()
    process.wait(120)


class Watcher:
    """`lowtide watch` on a terminal of its own."""

    def __init__(self, binary, *args, rows=24, columns=100, **kwargs):
        self.master, slave = pty.openpty()
        self.resize(rows, columns)
        self.before = termios.tcgetattr(slave)
        self.slave = slave
        self.process = subprocess.Popen([binary, "watch", "--interval", "0.2", *map(str, args)], stdin=slave, stdout=slave,
                                        stderr=slave, start_new_session=True, env={**os.environ, "TERM": "xterm"}, **kwargs)
        self.text = ""

    def resize(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read_until(self, pattern, seconds=60):
        deadline = time.monotonic() + seconds
        while not re.search(pattern, self.text):
            left = deadline - time.monotonic()
            assert left > 0, f"{pattern!r} was never shown in {self.text[-2000:]!r}"
            if select.select([self.master], [], [], min(left, 0.2))[0]:
                try:
                    self.text += os.read(self.master, 1 << 16).decode()
                except OSError:
                    break
        return self.text

    def wait(self, seconds=60):
        """The exit code; reads on meanwhile, so that the watcher never blocks."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < deadline:
            if select.select([self.master], [], [], 0.1)[0]:
                self.text += os.read(self.master, 1 << 16).decode()
        while select.select([self.master], [], [], 0.1)[0]:
            self.text += os.read(self.master, 1 << 16).decode()
        return self.process.poll()

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.slave)
        os.close(self.master)


@pytest.fixture
def watcher(lowtide_binary):
    started = []

    def call(*args, **kwargs):
        started.append(Watcher(lowtide_binary, *args, **kwargs))
        return started[-1]

    yield call
    for one in started:
        one.close()


def plain(text):
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def test_the_live_view_moves_and_ctrl_c_restores_the_terminal(live_run, watcher):
    folder, _ = live_run
    watch = watcher(folder)
    watch.read_until(r"(?s)step \d+.*CPU tensors.*step \d+")
    first = int(re.findall(r"step ([\d,]+)", plain(watch.text))[0].replace(",", ""))
    watch.read_until(r"LEAK")
    deadline = time.monotonic() + 60
    while int(re.findall(r"step ([\d,]+)", plain(watch.text))[-1].replace(",", "")) <= first:
        assert time.monotonic() < deadline, "the steps stand still"
        watch.text += os.read(watch.master, 1 << 16).decode()
    assert watch.text.startswith("\x1b[?1049h\x1b[?25l")
    assert not termios.tcgetattr(watch.slave)[3] & termios.ECHO
    watch.process.send_signal(signal.SIGINT)
    assert watch.wait() == 0
    assert "\x1b[?25h\x1b[?1049l" in watch.text
    assert termios.tcgetattr(watch.slave) == watch.before
    left = plain(watch.text.split("\x1b[?1049l")[-1])
    assert "CPU tensors" in left, "the last state stays to be read"


def test_q_leaves(live_run, watcher):
    watch = watcher(live_run[0])
    watch.read_until("CPU tensors")
    os.write(watch.master, b"q")
    assert watch.wait() == 0
    assert termios.tcgetattr(watch.slave) == watch.before


def test_it_follows_the_size_of_the_window(live_run, watcher):
    watch = watcher(live_run[0], columns=120)
    watch.read_until(r"(?s)CPU tensors.*\x1b\[J")
    for columns, rows in ((60, 12), (30, 5)):
        watch.text = ""
        watch.resize(rows, columns)
        watch.process.send_signal(signal.SIGWINCH)
        watch.read_until(r"(?s)\x1b\[J.*\x1b\[J.*\x1b\[J")
        frame = plain(watch.text.split("\x1b[J")[-2].split("\x1b[H")[-1]).replace("\r", "").split("\n")
        assert len(frame) <= rows
        assert max(map(len, frame)) <= columns


def test_it_ends_with_the_run(live_run, watcher):
    folder, end = live_run
    watch = watcher(folder)
    watch.read_until("CPU tensors")
    end()
    assert watch.wait() == 0
    assert "the run has ended" in watch.text


def test_without_a_terminal_it_prints_lines(live_run, lowtide_binary):
    folder, end = live_run
    watch = subprocess.Popen([lowtide_binary, "watch", "--interval", "0.3", folder], stdout=subprocess.PIPE, text=True)
    time.sleep(1.5)
    end()
    out, _ = watch.communicate(timeout=60)
    assert watch.returncode == 0
    assert "\x1b" not in out
    assert out.count("CPU tensors") >= 2


def test_once(live_run, lowtide, tmp_path):
    folder, end = live_run
    end()
    table = lowtide("watch", "--once", cwd=tmp_path)
    assert table.returncode == 0, table.stderr
    assert re.search(r"CPU tensors +\d", table.stdout), "the newest run of lowtide-runs/ is taken"
    document = json.loads(lowtide("watch", "--once", "--format", "json", folder).stdout)
    assert document["schema"] == 1
    assert {"cpu", "host"} <= {v["pool"] for v in document["verdicts"]}
    assert lowtide("watch", "--once", "--format", "json", folder).stdout == lowtide("report", "--format", "json", folder).stdout


@pytest.mark.parametrize("args, message", [(("--once", "no-such-folder"), "no such folder"), (("--once", "."), "no recorded run here"),
                                           (("--format", "json", "."), "needs --once"), ((), "no recorded run in lowtide-runs/")])
def test_errors_say_what_to_do(lowtide, tmp_path, args, message):
    done = lowtide("watch", *args, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
