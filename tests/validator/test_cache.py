"""The cache saves work and never changes what is reported: stale, damaged, shared or hostile as it may be."""

from __future__ import annotations

import json
import marshal
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from validator import cli, registry, source
from validator.facts.model import FileFacts
from validator.files import tables
from validator.finding import Edit, Finding, Fix, Related, Span
from validator.run import cache, checker, records


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with one finding, and a cache of its own."""
    monkeypatch.setenv("MESHPROOF_CACHE_DIR", str(tmp_path / "cache"))
    folder = tmp_path / "tree"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "a.py").write_text("def f(:\n")
    (folder / "b.py").write_text("x = 1\n")
    return folder


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    cli.main([*arguments, "--format", "json"])
    return [f"{each['path']}:{each['line']} {each['code']}" for each in json.loads(capsys.readouterr().out)["findings"]]


@pytest.fixture
def examined(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that were really examined."""
    paths: list[str] = []
    real = checker.examine

    def examine(source, *rest):  # type: ignore[no-untyped-def]
        paths.append(source.path)
        return real(source, *rest)

    monkeypatch.setattr(checker, "examine", examine)
    return paths


def test_only_what_changed_is_examined_again(
    tree: Path, capsys: pytest.CaptureFixture[str], examined: list[str]
) -> None:
    assert run(capsys) == ["a.py:1 MP001"]
    assert examined == ["a.py", "b.py"]
    assert run(capsys) == ["a.py:1 MP001"], "files with findings are cached too"
    assert examined == ["a.py", "b.py"]
    (tree / "b.py").write_text("y = (\n")
    assert run(capsys) == ["a.py:1 MP001", "b.py:1 MP001"]
    assert examined == ["a.py", "b.py", "b.py"]
    assert run(capsys, "--no-cache") == ["a.py:1 MP001", "b.py:1 MP001"]
    assert len(examined) == 5


