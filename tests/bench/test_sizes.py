"""Sizes are mapped once: those of a model in `rules.models`, those of a row in `bench.predict.sizes`."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import rules.models
from bench.cli import main as bench
from bench.configuration import Configuration, model_facts
from bench.predict import sizes
from bench.predict.capacity import impossible
from bench.predict.layout import Layout
from bench.predict.planning import Request, plan, refusal
from bench.predict.tuning import predicted_bytes
from bench.report import predicted
from bench.report.rows import Row
from bench.strategies.limits import UnsupportedError, require
from bench.sweep import sweep
from rules.constraints import Quantities

BENCH = Path(sizes.__file__).resolve().parents[1]
_READ = re.findall(r"read\.size\((.*?)\)", Path(rules.models.__file__).read_text(encoding="utf-8"))
KEYS = set(re.findall(r'"(\w+)"', " ".join(_READ)))
"""What published configurations call the sizes of a model."""
OF_THE_NETWORK = {"measure/model.py": {"num_hidden_layers"}, "measure/worker.py": {"vocab_size"}}
"""Where the network itself is built, and cut or extended: its configuration is not read as sizes, it is changed."""


def _modules() -> Iterator[tuple[str, ast.Module]]:
    for path in BENCH.rglob("*.py"):
        yield str(path.relative_to(BENCH)), ast.parse(path.read_text(encoding="utf-8"))


def _words(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _made(tree: ast.Module) -> Iterator[str]:
    """What is called, with arguments, by the last two parts of its name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (node.args or node.keywords):
            yield ".".join(ast.unparse(node.func).split(".")[-2:])


def test_no_module_of_bench_reads_sizes_off_a_models_configuration() -> None:
    assert {"hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "n_embd"} <= KEYS
    found = {name: here for name, tree in _modules() if (here := KEYS & set(_words(tree)))}
    assert found == OF_THE_NETWORK


def test_a_configuration_is_put_into_the_words_of_predictions_in_one_module() -> None:
    """The frameworks of `bench plan --recipe` map options of others; nothing of ours is a configuration there."""
    of_rows = ("Quantities.of", "Quantities", "Layout")
    found = {name for name, tree in _modules() if any(made in of_rows for made in _made(tree))}
    assert {name for name in found if not name.startswith("rlhf/frameworks/")} == {"predict/sizes.py"}


ROW = Configuration(backend="fsdp2", num_gpus=2, num_layers=2, seq_len=64)


def _plan() -> Request:
    return Request(backend="fsdp2", num_gpus=2, facts=model_facts(ROW.model, 2), gpus_per_node=8, gpu_memory=80e9,
                   variants=(("fsdp2", None),))  # fmt: skip


def _rank() -> str:
    with pytest.raises(UnsupportedError) as error:
        require(ROW, "cpu")
    return str(error.value)


@pytest.mark.parametrize(
    "refused",
    [
        lambda: str(sweep.refusal(ROW, 0)), _rank, lambda: str(refusal(_plan())), lambda: str(plan(_plan())[1]),
    ],
    ids=["a row", "a rank", "a role of a job", "a plan"],
)  # fmt: skip
def test_whoever_refuses_asks_the_same_mapping(refused: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Quantities.of(world_size=2, tp=2, ring=1, heads=77, kv_heads=77, hidden=77 * 64, backend="fsdp2")
    monkeypatch.setattr(sizes, "quantities", lambda *_, **__: seen)
    assert "77 attention heads do not divide over tp 2" in refused()


def _reported() -> float:
    found = predicted.predicted(Row(Path(), "", replace(ROW, device="cuda"), "ok"))
    assert found is not None
    return found


@pytest.mark.parametrize(
    "needed",
    [
        _reported, lambda: predicted_bytes(ROW), lambda: plan(_plan())[0][0].reserved,
        lambda: len(impossible(ROW, model_facts(ROW.model, 2), on_gpu=True, here=False)),
    ],
    ids=["a report", "tune", "a plan", "a dry run"],
)  # fmt: skip
def test_whoever_predicts_memory_asks_the_same_mapping(
    needed: Callable[[], float], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = needed()

    def longer(**settings: Any) -> Layout:
        return Layout(**{**settings, "seq_len": settings["seq_len"] * 10**7})

    monkeypatch.setattr(sizes, "Layout", longer)
    assert needed() > before


def test_the_depth_that_is_asked_for_is_that_of_every_prediction(capsys: pytest.CaptureFixture[str]) -> None:
    """`--num-layers` reaches the plan through the same facts as a row."""
    assert bench(["plan", "--model", "llama-tiny", "--gpus", "1", "--num-layers", "7", "--format", "json"]) == 0
    assert '"layers": 7' in capsys.readouterr().out
    assert model_facts("llama-tiny", 7).quantities()["layers"] == 7
