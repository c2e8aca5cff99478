"""What strategies do otherwise where there is nobody to reduce with, and FSDP2's faster cast on any number of ranks."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from bench.configuration import Configuration
from bench.strategies import fsdp2_groups
from bench.strategies.deepspeed import DeepspeedStrategy
from bench.strategies.fsdp2_groups import InPlaceReduction
from bench.strategies.master_weights import MasterWeights
from tests.bench.pool import run_group


@limits(deadline=None, max_examples=50)
@given(
    shapes=st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=3), min_size=1, max_size=4),
    chunks=st.integers(1, 4),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
)
def test_the_faster_cast_writes_what_fsdp2_s_own_operator_does(
    shapes: list[list[int]], chunks: int, dtype: torch.dtype
) -> None:
    """Padding included, where a tensor does not split evenly."""
    generator = torch.Generator().manual_seed(5)
    tensors = [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]
    width = sum(-(-shape[0] // chunks) * torch.Size(shape[1:]).numel() for shape in shapes)
    found, expected = torch.full((chunks, width), 7.0), torch.full((chunks, width), 9.0)
    fsdp2_groups._chunk_cat(tensors, 0, chunks, found)
    torch._chunk_cat(tensors, 0, chunks, out=expected)
    assert torch.equal(found, expected)


def test_it_takes_strides_that_are_not_contiguous() -> None:
    tensors = [torch.randn(4, 6).t(), torch.randn(6)]
    found, expected = torch.empty(2, 15), torch.empty(2, 15)
    fsdp2_groups._chunk_cat(tensors, 0, 2, found)
    torch._chunk_cat(tensors, 0, 2, out=expected)
    assert torch.equal(found, expected)


def test_only_memory_that_is_about_to_be_reduced_is_filled_beside_the_computation() -> None:
    """Until FSDP2 asks for the result's memory, for which the filling is waited; whoever else copies is not beside."""
    reduction, filled = InPlaceReduction(), InPlaceReduction.being_filled
    options: dict[str, Any] = {"dtype": torch.float32, "device": torch.device("cpu")}
    taken = reduction.allocate((8,), **options)
    assert filled == {taken.data_ptr()}
    assert reduction.allocate((8,), **options) is taken
    assert not filled
    left = reduction.allocate((8,), **options)  # by a backward pass that failed
    assert filled == {left.data_ptr()}
    again = reduction.allocate((4,), **options)
    assert filled == {again.data_ptr()}
    filled.clear()


def trained(reshard: bool) -> tuple[list[float], list[float], list[str], bool]:
    """Losses, gradient norms, the types of the parameters after the last step, and whether a checkpoint holds them."""
    from safetensors import safe_open

    from bench.configuration import parse
    from bench.measure.training import no_phase
    from bench.measure.worker import Run
    from bench.process.heartbeat import Heartbeat

    folder = Path(tempfile.mkdtemp())
    settings = {
        "backend": "fsdp2", "model": "llama-tiny", "dtype": "bf16", "device": "cpu", "seq_len": 64, "steps": 3,
        "micro_batch_size": 2, "train_batch_size": 4, "reshard_after_forward": reshard,
    }  # fmt: skip
    run = Run(parse(settings), Heartbeat(folder, 0))
    run.build()
    for _ in range(3):
        run.step(no_phase)
    types = sorted({str(parameter.dtype) for parameter in run.actor.parameters()})
    run.strategy.save_model(run.actor, None, str(folder))
    with safe_open(next(folder.glob("*.safetensors")), "pt") as file:
        whole = all(bool(file.get_tensor(name).isfinite().all()) for name in file.keys())  # noqa: SIM118
    return run.losses, run.grad_norms, types, whole


def test_parameters_that_are_gathered_after_the_step_train_alike() -> None:
    (kept,) = run_group(1, trained, False)
    (resharded,) = run_group(1, trained, True)
    assert kept[:2] == resharded[:2]
    assert kept[2] == ["torch.bfloat16"]  # gathered, for the next forward pass
    assert resharded[2] == ["torch.float32"]
    assert kept[3]
    assert resharded[3]


