"""`lowtide export`: what is printed, kept in files, served; bad input; how it ends."""
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import time
import urllib.request

import pytest
from fleet import Fleet, samples, simulate, value


@pytest.fixture
def runs(tmp_path):
    """A folder of runs with one finished run of three ranks, of which rank 1 leaks."""
    folder = tmp_path / "lowtide-runs"
    simulate(folder / "train-1", ranks=3, steps=1000, leak=1, entries=1024)
    return folder


class Exporter:
    """A running `lowtide export`."""

    def __init__(self, binary, *args, **kwargs):
        self.process = subprocess.Popen([binary, "export", "--interval", "0.2", *map(str, args)], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, env={**os.environ, "NO_COLOR": "1"}, **kwargs)
        self.url = None

    def serve(self):
        line = self.process.stderr.readline()
        match = re.search(r"http://\S+/metrics", line)
        assert match, line + self.process.stderr.read()
        self.url = match.group(0)
        return self

    def page(self):
        with urllib.request.urlopen(self.url, timeout=30) as answer:
            return answer.read().decode()

    def page_when(self, condition, seconds=60):
        deadline = time.monotonic() + seconds
        while not condition(page := samples(self.page())):
            assert time.monotonic() < deadline, sorted(map(str, page))
            time.sleep(0.1)
        return page

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.process.wait(60)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


@pytest.fixture
def served(lowtide_binary):
    """Starts `lowtide export --listen` on a free port; skips where lowtide was built without prometheus-cpp."""
    exporters = []

    def call(*args, **kwargs):
        exporter = Exporter(lowtide_binary, "--listen", "127.0.0.1:0", *args, **kwargs)
        exporters.append(exporter)
        time.sleep(0.3)
        if exporter.process.poll() == 2:
            said = exporter.process.stderr.read()
            if "prometheus-cpp" in said:
                assert "prometheus-cpp-dev" in said, "it says what to install"
                pytest.skip("lowtide was built without prometheus-cpp")
            pytest.fail(said)
        return exporter.serve()

    yield call
    for exporter in exporters:
        exporter.__exit__()


# Printed.

def test_once_prints_every_rank_and_pool(lowtide, runs):
    done = lowtide("export", "--once", runs)
    assert done.returncode == 0, done.stderr
    page = samples(done.stdout)
    for rank in range(3):
        assert value(page, "lowtide_steps_total", run="train-1", rank=rank) == 1000
        assert value(page, "lowtide_rank_running", rank=rank) == 0
        assert value(page, "lowtide_rank_info", rank=rank, host="simulated") == 1
        assert value(page, "lowtide_pool_verdict", rank=rank, pool="cpu", verdict="leak") == (rank == 1)
        assert value(page, "lowtide_pool_bytes", rank=rank, pool="cuda:0") == 4 << 30
        assert value(page, "lowtide_pool_reserved_bytes", rank=rank, pool="cuda:0") == (4 << 30) * 9 // 8
        assert value(page, "lowtide_pool_capacity_bytes", rank=rank, pool="cuda:0") == 16 << 30
        assert value(page, "lowtide_step_seconds", rank=rank) == pytest.approx(0.01)
        assert value(page, "lowtide_open_descriptors", rank=rank) == 12
    growth = value(page, "lowtide_pool_growth_bytes_per_step", rank=1, pool="cpu")
    assert value(page, "lowtide_pool_growth_lower_bytes_per_step", rank=1, pool="cpu") <= 65536 <= value(
        page, "lowtide_pool_growth_upper_bytes_per_step", rank=1, pool="cpu")
    assert growth == pytest.approx(65536, rel=0.02)
    steps = value(page, "lowtide_pool_steps_to_oom", rank=1, pool="cpu")
    assert value(page, "lowtide_pool_time_to_oom_seconds", rank=1, pool="cpu") == pytest.approx(steps * 0.01, rel=0.1)
    assert value(page, "lowtide_pool_explained", rank=1, pool="heap") == 1
    assert value(page, "lowtide_pool_explained", rank=1, pool="cpu") == 0
    assert value(page, "lowtide_findings", run="train-1", code="LT208", severity="error") == 1
    assert value(page, "lowtide_pool_floor_bytes", rank=0, pool="cpu") == 50 << 20


