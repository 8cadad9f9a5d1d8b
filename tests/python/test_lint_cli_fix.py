"""`lowtide lint --fix`, `--unsafe-fixes`, `--diff`: what changes, and what must not."""
import json
import os
import shutil
import stat
import subprocess

import pytest
from linting import CLEAN, TRAIN, codes, lint, write  # noqa: F401 (a fixture)

from test_lint_cli import notebook


def safe_fixes(findings):
    return [f for f in findings if f["fix"] and f["fix"]["safe"]]


def apply(text, findings):
    """What the edits of the JSON say, carried out by lines and columns."""
    lines = text.splitlines(keepends=True)
    edits = sorted((e for f in findings for e in f["fix"]["edits"]), key=lambda e: (e["line"], e["column"]), reverse=True)
    for edit in edits:
        assert edit["line"] == edit["end_line"], "the cases here are edits within a line"
        line = lines[edit["line"] - 1]
        lines[edit["line"] - 1] = line[:edit["column"] - 1] + edit["content"] + line[edit["end_column"] - 1:]
    return "".join(lines)


def test_fix_does_what_the_json_says_and_leaves_nothing_safe(lint):
    write(lint.folder, {"a.py": TRAIN})
    before = safe_fixes(lint("--select", "LT101")[1])
    assert before, "LT101 has a safe fix"
    _, after, _ = lint("--select", "LT101", "--fix")
    assert after == []
    assert (lint.folder / "a.py").read_text() == apply(TRAIN, before) != TRAIN
    stable = (lint.folder / "a.py").read_text()
    lint("--select", "LT101", "--fix")
    assert (lint.folder / "a.py").read_text() == stable


@pytest.mark.parametrize("change", [
    lambda text: text.replace(b"\n", b"\r\n"), lambda text: b"\xef\xbb\xbf" + text, lambda text: text.rstrip(b"\n"),
    lambda text: text + b"# caf\xe9 \xff\xfe\n", lambda text: "s = '損失 é 😀'\n".encode() + text, lambda text: text + b"\x0c\n\n\n   ",
    lambda text: text.replace(b"    total = 0", b"    x = '''\r\n\r'''; total = 0"),
])
def test_bytes_outside_the_edits_stay(lint, change):
    content = change(TRAIN.encode())
    write(lint.folder, {"a.py": content})
    findings = safe_fixes(lint("--select", "LT101")[1])
    expected = content
    for edit in sorted((e for f in findings for e in f["fix"]["edits"]), key=lambda e: e["start_byte"], reverse=True):
        expected = expected[:edit["start_byte"]] + edit["content"].encode() + expected[edit["end_byte"]:]
    lint("--select", "LT101", "--fix")
    assert (lint.folder / "a.py").read_bytes() == expected != content


def test_unsafe_fixes_need_their_option(lint):
    text = TRAIN.replace("        optimizer.zero_grad()\n", "")
    write(lint.folder, {"a.py": text})
    unsafe = [f for f in lint("--select", "LT104")[1] if f["fix"] and not f["fix"]["safe"]]
    assert unsafe, "a missing zero_grad() has a fix that may change results"
    lint("--select", "LT104", "--fix")
    assert (lint.folder / "a.py").read_text() == text
    assert lint("--select", "LT104", "--unsafe-fixes")[1] == []
    assert (lint.folder / "a.py").read_text() != text


def test_diff_changes_nothing_and_applies(lint):
    write(lint.folder, {"a.py": TRAIN, "sub/b.py": TRAIN, "clean.py": CLEAN})
    done = lint("--select", "LT101", "--diff", json_output=False)
    assert done.returncode == 1
    assert (lint.folder / "a.py").read_text() == TRAIN
    assert done.stdout.count("--- ") == 2
    lint("--select", "LT101", "--fix")
    fixed = (lint.folder / "a.py").read_text(), (lint.folder / "sub" / "b.py").read_text()
    assert lint("--select", "LT101", "--diff", json_output=False).stdout == ""
    if not shutil.which("git"):
        pytest.skip("git is not installed: the diff was not applied")
    write(lint.folder, {"a.py": TRAIN, "sub/b.py": TRAIN})
    subprocess.run(["git", "apply", "-p0"], input=done.stdout, text=True, cwd=lint.folder, check=True)
    assert ((lint.folder / "a.py").read_text(), (lint.folder / "sub" / "b.py").read_text()) == fixed


def test_standard_input_is_fixed_to_standard_output(lint):
    done = lint("-", "--select", "LT101", "--fix", input=TRAIN, json_output=False)
    write(lint.folder, {"a.py": TRAIN})
    lint("a.py", "--select", "LT101", "--fix")
    assert done.stdout == (lint.folder / "a.py").read_text()
    assert lint("-", "--fix", input=CLEAN, json_output=False).stdout == CLEAN


def test_permissions_and_links_are_kept(lint):
    write(lint.folder, {"real/a.py": TRAIN})
    (lint.folder / "real/a.py").chmod(0o750)
    os.symlink("real/a.py", lint.folder / "link.py")
    lint("link.py", "--select", "LT101", "--fix")
    assert (lint.folder / "link.py").is_symlink()
    assert stat.S_IMODE((lint.folder / "real/a.py").stat().st_mode) == 0o750
    assert (lint.folder / "real/a.py").read_text() != TRAIN
    assert [p.name for p in (lint.folder / "real").iterdir()] == ["a.py"], "no temporary file stays"


def test_unused_suppressions_are_removed(lint):
    text = TRAIN.replace("optimizer.step()", "optimizer.step()  # noqa: LT106, E501, LT104")
    write(lint.folder, {"a.py": text})
    lint("--select", "LT950", "--fix")
    assert (lint.folder / "a.py").read_text() == text.replace("LT106, E501, LT104", "E501")


def test_notebooks_keep_every_other_byte(lint):
    head, body = TRAIN.split("def train")
    text = notebook(("markdown", "# T"), ("code", "%time x\n" + head), ("code", "def train" + body.rstrip("\n")))
    text = text.replace("# T", "caf\\u00e9 \\/ ") + "\n"
    write(lint.folder, {"n.ipynb": text})
    lint("--select", "LT101", "--fix")
    after = (lint.folder / "n.ipynb").read_text()
    changed = [(a, b) for a, b in zip(text.splitlines(), after.splitlines()) if a != b]
    assert len(after.splitlines()) == len(text.splitlines()) and len(changed) == 1 and "total += loss" in changed[0][0]
    json.loads(after)
    assert lint("--select", "LT101")[1] == []


def test_a_read_only_folder_is_told(lint):
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    write(lint.folder, {"a.py": TRAIN})
    lint.folder.chmod(0o555)
    try:
        code, _, stderr = lint("--select", "LT101", "--fix")
    finally:
        lint.folder.chmod(0o755)
    assert code == 2 and "a.py" in stderr and (lint.folder / "a.py").read_text() == TRAIN