@pytest.mark.parametrize(("stage", "bucket"), [(0, True), (1, True), (2, True), (3, False)])
def test_zero_on_one_rank_reduces_without_copies(stage: int, bucket: bool) -> None:
    def options(world: int) -> dict[str, Any]:
        config = Configuration(
            backend="deepspeed",
            zero_stage=stage,
            num_gpus=world,
            train_batch_size=world,
            micro_batch_size=1,
            dtype="fp32",
        )
        strategy = DeepspeedStrategy(config)
        strategy.dp_size = config.dp
        found: dict[str, Any] = strategy._engine_config()["zero_optimization"]
        return found

    assert options(1)["reduce_scatter"] is False
    assert ("reduce_bucket_size" in options(1)) == bucket
    assert ("stage3_param_persistence_threshold" in options(1)) == (stage == 3)
    assert not {"reduce_scatter", "reduce_bucket_size", "stage3_param_persistence_threshold"} & set(options(2))


def waits(stage: int) -> tuple[int, str]:
    """How often steps of ZeRO wait for the device, and where the gradient norm lies that a step gives: on a device
    whose numbers cannot be asked for, as a GPU's cannot be without waiting."""
    from deepspeed.accelerator import get_accelerator

    from bench.configuration import parse
    from bench.measure.training import no_phase
    from bench.measure.worker import Run
    from bench.process.heartbeat import Heartbeat

    settings = {
        "backend": "deepspeed", "zero_stage": stage, "model": "llama-tiny", "dtype": "bf16", "device": "cpu",
        "seq_len": 64, "micro_batch_size": 2,
    }  # fmt: skip
    run = Run(parse(settings), Heartbeat(Path(tempfile.mkdtemp()), 0))
    run.build()
    waited: list[None] = []
    get_accelerator().synchronize = lambda *_: waited.append(None)
    for _ in range(4):
        run.step(no_phase)
    actor: Any = run.actor
    actor.get_global_grad_norm = lambda: torch.empty((), device="meta")
    norm = run.step(no_phase).grad_norm
    assert norm is not None
    return len(waited), norm.device.type


@pytest.mark.parametrize("stage", [2, 3])
def test_deepspeed_s_steps_let_the_host_go_on(stage: int) -> None:
    ((waited, norm),) = run_group(1, waits, stage)
    assert waited == 0
    assert norm == "meta"


@torch.no_grad()
def round_(model: torch.nn.Module) -> None:
    for parameter in model.parameters():
        parameter.copy_(parameter.bfloat16())


def losses_of(settings: dict[str, Any], copied: bool = False, weights: Path | None = None) -> list[float]:
    """Of ten steps; `copied`: in fp32, with bf16 copies of weights that begin as bf16 ones, as 16-bit training has.
    The weights are those in `weights`; where it is empty, they are stored there."""
    from bench.configuration import parse
    from bench.measure.training import no_phase
    from bench.measure.worker import Run
    from bench.process.heartbeat import Heartbeat

    common = {"model": "llama-tiny", "device": "cpu", "seq_len": 64, "micro_batch_size": 2, "head": "full"}
    run = Run(parse({**common, **settings}), Heartbeat(Path(tempfile.mkdtemp()), 0))
    run.build()
    if weights is not None and any(weights.iterdir()):
        run.strategy.load_model(run.actor, str(weights))
    elif weights is not None:
        run.strategy.save_model(run.actor, None, str(weights))
    if copied:
        round_(run.actor)
        run.strategy._masters[run.actor] = MasterWeights(run.actor, run.optimizer, torch.float32)  # type: ignore[attr-defined]
    for _ in range(10):
        if copied:
            round_(run.actor)
        run.step(no_phase)
    return run.losses


