"""The checkpoints' shapes: counted within 1% of what is published, and as transformers builds them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rules.constraints import NAMES, Quantities, check
from rules.models import (
    ModelError,
    alias,
    config_of,
    find,
    from_config,
    load,
    raw_entries,
    resolve,
    table,
)

ENTRIES = raw_entries()


def test_there_are_enough_checkpoints() -> None:
    assert len(ENTRIES) >= 60
    assert len(table()) >= len(ENTRIES)


@pytest.mark.parametrize("name", ENTRIES)
def test_parameters_are_within_one_percent_of_the_published_count(name: str) -> None:
    facts = table()[name]
    assert facts.published_parameters is not None
    assert facts.parameters == pytest.approx(facts.published_parameters, rel=0.01)
    assert facts.source
    assert facts.active_parameters <= facts.parameters


@pytest.mark.parametrize("name", ENTRIES)
def test_a_shape_satisfies_the_table_on_one_process(name: str) -> None:
    q = Quantities.of(backend="fsdp2", world_size=1, **table()[name].quantities()).with_unit_sizes()
    assert set(table()[name].quantities()) <= NAMES
    assert check(q).violations == ()


@pytest.mark.parametrize("name", ENTRIES)
def test_transformers_builds_the_same_shape(name: str) -> None:
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    keys = config_of(ENTRIES[name], ENTRIES)
    if keys["model_type"].startswith("deepseek"):
        keys.setdefault("q_lora_rank", None)  # null in config.json, which TOML cannot say
    kind = keys.pop("model_type")
    config = transformers.AutoConfig.for_model(kind, **keys)
    assert [key for key in keys if not hasattr(config, key)] == []
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    facts = table()[name]
    assert sum(parameter.numel() for parameter in model.parameters()) == facts.parameters
    assert facts.layers == config.num_hidden_layers
    if not facts.kv_lora_rank:
        assert facts.head_dim == (getattr(config, "head_dim", None) or facts.hidden // facts.heads)


def test_aliases_are_unambiguous() -> None:
    shapes: dict[str, set[tuple[int, ...]]] = {}
    for name, facts in table().items():
        shapes.setdefault(alias(name), set()).add((facts.hidden, facts.layers, facts.heads, facts.vocab))
    assert {short: found for short, found in shapes.items() if len(found) > 1} == {}


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("llama-3.1-8b", "meta-llama/Llama-3.1-8B"),
        ("Llama-3-8B", "meta-llama/Meta-Llama-3-8B"),
        ("meta-llama/llama-2-7b-hf", "meta-llama/Llama-2-7b-hf"),
        ("qwen2.5-7b-instruct", "Qwen/Qwen2.5-7B-Instruct"),
    ],
)
def test_names_are_found(name: str, full: str) -> None:
    facts = find(name)
    assert facts is not None
    assert facts.name == full


def test_another_organisations_name_is_not_taken_for_a_known_one() -> None:
    assert find("someone/Llama-3.1-8B") is None


def test_unknown_names_say_what_is_near() -> None:
    with pytest.raises(ModelError, match=r"did you mean llama-3\.1-8b\?"):
        resolve("llama-3.1-8c")


CONFIG = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "max_position_embeddings": 512,
}  # fmt: skip


def test_a_configuration_on_disk(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    attention, mlp = 64 * 64 * 2 + 64 * 32 * 2, 3 * 64 * 128
    expected = 2 * (attention + mlp + 2 * 64) + 64 + 2 * 100 * 64
    assert load(tmp_path).parameters == load(tmp_path / "config.json").parameters == expected
    assert resolve(str(tmp_path)).kv_heads == 2


def test_a_multimodal_configuration_gives_its_language_model() -> None:
    assert from_config({"model_type": "llava", "text_config": CONFIG}).hidden == 64


def test_the_hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    folder = tmp_path / "models--someone--tiny"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("abc123")
    (folder / "snapshots" / "abc123").mkdir(parents=True)
    (folder / "snapshots" / "abc123" / "config.json").write_text(json.dumps(CONFIG))
    assert resolve("someone/tiny").name == "someone/tiny"
    with pytest.raises(ModelError):
        resolve("someone/other")
    (folder / "refs" / "main").write_text("../../escape")
    with pytest.raises(ModelError):
        resolve("someone/tiny")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not JSON"),
        ("[]", "not a model configuration"),
        (json.dumps({**CONFIG, "vocab_size": "many"}), "vocab_size is 'many', not a whole number"),
        (json.dumps({k: v for k, v in CONFIG.items() if k != "hidden_size"}), "no hidden_size"),
        ("\x00", "not JSON"),
    ],
)
def test_bad_configurations_are_named(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ModelError, match=message):
        load(tmp_path)


def test_an_unknown_architecture_is_not_counted() -> None:
    facts = from_config({**CONFIG, "model_type": "novel"}, "mine")
    assert facts.heads == 4
    with pytest.raises(ModelError, match="cannot count the parameters of model type 'novel'"):
        _ = facts.parameters


def test_cutting_layers() -> None:
    facts = resolve("deepseek-v3")
    assert facts.with_layers(2).dense_layers == 2
    assert facts.with_layers(2).counts.experts == 0
    whole, cut = resolve("llama-3.1-8b"), resolve("llama-3.1-8b").with_layers(4)
    assert cut.parameters == 4 * 218_112_000 + 2 * 128256 * 4096 + 4096
    assert whole.parameters - cut.parameters == 28 * 218_112_000
