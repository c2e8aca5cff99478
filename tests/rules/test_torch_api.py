"""The table of torch's signatures against the torch that is installed."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import pytest

from rules.interface.library_calls.torch_api_misuse import _signatures, _table

torch = pytest.importorskip("torch")


def resolve(name: str) -> Any:
    """What a dotted name means: the longest importable module, then attributes."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ImportError:
            continue
        for part in parts[cut:]:
            found = getattr(found, part)
        return found
    raise ImportError(name)


@pytest.mark.parametrize("name", sorted(_signatures()))
def test_signature_is_the_installed_one(name: str) -> None:
    try:
        actual = inspect.signature(resolve(name)).parameters
    except AttributeError:
        pytest.skip(f"torch {torch.__version__} has no {name}")
    listed = {param.name: param for param in _signatures()[name]}
    for param in actual.values():
        assert param.name in listed, f"{name} takes {param.name}"
        if param.kind in (param.POSITIONAL_OR_KEYWORD, param.KEYWORD_ONLY) and listed[param.name].default is None:
            assert param.default is param.empty, f"{param.name} of {name} has a default"


@pytest.mark.parametrize("home", sorted(_table()["moved"].values()))
def test_new_homes_exist(home: str) -> None:
    assert resolve(home) is not None


@pytest.mark.parametrize("name", sorted(_table()["instead"]))
def test_what_is_replaced_is_not_taken(name: str) -> None:
    assert not set(_table()["instead"][name]) & {param.name for param in _signatures()[name]}
