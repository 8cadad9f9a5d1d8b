"""The HTML report in a real browser: charts are drawn, hover, zoom and keys work, nothing is loaded, nothing runs that
came from the program."""
import re

import pytest

import chromium

pytest.importorskip("torch", reason="PyTorch is not installed: the report is tested on a recorded training run")

PROGRAM = '''
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Linear(64, 10)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
hoarded_things = []
for step in range(240):
    optimizer.zero_grad()
    logits = model(torch.randn(32, 64))
    loss = nn.functional.cross_entropy(logits, torch.randint(0, 10, (32,)))
    loss.backward()
    optimizer.step()
    hoarded_things.append(torch.ones(2000) * loss.item())
'''
NAME = "evil<!--<script><img src=x onerror=\"document.title='pwned'\">.py"


@pytest.fixture(scope="module")
def run_folder(lowtide_binary, tmp_path_factory):
    """A recorded run with a leak and a hostile name."""
    import os
    import subprocess
    import sys

    place = tmp_path_factory.mktemp("html")
    script = place / NAME
    script.write_text(PROGRAM)
    done = subprocess.run([lowtide_binary, "run", "-q", "-o", place / "out", script], capture_output=True, text=True,
                          timeout=300, env={**os.environ, "LOWTIDE_PYTHON": sys.executable})
    assert done.returncode == 0, done.stderr
    return place / "out"


@pytest.fixture
def page(lowtide, run_folder, tmp_path):
    """Writes the report of the run with the options given; returns its path."""

    def call(*options):
        path = tmp_path / "report.html"
        done = lowtide("report", "--format", "html", "-o", path, *options, run_folder)
        assert done.returncode in (0, 1), done.stderr
        return path

    return call


@pytest.fixture(scope="module")
def browser():
    binary = chromium.find()
    if not binary:
        pytest.skip("no Chromium or Chrome here: the report is not looked at in a browser")
    with chromium.Browser(binary) as one:
        yield one


def box(browser, selector):
    return browser.js("(r => [r.left, r.top, r.width, r.height])"
                      f"(document.querySelector({selector!r}).getBoundingClientRect())")


def chart(browser):
    """Opens the first chart, brings it into view and returns its box."""
    browser.js("document.querySelectorAll('details.pool').forEach(d => d.open = true)")
    browser.frame()
    browser.js("document.querySelector('figure svg').scrollIntoView({block: 'center'})")
    browser.frame()
    return box(browser, "figure svg")


def steps_shown(browser):
    """First and last figure of the axis of steps."""
    texts = browser.js("[...document.querySelector('figure svg').querySelectorAll('text.tick')].map(t => t.textContent)")
    return [int(t.replace(",", "")) for t in texts if re.fullmatch(r"[\d,]+", t)]


def test_charts_are_drawn(browser, page):
    browser.open(page().as_uri())
    left, top, width, height = chart(browser)
    assert width > 300 and height > 150
    for kind in ("value", "low"):
        path = browser.js(f"document.querySelector('figure path.{kind}').getAttribute('d')")
        assert path.startswith("M") and path.count("L") > 50, path[:80]
    figures, drawn = browser.js("[document.querySelectorAll('figure[data-series]').length, "
                                "document.querySelectorAll('figure path.value').length]")
    assert figures == drawn > 1
    assert browser.js("[...document.querySelectorAll('.spark')].every(s => s.querySelector('path').getTotalLength() > 100)")
    assert not browser.messages, "errors, or a violation of the page's policy"
    assert browser.requests == [page().as_uri()], "the page loads nothing"


def test_hover_tells_the_figures(browser, page):
    browser.open(page().as_uri())
    left, top, width, height = chart(browser)
    assert browser.js("document.querySelector('.tip').hidden")
    told = []
    for share in (0.3, 0.7):
        browser.mouse("mouseMoved", left + width * share, top + height / 2)
        browser.frame()
        assert not browser.js("document.querySelector('.tip').hidden")
        told.append(browser.js("document.querySelector('.tip').textContent"))
    first, second = (int(re.match(r"step ([\d,]+)in use [\d.]+ ?\w*lower edge", text).group(1).replace(",", "")) for text in told)
    assert 40 < first < 90 and 140 < second < 190, told
    browser.mouse("mouseMoved", 2, 2)
    browser.frame()
    assert browser.js("document.querySelector('.tip').hidden")


