"""The tree keeps its own rules: who may include whom, one place for Python.h and CLI11, pages for every code."""
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SRC = ROOT / "src"

TOOLS = {"series", "verdict", "snapshot", "heap", "lint", "plan", "bisect", "checkpoint"}
BELOW = {"base": set(), "finding": {"base"}, "record": {"base"}}
BELOW["series"] = {"base", "finding", "record"}
BELOW["verdict"] = {"base", "finding", "series"}
for tool in TOOLS - {"series", "verdict"}:
    BELOW[tool] = {"base", "finding"}
BELOW["report"] = {"base", "finding"} | TOOLS
BELOW["cli"] = BELOW["python"] = {"base", "finding", "record", "report"} | TOOLS

SOURCES = sorted(p for p in SRC.rglob("*") if p.suffix in {".cc", ".h", ".c"})


def includes(path):
    return re.findall(r'^\s*#\s*include\s+[<"]([^">]+)[">]', path.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("module", sorted(BELOW))
def test_includes_follow_the_arrows(module):
    wrong = []
    for path in SOURCES:
        if path.relative_to(SRC).parts[0] != module:
            continue
        for name in includes(path):
            # A public header belongs to a folder as well.
            target = "base" if name == "lowtide/crc32c.h" else name.removeprefix("lowtide/").split("/")[0]
            if target in BELOW and target != module and target not in BELOW[module]:
                wrong.append(f"{path.relative_to(ROOT)} includes {name}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("header, allowed", [("Python.h", r"src/python/"), ("CLI/CLI.hpp", r"src/cli/parse\.cc"),
                                             ("toml++/", r"src/lint/config\.cc"), ("torch/", r"include/lowtide/torch\.h")])
def test_heavy_headers_stay_in_their_place(header, allowed):
    wrong = [str(p.relative_to(ROOT)) for p in SOURCES if any(i.startswith(header) for i in includes(p))]
    assert not [p for p in wrong if not re.match(allowed, p)]


def codes():
    for table in sorted((SRC / "finding" / "codes").glob("*.inc")):
        for code in re.findall(r'^\s*\{"(LT\d{3})"', table.read_text(encoding="utf-8"), re.MULTILINE):
            yield table.name, code


def test_codes_are_unique_and_in_their_part():
    parts = {"source": "1", "memory": "2", "snapshot": "3", "holder": "4", "gradient": "5", "ranks": "6",
             "checkpoint": "7", "tool": "9"}
    seen = set()
    for table, code in codes():
        assert code not in seen, f"{code} stands twice"
        seen.add(code)
        assert code[2] == parts[table.removesuffix(".inc")], f"{code} stands in {table}"


HEADINGS = ["What", "Why", "Example", "Use instead", "How it decides", "False alarms"]


@pytest.mark.parametrize("code", [c for _, c in codes()])
def test_every_code_has_a_page_with_the_fixed_headings(code):
    page = ROOT / "docs" / "findings" / f"{code}.md"
    assert page.exists(), f"{page.relative_to(ROOT)} is missing"
    assert re.findall(r"^## (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE) == HEADINGS


def test_every_page_has_a_code():
    known = {code for _, code in codes()}
    pages = {p.stem for p in (ROOT / "docs" / "findings").glob("LT*.md")}
    assert pages <= known, f"pages without a code: {sorted(pages - known)}"


def test_every_title_is_translated():
    for table in (SRC / "finding" / "codes").glob("*.inc"):
        for entry in re.findall(r'^\s*\{"LT\d{3}".*?\},\s*$', table.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
            assert re.search(r"[\u4e00-\u9fff]", entry), f"no Chinese title in {table.name}: {entry}"
