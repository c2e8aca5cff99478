"""The tables of torch's signatures against the torch that is installed, and how their names are found."""

from __future__ import annotations

import importlib
import inspect
import warnings
from typing import Any

import pytest

from rules.interface.library_calls.torch_api_misuse import _instead, _table, _unmistakable
from validator.models.signatures import Signature
from validator.models.signatures.torch_tables import TABLES, table, table_of, torch_signature

# Modules that need what torch does not bring, or that do something when they are imported.
_UNUSUAL = ("torch.utils.tensorboard", "torch.utils.hipify", "torch.utils.benchmark", "torch.distributed.elastic")


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


def _misread(row: Signature, release: tuple[int, int]) -> str:
    """What the installed release takes and a row does not know, or the other way round; empty where they agree."""
    try:
        actual = inspect.signature(resolve(row.name)).parameters.values()
    except (AttributeError, ImportError, TypeError, ValueError):
        return ""
    listed = {param.name: param for param in row.parameters(release)}
    if {"*", "**"} <= {param.kind for param in listed.values()} or all(p.kind in (2, 4) for p in actual) and actual:
        return ""  # one of them takes anything: a wrapper which hands on
    unknown = [param.name for param in actual if param.name not in listed]
    required = {param.name for param in actual if param.default is param.empty and param.kind not in (2, 4)}
    asked = {name for name, param in listed.items() if param.default is None and param.kind in ("any", "kw")}
    return f"{row.name}: {unknown} {sorted(asked - required)}" if unknown or asked - required else ""


@pytest.mark.parametrize("name", ["torch", "amp", "cuda", "distributed", "nn", "optim", "utils"])
def test_rows_are_the_installed_signatures(name: str) -> None:
    torch = pytest.importorskip("torch")
    major, minor, *_ = torch.__version__.split(".")
    release = int(major), int(minor)
    library = table(name).library
    if release not in library.releases:
        pytest.skip(f"the tables do not know torch {torch.__version__}")
    rows = [Signature(library, each) for each in library.calls if not each.startswith(_UNUSUAL)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        misread = [_misread(row, release) for row in rows if release in row.releases]

    assert [each for each in misread if each] == []
    assert len(misread) > 3


@pytest.mark.parametrize("name", TABLES)
def test_every_row_can_be_read(name: str) -> None:
    found = table(name)
    for called in found.library.calls:
        row = Signature(found.library, called)
        assert row.releases
        assert all(row.parameters(release) is not None for release in row.releases)
    for home in found.homes.values():
        calls = table(table_of(home)).library.calls
        assert home in calls or any(called.startswith(f"{home}.") for called in calls), home


@pytest.mark.parametrize(
    "dotted",
    [
        "torch.optim.AdamW",
        "torch.optim.lr_scheduler.CosineAnnealingLR",
        "torch.nn.Linear",
        "torch.nn.functional.interpolate",
        "torch.utils.data.DataLoader",
        "torch.utils.checkpoint.checkpoint",
        "torch.amp.GradScaler",
        "torch.cuda.amp.GradScaler",
        "torch.autocast",
        "torch.compile",
        "torch.save",
        "torch.profiler.profile",
        "torch.multiprocessing.spawn",
        "torch.distributed.all_reduce",
        "torch.distributed.tensor.DTensor.from_local",
        "torch.distributed.fsdp.fully_sharded_data_parallel.FullStateDictConfig",
        "torch.distributed.fsdp.FullyShardedDataParallel.optim_state_dict",
    ],
)
def test_a_name_that_users_write_is_known(dotted: str) -> None:
    assert torch_signature(dotted) is not None


def test_a_keyword_is_there_in_its_releases() -> None:
    row = torch_signature("torch.nn.parallel.DistributedDataParallel")
    assert row is not None

    held = [release for release in row.releases if "device_mesh" in {p.name for p in row.parameters(release)}]

    assert held[0] > row.releases[0]
    assert held[-1] == row.releases[-1]


@pytest.mark.parametrize("name", sorted(_unmistakable().values()))
def test_what_is_unmistakable_is_known(name: str) -> None:
    assert torch_signature(name) is not None


def test_what_is_replaced_is_not_taken() -> None:
    assert len(_instead()) == len(_table()["instead"])
    for name, words in _instead().items():
        row = torch_signature(name)
        assert row is not None
        assert not set(words) & {param.name for release in row.releases for param in row.parameters(release)}