def test_the_default_place_is_lowtide_runs(lowtide, runs):
    done = lowtide("export", "--once", cwd=runs.parent)
    assert value(samples(done.stdout), "lowtide_runs") == 1


def test_openmetrics_text_is_read_by_the_reference_parser(lowtide, runs):
    parser = pytest.importorskip("prometheus_client.openmetrics.parser", reason="prometheus_client is not installed")
    done = lowtide("export", "--once", "--format", "openmetrics", runs)
    families = {family.name: family for family in parser.text_string_to_metric_families(done.stdout)}
    assert families["lowtide_steps"].type == "counter" and families["lowtide_run"].type == "info"
    assert families["lowtide_pool_bytes"].unit == "bytes"
    assert {s.labels["rank"] for s in families["lowtide_steps"].samples} == {"0", "1", "2"}


def test_promtool_has_nothing_to_say(lowtide, runs):
    promtool = shutil.which("promtool")
    if not promtool:
        pytest.skip("promtool is not installed (Debian package prometheus)")
    page = lowtide("export", "--once", runs).stdout
    done = subprocess.run([promtool, "check", "metrics"], input=page, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and not done.stdout and not done.stderr, done.stdout + done.stderr


@pytest.mark.parametrize("name", ['say "hi"', "back\\slash", "two\nlines", b"caf\xe9", "ünïcode 训练", "{a=\"b\"} 7"])
def test_names_are_escaped(lowtide, tmp_path, name):
    raw = os.fsencode(name)
    script = tmp_path / "made"
    simulate(script, ranks=1, steps=50, entries=1024, script=os.fsdecode(raw) + ".py")
    folder = os.path.join(os.fsencode(tmp_path), raw)
    os.rename(script, folder)
    done = lowtide("export", "--once", os.fsdecode(folder), text=False)
    text = done.stdout.decode("utf-8")  # valid, whatever the name was
    page = samples(text)
    shown = raw.decode("utf-8", "replace").replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    assert value(page, "lowtide_run_info", run=shown, script=shown + ".py") == 1


def test_two_runs_of_one_name_are_told_apart(lowtide, tmp_path):
    for parent in ("a", "b"):
        simulate(tmp_path / parent / "train", ranks=1, steps=20, entries=1024)
    page = samples(lowtide("export", "--once", tmp_path / "a", tmp_path / "b").stdout)
    assert {dict(labels)["run"] for name, labels in page if name == "lowtide_run_info"} == {
        str(tmp_path / "a" / "train"), str(tmp_path / "b" / "train")}


def test_a_rank_started_again_has_one_series(lowtide, tmp_path):
    simulate(tmp_path / "run", ranks=1, steps=300, entries=1024)
    (tmp_path / "run" / "rank0.ring").rename(tmp_path / "run" / "rank0.old")
    simulate(tmp_path / "run", ranks=1, steps=20, entries=1024)
    (tmp_path / "run" / "rank0.ring").rename(tmp_path / "run" / "rank0.2.ring")
    (tmp_path / "run" / "rank0.old").rename(tmp_path / "run" / "rank0.ring")
    page = samples(lowtide("export", "--once", tmp_path / "run").stdout)  # which refuses a sample that stands twice
    assert value(page, "lowtide_steps_total", rank=0) == 20, "the newer process"


# Files.

def test_textfile_is_replaced_whole_and_taken_away_at_the_end(lowtide_binary, lowtide, runs, tmp_path):
    file = tmp_path / "lowtide.prom"
    done = lowtide("export", "--once", "--textfile", file, runs)
    assert done.returncode == 0 and done.stdout == ""
    assert value(samples(file.read_text()), "lowtide_steps_total", rank=2) == 1000
    assert file.stat().st_mode & 0o444 == 0o444, "node_exporter is another user"
    with Exporter(lowtide_binary, "--textfile", file, runs) as exporter:
        first, inodes = file.stat().st_ino, set()
        deadline = time.monotonic() + 60
        while len(inodes) < 3 and time.monotonic() < deadline:
            assert samples(file.read_text()), "never empty or cut"
            inodes.add(file.stat().st_ino)
        assert inodes - {first}
        assert exporter.end() == 0
    assert not file.exists(), "no one keeps these figures up any more"
    assert not list(tmp_path.glob("*.tmp"))


def test_tensorboard_reads_the_event_files(lowtide, tmp_path):
    run = simulate(tmp_path / "train", ranks=2, steps=300, leak=0, entries=1024)
    board = tmp_path / "board"
    assert lowtide("export", "--once", "--tensorboard", board, run).returncode == 0
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator", reason="tensorboard is not installed")
    for rank in range(2):
        events = accumulator.EventAccumulator(str(board / "train" / f"rank{rank}"), size_guidance={"scalars": 0})
        events.Reload()
        assert set(events.Tags()["scalars"]) == {"memory/cpu", "memory/heap", "memory/host", "memory/shm", "memory/cuda:0",
                                                 "memory/cuda:0 reserved", "step/seconds"}
        cpu = events.Scalars("memory/cpu")
        assert [event.step for event in cpu] == list(range(1, 301))
        assert cpu[-1].value == pytest.approx((50 << 20) + (300 * 65536 if rank == 0 else 0), rel=1e-6)
        assert abs(cpu[0].wall_time - time.time()) < 600
        assert len(events.Scalars("memory/heap")) == 300 // 8


def crc32c(data):
    table = []
    for i in range(256):
        for _ in range(8):
            i = (i >> 1) ^ 0x82F63B78 if i & 1 else i >> 1
        table.append(i)
    state = 0xFFFFFFFF
    for byte in data:
        state = (state >> 8) ^ table[(state ^ byte) & 255]
    return state ^ 0xFFFFFFFF


def records(data):
    """The payloads of a TFRecord file, with both checksums of each looked at."""
    def masked(part):
        crc = crc32c(part)
        return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF

    at, out = 0, []
    while at < len(data):
        length, length_crc = struct.unpack_from("<QI", data, at)
        assert length_crc == masked(data[at:at + 8])
        payload = data[at + 12:at + 12 + length]
        assert struct.unpack_from("<I", data, at + 12 + length)[0] == masked(payload)
        out.append(payload)
        at += 16 + length
    return out


def test_event_files_grow_by_whole_records(lowtide_binary, tmp_path):
    board = tmp_path / "board"
    with Fleet(tmp_path / "train", ranks=1, rate=50, entries=1024) as fleet, \
            Exporter(lowtide_binary, "--tensorboard", board, tmp_path / "train") as exporter:
        sizes, deadline = set(), time.monotonic() + 60
        while len(sizes) < 4 and time.monotonic() < deadline:
            for file in board.rglob("events.out.tfevents.*"):
                sizes.add(len(records(file.read_bytes())))
            time.sleep(0.1)
        assert len(sizes) >= 4
        steps = fleet.stop()
        time.sleep(1)
        assert exporter.end() == 0
        (file,) = board.rglob("events.out.tfevents.*")
        assert sum(b"memory/cpu" in payload for payload in records(file.read_bytes())) == steps


# Served.

def test_what_is_served_is_what_is_printed(lowtide, served, runs):
    exporter = served(runs)
    page = {key: v for key, v in samples(exporter.page()).items() if not key[0].startswith("exposer_")}
    printed = samples(lowtide("export", "--once", runs).stdout)
    moving = {"lowtide_last_record_age_seconds", "lowtide_look_seconds"}
    assert set(page) == set(printed)
    assert {k: v for k, v in page.items() if k[0] not in moving} == pytest.approx({k: v for k, v in printed.items() if k[0] not in moving})
    assert exporter.end() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_it_with_zero(served, runs, number):
    exporter = served(runs)
    exporter.page()
    assert exporter.end(number) == 0
    with pytest.raises(OSError):
        exporter.page()


def test_runs_and_ranks_that_begin_later_are_found(served, tmp_path):
    runs = tmp_path / "lowtide-runs"
    runs.mkdir()
    exporter = served(runs)
    assert value(samples(exporter.page()), "lowtide_runs") == 0
    with Fleet(runs / "one", ranks=1, rate=50, entries=1024, host="here"):
        page = exporter.page_when(lambda page: ("lowtide_rank_running", frozenset({("run", "one"), ("rank", "0")})) in page)
        assert value(page, "lowtide_rank_running", run="one", rank=0) == 1
        with Fleet(runs / "one", ranks=2, first=1, rate=50, entries=1024, host="here"), Fleet(runs / "two", ranks=1, rate=50, entries=1024):
            page = exporter.page_when(lambda page: sum(name == "lowtide_steps_total" for name, _ in page) == 4)
            assert value(page, "lowtide_run_ranks", run="one") == 3
            before = value(page, "lowtide_steps_total", run="one", rank=0)
            exporter.page_when(lambda page: value(page, "lowtide_steps_total", run="one", rank=0) > before)
            assert value(page, "lowtide_last_record_age_seconds", run="one", rank=2) < 30
    # The ranks have been killed.
    exporter.page_when(lambda page: value(page, "lowtide_rank_running", run="one", rank=2) == 0)
    shutil.rmtree(runs / "one")
    exporter.page_when(lambda page: value(page, "lowtide_runs") == 1)
    assert exporter.end() == 0


def test_a_stopped_rank_is_seen_by_its_age(served, tmp_path):
    with Fleet(tmp_path / "run", ranks=1, rate=50, entries=1024, host="here") as fleet:
        exporter = served(tmp_path / "run")
        fleet.process.send_signal(signal.SIGSTOP)
        try:
            page = exporter.page_when(lambda page: value(page, "lowtide_last_record_age_seconds", rank=0) > 3)
            assert value(page, "lowtide_rank_running", rank=0) == 1
        finally:
            fleet.process.send_signal(signal.SIGCONT)
        exporter.page_when(lambda page: value(page, "lowtide_last_record_age_seconds", rank=0) < 2)


def test_many_scrapers_at_once(served, runs):
    import concurrent.futures

    exporter = served(runs)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        pages = list(pool.map(lambda _: exporter.page(), range(40)))
    assert all(value(samples(page), "lowtide_steps_total", rank=0) == 1000 for page in pages)
    # One that asks and never reads holds up no other.
    host, port = re.search(r"//(.*):(\d+)/", exporter.url).groups()
    with socket.create_connection((host, int(port))) as mute:
        mute.sendall(b"GET /metrics HTTP/1.1\r\n")
        assert exporter.page()
    assert exporter.end() == 0


# Bad input.

def test_bad_places_and_options(lowtide, tmp_path):
    for args, words in [(["--once", tmp_path / "nowhere"], ["no such folder", "nowhere"]),
                        (["--once", tmp_path], ["no recorded run", str(tmp_path)]),
                        ([tmp_path], ["nothing to export to", "--listen"]),
                        (["--once", "--listen", "127.0.0.1:0", tmp_path], ["exclude"])]:
        done = lowtide("export", *args)
        assert done.returncode == 2 and done.stdout == "", args
        assert all(word in done.stderr for word in words), done.stderr


@pytest.mark.parametrize("address, words", [("127.0.0.1:notaport", "HOST:PORT"), ("127.0.0.1:70000", "HOST:PORT"), ("", "nothing to export"),
                                            ("203.0.113.1:9464", "address of this machine"), ("no.such.host.invalid:1", "no such host")])
def test_addresses_that_cannot_be(lowtide, runs, address, words):
    done = lowtide("export", "--listen", address, runs)
    assert done.returncode == 2
    if "prometheus-cpp" not in done.stderr:
        assert words in done.stderr, done.stderr


def test_a_port_in_use_is_named(lowtide, served, runs):
    first = served(runs)
    port = re.search(r":(\d+)/", first.url).group(1)
    done = lowtide("export", "--listen", f"127.0.0.1:{port}", runs)
    assert done.returncode == 2 and "in use" in done.stderr and port in done.stderr and "another port" in done.stderr
    assert first.page()


def as_nobody(*command):
    """Runs a command without root's rights."""
    def drop():
        os.setgid(65534)
        os.setuid(65534)

    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=60,
                          preexec_fn=drop if os.getuid() == 0 else None)


