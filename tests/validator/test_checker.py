"""Rules over files and project: order, crashes, processes, comments, and files that are no Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validator.files.discovery import discover
from validator.finding import Finding
from validator.flow.program.flow import Flow
from validator.project import Project
from validator.registry import UsageError, check_selectors, enabled, load_rules
from validator.rule import LoadedRule, Rule
from validator.run.cache import digest
from validator.run.checker import Check, check, check_sources, is_solving
from validator.run.config import Config
from validator.source import SourceFile

BUILTIN = load_rules()
SOURCE_RULES = [each for each in BUILTIN if each.family == "source"]


def loaded(code: str, name: str, tokens: tuple[str, ...] = (), **hooks: Callable[..., Any]) -> LoadedRule:
    rule = Rule(code, name, "error", "0.1.0", tokens)
    return LoadedRule(rule, ModuleType(name), "interface", "", **hooks)  # type: ignore[arg-type]


def each_line(source: SourceFile) -> Iterator[Finding]:
    for number, line in enumerate(source.lines, 1):
        if "bad" in line:
            yield EACH.rule.finding(source.path, (number, 1, number, 4), "bad")


EACH = loaded("MP901", "each-line", ("bad",), check_file=each_line)


def crash(subject: object) -> Iterator[Finding]:
    raise ValueError("two\nlines")
    yield


def sources(**files: str) -> list[SourceFile]:
    return [SourceFile(f"{name}.py", f"/nowhere/{name}.py", text.encode()) for name, text in files.items()]


def run(files: list[SourceFile], rules: list[LoadedRule], known: list[LoadedRule] | None = None, **more: Any) -> Any:
    return check_sources(files, Check(Config(root="/nowhere"), rules, known or rules, **more))


def test_a_rule_that_crashes_is_named_and_the_others_go_on() -> None:
    for hook in ("check_file", "check_project"):
        broken = loaded("MP902", "broken-rule", **{hook: crash})
        result = run(sources(b="bad\n", a="bad\n"), [broken, EACH])
        assert [each.path for each in result.findings] == ["a.py", "b.py"]
        assert all("rule MP902 (broken-rule) failed on" in error and "\n" not in error for error in result.errors)
        assert any("ValueError: two lines (test_checker.py:" in error for error in result.errors)
    assert len(run(sources(b="bad\n", a="bad\n"), [loaded("MP902", "x", check_file=crash)]).errors) == 2


def test_files_without_a_token_are_not_shown_to_the_rule() -> None:
    rule = loaded("MP902", "broken-rule", ("absent",), check_file=crash, check_project=crash)
    assert run(sources(a="x = 1\n"), [rule]).errors == []


def test_a_broken_file_is_shown_to_source_rules_only() -> None:
    result = run(sources(a="def f(:\n  bad\n"), [EACH, *SOURCE_RULES])
    assert [each.code for each in result.findings] == ["MP001"]
    assert result.errors == []


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("bad  # validator: ignore[MP901] why\n", []),
        ("bad  # validator: ignore[MP901]\n", ["MP011"]),
        ("good = 1  # validator: ignore[MP901] why\n", ["MP010"]),
        ("good = 1  # validator: ignore[MP902] its rule is off\n", []),
        ("good = 1  # validator: ignore[MP777] why\n", ["MP012"]),
        ("good = 1  # validator: ignore why\n", ["MP012"]),
        ("bad  # validator: ignore[MP901, MP9] used twice\n", ["MP010"]),
        ("good = 1  # noqa: MP901\n", []),
        ("bad  # noqa\n", []),
        ("# validator: ignore-file[MP011] none\nbad  # validator: ignore[MP901]\n", []),
    ],
)
def test_comments_are_applied_last(text: str, codes: list[str]) -> None:
    off = loaded("MP902", "switched-off", check_file=crash)
    result = run(sources(a=text), [EACH, *SOURCE_RULES], [EACH, off, *SOURCE_RULES])
    assert [each.code for each in result.findings] == codes


def test_single_files_do_not_make_suppressions_of_project_rules_unused() -> None:
    rule = loaded("MP903", "whole-project", check_project=lambda project: iter(()))
    text = "x = 1  # validator: ignore[MP903] seen with the whole project only\n"
    rules = [rule, *SOURCE_RULES]
    assert [each.code for each in run(sources(a=text), rules, whole=True).findings] == ["MP010"]
    assert run(sources(a=text), rules, whole=False).findings == []


def test_per_file_ignores(tmp_path: Path) -> None:
    config = Config(root="/nowhere", per_file_ignores=(("a.py", ("MP9",)),))
    monkey = [
        SourceFile("/nowhere/a.py", "/nowhere/a.py", b"bad\n"),
        SourceFile("/nowhere/b.py", "/nowhere/b.py", b"bad\n"),
    ]
    result = check_sources(monkey, Check(config, [EACH], [EACH]))
    assert [each.path for each in result.findings] == ["/nowhere/b.py"]


def test_the_result_is_the_same_in_any_number_of_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("validator.run.checker._WORTH_A_PROCESS", 1_000)
    for number in range(40):
        body = "bad\n" if number % 3 else "def f(:\n"
        (tmp_path / f"m{number}.py").write_text("x = 1\n" * 40 * (number % 7) + body)
    config = Config(root=str(tmp_path))
    entries = discover(["."], config)
    digests = [digest(Path(entry.absolute).read_bytes()) for entry in entries]
    rules = [EACH, *SOURCE_RULES]
    results = [check(entries, digests, Check(config, rules, rules, jobs)) for jobs in (1, 2, 3)]
    assert len(results[0].findings) == 40
    assert results[0] == results[1] == results[2]


def _die(source: SourceFile) -> Iterator[Finding]:
    import os

    if os.getpid() != PARENT and source.path == "m3.py":
        os._exit(9)
    yield from each_line(source)


PARENT = 0


def test_a_process_that_is_killed_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("validator.run.checker._WORTH_A_PROCESS", 100)
    monkeypatch.setitem(globals(), "PARENT", os.getpid())
    for number in range(6):
        (tmp_path / f"m{number}.py").write_text("x = 1\n" * 4000 + "bad\n")
    config = Config(root=str(tmp_path))
    entries = discover(["."], config)
    rules = [loaded("MP901", "each-line", ("bad",), check_file=_die)]
    result = check(entries, [b""] * 6, Check(config, rules, rules, 2))
    assert [each.path for each in result.findings] == [f"m{number}.py" for number in range(6)]


@given(st.binary(max_size=200))
def test_any_bytes_are_a_finding_or_a_file(data: bytes) -> None:
    result = run([SourceFile("a.py", "/nowhere/a.py", data)], SOURCE_RULES)
    assert result.errors == []
    try:
        compile(data, "a.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        assert len([each for each in result.findings if each.severity == "error"]) <= 1


@pytest.mark.parametrize(
    ("select", "ignore", "extend", "codes"),
    [
        (["ALL"], ["MP0"], [], set()),
        (["MP01"], [], [], {"MP010", "MP011", "MP012"}),
        (["MP0"], ["MP01"], ["MP011"], {"MP001", "MP002", "MP003", "MP004", "MP005", "MP006", "MP007", "MP011"}),
        (["syntax-error"], [], [], {"MP001"}),
        ([], ["ALL"], ["nul-bytes"], {"MP004"}),
        (["mp001"], ["MP001"], [], set()),
    ],
)
def test_the_closer_selector_wins(select: list[str], ignore: list[str], extend: list[str], codes: set[str]) -> None:
    chosen = enabled(SOURCE_RULES, select, ignore, extend)
    assert {each.rule.code for each in chosen} == codes


def test_an_unknown_selector_is_told_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"unknown rule 'sintax-error' \(did you mean 'syntax-error'\?\)"):
        check_selectors(["sintax-error"], SOURCE_RULES, "here")


def test_user_rules_load_from_a_folder(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        '"""Mine."""\nfrom validator.rule import Rule\nRULE = Rule("XY001", "mine", "error", "1")\n'
        "def check_file(source):\n    yield RULE.finding(source.path, (1, 1, 1, 2), 'mine')\n"
    )
    (tmp_path / "_helper.py").write_text("raise SystemExit\n")
    rules = load_rules([str(tmp_path)])
    assert "XY001" in {each.rule.code for each in rules}
    (tmp_path / "again.py").write_text((tmp_path / "mine.py").read_text())
    with pytest.raises(UsageError, match="two rules call themselves XY001"):
        load_rules([str(tmp_path)])
    (tmp_path / "again.py").write_text("1 / 0\n")
    with pytest.raises(UsageError, match=r"again\.py: the rule cannot be loaded: ZeroDivisionError"):
        load_rules([str(tmp_path)])
    (tmp_path / "again.py").write_text(
        "nothing = 1\n"
    )  # another size: Python believes a compiled file of the same second
    with pytest.raises(UsageError, match="declares RULE"):
        load_rules([str(tmp_path)])


def test_rules_that_ask_the_solver_say_so() -> None:
    """One process solves for all of them; a rule that is not marked would have the other process solve as well."""
    tree = Path(__file__).parent.parent / "data"
    paths = sorted(path for folder in ("demo", "trainkit") for path in (tree / folder).rglob("*.py"))
    sources = [SourceFile(path.relative_to(tree).as_posix(), str(path)) for path in paths]
    project = Project(sources, Config(root=str(tree)))
    rules = [each for each in load_rules() if each.check_project is not None]
    solver = project.analysis(Flow).solver
    for each in rules:
        if not is_solving(each):
            list(each.check_project(project))
            assert not solver.evaluations, each.rule.code
    list(next(each for each in rules if each.rule.code == "MP120").check_project(project))
    assert solver.evaluations
