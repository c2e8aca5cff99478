"""The configuration: found upwards, checked key by key, and never a way to run code of a tree."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from validator.errors import UsageError
from validator.run import config


def write(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text(text)
    return folder


def test_nearest_table_upwards_wins(tmp_path: Path) -> None:
    write(tmp_path, '[tool.validator]\nselect = ["MP1"]\n')
    write(tmp_path / "a", "[tool.black]\n")
    write(tmp_path / "a" / "b", '[tool.validator]\nselect = ["MP2"]\nnotes = true\n')
    assert config.load(str(tmp_path / "a")).select == ("MP1",)
    inner = config.load(str(tmp_path / "a" / "b"))
    assert (inner.select, inner.notes, inner.root) == (("MP2",), True, str(tmp_path / "a" / "b"))


def test_isolated_reads_nothing(tmp_path: Path) -> None:
    write(tmp_path, "[tool.validator]\nnonsense = 1\n")
    assert config.load(str(tmp_path), isolated=True) == config.Config(root=str(tmp_path))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("selct = []", "has no key 'selct' (did you mean 'select'?)"),
        ('select = "MP1"', "select must be a list of strings"),
        ("notes = 1", "notes must be true or false"),
        ("jobs = -1", "jobs must be a whole number"),
        ('output-format = "sariff"', "unknown format 'sariff' (did you mean 'sarif'?)"),
        ("per-file-ignores = []", "per-file-ignores must be a table"),
        ('per-file-ignores = {"a.py" = "MP1"}', "per-file-ignores.a.py must be a list of strings"),
        ('target-python = "three"', 'target-python must be a version such as "3.10"'),
        ("baseline = 1", "baseline must be a string"),
        ("select = [", "not valid TOML"),
        ('contracts = ["none.toml"]', "none.toml does not exist"),
        ('rules = ["none"]', "none does not exist"),
    ],
)
def test_mistakes_are_told_with_file_and_key(tmp_path: Path, text: str, said: str) -> None:
    write(tmp_path, f"[tool.validator]\n{text}\n")
    with pytest.raises(UsageError) as caught:
        config.load(str(tmp_path))
    assert said in str(caught.value)
    assert str(tmp_path / "pyproject.toml") in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[tool.validator]]\n", "must be one table"),
        ("[tool]\nvalidator = 3\n", "must be one table"),
        ("\ufeff[tool.validator]\n", "byte-order mark"),
    ],
)
def test_a_table_that_is_none_is_told(tmp_path: Path, text: str, said: str) -> None:
    write(tmp_path, text)
    with pytest.raises(UsageError, match=said):
        config.load(str(tmp_path))


@pytest.mark.parametrize("text", ["[tool.meshproof]\n", "[tool.meshproof.per-file-ignores]\n[tool.validator]\n"])
def test_a_table_called_after_the_distribution_is_told(tmp_path: Path, text: str) -> None:
    write(tmp_path, text)
    with pytest.raises(UsageError, match=r"nothing reads \[tool.meshproof\]; the table is called \[tool.validator\]"):
        config.load(str(tmp_path))
    write(tmp_path, '[project]\ndependencies = ["meshproof"]\n')
    assert config.load(str(tmp_path)).source == ""


@pytest.mark.parametrize(
    ("bound", "oldest"),
    [(">=3.10,<4", "3.10"), ("~=3.9.1", "3.9"), ("==3.12.*", "3.12"), ("<4", ""), (">=3", "")],
)
def test_oldest_python_comes_from_requires_python(tmp_path: Path, bound: str, oldest: str) -> None:
    write(tmp_path, f'[project]\nname = "x"\nrequires-python = "{bound}"\n')
    assert config.load(str(tmp_path)).target_python == oldest
    write(tmp_path, f'[project]\nname = "x"\nrequires-python = "{bound}"\n[tool.validator]\n')
    assert config.load(str(tmp_path)).target_python == oldest


def test_target_python_beats_requires_python(tmp_path: Path) -> None:
    write(tmp_path, '[project]\nrequires-python = ">=3.10"\n[tool.validator]\ntarget-python = "3.12"\n')
    loaded = config.load(str(tmp_path))
    assert loaded.target_version == (3, 12)


def test_a_pyproject_of_others_that_is_broken_is_not_our_business(tmp_path: Path) -> None:
    write(tmp_path, "[broken\n")
    assert config.load(str(tmp_path)).source == ""


def test_user_rules_count_only_in_the_tree_of_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = write(tmp_path / "mine", '[tool.validator]\nrules = ["checks"]\n')
    (mine / "checks").mkdir()
    (mine / "checks" / "one.py").write_text("")
    (mine / "sub").mkdir()
    monkeypatch.chdir(mine / "sub")
    assert config.load(str(mine)).rules == (str(mine / "checks"),)
    monkeypatch.chdir(tmp_path)
    refused = config.load(str(mine))
    assert refused.rules == ()
    assert "not the configuration of the working directory" in refused.rules_refused
    monkeypatch.chdir(mine)
    os.chmod(mine / "checks" / "one.py", 0o666)
    assert "can be written by everybody" in config.load(str(mine)).rules_refused
    assert "rules are not loaded" in config.shown(config.load(str(mine)))


def test_what_is_shown_can_be_read_back(tmp_path: Path) -> None:
    text = (
        '[tool.validator]\nselect = ["MP1", "a-\\"b"]\nnotes = true\njobs = 3\nbaseline = "b.json"\n'
        'per-file-ignores = {"tests/*" = ["MP1"]}\nfamilies = {strategies = ["A", "B"]}\nexclude = ["x"]\n'
    )
    write(tmp_path / "a", text)
    loaded = config.load(str(tmp_path / "a"))
    write(tmp_path / "b", config.shown(loaded))
    again = config.load(str(tmp_path / "b"))
    assert again._replace(source="", root="") == loaded._replace(source="", root="")
