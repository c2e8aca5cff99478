"""The tables of libraries' signatures against the releases that are installed, and how their rows are read."""

from __future__ import annotations

import importlib
import inspect
from importlib.metadata import PackageNotFoundError, version

import pytest

from validator.models.signatures import PACKAGES, Library, Signature, library, signature


def _table(package: str) -> Library:
    found = library(package)
    assert found is not None
    return found


@pytest.mark.parametrize("package", ["transformers", "accelerate", "peft", "trl", "deepspeed", "pytorch_lightning"])
def test_rows_are_the_installed_signatures(package: str) -> None:
    try:
        major, minor, *_ = version(_table(package).distribution).split(".")
    except PackageNotFoundError:
        pytest.skip(f"{package} is not installed")
    release = int(major), int(minor)
    if release not in _table(package).releases:
        pytest.skip(f"the table does not know {package} {major}.{minor}")
    module = importlib.import_module(package)
    compared = 0
    for name in _table(package).calls:
        row = Signature(_table(package), name)
        try:
            actual = inspect.signature(getattr(module, name.rpartition(".")[2])).parameters
        except (AttributeError, ImportError, ValueError):
            continue
        if any(param.kind is param.VAR_POSITIONAL for param in actual.values()):
            continue  # a stand-in for what is not installed
        listed = {param.name for param in row.parameters(release)}
        assert set(actual) <= listed, f"{name} takes {sorted(set(actual) - listed)} too"
        compared += 1
    assert compared > 3


@pytest.mark.parametrize("package", PACKAGES)
def test_every_row_can_be_read(package: str) -> None:
    table = _table(package)
    for name in table.calls:
        row = Signature(table, name)
        assert row.releases
        assert all(row.parameters(release) is not None for release in row.releases)


def test_a_keyword_is_there_in_its_releases() -> None:
    row = signature("transformers.training_args.TrainingArguments")
    assert row is not None

    held = [release for release in row.releases if "eval_strategy" in {p.name for p in row.parameters(release)}]

    assert held[0] == (4, 41)
    assert held[-1] == row.releases[-1]


def test_a_data_class_has_the_fields_of_the_other_librarys_class() -> None:
    row = signature("trl.SFTConfig")
    assert row is not None

    assert {"learning_rate", "max_length", "packing"} <= {p.name for p in row.parameters(row.releases[-1])}


def test_functions_are_known_in_their_own_module_alone() -> None:
    assert signature("transformers.get_scheduler") is not None
    assert signature("transformers.optimization.get_scheduler") is not None
    assert signature("transformers.models.get_scheduler") is None


def test_the_calls_of_a_hook_say_who_makes_them() -> None:
    calls = [each for each in _table("transformers").hook_calls("Trainer", "compute_loss") if each.is_in((4, 50))]

    assert {(each.positional, each.keywords, tuple(each.callers)) for each in calls} == {
        (2, ("num_items_in_batch",), ("training_step",)),
        (2, ("return_outputs",), ("prediction_step",)),
    }
