"""The formats of `lowtide lint`, each read by the kind of program that it is meant for."""
import json
import os
import re
import xml.etree.ElementTree as ET

import pytest
from linting import CLEAN, TRAIN, lint, write  # noqa: F401 (a fixture)

HOSTILE = "odd, 100%:\x1b[31m<&\"'\x07 名.py"


@pytest.fixture
def project(lint):
    write(lint.folder, {"train.py": TRAIN, "clean.py": CLEAN, "sub/" + HOSTILE: TRAIN})
    lint.truth = lint()[1]
    assert len(lint.truth) == 4
    return lint


def test_text_shows_line_span_help_and_next_command(project):
    out = project("train.py", "--select", "LT101", json_output=False).stdout
    first = project.truth[-2]
    lines = out.splitlines()
    assert lines[0].startswith(f"train.py:{first['line']}:{first['column']}: ") and "[LT101]" in lines[0]
    source = next(i for i, line in enumerate(lines) if "total += loss" in line and line.lstrip().startswith("12"))
    start = lines[source].index("total += loss")
    assert lines[source + 1].index("^") == start
    assert lines[source + 1].count("^") == first["end_column"] - first["column"]
    assert any("help" in line for line in lines)
    assert "lowtide explain LT101" in out
    assert "\x1b" not in out


def test_text_in_colour_and_in_chinese(project):
    assert "\x1b[" in project("train.py", "--color", "always", json_output=False, env={"NO_COLOR": ""}).stdout
    assert re.search(r"[\u4e00-\u9fff]", project("train.py", "--lang", "zh", json_output=False).stdout)


def test_no_control_character_of_a_name_or_a_source_reaches_the_terminal(project):
    write(project.folder, {"esc.py": TRAIN.replace("total += loss", "total += loss  # \x1b[2J\x07\u202e")})
    for form in ("text", "concise"):
        out = project(json_output=False, *["--output-format", form]).stdout
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e]", out)


def test_columns_are_right_behind_tabs_and_wide_characters(project):
    write(project.folder, {"wide.py": TRAIN.replace("        total += loss", "        '損失'; total += loss").replace("    ", "\t")})
    lines = project("wide.py", "--select", "LT101", json_output=False).stdout.splitlines()
    source = next(i for i, line in enumerate(lines) if "total += loss" in line and "損失" in line)
    before = lines[source][:lines[source].index("total += loss")]
    assert lines[source + 1].index("^") == len(before) + 2, "two wide characters take two columns more"


def test_concise(project):
    out = project("train.py", "--output-format", "concise", "-q", json_output=False).stdout
    assert re.fullmatch(r"(train\.py:\d+:\d+: LT1\d\d (\[\*\] )?.+\n){2}", out)


def test_statistics(project):
    out = project("--statistics", json_output=False).stdout
    assert re.search(r"^ +2  LT101  \[\*\]  \S+$", out, re.MULTILINE)


def test_github(project):
    lines = project("--output-format", "github", json_output=False).stdout.splitlines()
    assert len(lines) == 4
    for line, truth in zip(lines, project.truth):
        level, properties, message = re.fullmatch(r"::(error|warning|notice) (.*?)::(.*)", line).groups()
        fields = dict(item.split("=", 1) for item in properties.split(","))
        unescaped = fields["file"].replace("%2C", ",").replace("%3A", ":").replace("%0A", "\n").replace("%25", "%")
        assert (unescaped, int(fields["line"])) == (truth["file"], truth["line"])
        assert truth["code"] in message and truth["code"] in fields["title"]


def test_gitlab(project):
    items = json.loads(project("--output-format", "gitlab", json_output=False).stdout)
    assert len({item["fingerprint"] for item in items}) == len(items) == 4
    for item, truth in zip(items, project.truth):
        assert item["severity"] in {"info", "minor", "major", "critical", "blocker"}
        assert item["location"]["path"] == truth["file"]
        assert item["location"]["positions"]["begin"] == {"line": truth["line"], "column": truth["column"]}


def test_junit(project):
    root = ET.fromstring(project("--output-format", "junit", json_output=False).stdout)
    assert root.tag == "testsuites" and root.get("failures") == "4"
    assert [len(suite) for suite in root] == [2, 2]
    assert all(case.find("failure") is not None for case in root.iter("testcase"))
    clean = ET.fromstring(project("clean.py", "--output-format", "junit", json_output=False).stdout)
    assert clean.get("failures") == "0" and len(list(clean.iter("testcase"))) == 1


def test_sarif_is_what_the_standard_says(project):
    text = project("--output-format", "sarif", json_output=False).stdout
    run = json.loads(text)["runs"][0]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert len(run["results"]) == 4
    for result, truth in zip(run["results"], project.truth):
        region = result["locations"][0]["physicalLocation"]["region"]
        assert rules[result["ruleIndex"]] == result["ruleId"] == truth["code"]
        assert (region["startLine"], region["startColumn"], region["endColumn"]) == (truth["line"], truth["column"], truth["end_column"])
        assert re.fullmatch(r"[A-Za-z0-9/._~%-]+", result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"])
    models = pytest.importorskip("sarif_pydantic", reason="sarif-pydantic is not installed: the document was not read as a model")
    assert len(models.Sarif.model_validate_json(text).runs[0].results) == 4


def test_sarif_validates_against_the_published_schema(project):
    path = os.environ.get("LOWTIDE_SARIF_SCHEMA")
    if not path:
        pytest.skip("LOWTIDE_SARIF_SCHEMA names no copy of the published sarif-schema-2.1.0.json")
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(open(path, encoding="utf-8").read())
    for arguments in ([], ["clean.py"], ["--select", "ALL"]):
        document = json.loads(project(*arguments, "--output-format", "sarif", json_output=False).stdout)
        jsonschema.Draft7Validator(schema).validate(document)


def test_output_file_and_errors_do_not_mix(project):
    done = project("train.py", "nowhere.py", "--output-format", "json", "-o", "out.json", json_output=False)
    assert done.returncode == 2 and done.stdout == "" and "nowhere.py" in done.stderr
    assert len(json.loads((project.folder / "out.json").read_text())) == 2
