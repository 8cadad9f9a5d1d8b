"""`lowtide lint` as users call it: files, folders, notebooks, standard input, selection, configuration, suppressions."""
import json
import os
import subprocess

import pytest
from linting import CLEAN, TRAIN, codes, lint, write  # noqa: F401 (a fixture)


def test_finds_the_line_and_says_what_to_do(lint):
    write(lint.folder, {"train.py": TRAIN})
    _, findings, _ = lint("train.py")
    assert codes(findings) == ["LT101", "LT111"]
    first = next(f for f in findings if f["code"] == "LT101")
    assert set(first) == {"code", "file", "line", "column", "end_line", "end_column", "message", "help", "fix"}
    assert (first["file"], first["line"], first["column"]) == ("train.py", 12, 9)
    assert TRAIN.splitlines()[11][first["column"] - 1:first["end_column"] - 1].startswith("total")
    assert first["message"] and first["help"]


def test_folders_are_walked_in_order_and_each_file_is_checked_once(lint):
    write(lint.folder, {"b.py": TRAIN, "a.py": TRAIN, "sub/c.py": TRAIN, "sub/notes.txt": TRAIN, "__pycache__/d.py": TRAIN,
                        ".venv/e.py": TRAIN, "build/f.py": TRAIN, "dist/__init__.py": "", "dist/g.py": TRAIN})
    _, findings, _ = lint(".", "a.py", "./sub", "--select", "LT101")
    assert [f["file"] for f in findings] == ["a.py", "b.py", "dist/g.py", "sub/c.py"]


def test_the_result_does_not_depend_on_threads(lint):
    write(lint.folder, {f"m{i}.py": TRAIN for i in range(40)})
    one, many = lint("-j", "1", "--no-cache"), lint("-j", "8", "--no-cache")
    assert one == many and len(one[1]) == 80


def test_what_git_ignores_is_left_out_unless_named(lint):
    (lint.folder / ".git").mkdir()
    write(lint.folder, {".gitignore": "generated/\n*_old.py\n!keep_old.py\n/top.py\n", "generated/a.py": TRAIN, "x_old.py": TRAIN,
                        "keep_old.py": TRAIN, "top.py": TRAIN, "sub/top.py": TRAIN, "sub/.gitignore": "b.py\n", "sub/b.py": TRAIN})
    select = ["--select", "LT101"]
    assert [f["file"] for f in lint(*select)[1]] == ["keep_old.py", "sub/top.py"]
    assert [f["file"] for f in lint("sub", *select)[1]] == ["sub/top.py"], "rules of the folders above hold below"
    assert [f["file"] for f in lint("top.py", *select)[1]] == ["top.py"]
    assert lint("top.py", "--force-exclude", *select)[1] == []
    assert len(lint("--no-respect-gitignore", *select)[1]) == 6


def test_excludes(lint):
    write(lint.folder, {"a.py": TRAIN, "old/b.py": TRAIN, ".venv/c.py": TRAIN})
    select = ["--select", "LT101"]
    assert [f["file"] for f in lint("--extend-exclude", "old", *select)[1]] == ["a.py"]
    assert [f["file"] for f in lint("--exclude", "a.py", *select)[1]] == [".venv/c.py", "old/b.py"]
    write(lint.folder, {"pyproject.toml": "[tool.lowtide.lint]\nextend-exclude = ['old']\n"})
    assert [f["file"] for f in lint(*select)[1]] == ["a.py"]