def test_no_permission(lowtide_binary, runs, tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir()
    os.chmod(closed, 0o555)
    for parent in (tmp_path, *tmp_path.parents):
        if parent.stat().st_uid == os.getuid() and parent != parent.parent:
            os.chmod(parent, parent.stat().st_mode | 0o055)
    for ring in runs.rglob("*.ring"):
        os.chmod(ring, 0o644)
    for option in ("--textfile", "--tensorboard"):
        done = as_nobody(lowtide_binary, "export", "--once", option, closed / "x", runs)
        if done.returncode == 126 or "cannot execute" in done.stderr:
            pytest.skip("another user may not run this binary")
        assert done.returncode == 2 and str(closed) in done.stderr and "ermission" in done.stderr, done.stderr
    # Rings that may not be read are counted, and the others shown.
    os.chmod(runs / "train-1" / "rank1.ring", 0)
    page = samples(as_nobody(lowtide_binary, "export", "--once", runs).stdout)
    assert value(page, "lowtide_run_unreadable_files", run="train-1") == 1
    assert value(page, "lowtide_run_ranks", run="train-1") == 2


def test_damaged_and_foreign_rings_hide_no_good_one(lowtide, served, runs):
    run = runs / "train-1"
    whole = (run / "rank0.ring").read_bytes()
    (run / "rank7.ring").write_bytes(whole[:100])
    (run / "rank8.ring").write_bytes(b"not a ring" * 1000)
    (run / "rank9.ring").write_bytes(b"")
    (run / "rank10.ring").symlink_to("/nowhere/at-all.ring")
    (run / "rank11.ring").mkdir()
    cut = bytearray(whole[:len(whole) // 2])
    (run / "rank12.ring").write_bytes(cut)  # the same process cut short: nothing new, and no harm
    exporter = served(runs)
    page = samples(exporter.page())
    assert value(page, "lowtide_run_unreadable_files", run="train-1") == 5
    for rank in range(3):
        assert value(page, "lowtide_steps_total", rank=rank) == 1000
    assert exporter.process.poll() is None and exporter.end() == 0


def test_a_ring_that_vanishes_while_served(served, tmp_path):
    with Fleet(tmp_path / "run", ranks=2, rate=50, entries=1024, host="here"):
        exporter = served(tmp_path)
        exporter.page_when(lambda page: value(page, "lowtide_steps_total", rank=0) > 5)
        (tmp_path / "run" / "rank0.ring").unlink()
        before = value(samples(exporter.page()), "lowtide_steps_total", rank=1)
        exporter.page_when(lambda page: value(page, "lowtide_steps_total", rank=1) > before + 20)
        with open(tmp_path / "run" / "rank1.ring", "r+b") as ring:
            ring.truncate(4096)
        time.sleep(1)
        assert exporter.process.poll() is None
        shutil.rmtree(tmp_path / "run")
        exporter.page_when(lambda page: value(page, "lowtide_runs") == 0)
        assert exporter.end() == 0


def test_a_clock_that_jumps(lowtide, tmp_path):
    """A start in the future, as after a clock was set back: no negative ages, no wrong order."""
    run = simulate(tmp_path / "run", ranks=1, steps=50, entries=1024, host="elsewhere")
    ring = run / "rank0.ring"
    header = bytearray(ring.read_bytes())
    struct.pack_into("<q", header, 568, int((time.time() + 1e6) * 1e9))  # start_wall_ns, as tests/python/ringfile.py has it
    ring.write_bytes(header)
    page = samples(lowtide("export", "--once", run).stdout)
    assert value(page, "lowtide_last_record_age_seconds", rank=0) == 0
    assert value(page, "lowtide_rank_start_time_seconds", rank=0) > time.time()

