"""Which files are read."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validator.errors import UsageError
from validator.files.discovery import MAX_SIZE, Globs, discover
from validator.run.config import Config


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x = 1\n")


def found(folder: Path, *paths: str, **settings: object) -> list[str]:
    config = Config(root=str(folder), **settings)  # type: ignore[arg-type]
    entries = discover([str(folder / path) for path in paths or (".",)], config)
    return [os.path.relpath(entry.absolute, folder) for entry in entries]


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "protocol.file.allow=always")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, timeout=60)


def test_walk_leaves_out_what_nobody_wrote(tmp_path: Path) -> None:
    touch(
        tmp_path,
        "a.py",
        "b.pyi",
        "c.txt",
        "sub/d.py",
        "venv/e.py",
        ".git2/f.py",
        "build/g.py",
        "x/__pycache__/h.py",
    )
    assert found(tmp_path) == [".git2/f.py", "a.py", "b.pyi", "sub/d.py"]


def test_default_excludes_do_not_hide_what_is_named(tmp_path: Path) -> None:
    touch(tmp_path, "venv/lib/site-packages/pkg/a.py", "venv/lib/site-packages/pkg/build/b.py")
    assert found(tmp_path, "venv/lib/site-packages/pkg") == ["venv/lib/site-packages/pkg/a.py"]
    assert found(tmp_path, "venv/lib/site-packages/pkg/build/b.py") == ["venv/lib/site-packages/pkg/build/b.py"]


def test_git_ignored_files_are_left_out(tmp_path: Path) -> None:
    touch(tmp_path, "tracked.py", "untracked.py", "ignored.py", "build/kept.py", "deleted.py", "out/x.py")
    (tmp_path / ".gitignore").write_text("ignored.py\nout/\n")
    git(tmp_path, "init")
    git(tmp_path, "add", "tracked.py", "build", "deleted.py")
    (tmp_path / "deleted.py").unlink()
    assert found(tmp_path) == ["build/kept.py", "tracked.py", "untracked.py"]
    assert found(tmp_path, "build") == ["build/kept.py"]
    assert found(tmp_path, "ignored.py") == ["ignored.py"], "named by hand"
    assert found(tmp_path, "out") == ["out/x.py"], "named by hand"


def test_repositories_within_are_entered(tmp_path: Path) -> None:
    inner = tmp_path / "library"
    touch(inner, "inner.py")
    git(inner, "init")
    git(inner, "add", ".")
    git(inner, "commit", "-m", "one")
    outer = tmp_path / "outer"
    touch(outer, "a.py", "nested/n.py")
    git(outer, "init")
    git(outer, "submodule", "add", str(inner), "sub")
    git(outer / "nested", "init")
    assert found(outer) == ["a.py", "nested/n.py", "sub/inner.py"]


def test_an_index_that_leads_through_links_ends(tmp_path: Path) -> None:
    """What git would not write into an index, but reads out of one: names behind links, and repositories in a ring."""
    inner = tmp_path / "inner"
    touch(inner, "a.py")
    git(inner, "init")
    git(inner, "commit", "--allow-empty", "-m", "one")
    for name in ("one", "two"):
        (inner / name).symlink_to(".")
    touch(tmp_path, "secret/s.py")
    (inner / "out").symlink_to("../secret")
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=inner, capture_output=True, text=True, check=True)
    links = [f"160000 {commit.stdout.strip()}\t{name}/inner" for name in ("one", "two")]
    blob = f"100644 {'1' * 40}\tout/s.py"
    feed = "\n".join([*links, blob]) + "\n"
    subprocess.run(["git", "update-index", "--index-info"], cwd=inner, input=feed, text=True, check=True)
    (inner / "inner").mkdir()
    (inner / "inner/.git").write_text("gitdir: ../.git\n")
    assert found(inner) == ["a.py"]


def test_excludes_hold_for_files_named_by_hand(tmp_path: Path) -> None:
    touch(tmp_path, "a.py", "gen/b.py", "tests/data/c.py", "data/d.py")
    assert found(tmp_path, "a.py", "gen/b.py", extend_exclude=("gen",)) == ["a.py"]
    assert found(tmp_path, extend_exclude=("tests/data",)) == ["a.py", "data/d.py", "gen/b.py"]
    assert found(tmp_path, extend_exclude=("**/data/*.py",)) == ["a.py", "gen/b.py"]
    assert found(tmp_path, exclude=("*.py",)) == []


def test_each_file_once_and_links_after_files(tmp_path: Path) -> None:
    touch(tmp_path, "z.py")
    (tmp_path / "a.py").symlink_to("z.py")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "loop").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "gone.py").symlink_to("nowhere.py")
    assert found(tmp_path, ".", "z.py", ".") == ["z.py"]


def test_a_loop_of_links_and_a_large_file_are_problems_not_crashes(tmp_path: Path) -> None:
    (tmp_path / "a.py").symlink_to("b.py")
    (tmp_path / "b.py").symlink_to("a.py")
    (tmp_path / "big.py").touch()
    os.truncate(tmp_path / "big.py", MAX_SIZE + 1)
    entries = discover([str(tmp_path)], Config(root=str(tmp_path)))
    assert [(Path(e.absolute).name, e.problem and e.problem[0]) for e in entries] == [
        ("a.py", "unreadable"),
        ("b.py", "unreadable"),
        ("big.py", "size"),
    ]
    assert discover([str(tmp_path / "a.py")], Config(root=str(tmp_path)))[0].problem


def test_pipes_are_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    assert found(tmp_path) == []
    with pytest.raises(UsageError, match="neither a file nor a folder"):
        found(tmp_path, "pipe.py")


def test_a_path_that_does_not_exist_is_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"missing\.py: No such file"):
        found(tmp_path, "missing.py")


@given(st.lists(st.sampled_from(["a", "b", "a.py", "**", "*", "?", "x*"]), min_size=2, max_size=4))
def test_a_pattern_without_wildcards_matches_itself_and_what_is_below(parts: list[str]) -> None:
    pattern = "/".join(parts)
    globs = Globs((pattern,), "/root")
    literal = pattern.replace("**", "m/n").replace("*", "k").replace("?", "q")
    assert globs.match(f"/root/{literal}")
    assert globs.match(f"/root/{literal}/below.py")
    assert not globs.match("/root/unlike/anything/of/it.txt") or "**" in parts[0] or "*" in parts
