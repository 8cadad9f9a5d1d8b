"""The cache of `lowtide lint` never changes an answer: not when other files change, not when it is damaged."""
import os
import random

from linting import CLEAN, TRAIN, lint, write  # noqa: F401 (a fixture)

METER = """\
class Meter:
    def __init__(self):
        self.total = 0

    def update(self, value):
        self.total += {value}
"""
USES_METER = """\
import torch
from meter import Meter


def train(model, loader, optimizer, criterion):
    meter = Meter()
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        meter.update(loss)
    return meter
"""


def cache_files(tmp_path):
    return sorted((tmp_path / "cache" / "lowtide").glob("lint-*.cache"))


def test_warm_answers_are_the_cold_ones(lint, tmp_path):
    write(lint.folder, {f"m{i}.py": TRAIN if i % 2 else CLEAN for i in range(30)})
    cold = lint("--no-cache")
    assert not cache_files(tmp_path)
    assert lint() == cold
    assert len(cache_files(tmp_path)) == 1
    assert lint() == lint() == cold
    assert lint("--select", "LT111")[1] == [f for f in cold[1] if f["code"] == "LT111"], "other rules, the same cache"


def test_a_changed_file_is_seen_even_when_its_stamp_was_set_back(lint):
    write(lint.folder, {"a.py": CLEAN})
    path = lint.folder / "a.py"
    stat = path.stat()
    assert lint()[1] == [] == lint()[1]
    text = TRAIN + "#" * 10
    path.write_text(text)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert len(lint()[1]) == 2


def test_a_change_in_another_file_is_seen(lint):
    write(lint.folder, {"train.py": USES_METER, "meter.py": METER.format(value="float(value)")})
    quiet = lint("--select", "LT101,LT102,LT103")[1]
    assert lint("--select", "LT101,LT102,LT103")[1] == quiet
    write(lint.folder, {"meter.py": METER.format(value="value")})
    loud = lint("--select", "LT101,LT102,LT103")[1]
    assert loud == lint("--select", "LT101,LT102,LT103", "--no-cache")[1]
    assert len(loud) > len(quiet)
    (lint.folder / "meter.py").unlink()
    assert lint()[1] == lint("--no-cache")[1]


def test_a_damaged_cache_is_an_empty_one(lint, tmp_path):
    write(lint.folder, {f"m{i}.py": TRAIN for i in range(10)})
    expected = lint()
    (cache,) = cache_files(tmp_path)
    good = cache.read_bytes()
    rng = random.Random(3)
    for _ in range(25):
        bad = bytearray(good)
        for _ in range(rng.randrange(1, 60)):
            bad[rng.randrange(len(bad))] = rng.randrange(256)
        cache.write_bytes(bytes(bad[:rng.randrange(len(bad))] if rng.random() < 0.4 else bad))
        assert lint() == expected
    for content in (b"", b"\0" * 4096, good + good, good[: len(good) // 2]):
        cache.write_bytes(content)
        assert lint() == expected


def test_an_unwritable_cache_folder_is_no_error(lint):
    write(lint.folder, {"a.py": TRAIN})
    assert lint("--cache-dir", "/proc/nowhere")[0] != 2
    assert len(lint("--cache-dir", str(lint.folder / "c"))[1]) == 2
    assert list((lint.folder / "c").glob("*.cache"))


def test_moved_projects_report_their_new_names(lint):
    write(lint.folder, {"old/a.py": TRAIN})
    assert {f["file"] for f in lint()[1]} == {"old/a.py"}
    (lint.folder / "old").rename(lint.folder / "new")
    assert {f["file"] for f in lint()[1]} == {"new/a.py"}
    assert {f["file"] for f in lint("a.py", cwd=lint.folder / "new")[1]} == {"a.py"}
