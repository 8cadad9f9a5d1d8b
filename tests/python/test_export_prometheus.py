"""The alert rules and the dashboard: by themselves, and with a real Prometheus server that scrapes `lowtide export`."""
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy" / "prometheus" / "lowtide.rules.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "lowtide.json"

# Trains and leaks until a file called "stop" appears.
LEAK = '''
import pathlib, sys, time
import torch
from torch import nn
model = nn.Linear(64, 10)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
kept = []
while not pathlib.Path(sys.argv[1]).exists():
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(torch.randn(32, 64)), torch.randint(0, 10, (32,)))
    loss.backward()
    optimizer.step()
    kept.append(torch.ones(100_000) * loss.item())
    time.sleep(0.02)
'''


def tool(name):
    path = shutil.which(name)
    if not path:
        pytest.skip(f"{name} is not installed (Debian package prometheus)")
    return path


def known_metrics():
    return set(re.findall(r"^\| `(lowtide_\w+)` \|", (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8"), re.MULTILINE))


def panels():
    return json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]


def test_rules_are_sound():
    done = subprocess.run([tool("promtool"), "check", "rules", RULES], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_rules_fire_when_they_should():
    done = subprocess.run([tool("promtool"), "test", "rules", RULES.with_name("lowtide.rules.test.yml")], capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", [RULES, DASHBOARD])
def test_only_metrics_that_are_exported_are_asked_for(path):
    asked = set(re.findall(r"\blowtide_\w+", path.read_text(encoding="utf-8")))
    assert asked and asked <= known_metrics(), asked - known_metrics()


def test_the_dashboard_is_whole():
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    assert {v["name"] for v in board["templating"]["list"]} == {"datasource", "run", "rank", "pool"}
    taken = set()
    for panel in board["panels"]:
        assert panel["title"] and panel["description"] and panel["targets"]
        grid = panel["gridPos"]
        assert grid["x"] + grid["w"] <= 24
        cells = {(x, y) for x in range(grid["x"], grid["x"] + grid["w"]) for y in range(grid["y"], grid["y"] + grid["h"])}
        assert not cells & taken, f"{panel['title']} lies over another panel"
        taken |= cells
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Prometheus:
    def __init__(self, folder, target):
        self.url = f"http://127.0.0.1:{free_port()}"
        # What waits a minute before it fires need not in a test.
        (folder / "rules.yml").write_text(re.sub(r"for: \d+m", "for: 1s", RULES.read_text(encoding="utf-8")), encoding="utf-8")
        (folder / "prometheus.yml").write_text(
            "global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [rules.yml]\n"
            f"scrape_configs: [{{job_name: lowtide, static_configs: [{{targets: ['{target}']}}]}}]\n")
        self.process = subprocess.Popen(
            [tool("prometheus"), f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb",
             f"--web.listen-address={self.url[7:]}", "--log.level=warn"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def ask(self, path, **query):
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query)}", timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{query}: {error.read().decode()}") from None

    def wait_for(self, what, condition, seconds=120):
        deadline = time.monotonic() + seconds
        found = None
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.process.stderr.read()
            try:
                found = condition()
            except OSError:
                found = None
            if found:
                return found
            time.sleep(0.3)
        raise AssertionError(f"{what} did not come")

    def end(self):
        self.process.terminate()
        self.process.communicate(timeout=60)


@pytest.fixture
def leaking_run(lowtide_binary, tmp_path):
    pytest.importorskip("torch", reason="PyTorch is not installed: the leak is a real training's")
    (tmp_path / "leak.py").write_text(LEAK)
    (tmp_path / "lowtide-runs").mkdir()
    stop = tmp_path / "stop"
    process = subprocess.Popen([lowtide_binary, "run", "-q", "--no-holders", "-o", tmp_path / "lowtide-runs" / "leak", tmp_path / "leak.py", stop],
                               cwd=tmp_path, env={**os.environ, "LOWTIDE_PYTHON": sys.executable})
    yield tmp_path / "lowtide-runs"
    stop.touch()
    process.wait(120)


def test_a_real_prometheus_scrapes_a_real_leak_and_fires(lowtide_binary, leaking_run, tmp_path):
    tool("prometheus")
    exporter = subprocess.Popen([lowtide_binary, "export", "--listen", "127.0.0.1:0", "--interval", "1", leaking_run], stderr=subprocess.PIPE,
                                text=True, env={**os.environ, "NO_COLOR": "1"})
    try:
        line = exporter.stderr.readline()
        if "prometheus-cpp" in line:
            pytest.skip("lowtide was built without prometheus-cpp")
        target = re.search(r"http://(\S+)/metrics", line).group(1)
        server = Prometheus(tmp_path, target)
        try:
            server.wait_for("the scrape", lambda: [t for t in server.ask("targets")["activeTargets"] if t["health"] == "up"])

            def firing():
                return [a for a in server.ask("alerts")["alerts"] if a["labels"]["alertname"] == "LowtideLeak" and a["state"] == "firing"]

            alerts = server.wait_for("the alert of the leak", firing)
            labels = alerts[0]["labels"]
            assert len(alerts) == 1, f"one leak, one alert: {alerts}"
            assert (labels["run"], labels["rank"], labels["pool"]) == ("leak", "0", "cpu")
            assert re.search(r"39\d(\.\d+)?kiB a step", alerts[0]["annotations"]["description"]), alerts[0]["annotations"]
            rate = server.ask("query", query='lowtide_pool_growth_bytes_per_step{pool="cpu"}')["result"][0]["value"][1]
            assert float(rate) == pytest.approx(400_000, rel=0.05)
            check_dashboard(server)
        finally:
            server.end()
        exporter.send_signal(signal.SIGTERM)
        assert exporter.wait(60) == 0
    finally:
        if exporter.poll() is None:
            exporter.kill()
        exporter.communicate()


def check_dashboard(server):
    """The server takes every question of the dashboard, and has an answer where this run has one."""
    silent = set()
    for panel in panels():
        answered = False
        for question in panel["targets"]:
            text = question["expr"]
            for name, chosen in {"$run": "leak", "$rank": ".*", "$pool": ".*", "$__rate_interval": "1m"}.items():
                text = text.replace(name, chosen)
            answered |= bool(server.ask("query", query=text)["result"])
        if not answered:
            silent.add(panel["title"])
    assert not silent, f"panels without data: {silent}"
