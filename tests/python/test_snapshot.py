"""`lowtide snapshot` end to end: figures against the slow reference, every container and protocol, outputs, bad input."""
import base64
import copy
import gzip
import importlib.util
import json
import pickle
import pickletools
import random
import resource
import subprocess
import zipfile

import pytest

import chromium
import snapshot_files
from conftest import SHARED

MIB = 1 << 20


def report(lowtide, *args):
    done = lowtide("snapshot", *args, "--format", "json")
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def truth():
    path = SHARED / "tools" / "snapshot_truth.py"
    if not path.exists():
        pytest.skip(f"no reference at {path}")
    spec = importlib.util.spec_from_file_location("snapshot_truth", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.figures


def compare(want, got):
    assert got["stacks"] == want["stacks"]
    assert len(got["devices"]) == len(want["devices"])
    for mine, theirs in zip(got["devices"], want["devices"]):
        for key in ("device", "reserved", "allocated", "active", "requested", "segments", "blocks", "events"):
            assert mine[key] == theirs[key], key
        assert mine["peak"]["bytes"] == theirs["peak"]
        if theirs["events"]:
            assert mine["peak"]["event"] == theirs["peak_event"]
        assert [(o["request"], o["device_free"]) for o in mine["oom"]] == [(o["request"], o["device_free"]) for o in theirs["ooms"]]
        assert sum(row["bytes"] for row in mine["peak"]["by_line"]) == mine["peak"]["bytes"]
        assert sum(row["bytes"] for row in mine["peak"]["by_category"]) == mine["peak"]["bytes"]
        assert sum(row["bytes"] for row in got["peak_by_stack"] if row["device"] == mine["device"]) == mine["peak"]["bytes"]


def test_recorded_files_agree_with_the_reference(lowtide, truth):
    files = sorted((SHARED / "snapshots").glob("*.pickle"))
    if not files:
        pytest.skip("no recorded snapshots")
    for file in files:
        compare(truth(file), report(lowtide, file))


def variants(rng):
    """Snapshots whose shape strays from what PyTorch 2.10 writes."""
    base = snapshot_files.training(steps=6, leak=3000, seed=rng.randrange(1000))
    yield "plain", base
    ring = copy.deepcopy(base)
    ring["device_traces"][0] = ring["device_traces"][0][len(ring["device_traces"][0]) // 3:]
    yield "ring", ring
    for key in ("time_us", "compile_context", "user_metadata", "frames", "stream"):
        without = copy.deepcopy(base)
        for event in without["device_traces"][0]:
            event.pop(key, None)
        yield f"no {key}", without
    yield "list form", copy.deepcopy(base)["segments"]
    yield "two devices", {"segments": base["segments"] + [{**s, "device": 1} for s in copy.deepcopy(base["segments"])], "device_traces": [base["device_traces"][0], base["device_traces"][0][:40], []]}
    late = copy.deepcopy(base)
    for event in late["device_traces"][0]:
        event["pool_id"] = (0, 0) if rng.random() < 0.7 else (0, 1)
        event["something_new"] = rng.choice([1, "text", 2.5, None, True])
    yield "new keys", late
    odd = copy.deepcopy(base)
    for event in odd["device_traces"][0]:
        event["user_metadata"] = rng.choice(["", "{\"a\": 1}", "x" * 300])
        event["addr"] |= rng.choice([0, 1 << 63])
    yield "large addresses", odd
    deep = copy.deepcopy(base)
    for number, event in enumerate(deep["device_traces"][0]):
        if number % 50 == 0:
            event["frames"] = [{"name": f"f{i}", "filename": "deep.py", "line": i} for i in range(1500)]
        elif number % 7 == 0:
            event["frames"] = [{"name": "one", "filename": "one.py", "line": 1}]
        elif number % 11 == 0:
            event["frames"] = []
    yield "deep stacks", deep
    strange = copy.deepcopy(base)
    strange["device_traces"][0].insert(5, {"action": "brand_new_action", "addr": 1, "size": 2, "stream": 0})
    yield "unknown action", strange


def test_shapes_and_protocols_agree_with_the_reference(lowtide, truth, tmp_path):
    for name, snapshot in variants(random.Random(5)):
        for protocol in (2, 3, 4, 5):
            path = snapshot_files.save(snapshot, tmp_path / "a.pickle", protocol)
            try:
                compare(truth(path), report(lowtide, path))
            except AssertionError as error:
                raise AssertionError(f"{name}, protocol {protocol}: {error}") from error
        (tmp_path / "o.pickle").write_bytes(pickletools.optimize(pickle.dumps(snapshot, 4)))
        compare(truth(tmp_path / "o.pickle"), report(lowtide, tmp_path / "o.pickle"))


def test_python_pickler_without_frames_and_with_new_objects_each_time(lowtide, truth, tmp_path):
    snapshot = json.loads(json.dumps(snapshot_files.training(steps=5)))  # nothing shared
    snapshot["segments"] = [{**s, "segment_pool_id": tuple(s["segment_pool_id"])} for s in snapshot["segments"]]
    path = tmp_path / "a.pickle"
    with open(path, "wb") as file:
        pickle._Pickler(file, 4).dump(snapshot)
    compare(truth(path), report(lowtide, path))


def test_every_container_reads_the_same(lowtide, tmp_path):
    snapshot = snapshot_files.training(steps=8, leak=2048)
    data = pickle.dumps(snapshot, 4)
    (tmp_path / "a.pickle").write_bytes(data)
    (tmp_path / "a.pickle.gz").write_bytes(gzip.compress(data))
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("readme.txt", "x" * 10)
        archive.writestr("snapshot.pickle", data)
    (tmp_path / "a.json").write_text(json.dumps(snapshot))
    page = [{"name": "snapshot.pickle", "base64": base64.b64encode(data + b"\0" * (-len(data) % 3)).decode()}]
    (tmp_path / "a.html").write_text(f"<!DOCTYPE html><html><script>add_local_files({json.dumps(page)}, 'x')</script></html>")
    want = report(lowtide, tmp_path / "a.pickle")
    for name in ("a.pickle.gz", "a.zip", "a.json", "a.html"):
        got = report(lowtide, tmp_path / name)
        assert (got["devices"], got["peak_by_stack"], got["growth_by_stack"]) == (want["devices"], want["peak_by_stack"], want["growth_by_stack"]), name


def big_trace(events):
    """A snapshot of many events, made by repeating a run with its own list per event, as torch writes them."""
    base = snapshot_files.training(steps=30, leak=1024)
    trace = []
    while len(trace) < events:
        trace += [{**event, "compile_context": "".join(("N/", "A")), **({"frames": list(event["frames"])} if "frames" in event else {})} for event in base["device_traces"][0]]
    return {**base, "device_traces": [trace]}


def test_one_and_two_threads_read_the_same(lowtide, truth, tmp_path):
    snapshot = big_trace(250_000)
    snapshot["device_traces"][0].insert(90_000, {"action": "oom", "device_free": 77, "size": 5 * MIB, "stream": 0, "time_us": 1})
    path = snapshot_files.save(snapshot, tmp_path / "big.pickle")
    assert path.stat().st_size > 12 * MIB  # else the second thread has nothing to do
    one, two = (report(lowtide, path, "--threads", n) for n in (1, 3))
    assert one == two
    compare(truth(path), two)


def test_leak_is_named_and_exit_code_tells(lowtide, tmp_path):
    path = snapshot_files.save(snapshot_files.training(steps=20, leak=8192), tmp_path / "leak.pickle")
    done = lowtide("snapshot", path)
    assert done.returncode == 1 and "LT305" in done.stdout and "metrics.py:7" in done.stdout
    got = report(lowtide, path)
    assert got["verdicts"][0]["verdict"] == "leak" and got["growth_by_stack"][0]["file"] == "/home/u/metrics.py"
    assert abs(got["verdicts"][0]["bytes_per_step"] - 8192) < 100
    healthy = snapshot_files.save(snapshot_files.training(steps=20), tmp_path / "healthy.pickle")
    assert lowtide("snapshot", healthy).returncode == 0
    assert report(lowtide, healthy)["verdicts"][0]["verdict"] == "healthy"
    assert report(lowtide, snapshot_files.save(snapshot_files.training(steps=30, leak=8192, leak_until=12), tmp_path / "b.pickle"))["verdicts"][0]["verdict"] == "bounded"


def test_unmarked_steps_are_found(lowtide, tmp_path):
    path = snapshot_files.save(snapshot_files.training(steps=20, leak=8192, marks=False), tmp_path / "a.pickle")
    got = report(lowtide, path)
    assert got["devices"][0]["growth"]["steps_by"] == "a period found in the trace"
    assert got["verdicts"][0]["verdict"] == "leak" and got["growth_by_stack"][0]["line"] == 7


def test_replay_reproduces_and_answers_what_if(lowtide, tmp_path):
    snapshot = snapshot_files.training(steps=6)
    path = snapshot_files.save(snapshot, tmp_path / "a.pickle")
    got = report(lowtide, path, "--replay", "max_split_size_mb:512,expandable_segments:True")["devices"][0]["replay"]
    assert got["what_if"]["settings"] == "expandable_segments:True,max_split_size_mb:512" and not got["what_if"]["died"]
    assert got["check"]["allocs"] == sum(e["action"] == "alloc" for e in snapshot["device_traces"][0])
    small = report(lowtide, path, "--replay", "expandable_segments:True", "--capacity", "20MiB")["devices"][0]["replay"]
    assert small["what_if"]["died"]
    best = report(lowtide, path, "--replay", "best")["devices"][0]["replay"]["search"]
    peaks = [outcome["peak_reserved"] for outcome in best["outcomes"]]
    assert peaks[0] == min(peaks) and best["limits"]
    bad = lowtide("snapshot", path, "--replay", "max_split:1")
    assert bad.returncode == 2 and "max_split" in bad.stderr


def test_diff_and_ranks(lowtide, tmp_path):
    paths = [snapshot_files.save(snapshot_files.training(steps=6, leak=leak), tmp_path / f"snapshot_rank{rank}.pickle") for rank, leak in ((0, 0), (1, 0), (2, 64 * MIB))]
    got = report(lowtide, paths[2], "--diff", paths[0])["diff"]["devices"][0]
    assert sum(row["delta"] for row in got["peak_by_line"]) == got["peak_after"] - got["peak_before"] > 0
    assert got["peak_by_line"][0]["file"] == "/home/u/metrics.py"
    joined = report(lowtide, *reversed(paths))
    assert joined["ranks"]["highest"]["rank"] == 2 and [row["rank"] for row in joined["ranks"]["rows"]] == [0, 1, 2]
    assert any(f["code"] == "LT311" for f in joined["findings"])
    assert "rank" in lowtide("snapshot", *paths).stdout


def test_speedscope_and_trace_are_valid(lowtide, tmp_path):
    path = snapshot_files.save(snapshot_files.training(steps=6), tmp_path / "a.pickle")
    want = report(lowtide, path)
    flame = json.loads(lowtide("snapshot", path, "--format", "speedscope").stdout)
    profile = flame["profiles"][0]
    assert sum(profile["weights"]) == profile["endValue"] == want["devices"][0]["peak"]["bytes"]
    assert all(0 <= frame < len(flame["shared"]["frames"]) for sample in profile["samples"] for frame in sample)
    trace = json.loads(lowtide("snapshot", path, "--format", "trace").stdout)["traceEvents"]
    assert max(e["args"]["live"] for e in trace if e["ph"] == "C") == want["devices"][0]["peak"]["bytes"]
    assert sum(e["ph"] == "B" for e in trace) == sum(e["ph"] == "E" for e in trace) == 6


def test_chinese_and_hidden_sources(lowtide, tmp_path):
    path = snapshot_files.save(snapshot_files.training(steps=20, leak=8192), tmp_path / "secret_name.pickle")
    assert "峰值" in lowtide("--lang", "zh", "snapshot", path).stdout
    for form in ("text", "json", "html", "speedscope", "trace"):
        shown = lowtide("snapshot", path, "--format", form, "--hide-sources").stdout
        assert shown
        for word in ("/home/u", "metrics.py", "secret_name", "train.py"):
            assert word not in shown, (form, word)


def test_html_in_a_browser(lowtide, tmp_path):
    binary = chromium.find()
    if not binary:
        pytest.skip("no Chromium here")
    path = snapshot_files.save(snapshot_files.training(steps=20, leak=8192), tmp_path / "a.pickle")
    page = tmp_path / "a.html"
    assert lowtide("snapshot", path, "--format", "html", "-o", page).returncode == 1
    with chromium.Browser(binary) as browser:
        for dark in (False, True):
            browser.open(page.as_uri(), 1200, 1600, dark)
            browser.js("new Promise(done => { const look = () => document.documentElement.dataset.ready ? done(1) : setTimeout(look, 20); look(); })")
            browser.frame()
            assert not browser.messages
            assert all(url.startswith(("file:", "data:", "blob:")) for url in browser.requests)
            colours = browser.js("""[...document.querySelectorAll('canvas[data-kind]')].map(c => { const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
                const seen = new Set(); for (let i = 0; i < d.length; i += 404) if (d[i + 3]) seen.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]); return seen.size; })""")
            assert len(colours) == 3 and min(colours) >= 3, colours
        browser.js("document.querySelector('canvas[data-kind=timeline]').scrollIntoView({block: 'center'})")
        browser.frame()
        box = browser.js("(r => [r.left, r.top, r.width, r.height])(document.querySelector('canvas[data-kind=timeline]').getBoundingClientRect())")
        browser.mouse("mouseMoved", box[0] + box[2] / 2, box[1] + box[3] / 2)
        browser.frame()
        assert "event" in browser.js("document.querySelector('.tip').textContent")


def limited(lowtide_binary, *args, megabytes):
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))

    return subprocess.run([lowtide_binary, *map(str, args)], capture_output=True, text=True, timeout=120, preexec_fn=limit)


