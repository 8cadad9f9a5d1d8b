"""`lowtide explain`: the page as it is for programs, set for a reader on a terminal."""
import os
import pathlib
import pty
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_into_a_pipe_the_page_is_printed_as_it_is_written(lowtide):
    done = lowtide("explain", "lt201")
    assert done.returncode == 0
    assert done.stdout == (ROOT / "docs" / "findings" / "LT201.md").read_text(encoding="utf-8")


def test_with_colour_headings_are_bold_and_code_is_dim(lowtide):
    text = lowtide("--color", "always", "explain", "LT201").stdout
    assert "\x1b[1mWhat\x1b[0m" in text
    assert re.search(r"^    \x1b\[2m\S", text, re.MULTILINE), "code is indented and dim"
    assert "```" not in text and "## " not in text


def test_on_a_terminal_without_colour_it_is_wrapped(lowtide_binary):
    master, slave = pty.openpty()
    done = subprocess.Popen([lowtide_binary, "explain", "LT201"], stdout=slave, stderr=slave,
                            env={**os.environ, "NO_COLOR": "1", "COLUMNS": "60"})
    text = b""
    os.close(slave)
    while True:
        try:
            piece = os.read(master, 1 << 16)
        except OSError:
            break
        text += piece
        if not piece:
            break
    assert done.wait(30) == 0
    os.close(master)
    lines = text.decode().replace("\r", "").split("\n")
    assert "What" in lines
    prose = [line for line in lines if not line.startswith("    ")]
    assert max(map(len, prose)) <= 60
    assert "\x1b" not in text.decode()


def test_unknown_codes_are_told(lowtide):
    done = lowtide("explain", "LT999")
    assert done.returncode == 2
    assert "lowtide explain" in done.stderr
    assert "LT201" in lowtide("explain").stdout
