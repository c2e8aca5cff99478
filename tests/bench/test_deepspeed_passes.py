"""Passes over gradients that the strategy leaves out: training is the same without them, on one rank and on two."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch

from bench.strategies.deepspeed import DeepspeedStrategy
from tests.bench.pool import run_group

Trained = tuple[list[float], list[float], dict[str, float]]


def built(settings: dict[str, Any]) -> Any:
    from bench.configuration import parse
    from bench.measure.worker import Run
    from bench.process.heartbeat import Heartbeat

    common = {"backend": "deepspeed", "model": "llama-tiny", "device": "cpu", "seq_len": 64, "micro_batch_size": 1}
    run = Run(parse({**common, **settings}), Heartbeat(Path(tempfile.mkdtemp()), 0))
    run.build()
    return run


def gradients_of(run: Any) -> dict[str, float]:
    """Their norms by name, before the step: of one more micro-batch."""
    from bench.measure.training import forward_loss

    inputs = run.next_inputs()[0].to(run.strategy.device)
    loss = forward_loss(run.actor, inputs, run.loss.function, False)
    run.strategy.backward(loss / 100, run.actor, run.optimizer)
    return {name: float(value.norm()) for name, value in run.strategy.named_gradients(run.actor)}


def trained(settings: dict[str, Any], left_out: bool) -> Trained:
    """Losses and gradient norms of four steps, and the norms of all gradients behind them."""
    from bench.measure.training import no_phase

    as_it_is = DeepspeedStrategy._leave_out_passes
    if not left_out:
        DeepspeedStrategy._leave_out_passes = lambda self, engine: None  # type: ignore[method-assign]
    try:
        run = built(settings)
    finally:
        DeepspeedStrategy._leave_out_passes = as_it_is  # type: ignore[method-assign]
    for _ in range(4):
        run.step(no_phase)
    found = gradients_of(run) if settings.get("train_batch_size", 1) == settings.get("num_gpus", 1) else {}
    return run.losses, run.grad_norms, found


def both(settings: dict[str, Any]) -> tuple[Trained, Trained]:
    return trained(settings, True), trained(settings, False)


# Weights in bf16 round otherwise on some processors from the second step on: losses and norms, relative.
IN_BF16 = (1e-4, 1e-2)

CASES = [(stage, dtype, batch) for stage in (1, 2, 3) for dtype, batch in (("bf16", 1), ("bf16", 3), ("fp32", 1))]


@pytest.mark.parametrize(("stage", "dtype", "batch"), CASES)
def test_one_rank_trains_alike_without_them(stage: int, dtype: str, batch: int) -> None:
    settings = {"zero_stage": stage, "dtype": dtype, "train_batch_size": batch, "num_gpus": 1}
    ((without, theirs),) = run_group(1, both, settings)
    losses, norms = IN_BF16 if dtype == "bf16" else (1e-6, 1e-5)
    assert without[0] == pytest.approx(theirs[0], rel=losses)
    assert without[1] == pytest.approx(theirs[1], rel=norms)
    assert without[2] == pytest.approx(theirs[2], rel=norms)
    assert len(without[2]) == (0 if batch > 1 else len(theirs[2]))


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_two_ranks_clip_by_the_same_norm(stage: int) -> None:
    settings = {"zero_stage": stage, "dtype": "bf16", "train_batch_size": 2, "num_gpus": 2, "max_norm": 0.1}
    losses, norms = IN_BF16
    for without, theirs in run_group(2, both, settings):
        assert without[0] == pytest.approx(theirs[0], rel=losses)
        assert without[1] == pytest.approx(theirs[1], rel=norms)


def held(stage: int) -> tuple[bool, int, int]:
    """Whether ZeRO's own buffers are gone, and bytes of gradients behind a backward pass and behind a step."""
    from bench.measure.training import no_phase
    from bench.strategies import deepspeed_passes as passes

    run = built({"zero_stage": stage, "dtype": "bf16", "num_gpus": 1, "train_batch_size": 1})
    run.step(no_phase)

    def held_bytes() -> int:
        flat = getattr(run.actor.optimizer, passes.PARTITIONS).values()
        return sum(g.untyped_storage().nbytes() for g in flat)

    after = held_bytes()
    gradients_of(run)
    gone = run.actor.optimizer.grad_partitions_flat_buffer is None
    return gone, held_bytes(), after


def test_stage_3_holds_gradients_from_the_backward_pass_to_the_step_only() -> None:
    ((gone, between, after),) = run_group(1, held, 3)
    assert gone
    assert between > 100 * after


def skipped(stage: int) -> tuple[bool, bool]:
    """Whether a step with a gradient that is not finite leaves the weights as they are, and one without does not."""
    from bench.measure.training import no_phase

    run = built({"zero_stage": stage, "dtype": "bf16", "num_gpus": 1, "train_batch_size": 1})

    def weights() -> torch.Tensor:
        return torch.cat([value.flatten() for _, value in run.strategy._network_parameters(run.actor)])

    before, loss = weights(), run.loss
    run.loss = loss._replace(function=lambda *given: loss.function(*given) * float("inf"))
    run.step(no_phase)
    same = torch.equal(before, weights())
    run.loss = loss
    run.step(no_phase)
    return same, not torch.equal(before, weights())


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_a_gradient_that_is_not_finite_still_skips_the_step(stage: int) -> None:
    assert run_group(1, skipped, stage) == [(True, True)]