def hostile(tmp_path):
    data = pickle.dumps(snapshot_files.training(steps=2), 4)
    yield "empty", b""
    yield "cut", data[: len(data) // 2]
    yield "text", b"this is no snapshot"
    yield "class", pickle.dumps(pathlib_path())
    yield "os.system", b"cos\nsystem\n(S'touch PWNED'\ntR."
    yield "protocol 2 global", b"\x80\x02cposix\nsystem\n(X\x05\x00\x00\x00touchtR."
    yield "number", pickle.dumps(5)
    yield "other dict", pickle.dumps({"weights": [1, 2, 3]})
    yield "wrong types", pickle.dumps({"segments": 5, "device_traces": "x"})
    yield "wrong inner types", pickle.dumps({"segments": [1], "device_traces": [[2]]})
    yield "string sizes", pickle.dumps({"segments": [], "device_traces": [[{"action": "alloc", "size": "big", "addr": 0}]]})
    yield "deep", b"\x80\x04" + b"]" * 100000
    yield "gzip bomb", gzip.compress(b"\x80\x04" + b"(" + b"N" * (400 << 20), 9)
    yield "gzip cut", gzip.compress(data)[:-30]
    yield "zip cut", b"PK\x03\x04" + b"\0" * 100
    yield "html without", b"<html></html>"
    yield "json cut", json.dumps(snapshot_files.training(steps=1)).encode()[:-40]
    yield "json deep", b"[" * 200000
    yield "memo bomb", b"\x80\x04]r\xff\xff\xff\x7f."


def pathlib_path():
    import pathlib

    return {"segments": pathlib.Path("x")}


def test_bad_input_gets_one_clear_error(lowtide_binary, tmp_path):
    for name, data in hostile(tmp_path):
        path = tmp_path / "bad.pickle"
        path.write_bytes(data)
        done = limited(lowtide_binary, "snapshot", path, megabytes=900)
        assert done.returncode == 2, (name, done.returncode, done.stdout[:200], done.stderr[-300:])
        assert "bad.pickle" in done.stderr and done.stdout == "", name
        assert "out of memory" not in done.stderr, name
    assert not (tmp_path / "PWNED").exists()
    missing = subprocess.run([lowtide_binary, "snapshot", str(tmp_path / "none.pickle")], capture_output=True, text=True)
    assert missing.returncode == 2 and "none.pickle" in missing.stderr


def test_memory_stays_below_four_times_the_file(lowtide_binary, tmp_path):
    """Pickles that cost most per byte: every one ends as an answer or an error within the limit."""
    size = 24 << 20
    floods = {"marks": b"(", "nones": b"N", "lists": b"]", "dicts": b"}", "memo": b"]\x94", "events": b"}\x94(h\x00h\x01u", "nested": b"](K\x01e"}
    for name, unit in floods.items():
        path = tmp_path / "flood.pickle"
        path.write_bytes(b"\x80\x04\x8c\x06action\x94\x8c\x05alloc\x94(" + unit * (size // len(unit)))
        done = limited(lowtide_binary, "snapshot", path, megabytes=40 + 5 * (size >> 20))  # address space: the mapped file too
        assert done.returncode == 2, (name, done.returncode, done.stderr[-300:])
        assert "out of memory" not in done.stderr, name
