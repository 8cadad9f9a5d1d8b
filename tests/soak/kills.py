"""Soak: processes that record steps are killed (SIGKILL) at random times; no completed record may be lost. usage: kills.py [KILLS]

Each process writes a step, then tells its number through a pipe, as fast as it can; some are killed while they open their
file. Afterwards the file must hold every step up to the last one told (as far back as the ring goes), in order.
"""
import os
import pathlib
import random
import select
import signal
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
from ringfile import RingFile  # noqa: E402

from lowtide import _track  # noqa: E402

OPTIMIZER = 4


def record(folder, pipe):
    """In the child: steps until it is killed."""
    failure = _track.open_file()
    if failure:
        os._exit(1)
    _track.set_rank(0, 0, 1)
    step = 0
    while True:
        _track.step(OPTIMIZER)
        step += 1
        if step % 7 == 0:
            _track.mark(4, 0, 0, step, "here")
        os.write(pipe, step.to_bytes(8, "little"))


def once(folder, seconds):
    """(steps told, steps found). Raises AssertionError when a completed record is missing."""
    for old in folder.glob("*.ring"):
        old.unlink()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            record(folder, writer)
        finally:
            os._exit(2)
    os.close(writer)
    last, tail, until = 0, b"", time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if select.select([reader], [], [], left)[0]:
            tail += os.read(reader, 1 << 16)
            if len(tail) >= 8:
                whole = len(tail) // 8 * 8
                last, tail = int.from_bytes(tail[whole - 8:whole], "little"), tail[whole:]
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while part := os.read(reader, 1 << 16):
        tail += part
    os.close(reader)
    if len(tail) >= 8:
        whole = len(tail) // 8 * 8
        last = int.from_bytes(tail[whole - 8:whole], "little")
    files = list(folder.glob("*.ring"))
    assert len(files) <= 1, files
    if not files:
        assert last == 0, f"{last} steps told, and no file"
        return 0, 0
    if last == 0 and files[0].stat().st_size == 0:
        return 0, 0
    try:
        ring = RingFile(files[0])
    except AssertionError:
        assert last == 0, f"{last} steps told, and the file is not whole"
        return 0, 0
    steps = [row["step"] for row in ring.steps()]
    capacity = ring.sections[0][3]
    assert not steps or steps == list(range(steps[0], steps[-1] + 1)), f"a gap below step {last}"
    found = steps[-1] if steps else 0
    assert last <= found <= last + 1, f"{last} steps told, {found} in the file"
    assert len(steps) >= min(found, capacity - 1), f"{len(steps)} of {min(found, capacity)} steps kept"
    return last, found


def main():
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    generator = random.Random(0)
    total = early = 0
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as name:
        folder = pathlib.Path(name)
        failure = _track.start(str(folder), shm_directory="", shm_prefix="soak-", script="kills.py", definer="none.so")
        if failure not in (0, None):
            print(f"the recorder did not start: {os.strerror(failure)}")
            return 1
        for number in range(1, kills + 1):
            last, _ = once(folder, generator.choice((0.002, 0.01, 0.05, 0.2)) * generator.random() * 2)
            total += last
            early += last == 0
            if number % 200 == 0:
                print(f"{number} kills, {total} steps told, {early} killed before the first; nothing lost", flush=True)
    return 0


sys.exit(main())