def notebook(*cells, **metadata):
    return json.dumps({"cells": [{"cell_type": kind, "source": source.splitlines(keepends=True), "metadata": {}}
                                 for kind, source in cells], "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}, indent=1)


def test_notebooks_name_cell_and_line(lint):
    lines = TRAIN.split("def train")
    write(lint.folder, {"n.ipynb": notebook(("markdown", "# Training"), ("code", "%matplotlib inline\n!pip install x 'y\n" + lines[0]),
                                            ("code", "%%bash\nrm 'x\n"), ("code", "def train" + lines[1]))})
    _, findings, _ = lint("--select", "LT101")
    assert [(f["file"], f["cell"], f["line"]) for f in findings] == [("n.ipynb", 4, 8)]
    text = lint("--select", "LT101", json_output=False).stdout
    assert "n.ipynb:cell 4:8:9" in text and "total += loss" in text


def test_standard_input(lint):
    _, findings, _ = lint("-", "--select", "LT101", input=TRAIN)
    assert [f["file"] for f in findings] == ["-"]
    write(lint.folder, {"pyproject.toml": "[tool.lowtide.lint.per-file-ignores]\n'gen/*' = ['LT101']\n"})
    assert lint("-", "--stdin-filename", "src/a.py", "--select", "LT101", input=TRAIN)[1][0]["file"] == "src/a.py"
    assert lint("-", "--stdin-filename", "gen/a.py", "--select", "LT101", input=TRAIN)[1] == []


@pytest.mark.parametrize("options, expected", [
    ([], ["LT101", "LT111"]),
    (["--select", "ALL"], None),
    (["--select", "LT11"], ["LT111"]),
    (["--select", "LT101,LT111"], ["LT101", "LT111"]),
    (["--select", "LT101", "--extend-select", "LT111"], ["LT101", "LT111"]),
    (["--ignore", "LT101"], ["LT111"]),
    (["--select", "LT1", "--ignore", "LT10", "--ignore", "LT12"], ["LT111"]),
    (["--ignore", "LT1", "--extend-select", "LT101"], ["LT101"]),
    (["--per-file-ignores", "train.py:LT101"], ["LT111"]),
    (["--select", "LT9"], []),
])
def test_selection(lint, options, expected):
    write(lint.folder, {"train.py": TRAIN})
    found = codes(lint("train.py", *options)[1])
    assert found == expected if expected is not None else {"LT101", "LT111", "LT122"} <= set(found)


def test_an_unknown_code_is_an_error(lint):
    done = lint("--select", "LT1999", json_output=False)
    assert done.returncode == 2 and "LT1999" in done.stderr and "explain" in done.stderr


CONFIGURED = """\
[tool.lowtide.lint]
select = ["LT1"]
ignore = ["LT111", "LT12"]
[tool.lowtide.lint.per-file-ignores]
"tests/*" = ["LT101"]
"""


def test_configuration_is_the_nearest_one_and_the_command_line_wins(lint):
    write(lint.folder, {"pyproject.toml": CONFIGURED, "a.py": TRAIN, "tests/b.py": TRAIN, "inner/c.py": TRAIN,
                        "inner/pyproject.toml": "[tool.lowtide.lint]\nselect = ['LT111']\n", "other/pyproject.toml": "[tool.black]\n",
                        "other/d.py": TRAIN})
    found = {(f["file"], f["code"]) for f in lint()[1]}
    assert found == {("a.py", "LT101"), ("inner/c.py", "LT111"), ("other/d.py", "LT101")}
    assert codes(lint("a.py", "--select", "LT111")[1]) == ["LT111"], "--select replaces select and ignore"
    assert codes(lint("a.py", "--ignore", "LT101")[1]) == [], "--ignore adds to ignore"
    assert codes(lint("a.py", "--isolated")[1]) == ["LT101", "LT111"]
    assert codes(lint("../a.py", cwd=lint.folder / "inner")[1]) == ["LT101"]


def test_fail_on_and_exit_codes(lint):
    write(lint.folder, {"clean.py": CLEAN, "train.py": TRAIN})
    assert lint("clean.py")[0] == 0
    severities = {f["code"]: None for f in lint("train.py")[1]}
    assert severities
    assert lint("train.py", "--fail-on", "note")[0] == 1
    assert lint("train.py", "--fail-on", "note", "--exit-zero")[0] == 0
    write(lint.folder, {"pyproject.toml": "[tool.lowtide.lint]\nfail-on = 'note'\n"})
    assert lint("train.py")[0] == 1
    assert lint("train.py", "--wrong-option", json_output=False).returncode == 2


@pytest.mark.parametrize("comment, left", [
    ("# noqa", []), ("# noqa: LT101", []), ("#NOQA:E501,LT101", []), ("# type: ignore  # noqa: LT101", []),
    ("# noqa: LT111", ["LT101", "LT950"]), ("# noqa: E501", ["LT101"]), ("# noqa: LT101, LT106", ["LT950"]),
])
def test_suppressions(lint, comment, left):
    write(lint.folder, {"a.py": TRAIN.replace("total += loss", f"total += loss  {comment}")})
    assert codes(lint("--ignore", "LT111")[1]) == left
    assert "LT101" in codes(lint("--no-noqa")[1])


def test_whole_file_suppressions(lint):
    write(lint.folder, {"a.py": "# lowtide: noqa\n" + TRAIN, "b.py": TRAIN + "# lowtide: noqa: LT101\n",
                        "c.py": CLEAN + "# lowtide: noqa: LT101\n", "d.py": TRAIN + "'''\n# lowtide: noqa\n'''\n"})
    found = {(f["file"], f["code"]) for f in lint()[1]}
    assert found == {("b.py", "LT111"), ("c.py", "LT950"), ("d.py", "LT101"), ("d.py", "LT111")}


def test_an_unselected_rule_still_needs_its_suppression(lint):
    write(lint.folder, {"a.py": TRAIN.replace("total += loss", "total += loss  # noqa: LT101")})
    assert lint("--select", "LT111", "--select", "LT950")[1][0]["code"] == "LT111"
    assert "LT950" not in codes(lint("--select", "LT111", "--select", "LT950")[1])


def test_baseline_survives_moved_lines(lint):
    write(lint.folder, {"a.py": TRAIN})
    done = lint("--write-baseline", "base.json", json_output=False)
    assert done.returncode == 0 and "2 findings" in done.stderr
    assert lint("--baseline", "base.json", "--fail-on", "note")[:2] == (0, [])
    moved = "# a comment\n\n" + TRAIN.replace("    total = 0\n", "    total = 0\n    # moved\n")
    write(lint.folder, {"a.py": moved})
    assert lint("--baseline", "base.json")[1] == []
    write(lint.folder, {"a.py": moved.replace("        total += loss\n", "        total += loss\n        total += loss\n")})
    assert [f["code"] for f in lint("--baseline", "base.json")[1]] == ["LT101"], "a second one of the same text is new"
    write(lint.folder, {"pyproject.toml": "[tool.lowtide.lint]\nbaseline = 'base.json'\n"})
    (lint.folder / "sub").mkdir()
    assert len(lint("../a.py", cwd=lint.folder / "sub")[1]) == 1


@pytest.mark.parametrize("content", ["", "{", "[]", '{"schema": 1}', '{"schema": 2, "lint_baseline": []}', '{"schema": 1, "lint_baseline": [3]}'])
def test_a_broken_baseline_is_one_error(lint, content):
    write(lint.folder, {"a.py": TRAIN, "base.json": content})
    done = lint("--baseline", "base.json", json_output=False)
    assert done.returncode == 2 and "base.json" in done.stderr and "--write-baseline" in done.stderr


# Whatever is in the way is told once and clearly; the other files are checked all the same.

def assert_told(lint, needle, *args):
    code, findings, stderr = lint(*args)
    assert code == 2
    assert stderr.count("lowtide:") == 1 and needle in stderr, stderr
    assert "train.py" in {f["file"] for f in findings}


def test_a_missing_path(lint):
    write(lint.folder, {"train.py": TRAIN})
    assert_told(lint, "nowhere.py", "train.py", "nowhere.py")


def test_an_unreadable_file(lint):
    write(lint.folder, {"train.py": TRAIN})
    os.mkfifo(lint.folder / "pipe.py")  # no regular file: left out without waiting for it
    assert lint()[0] != 2
    os.symlink("/proc/self/mem", lint.folder / "secret.py")  # opens, and every read fails, also for root
    assert_told(lint, "secret.py")


def test_a_broken_notebook(lint):
    write(lint.folder, {"train.py": TRAIN, "cut.ipynb": '{"cells": [{"cell_type'})
    assert_told(lint, "cut.ipynb")


@pytest.mark.parametrize("text", ["[tool.lowtide.lint", "[tool.lowtide.lint]\nselect = 3\n", "[tool.lowtide.lint]\nslect = []\n",
                                  "[tool.lowtide.lint]\nselect = ['LT999']\n", b"\xff\xfe\x00"])
def test_a_broken_configuration(lint, text):
    write(lint.folder, {"train.py": TRAIN, "b.py": TRAIN, "sub/c.py": TRAIN, "pyproject.toml": text})
    assert_told(lint, "pyproject.toml")


def test_a_huge_file_is_told_and_left_alone(lint):
    write(lint.folder, {"train.py": TRAIN})
    with open(lint.folder / "huge.py", "wb") as file:
        file.write(b"import torch\n")
        file.truncate(100 << 20)
    assert_told(lint, "huge.py")


def test_a_folder_without_python_files(lint):
    (lint.folder / "empty").mkdir()
    code, findings, stderr = lint("empty")
    assert (code, findings) == (0, []) and "no Python files" in stderr


@pytest.mark.parametrize("content", [
    b"", b"\xef\xbb\xbf", b"\xff\xfe\xfd torch \x80\n", b"import torch\n\x00\x00", b"import torch\r" + b"x = 1\r" * 50,
    b"import torch\nx = " + b"(" * 100_000, b"import torch\n" + b"if x:\n" * 3 + b" " * 50_000,
    b"import torch\nx = " + b"[" * 3000 + b"]" * 3000 + b"\n", b"import torch\ndef f(:\n  loss +=\n", b"import torch\n'''never closed\n",
    "import torch\nlöss = 'é' * 3  # noqa: LT101\u2028\n".encode(), b"import torch\n" + b"a.b" * 60_000,
])
def test_hostile_sources_are_survived(lint, content):
    write(lint.folder, {"train.py": TRAIN, "hostile.py": content})
    code, findings, stderr = lint("--select", "ALL")
    assert code in (0, 1), stderr
    assert any(f["file"] == "train.py" for f in findings)


def test_links_cannot_make_it_loop(lint):
    write(lint.folder, {"a/train.py": TRAIN})
    os.symlink("..", lint.folder / "a" / "up")
    os.symlink("nowhere", lint.folder / "a" / "dangling.py")
    os.symlink("train.py", lint.folder / "a" / "linked.py")
    assert [f["file"] for f in lint("--select", "LT101")[1]] == ["a/linked.py", "a/train.py"]


def test_a_pipe_that_closes_early_is_no_crash(lowtide_binary, lint):
    write(lint.folder, {f"m{i}.py": TRAIN for i in range(200)})
    done = subprocess.run(f"'{lowtide_binary}' lint | head -n 1", shell=True, cwd=lint.folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "m0.py" in done.stdout
