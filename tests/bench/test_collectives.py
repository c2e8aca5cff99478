"""Reductions and gathers of every strategy: of tensors, numbers and dictionaries, over all ranks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from bench.configuration import Configuration
from bench.strategies import get_strategy
from tests.bench.pool import run_group

BASE = Configuration(train_batch_size=4, micro_batch_size=1, dtype="fp32", device="cpu")


def plain(values: dict[str, Any]) -> dict[str, Any]:
    """The same without tensors, which a rank that has ended cannot hand over."""
    return {name: value.tolist() if isinstance(value, torch.Tensor) else value for name, value in values.items()}


def collected(config: Configuration) -> dict[str, Any]:
    """What this rank gets back for values that depend on its number."""
    strategy = get_strategy(config)
    strategy.setup_distributed()
    rank = float(strategy.get_rank())
    given = {"loss": torch.tensor([rank, 10.0 * rank]), "steps": torch.tensor(rank, dtype=torch.int64), "rate": rank}
    found: dict[str, Any] = {op: plain(strategy.all_reduce(given, op)) for op in ("mean", "sum", "max")}
    found["gathered"] = plain(strategy.all_gather({"rows": torch.full((2, 1), rank), "rate": rank}))
    found["given"] = plain(given)
    with pytest.raises(ValueError, match="op='median'"):
        strategy.all_reduce(rank, "median")
    return found


@pytest.mark.parametrize(("backend", "world"), [("ddp", 1), ("ddp", 4), ("fsdp2", 2), ("deepspeed", 2)])
def test_all_ranks_get_the_same_values_back(backend: str, world: int) -> None:
    results = run_group(world, collected, replace(BASE, backend=backend, num_gpus=world))
    total = sum(range(world))
    expected = {"mean": total / world, "sum": total, "max": world - 1}
    for number, found in enumerate(results):
        assert found["given"] == {"loss": [number, 10 * number], "steps": number, "rate": number}  # left as it was
        for op, value in expected.items():
            assert (found[op]["loss"], found[op]["rate"]) == (pytest.approx([value, 10 * value]), value)
        assert (found["sum"]["steps"], found["max"]["steps"]) == (total, world - 1)
        assert found["gathered"]["rows"] == [[float(rank)] for rank in range(world) for _ in range(2)]
        assert found["gathered"]["rate"] == list(range(world))