def test_a_change_that_keeps_size_and_time_is_seen(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The racy case of git: changed within the clock's tick after it was read."""
    stamp = (tree / "b.py").stat()
    run(capsys)
    (tree / "b.py").write_text("x = (\n"[:6])
    os.utime(tree / "b.py", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert run(capsys) == ["a.py:1 MP001", "b.py:1 MP001"]


def test_settled_files_are_not_read_again(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    later = time.time_ns() + 10_000_000_000
    monkeypatch.setattr(cache.time, "time_ns", lambda: later)
    from validator.files.discovery import discover
    from validator.run.config import Config

    entries = discover(["."], Config(root=str(tree)))
    first = cache.Cache("x")
    digests = first.digests(entries)
    first.save()

    def unexpected(path: str, *rest: object) -> object:
        raise AssertionError(f"{path} was read")

    known = cache.Cache("x")
    monkeypatch.setattr("builtins.open", unexpected)
    assert known.digests(entries) == digests


def test_what_a_run_keeps_reads_no_file_that_it_left_out(
    tree: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file above the limit is told of and not read, by the run that keeps what its rules said neither."""
    (tree / "large.py").write_bytes(b"#" * 11_000_000)
    read: list[str] = []
    real = source.regular

    def regular(path: str) -> bytes:
        read.append(os.path.basename(path))
        return real(path)

    monkeypatch.setattr(source, "regular", regular)
    assert any(row.startswith("large.py") for row in run(capsys))
    assert "large.py" not in read


@pytest.mark.parametrize("how", ["truncated", "flipped", "emptied", "garbage"])
@pytest.mark.parametrize("suffix", [".runs", ".facts", ".rules"])
def test_a_damaged_cache_is_made_again(tree: Path, capfd: pytest.CaptureFixture[str], how: str, suffix: str) -> None:
    run(capfd)
    for path in (tree.parent / "cache").glob(f"*{suffix}"):
        data = path.read_bytes()
        middle = len(data) // 2
        path.write_bytes(
            {
                "truncated": data[:middle],
                "flipped": data[:middle] + bytes([data[middle] ^ 255]) + data[middle + 1 :],
                "emptied": b"",
                "garbage": os.urandom(500),
            }[how]
        )
    (tree / "b.py").write_text("x = 2\n")
    assert run(capfd) == ["a.py:1 MP001"]
    assert capfd.readouterr().err == ""


ODD = (None, 7, "x", b"", (), [], {}, (1, 2), [("a",)], ((), ()), ((1, b""),) * 3, ([("MP001",) * 10], 0), (b"", b""))


def forged(path: Path, change: Callable[[Any], Any]) -> None:
    """Replace what a cache file holds by something else in a valid container."""
    body = cache._load(str(path))
    assert body is not None
    cache._store(str(path), marshal.dumps(change(marshal.loads(body))))


def everywhere(value: Any, odd: Any) -> Any:
    """The value with something odd in place of each leaf."""
    if isinstance(value, dict):
        return {key: everywhere(each, odd) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(everywhere(each, odd) for each in value)
    return odd


@pytest.mark.parametrize("odd", ODD, ids=repr)
@pytest.mark.parametrize("suffix", ["runs", "facts", "rules"])
def test_a_forged_cache_is_made_again(tree: Path, capfd: pytest.CaptureFixture[str], odd: Any, suffix: str) -> None:
    shapes = (
        lambda held: odd,
        lambda held: everywhere(held, odd),
        lambda held: (dict.fromkeys(part, odd) for part in held) if suffix == "runs" else dict.fromkeys(held, odd),
        lambda held: (odd,) * 3,
    )
    (tree / "c.py").write_text("import os, sys\nx = open(sys.argv[1])\n")
    assert run(capfd) == ["a.py:1 MP001"]
    for shape in shapes:
        for path in (tree.parent / "cache").glob(f"*.{suffix}"):
            forged(path, lambda held, shape=shape: tuple(new) if hasattr(new := shape(held), "send") else new)
        if suffix != "runs":
            for path in (tree.parent / "cache").glob("*.runs"):
                path.unlink()
        assert run(capfd) == ["a.py:1 MP001"]
        assert capfd.readouterr().err == ""


def test_the_index_holds_what_the_modules_declare(tree: Path) -> None:
    errors: list[str] = []
    first = registry.indexed_rules((), errors, cache.Cache("x"))
    again = registry.indexed_rules((), errors, cache.Cache("x"))
    assert [each.rule for each in again] == [each.rule for each in first] == [e.rule for e in registry.load_rules()]
    assert all(each.module is None for each in again)
    for known, later in zip(first, again, strict=True):
        for name in ("check_file", "check_project", "check_suppressions", "fix"):
            assert (getattr(known, name) is None) == (getattr(later, name) is None)
    assert errors == []


def test_tables_are_parsed_once_and_again_when_damaged(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tree / "t.toml").write_text('[a]\nb = [1, "x", true]\n')
    (tree / "dated.toml").write_text("day = 2024-01-01\n")
    parsed: list[str] = []
    real = tables.parse_toml
    monkeypatch.setattr(tables, "parse_toml", lambda path, data: parsed.append(path) or real(path, data))
    tables.keep_in(cache.Cache("x"))
    try:
        for _ in range(2):
            assert tables.load_toml("t.toml") == {"a": {"b": [1, "x", True]}}
        assert parsed == ["t.toml"]
        for path in (tree.parent / "cache").glob("*.table"):
            forged(path, lambda held: [held])
        assert tables.load_toml("t.toml") == {"a": {"b": [1, "x", True]}}
        assert tables.load_toml("dated.toml") == tables.load_toml("dated.toml")
        assert parsed == ["t.toml", "t.toml", "dated.toml", "dated.toml"]
    finally:
        tables.keep_in(None)


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("ran",)


@pytest.mark.parametrize(
    "record",
    [
        Evil(),
        partial(print, "ran"),
        records.Record(FileFacts(names=7), (), (), frozenset(), ()),  # type: ignore[arg-type]
        records.Record(FileFacts(imports=("x",), classes=(3,), lines=1), (), (), frozenset(["torch"]), ()),  # type: ignore[arg-type]
        records.Record(FileFacts(), ("x",), (), frozenset(), ()),  # type: ignore[arg-type]
        records.Record(FileFacts(), (), (), frozenset(), ("an error",)),
        records.Record(FileFacts(language=[]), (), (), frozenset(), ()),  # type: ignore[arg-type]
    ],
    ids=lambda record: f"{type(record).__name__}",
)
def test_forged_facts_are_extracted_again(tree: Path, capfd: pytest.CaptureFixture[str], record: object) -> None:
    (tree / "pkg").mkdir()
    (tree / "pkg/__init__.py").touch()
    (tree / "pkg/c.py").write_text("def f():\n    return nothing_here\n")
    expected = run(capfd)
    assert expected == ["a.py:1 MP001", "pkg/c.py:2 MP204"]
    for _ in range(2):
        for path in (tree.parent / "cache").glob("*.facts"):
            forged(path, lambda held: {k: (content, pickle.dumps(record)) for k, (content, _) in held.items()})
        for path in (tree.parent / "cache").glob("*.runs"):
            path.unlink()
        assert run(capfd) == expected
        assert capfd.readouterr().err == ""
        assert not (tree / "ran").exists()


def test_a_folder_that_others_may_write_is_not_used(
    tree: Path, capsys: pytest.CaptureFixture[str], examined: list[str]
) -> None:
    run(capsys)
    os.chmod(tree.parent / "cache", 0o777)
    assert run(capsys) == ["a.py:1 MP001"]
    assert examined == ["a.py", "b.py"] * 2


def test_a_new_folder_is_private(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys)
    assert (tree.parent / "cache").stat().st_mode & 0o777 == 0o700
    assert all(path.stat().st_mode & 0o077 == 0 for path in (tree.parent / "cache").iterdir())


def test_a_cache_that_cannot_be_made_is_no_error(
    tree: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tree.parent / "file").write_text("")
    monkeypatch.setenv("MESHPROOF_CACHE_DIR", str(tree.parent / "file" / "cache"))
    assert run(capfd) == ["a.py:1 MP001"]


def test_runs_at_once_agree_and_leave_a_whole_cache(tree: Path) -> None:
    for number in range(30):
        (tree / f"m{number}.py").write_text(f"x = {number}\n" * 50)
    outputs: list[str] = []

    def one() -> None:
        root = str(Path(cli.__file__).resolve().parents[1])
        command = [sys.executable, "-m", "validator", "--format", "concise"]
        environment = {**os.environ, "PYTHONPATH": root}
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, timeout=60)
        outputs.append(done.stdout + done.stderr)

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(outputs) == {"a.py:1:7: error MP001 syntax error: invalid syntax\n1 error in 32 files\n"}
    assert all(cache._load(str(path)) is not None for path in (tree.parent / "cache").iterdir())


def test_other_settings_and_places_are_other_runs(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys) == ["a.py:1 MP001"]
    assert run(capsys, "--ignore", "MP001") == []
    assert run(capsys, "a.py") == ["a.py:1 MP001"]
    (tree / "pyproject.toml").write_text('[tool.validator]\nper-file-ignores = {"a.py" = ["MP0"]}\n')
    assert run(capsys) == []
    (tree / "pyproject.toml").write_text('[tool.validator]\nextend-exclude = ["a.py"]\n')
    assert run(capsys) == []


def test_old_files_go_when_the_folder_grows(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_FOLDER_BYTES", 1000)
    folder = tree.parent / "cache"
    folder.mkdir(mode=0o700)
    for number in range(6):
        (folder / f"{number}.facts").write_bytes(b"x" * 400)
        os.utime(folder / f"{number}.facts", (1000 + number, 1000 + number))
    cache._prune(str(folder))
    assert sorted(path.name for path in folder.iterdir()) == ["4.facts", "5.facts"]


def test_a_finding_survives_whole() -> None:
    fix = Fix("unsafe", "do", (Edit(Span(1, 2, 3, 4), "é\n"),))
    finding = Finding("MP1", "n", "note", "a/b.py", Span(5, 6, 7, 8), "m", "h", (Related("c", 1, "r"),), fix, "ctx")
    assert cache._finding(cache._plain(finding)) == finding
    assert cache._finding(cache._plain(finding._replace(fix=None))) == finding._replace(fix=None)


def test_a_record_that_is_no_record_is_refused() -> None:
    assert records.unpickled(pickle.dumps("text")) is None
    assert records.unpickled(b"\x80\x05garbage") is None


SLOW = {"libcst", "ast", "json", "subprocess", "pickle", "dataclasses", "tomllib", "hashlib", "difflib", "rules",
        "tokenize", "validator.run.checker", "validator.registry", "multiprocessing", "tempfile"}  # fmt: skip


def test_a_warm_run_imports_next_to_nothing(tree: Path) -> None:
    """What makes a warm run quick; the time itself is measured in the benchmarks."""
    root = str(Path(cli.__file__).resolve().parents[1])
    code = (
        f"import sys; sys.path.insert(0, {root!r}); from validator.cli import main; "
        "main(['--format', 'concise']); print(sorted(sys.modules))"
    )
    for _ in range(2):
        done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, timeout=60)
    assert "a.py:1:7: error MP001" in done.stdout, done.stderr
    imported = set(eval(done.stdout.splitlines()[-1]))
    assert not imported & SLOW
