"""Many ranks: nothing is lost, every rank is shown, the one that differs is named. (Speed: bench/ranks.py.)"""
import json
import os
import re
import signal
import subprocess
import time

import pytest
import ringfile
from fleet import Fleet, samples, simulate, value
from test_export import Exporter


def test_64_ranks_at_100_steps_a_second_lose_nothing(lowtide_binary, lowtide, tmp_path):
    runs = tmp_path / "lowtide-runs"
    # A ring that keeps 512 steps: five seconds. What is not read in time is lost, and must be counted.
    with Fleet(runs / "train", ranks=64, rate=100, leak=37, entries=512, host="here") as fleet, \
            Exporter(lowtide_binary, "--textfile", tmp_path / "x.prom", "--tensorboard", tmp_path / "board", runs) as exporter:
        watch = subprocess.Popen([lowtide_binary, "watch", "--interval", "0.5", runs / "train"], stdout=subprocess.PIPE, text=True,
                                 env={**os.environ, "NO_COLOR": "1"})
        try:
            time.sleep(8)
            steps = fleet.stop()
            assert steps > 512, "the rings have gone round"
            said, _ = watch.communicate(timeout=120)  # it leaves when the run has ended
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                page = samples((tmp_path / "x.prom").read_text())
                if all(value(page, "lowtide_steps_total", rank=rank) == steps for rank in range(64)):
                    break
                time.sleep(0.2)
            for rank in range(64):
                assert value(page, "lowtide_steps_total", rank=rank) == steps
                assert value(page, "lowtide_dropped_samples_total", rank=rank, reason="torn") == 0
                assert value(page, "lowtide_dropped_samples_total", rank=rank, reason="overwritten") == 0
                assert value(page, "lowtide_pool_verdict", rank=rank, pool="cpu", verdict="leak") == (rank == 37)
            assert exporter.end() == 0
        finally:
            watch.kill()
    last = re.split(r"^lowtide  ", said, flags=re.MULTILINE)[-1]
    shown = set(map(int, re.findall(r"^ *(\d+)  CPU tensors", last, re.MULTILINE)))
    assert shown == set(range(64)), f"not shown: {set(range(64)) - shown}"
    assert re.search(r"^ *37  CPU tensors.*LEAK", last, re.MULTILINE), last[:2000]


def test_a_thousand_ranks_are_all_reported(lowtide, tmp_path):
    run = simulate(tmp_path / "train", ranks=1000, steps=120, leak=613, entries=128)
    done = lowtide("report", "--format", "json", run)
    document = json.loads(done.stdout)
    cpu = {verdict["rank"]: verdict for verdict in document["verdicts"] if verdict["pool"] == "cpu"}
    assert set(cpu) == set(range(1000))
    assert [rank for rank, verdict in cpu.items() if verdict["verdict"] == "leak"] == [613]
    assert all(verdict["steps_seen"] == 120 for verdict in cpu.values())
    assert [f["code"] for f in document["findings"] if f["severity"] == "error"] == ["LT208"]
    text = lowtide("report", run).stdout
    assert "on 1000 ranks" in text and re.search(r"^LEAK CPU tensors, rank 613", text, re.MULTILINE)
    assert len(text.splitlines()) < 100, "what is alike is told once"


def test_threads_and_order_change_nothing(lowtide, tmp_path):
    """Rings are judged by several threads: the document is the same every time, and as with one processor."""
    run = simulate(tmp_path / "train", ranks=40, steps=150, leak=7, entries=256)
    first = lowtide("report", "--format", "json", run).stdout
    assert lowtide("report", "--format", "json", run).stdout == first

    def one_processor():
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

    assert lowtide("report", "--format", "json", run, preexec_fn=one_processor).stdout == first
    ranks = [verdict["rank"] for verdict in json.loads(first)["verdicts"]]
    assert ranks == sorted(ranks)


def test_a_killed_fleet_is_read_whole(lowtide, tmp_path):
    run = tmp_path / "train"
    with Fleet(run, ranks=16, rate=200, entries=1024, host="here") as fleet:
        time.sleep(2)
        fleet.process.send_signal(signal.SIGKILL)
        fleet.process.wait(60)
    page = samples(lowtide("export", "--once", run).stdout)
    for name, ring in ringfile.rings(run).items():
        rank = re.search(r"\d+", name).group()
        assert value(page, "lowtide_steps_total", rank=rank) == ring.steps()[-1]["step"]
        assert value(page, "lowtide_rank_running", rank=rank) == 0


@pytest.mark.parametrize("form", ["text", "json", "html", "sarif"])
def test_every_form_of_report_takes_many_ranks(lowtide, tmp_path, form):
    run = simulate(tmp_path / "train", ranks=200, steps=100, leak=3, entries=128)
    out = tmp_path / "report"
    done = lowtide("report", "--format", form, "-o", out, "--fail-on", "error", run)
    assert done.returncode == 1, done.stderr
    assert "LT208" in out.read_text(encoding="utf-8")
