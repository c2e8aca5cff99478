"""The command line as people and continuous integration use it."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from validator import cli


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory of its own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def user_rule(here: Path) -> list[str]:
    """A rule about `bad` with a fix in LibCST, one that leaves notes, and the options that load them."""
    folder = here / "checks"
    folder.mkdir()
    (folder / "bad_name.py").write_text(
        '"""No bad.\n\nWhat it does\n    Finds it.\n"""\n'
        "import ast, libcst as cst\nfrom validator.rule import Rule\n"
        'RULE = Rule("XX001", "bad-name", "error", "1", tokens=("bad",), fix="safe")\n'
        "def check_file(source):\n"
        "    for node in ast.walk(source.tree):\n"
        "        if isinstance(node, ast.Name) and node.id == 'bad':\n"
        "            at = node.lineno, node.col_offset + 1, node.end_lineno, node.end_col_offset + 1\n"
        "            yield RULE.finding(source.path, at, 'bad', help='make it good')\n"
        "def fix(node, finding):\n    return cst.Name('good')\n"
    )
    (folder / "noted.py").write_text(
        '"""A note."""\nfrom validator.rule import Rule\n'
        'RULE = Rule("XX002", "noted", "note", "1", tokens=("noted",))\n'
        "def check_file(source):\n    yield RULE.finding(source.path, (1, 1, 1, 2), 'noted')\n"
    )
    (here / "code").mkdir()
    return ["--rules", "checks", "--select", "MP0,XX", "code"]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = cli.main(list(arguments))
    output = capsys.readouterr()
    return status, output.out, output.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["missing.py"], "missing.py: No such file or directory"),
        (["--select", "MP999"], "unknown rule 'MP999'"),
        (["--ignore", "syntax-eror"], "did you mean 'syntax-error'?"),
        (["--explain", "MP0001"], "did you mean 'MP001'?"),
        (["--format", "yaml"], "invalid choice: 'yaml'"),
        (["--nonsense"], "unrecognized arguments: --nonsense"),
        (["--baseline", "none.json"], "the baseline does not exist"),
        (["--update-baseline"], "needs --baseline FILE"),
        (["--changed-since", "main"], "not in a git work tree"),
        (["--unsafe-fixes"], "needs --fix, --fix-only or --diff"),
        (["--fix-only", "--diff"], "--fix-only reports nothing"),
        (["--stdin-filename", "a.py"], "needs '-'"),
        (["-", "a.py"], "stands alone"),
        (["--jobs", "0"], "at least 1"),
        (["--target-python", "3"], "must be a version"),
        (["--rules", "nowhere"], "the folder of rules does not exist"),
        (["--output", "no/such/folder/x"], "cannot be written"),
        (["--explain", ""], "--explain was given an empty text"),
        (["--baseline", ""], "--baseline was given an empty text"),
        (["--why", "none.py:1"], "none.py is not among the files that were read"),
        (["--why", "a.py:7"], "--why: a.py has 1 line"),
        (["--why", "b.py:1"], "b.py cannot be parsed"),
        (["--why", "c.yaml:2"], "--why: c.yaml has 1 line"),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(
    capsys: pytest.CaptureFixture[str], here: Path, arguments: list[str], said: str
) -> None:
    for name, text in (("a.py", "x = 1\n"), ("b.py", "x = (\n"), ("c.yaml", "a: 1\n")):
        (here / name).write_text(text)
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert err.startswith("meshproof: error: ")
    assert said in err
    assert err.count("\n") == 1


def test_status_tells_findings_from_none(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    (here / "a.py").write_text("x = 1\n")
    assert run(capsys)[:2] == (0, "no findings in 1 file\n")
    (here / "a.py").write_text("x = (\n")
    assert run(capsys)[0] == 1
    assert run(capsys, "--exit-zero")[0] == 0


def test_notes_are_shown_on_request_and_never_count(
    capsys: pytest.CaptureFixture[str], here: Path, user_rule: list[str]
) -> None:
    (here / "code" / "a.py").write_text("noted = 1\n")
    assert run(capsys, *user_rule) == (0, "no findings in 1 file\n", "")
    status, out, _ = run(capsys, *user_rule, "--notes", "--format", "concise")
    assert (status, out.splitlines()[0]) == (0, "code/a.py:1:1: note XX002 noted")


def test_an_internal_error_is_status_2_and_not_remembered(
    capsys: pytest.CaptureFixture[str], here: Path, user_rule: list[str]
) -> None:
    (here / "checks" / "crash.py").write_text(
        '"""C."""\nfrom validator.rule import Rule\nRULE = Rule("XX003", "crash", "error", "1")\n'
        "def check_file(source):\n    return 1 / 0\n"
    )
    (here / "code" / "a.py").write_text("bad = 1\n")
    for _ in range(2):
        status, out, err = run(capsys, *user_rule, "--format", "concise")
        assert status == 2
        assert "XX001 bad" in out
        assert "internal error: rule XX003 (crash) failed on code/a.py: ZeroDivisionError" in err


def test_fix_mends_and_reports_what_is_left(
    capsys: pytest.CaptureFixture[str], here: Path, user_rule: list[str]
) -> None:
    file = here / "code" / "a.py"
    file.write_bytes(b"\xef\xbb\xbfbad = [1,  bad]\r\n")
    (here / "code" / "b.py").write_text("def f(:\n")
    status, diff, _ = run(capsys, *user_rule, "--diff")
    assert status == 1
    assert "-\ufeffbad = [1,  bad]" in diff.replace("\r", "") or "-bad = [1,  bad]" in diff.replace("\r", "")
    assert file.read_bytes() == b"\xef\xbb\xbfbad = [1,  bad]\r\n", "--diff writes nothing"
    status, out, err = run(capsys, *user_rule, "--fix", "--format", "concise")
    assert status == 1
    assert out.splitlines() == ["code/b.py:1:7: error MP001 syntax error: invalid syntax", "1 error in 2 files"]
    assert err == "meshproof: 2 fixes applied\n"
    assert file.read_bytes() == b"\xef\xbb\xbfgood = [1,  good]\r\n"
    assert run(capsys, *user_rule, "--diff")[:2] == (0, "")


def test_a_fixer_does_not_fail_for_what_no_fix_can_mend(
    capsys: pytest.CaptureFixture[str], here: Path, user_rule: list[str]
) -> None:
    (here / "code" / "a.py").write_text("bad = 1\n")
    (here / "code" / "b.py").write_text("def f(:\n")
    assert run(capsys, *user_rule, "--fix-only") == (0, "", "meshproof: 1 fix applied\n")
    assert (here / "code" / "a.py").read_text() == "good = 1\n"
    assert run(capsys, *user_rule)[0] == 1, "b.py is still wrong"
    (here / "checks" / "noted.py").write_text((here / "checks" / "noted.py").read_text() + "    1 / 0\n")
    (here / "code" / "c.py").write_text("noted = 1\n")
    status, _, err = run(capsys, *user_rule, "--fix-only")
    assert (status, "internal error" in err) == (2, True)


def test_unsafe_fixes_need_their_option(capsys: pytest.CaptureFixture[str], here: Path, user_rule: list[str]) -> None:
    rule = here / "checks" / "bad_name.py"
    rule.write_text(rule.read_text().replace('fix="safe"', 'fix="unsafe"'))
    (here / "code" / "a.py").write_text("bad = 1\n")
    assert run(capsys, *user_rule, "--fix")[0] == 1
    assert run(capsys, *user_rule, "--fix", "--unsafe-fixes")[0] == 0
    assert (here / "code" / "a.py").read_text() == "good = 1\n"


def test_add_ignore_silences_once_and_changes_nothing_else(
    capsys: pytest.CaptureFixture[str], here: Path, user_rule: list[str]
) -> None:
    file = here / "code" / "a.py"
    file.write_bytes(b"x = [\r\n    bad,\r\n]\r\ny = '''\r\n''', bad\r\nz = bad  # why\r\nif bad: pass\r\n")
    status, _, err = run(capsys, *user_rule, "--add-ignore", "--reason", "known")
    assert (status, err) == (0, "meshproof: 4 findings silenced\n")
    first = file.read_bytes()
    assert first == (
        b"x = [\r\n    bad,\r\n]  # validator: ignore[XX001] known\r\n"
        b"y = '''\r\n''', bad  # validator: ignore[XX001] known\r\n"
        b"z = bad  # why  # validator: ignore[XX001] known\r\nif bad: pass  # validator: ignore[XX001] known\r\n"
    )
    assert run(capsys, *user_rule, "--add-ignore")[2] == "meshproof: 0 findings silenced\n"
    assert file.read_bytes() == first


def test_baseline_hides_what_was_there(capsys: pytest.CaptureFixture[str], here: Path, user_rule: list[str]) -> None:
    (here / "code" / "a.py").write_text("bad = 1\n")
    assert run(capsys, *user_rule, "--baseline", "b.json", "--update-baseline")[0] == 0
    status, out, _ = run(capsys, *user_rule, "--baseline", "b.json")
    assert (status, out) == (0, "no findings in 1 file (1 baselined)\n")
    (here / "code" / "a.py").write_text("# new\nbad = 1\nbad = 2\n")
    status, out, _ = run(capsys, *user_rule, "--baseline", "b.json", "--format", "concise")
    assert (status, out.splitlines()[0][:12]) == (1, "code/a.py:3:")


def test_changed_since_reports_changed_and_untracked_files(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main")
        subprocess.run(["git", *identity, *arguments], check=True, capture_output=True, timeout=60)

    for name in ("old.py", "changed.py", "branch.py"):
        (here / name).write_text("x = (\n")
    git("init")
    git("add", ".")
    git("commit", "-m", "one")
    git("checkout", "-b", "work")
    (here / "branch.py").write_text("y = (\n")
    git("commit", "-am", "two")
    (here / "changed.py").write_text("y = (\n")
    (here / "new.py").write_text("x = (\n")
    reported = json.loads(run(capsys, "--changed-since", "main", "--format", "json")[1])["findings"]
    assert [each["path"] for each in reported] == ["branch.py", "changed.py", "new.py"]
    assert run(capsys, "--changed-since", "--output=x")[0] == 2, "a revision is no option"
    assert "knows no revision 'none'" in run(capsys, "--changed-since", "none")[2]


def test_standard_input_stands_for_a_file(
    capsys: pytest.CaptureFixture[str], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def give(data: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    give(b"x = (\n")
    status, out, _ = run(capsys, "-", "--stdin-filename", "pkg/a.py")
    assert (status, "--> pkg/a.py:1:5" in out, "1 | x = (" in out) == (1, True, True)
    give(b"x = (\n")
    (here / "pyproject.toml").write_text('[tool.validator]\nextend-exclude = ["pkg"]\n')
    status, _, err = run(capsys, "-", "--stdin-filename", "pkg/a.py")
    assert (status, err) == (0, f"meshproof: excluded by {here / 'pyproject.toml'}, so not checked: pkg/a.py\n")
    give(b"x = 1\n")
    assert run(capsys, "-")[0] == 0


def test_output_goes_to_a_file(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    (here / "a.py").write_text("x = (\n")
    assert run(capsys, "--format", "sarif", "--output", "out.sarif") == (1, "", "")
    assert json.loads((here / "out.sarif").read_text())["version"] == "2.1.0"


def test_statistics_count_by_rule(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    for number in range(3):
        (here / f"a{number}.py").write_text("x = (\n")
    out = run(capsys, "--statistics")[1]
    assert out.splitlines() == ["3  MP001  error    syntax-error", "3 errors in 3 files"]
    table = json.loads(run(capsys, "--statistics", "--format", "json")[1])["statistics"]
    assert table == [{"code": "MP001", "name": "syntax-error", "severity": "error", "count": 3}]


def test_rules_are_listed_and_explained(capsys: pytest.CaptureFixture[str], user_rule: list[str]) -> None:
    listing = json.loads(run(capsys, "--list-rules", "--format", "json", "--rules", "checks")[1])
    assert {"MP001", "XX001"} <= {each["code"] for each in listing}
    text = run(capsys, "--explain", "unused-suppression")[1]
    assert text.startswith("MP010 unused-suppression\n")
    assert "Why is this bad" in text
    assert "# error:" not in text
    group = run(capsys, "--explain", "mp01")[1].splitlines()
    assert [line.split()[0] for line in group[:3]] == ["MP010", "MP011", "MP012"]
    assert group[-1] == "--explain MP010 explains one of them"
    assert {"MP010", "MP501", "MP915"} <= {line[:5] for line in run(capsys, "--explain", "all")[1].splitlines()}


def test_configuration_is_used_and_shown(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    (here / "a.py").write_text("x = (\n")
    (here / "pyproject.toml").write_text('[tool.validator]\nignore = ["MP001"]\n')
    assert run(capsys)[0] == 0
    assert run(capsys, "--extend-select", "MP001")[0] == 0, "ignore wins a draw"
    assert run(capsys, "--isolated")[0] == 1
    assert 'ignore = ["MP001"]' in run(capsys, "--show-config")[1]
    (here / "pyproject.toml").write_text('[tool.validator]\nselect = ["NOPE"]\n')
    assert f"{here / 'pyproject.toml'}: select: unknown rule 'NOPE'" in run(capsys)[2]


@pytest.mark.parametrize(
    ("written", "arguments", "said"),
    [
        ("", ["--select", "MP5O1"], "error: --select: unknown rule 'MP5O1' (did you mean 'MP501'?)"),
        ("", ["--ignore", "MP101,mp5o"], "error: --ignore: unknown rule 'mp5o' (did you mean 'MP50'?)"),
        ("", ["--extend-select", "MPl01"], "error: --extend-select: unknown rule 'MPl01' (did you mean 'MP101'?)"),
        ('ignore = ["MP5O1"]', ["--ignore", "MP101"], "{file}: ignore: unknown rule 'MP5O1' (did you mean 'MP501'?)"),
        (
            'per-file-ignores = { "*.py" = ["syntax-eror"] }',
            ["--ignore", "MP101"],
            "{file}: per-file-ignores.*.py: unknown rule 'syntax-eror' (did you mean 'syntax-error'?)",
        ),
    ],
)
def test_an_unknown_rule_is_told_where_it_is_written(
    capsys: pytest.CaptureFixture[str], here: Path, written: str, arguments: list[str], said: str
) -> None:
    (here / "a.py").write_text("x = 1\n")
    (here / "pyproject.toml").write_text(f"[tool.validator]\n{written}\n")
    status, _, told = run(capsys, *arguments)
    assert status == 2
    assert said.format(file=here / "pyproject.toml") in told


@pytest.mark.parametrize("option", [[], ["--fix"], ["--diff"]])
def test_a_file_named_by_hand_and_excluded_is_told(
    capsys: pytest.CaptureFixture[str], here: Path, option: list[str]
) -> None:
    (here / "gen").mkdir()
    for name in ("gen/a.py", "gen/b.py", "c.py"):
        (here / name).write_text("x = 1\n")
    (here / "pyproject.toml").write_text('[tool.validator]\nexclude = ["gen"]\n')
    said = f"meshproof: excluded by {here / 'pyproject.toml'}, so not checked: "
    assert run(capsys, *option, "gen/a.py", "c.py", "gen/b.py")[2].splitlines()[0] == f"{said}gen/a.py, gen/b.py"
    assert run(capsys, *option, "gen")[2].splitlines()[0] == f"{said}gen"
    assert said not in run(capsys, *option, ".")[2]


def test_a_folder_with_nothing_to_check_is_told(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    (here / "empty").mkdir()
    said = "meshproof: nothing to check: no Python, shell or configuration file in empty\n"
    assert run(capsys, "empty") == (0, "no findings in 0 files\n", said)


def test_a_file_of_another_kind_is_told_and_a_script_is_read(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    for name in ("notes.md", "LICENSE", "a.lock", "b.txt", "c.txt"):
        (here / name).write_text("no code (\n")
    (here / "train").write_text("#!/usr/bin/env python3\nx = (\n")
    status, out, err = run(capsys, "notes.md", "LICENSE")
    said = "meshproof: not checked, being neither Python, shell nor configuration: "
    assert (status, out, err) == (0, "no findings in 0 files\n", f"{said}notes.md, LICENSE\n")
    status, out, err = run(capsys, "--format", "concise", "train", "notes.md", "LICENSE", "a.lock", "b.txt", "c.txt")
    assert (status, "train:2:5: error MP001" in out) == (1, True)
    assert err == f"{said}notes.md, LICENSE, a.lock and 2 more\n"


def test_what_no_comment_can_silence_is_told(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    (here / "a.py").write_text("x = (\n")
    assert run(capsys, "--add-ignore", ".")[2] == "meshproof: 0 findings silenced; 1 left, where no comment can do it\n"


def test_what_the_validator_wrote_is_not_read(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    (here / "a.py").write_text("x = (\n")
    for name in ("base.json", "report.json"):
        (here / name).write_text('{"version": 1, "findings": {}}\n')
    assert "in 3 files" in run(capsys, ".")[1]
    assert "in 2 files" in run(capsys, "--baseline", "base.json", ".")[1]
    run(capsys, "--baseline", "base.json", "--format", "json", "--output", "report.json", ".")
    assert json.loads((here / "report.json").read_text())["summary"]["files"] == 1


def test_order_and_text_do_not_depend_on_how_paths_are_named(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    (here / "pkg").mkdir()
    for name in ("pkg/b.py", "pkg/a.py", "c.py"):
        (here / name).write_text("x = (\n")
    first = run(capsys, "--format", "json")[1]
    for paths in (["c.py", "pkg"], [str(here)], ["pkg/b.py", "./pkg/../c.py", "pkg/a.py"], [".", "pkg", "c.py"]):
        assert run(capsys, "--format", "json", "--no-cache", *paths)[1] == first


def test_a_closed_pipe_is_no_traceback(here: Path) -> None:
    for number in range(300):
        (here / f"a{number}.py").write_text("x = (\n")
    environment = {**os.environ, "PYTHONPATH": str(Path(cli.__file__).resolve().parents[1])}
    command = f"{sys.executable} -m validator | head -n 1"
    done = subprocess.run(command, shell=True, cwd=here, env=environment, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