def test_drag_zooms_and_double_click_shows_all(browser, page):
    browser.open(page().as_uri())
    left, top, width, height = chart(browser)
    whole = steps_shown(browser)
    y = top + height / 2
    browser.mouse("mousePressed", left + width * 0.5, y, button="left", clickCount=1)
    browser.mouse("mouseMoved", left + width * 0.55, y, button="left")
    browser.mouse("mouseMoved", left + width * 0.6, y, button="left")
    browser.mouse("mouseReleased", left + width * 0.6, y, button="left", clickCount=1)
    browser.frame()
    zoomed = steps_shown(browser)
    assert zoomed[-1] - zoomed[0] < (whole[-1] - whole[0]) / 4
    assert not browser.js("document.querySelector('.reset').hidden")
    for count in (1, 2):
        browser.mouse("mousePressed", left + width * 0.5, y, button="left", clickCount=count)
        browser.mouse("mouseReleased", left + width * 0.5, y, button="left", clickCount=count)
    browser.frame()
    assert steps_shown(browser) == whole


def test_keys_move_and_zoom(browser, page):
    browser.open(page().as_uri())
    chart(browser)
    browser.js("document.querySelector('.plot').focus()")
    whole = steps_shown(browser)
    browser.key("ArrowRight")
    first = browser.js("document.querySelector('.tip').textContent")
    browser.key("ArrowRight")
    assert browser.js("document.querySelector('.tip').textContent") != first
    browser.key("+")
    assert len(steps_shown(browser)) >= 2 and steps_shown(browser) != whole
    browser.key("0")
    assert steps_shown(browser) == whole


def test_everything_has_a_name(browser, page):
    browser.open(page().as_uri())
    chart(browser)
    assert browser.js("document.documentElement.lang") == "en"
    nameless = browser.js('''[...document.querySelectorAll("svg[role=img], .plot, select, button, [role=region]")]
        .filter(e => !(e.getAttribute("aria-label") || e.textContent.trim())).map(e => e.outerHTML.slice(0, 80))''')
    assert nameless == []
    assert "Chart of" in browser.js("document.querySelector('figure svg').getAttribute('aria-label')")


# WCAG 2.1, success criterion 1.4.3: 4.5 to 1 for text.
CONTRAST = '''(() => {
  const parse = c => c.match(/[\\d.]+/g).map(Number);
  const light = c => { const [r, g, b] = parse(c).map(v => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const behind = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; const p = parse(c);
    if (p.length < 4 || p[3] > 0.99) return c; } return "rgb(255, 255, 255)"; };
  const poor = [];
  for (const e of document.querySelectorAll("body *")) {
    const text = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    if (!text || !e.getClientRects().length || ["SCRIPT", "STYLE", "OPTION"].includes(e.tagName)) continue;
    const style = getComputedStyle(e), fore = e instanceof SVGElement ? style.fill : style.color;
    const [a, b] = [light(fore), light(behind(e))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) poor.push(e.className + " " + e.textContent.slice(0, 30) + " " + ratio.toFixed(2));
  }
  return poor;
})()'''


@pytest.mark.parametrize("dark", [False, True])
def test_text_can_be_read(browser, page, dark):
    browser.open(page().as_uri(), dark=dark)
    chart(browser)
    back = browser.js("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", back)[:3])) < 200) == dark, "light and dark follow the system"
    assert browser.js(CONTRAST) == []


def test_a_narrow_window_does_not_scroll_sideways(browser, page):
    browser.open(page().as_uri(), width=400)
    chart(browser)
    assert browser.js("document.documentElement.scrollWidth") <= 400


def test_nothing_of_the_program_runs(browser, page):
    path = page()
    browser.open(path.as_uri())
    assert NAME in browser.js("document.querySelector('.command').textContent"), "shown as it is called"
    assert NAME in browser.js("document.title")
    assert browser.js("document.images.length") == 0
    assert browser.js("document.scripts.length") == 2
    assert not browser.messages


def test_hidden_sources_leave_no_trace(page, run_folder):
    text = page("--hide-sources").read_text(encoding="utf-8")
    for secret in ("evil", "pwned", "onerror", "hoarded_things", str(run_folder)):
        assert secret not in text
    assert "KB/step" in text or "MB/step" in text


def test_chinese(browser, lowtide, run_folder, tmp_path):
    path = tmp_path / "zh.html"
    lowtide("--lang", "zh", "report", "--format", "html", "-o", path, run_folder)
    browser.open(path.as_uri())
    chart(browser)
    assert browser.js("document.documentElement.lang") == "zh-Hans"
    assert "内存" in browser.js("document.querySelector('h1').textContent")
    assert "使用量" in browser.js("document.querySelector('figcaption').textContent")