def test_rows_of_the_embedding_s_gradient_are_its_whole_gradient() -> None:
    """Alone, DDP in 16 bits writes no zeros for the tokens that were not there; what is stepped is the same."""
    found = []
    for sparse in (True, False):
        torch.manual_seed(0)
        model = torch.nn.Embedding(50, 8, sparse=sparse)
        masters = MasterWeights(model, None, torch.bfloat16)
        for _ in range(2):  # micro-batches
            (model(torch.tensor([[3, 7, 3], [49, 0, 3]])).float() ** 2).sum().backward()
            masters.collect()
        assert model.weight.grad is None
        found.append(masters.masters["weight"].grad)
    torch.testing.assert_close(found[0], found[1], rtol=1e-2, atol=1e-6)  # three of a row are added in fp32, or in bf16


def test_only_where_nothing_else_adds_to_it_or_compiles_it_is_the_embedding_sparse() -> None:
    from bench.configuration import parse
    from bench.measure.model import build_actor
    from bench.strategies import get_strategy

    settings = {"model": "llama-tiny", "device": "cpu", "backend": "ddp", "num_layers": 1}
    whole: list[dict[str, str]] = [{"dtype": "fp32"}, {"dtype": "bf16", "compile": "full"}]
    for change, sparse in [({"dtype": "bf16"}, True), *((each, False) for each in whole)]:
        strategy = get_strategy(parse({**settings, **change}))
        strategy.setup_distributed()
        actor = build_actor(model="llama-tiny", num_layers=1, attn="sdpa", device=strategy.device)
        tied = actor.model.config.tie_word_embeddings
        strategy.prepare((actor, strategy.create_optimizer(actor), None))
        assert actor.get_input_embeddings().sparse == (sparse and not tied)
        assert not tied


def followed(backends: list[dict[str, Any]]) -> tuple[list[list[float]], list[float], list[float]]:
    exact = {"backend": "ddp", "dtype": "fp32"}
    return [losses_of({**b, "dtype": "bf16"}) for b in backends], losses_of(exact, copied=True), losses_of(exact)


@pytest.mark.slow
def test_training_in_16_bits_is_fp32_on_the_same_copies_of_weights() -> None:
    """Within 0.1% at every step. Adam's first steps are all of one size, and rounding weights that were on bf16's grid
    stretches or swallows them alike: against fp32 weights the same runs differ by far more than by their arithmetic."""
    backends = [{"backend": "ddp"}, {"backend": "fsdp2"}, {"backend": "deepspeed", "zero_stage": 2}]
    ((found, copied, exact),) = run_group(1, followed, backends)
    arithmetic = max(abs(a / b - 1) for losses in found for a, b in zip(losses, copied, strict=True))
    assert arithmetic < 1e-3
    assert max(abs(a / b - 1) for a, b in zip(copied, exact, strict=True)) > 2 * arithmetic


def begun(backends: list[dict[str, Any]]) -> tuple[list[float], list[list[float]], list[float]]:
    """Losses in fp32; in 16 bits from the same weights in fp32; in 16 bits from those weights rounded."""
    weights = Path(tempfile.mkdtemp())
    exact = losses_of({"backend": "ddp", "dtype": "fp32"}, weights=weights)
    low = [{**b, "dtype": "bf16"} for b in backends]
    return exact, [losses_of(b, weights=weights) for b in low], losses_of(low[0])


def test_training_in_16_bits_from_fp32_weights_is_training_in_fp32() -> None:
    """Within 0.1% at every step, with every strategy: a checkpoint in fp32 reaches the optimizer unrounded."""
    zero = [{"backend": "deepspeed", "zero_stage": stage} for stage in (2, 3)]
    ((exact, whole, rounded),) = run_group(1, begun, [*zero, {"backend": "ddp"}, {"backend": "fsdp2"}])

    def worst(losses: list[float]) -> float:
        return max(abs(a / b - 1) for a, b in zip(losses, exact, strict=True))

    assert max(map(worst, whole)) < 1e-3
    assert worst(rounded) > 1.3 * max(map(worst, whole))
