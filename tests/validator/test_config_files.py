"""Configuration files: values and places, and files that are no configuration."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validator.analysis.recipes.composed import Compositions
from validator.facts.config_files import read
from validator.files.discovery import discover
from validator.files.languages import MAX_CONFIGURATION
from validator.project import Project
from validator.run.checker import Check, check_sources
from validator.run.config import Config
from validator.source import SourceFile

TEXTS = {
    "yaml": "# @package _global_\nmodel:\n  name: x # comment\n  sizes: [1, 2]\nrate: 1e-5\nflag: yes\nnothing: ~\n",
    "json": '{"model": {\n\t"name": "x", "sizes": [1, 2]},\n "rate": 1e-5, "flag": true, "nothing": null}',
    "toml": '[model]\nname = "x"  # comment\nsizes = [1, 2]\n',
}


@pytest.mark.parametrize("language", TEXTS)
def test_values_and_places(language: str) -> None:
    text = TEXTS[language]
    settings = read(text, language)
    name = settings.get("model", "name")
    assert name is not None
    assert name.value == "x"
    line = text.split("\n")[name.at[0] - 1]
    assert line[name.at[1] - 1 :].lstrip('"').startswith("name")
    assert "x" in line[name.value_at[1] - 1 : name.value_at[3] - 1]
    assert settings.get("model", "sizes").kind == "[]"  # type: ignore[union-attr]
    if language != "toml":
        assert settings.get("rate").value == 1e-5  # type: ignore[union-attr]
        assert settings.get("flag").value is True  # type: ignore[union-attr]
        assert settings.get("nothing").value is None  # type: ignore[union-attr]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.text("ab ", max_size=5),
    lambda inner: st.dictionaries(st.text("abc", min_size=1, max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text("abc", min_size=1, max_size=4), VALUES, max_size=4))
def test_json_is_read_as_json_reads_it(document: dict[str, object]) -> None:
    settings = read(json.dumps(document, indent="\t"), "json")

    def scalars(value: object, path: tuple[str, ...]) -> dict[tuple[str, ...], object]:
        if isinstance(value, dict):
            return {key: each for name, inner in value.items() for key, each in scalars(inner, (*path, name)).items()}
        return {path: value}

    assert {each.path: each.value for each in settings.settings if each.kind == "scalar"} == scalars(document, ())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("chart.yaml", "a: {{ .Values.x }}\n  b: [\n"),
        ("data.json", '{"zero_optimization": [1, 2,'),
        ("broken.toml", "[parallelism\nx = "),
        ("two.yaml", "a: 1\n---\nb: 2\n"),
        ("loop.yaml", "a: &a\n  b: *a\n"),
        ("nul.yaml", "a: \0\n"),
    ],
)
def test_what_is_no_configuration_is_no_finding(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    source = SourceFile(name, str(tmp_path / name))
    result = check_sources([source], Check(Config(root=str(tmp_path)), [], []))
    assert result.errors == []
    assert source.facts.problem is None


def test_large_data_files_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "data.json").write_text(" " * (MAX_CONFIGURATION + 1))
    (tmp_path / "config.json").write_text("{}")
    assert [Path(entry.path).name for entry in discover([str(tmp_path)], Config(root=str(tmp_path)))] == ["config.json"]


def test_a_configuration_is_put_together_from_its_defaults() -> None:
    files = {
        "config/main.yaml": "defaults:\n  - engine: fsdp\n  - actor@worker.actor: ${engine}_actor\n  - _self_\n"
        "worker:\n  actor:\n    lr: 2\n",
        "config/engine/fsdp.yaml": "offload: false\n",
        "config/engine/megatron.yaml": "tensor: 1\n",
        "config/actor/fsdp_actor.yaml": "defaults:\n  - base\n  - ../engine@parallel: fsdp\n  - _self_\nlr: 1\n",
        "config/actor/megatron_actor.yaml": "defaults: [base, missing, _self_]\n",
        "config/actor/base.yaml": "clip: 0.2\n",
    }
    sources = [SourceFile(name, f"/tree/{name}", text.encode()) for name, text in files.items()]
    compositions = Compositions(Project(sources, Config(root="/tree")))

    root, groups = compositions.compose("/tree/config/main.yaml")
    assert root.get("worker.actor.lr") == 2
    assert root.get("worker.actor.clip") == 0.2
    assert root.get("worker.actor.parallel.offload") is False
    assert root.get("engine.offload") is False
    assert "engine" in groups
    assert not root.below(("worker", "actor")).open

    other, _ = compositions.compose("/tree/config/main.yaml", (("engine", "megatron"),))
    assert other.get("engine.tensor") == 1
    assert other.find(("worker", "actor", "parallel")) is None
    assert other.below(("worker", "actor")).open  # `missing` may bring anything
