"""`lowtide verdict`: the machine output, exit codes, and the labelled series beside the source tree."""
import csv
import json
import random

import pytest


@pytest.fixture
def verdict(lowtide):
    return lambda *args, text=None: lowtide("verdict", *args, input=text)


@pytest.fixture
def judged(verdict):
    def call(*args, text=None):
        done = verdict(*args, "--format", "json", text=text)
        assert done.stdout, done.stderr
        return done, json.loads(done.stdout)

    return call


def series(slope, rows=400, noise=0, seed=1):
    rng = random.Random(seed)
    lines = ["step,allocated"]
    lines += [f"{i},{(1 << 30) + int(slope * i + rng.gauss(0, 1) * noise) // 512 * 512}" for i in range(rows)]
    return "\n".join(lines) + "\n"


def test_leak_has_rate_interval_and_exit_code(judged):
    done, document = judged("-", "--capacity", "2GB", text=series(40960))
    (row,) = document["verdicts"]
    assert document["schema"] == 1
    assert (row["pool"], row["rank"], row["verdict"], row["phase"]) == ("cuda:0", 0, "leak", "step")
    assert abs(row["bytes_per_step"] - 40960) < 410
    assert row["interval"][0] <= 40960 <= row["interval"][1]
    assert row["steps_to_oom"] > 0 and row["reason"]
    assert [f["code"] for f in document["findings"]] == ["LT201"]
    assert done.returncode == 1


def test_healthy_is_clean(judged):
    done, document = judged("-", text=series(0, noise=1e6))
    assert document["verdicts"][0]["verdict"] == "healthy"
    assert done.returncode == 0 and not document["findings"]


def test_one_rank_is_named(judged):
    lines = ["step,allocated,rank"]
    for i in range(400):
        lines += [f"{i},{10**9 + (i * 65536 if rank == 2 else 0)},{rank}" for rank in range(4)]
    _, document = judged("-", text="\n".join(lines))
    assert [v["verdict"] for v in document["verdicts"]].count("leak") == 1
    assert [f["code"] for f in document["findings"]] == ["LT208"]


def test_outside_the_allocator(judged):
    lines = ["step,allocated,reserved,used"]
    lines += [f"{i},{10**9},{2 * 10**9},{3 * 10**9 // 2**20 * 2**20 + i * 2**20}" for i in range(400)]
    _, document = judged("-", text="\n".join(lines))
    rows = {v["pool"]: v["verdict"] for v in document["verdicts"]}
    assert rows == {"cuda:0": "healthy", "device-other:0": "leak"}
    assert "LT207" in [f["code"] for f in document["findings"]]


def test_skipped_rows_are_told(judged):
    _, document = judged("-", text=series(0) + "bad,row\n401,n/a\n")
    assert "LT910" in [f["code"] for f in document["findings"]]


def test_text_has_plot_reason_and_advice(verdict):
    done = verdict("-", text=series(40960))
    assert "LEAK" in done.stdout and "why" in done.stdout and "lowtide explain LT201" in done.stdout


@pytest.mark.parametrize("text", ["", "hello\n", "step,allocated\nx,y\n", "\x00\x01", "," * 5000])
def test_hopeless_input_is_one_error(text, verdict):
    done = verdict("-", text=text)
    assert done.returncode == 2 and done.stderr.count("lowtide:") == 1


def test_fail_on_levels(verdict):
    assert verdict("-", "--fail-on", "note", text=series(0)).returncode == 0
    assert verdict("-", "--fail-on", "error", text=series(40960)).returncode == 1


def test_labelled_series(judged, shared):
    vectors = shared / "vectors"
    with open(vectors / "labels.tsv", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    wrong = []
    for row in rows:
        if row["must"] == "any" or row["family"] == "h_cache_linear":
            continue
        _, document = judged(vectors / row["file"], "--capacity", row["capacity_bytes"])
        said = {v["verdict"] for v in document["verdicts"]}
        if row["must"] == "leak" and "leak" not in said:
            wrong.append((row["file"], row["family"], "missed"))
        if row["must"] == "not_leak" and "leak" in said:
            wrong.append((row["file"], row["family"], "false alarm"))
        if row["verdict"] in ("capacity", "fragmentation") and row["verdict"] not in said:
            wrong.append((row["file"], row["family"], "not named"))
    assert not wrong
