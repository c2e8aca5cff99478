"""What the ranks of a test group do: module-level functions, so that a fork server can find them."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from bench.configuration import Configuration
from bench.inputs.batch import Batch
from bench.inputs.packing import pack_inputs
from bench.inputs.synthetic import synthetic_batches
from bench.losses import sft
from bench.measure.model import build_actor
from bench.measure.training import count_loss_tokens, forward_loss, train_step
from bench.strategies import Strategy, get_strategy

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
LR = 1e-3


def batches(steps: int, per_step: int, rows: int, skip: int = 0) -> list[list[Batch]]:
    """`steps` lists of micro-batches, the same for every configuration."""
    stream = synthetic_batches(vocabulary=1024, rows=rows, seq_len=48, seed=3)
    flat = list(islice(stream, (skip + steps) * per_step))[skip * per_step :]
    return [flat[index : index + per_step] for index in range(0, len(flat), per_step)]


def micro_batches(strategy: Strategy, step: list[Batch], multiple: int = 1) -> list[Any]:
    mine = step[strategy.dp_rank :: strategy.dp_size]
    return [
        pack_inputs(
            batch, use_actions=False, seed=0, ring_rank=strategy.ring_attn_rank, ring_size=strategy.ring_size,
            multiple=multiple,
        )
        for batch in mine
    ]  # fmt: skip


def start(config: Configuration, model: str = "llama-tiny", schedule: str | None = None) -> tuple[Any, ...]:
    strategy = get_strategy(config)
    strategy.setup_distributed()
    actor = build_actor(
        model=model,
        num_layers=2,
        attn="sdpa",
        device=strategy.device,
        dtype=DTYPES[config.dtype],
        ring=config.ring,
    )
    optimizer = strategy.create_optimizer(actor, lr=LR, weight_decay=0.1)
    scheduler = make_scheduler(schedule, optimizer)
    return (strategy, *strategy.prepare((actor, optimizer, scheduler)))


def make_scheduler(name: str | None, optimizer: Any) -> Any:
    kinds = torch.optim.lr_scheduler
    if name is None:
        return None
    if name == "lambda":
        return kinds.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 5) * 0.99**step)
    if name == "cosine":
        return kinds.CosineAnnealingLR(optimizer, T_max=20, eta_min=1e-5)
    warmup = kinds.LinearLR(optimizer, start_factor=0.1, total_iters=6)
    decay = kinds.ExponentialLR(optimizer, gamma=0.9)
    return kinds.SequentialLR(optimizer, [warmup, decay], milestones=[6])


def _gradients(strategy: Strategy, actor: Any, optimizer: Any, step: list[Any]) -> dict[str, torch.Tensor]:
    """Whole gradients of one step, before anything clips or steps."""
    counts = count_loss_tokens(strategy, step)
    scale = strategy.dp_size * strategy.ring_size * len(step) / counts
    for inputs in step:
        local = forward_loss(actor, inputs, sft, strategy.ring_size > 1)
        strategy.backward(local * scale, actor, optimizer)
        if inputs is not step[-1]:
            strategy.optimizer_step(optimizer, actor, None)
    return {name: gradient.cpu() for name, gradient in strategy.named_gradients(actor)}


def train(config: Configuration, model: str, steps: int, reference: str | None, save: str | None) -> dict[str, Any]:
    """Losses, gradient norms, and each step's distance of the gradients from those in the file `reference`.

    With `save` the gradients are written there instead: that run is the reference.
    """
    strategy, actor, optimizer, _ = start(config, model)
    multiple = config.tp if config.sequence_parallel else 1
    per_step = config.train_batch_size // config.micro_batch_size
    expected = torch.load(reference, weights_only=True) if reference else None
    result: dict[str, Any] = {"losses": [], "norms": [], "gradient_errors": []}
    kept = []
    for number, step in enumerate(batches(steps, per_step, config.micro_batch_size)):
        local = micro_batches(strategy, step, multiple)
        gradients = _gradients(strategy, actor, optimizer, local)
        counts = count_loss_tokens(strategy, local)
        with torch.no_grad():
            total = sum(forward_loss(actor, inputs, sft, strategy.ring_size > 1).float() for inputs in local)
        result["losses"].append(float(strategy.all_reduce(total, "sum") / strategy.tp_size / counts))
        result["norms"].append(float(strategy.optimizer_step(optimizer, actor, None)))
        kept.append(gradients)
        if expected is not None:
            result["gradient_errors"].append(distance(gradients, expected[number]))
    if save and strategy.is_rank_0():
        torch.save(kept, save)
    return result


def distance(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> float:
    """‖found − expected‖ / ‖expected‖ over all parameters; infinite where one is missing."""
    if set(found) != set(expected):
        return float("inf")
    difference = sum(float((found[n].double() - expected[n].double()).square().sum()) for n in expected)
    return (difference / sum(float(g.double().square().sum()) for g in expected.values())) ** 0.5


def resume(config: Configuration, folder: str, write: bool, steps: tuple[int, int], schedule: str) -> dict[str, Any]:
    """Train from step `steps[0]` to `steps[1]`, after loading or before saving a checkpoint in `folder`."""
    strategy, actor, optimizer, scheduler = start(config, schedule=schedule)
    first, last = steps
    state = {}
    if not write:
        # Anything but the checkpoint's values must be gone after loading.
        _, state = strategy.load_ckpt(actor, folder, optimizer=optimizer, scheduler=scheduler)
    per_step = config.train_batch_size // config.micro_batch_size
    losses, rates = [], []
    for step in batches(last - first, per_step, config.micro_batch_size, skip=first):
        result = train_step(strategy, actor, optimizer, scheduler, micro_batches(strategy, step), sft)
        losses.append(float(result.loss))
        rates.append(optimizer.param_groups[0]["lr"])
    if write:
        client = {"step": last}
        strategy.save_ckpt(
            actor, folder, tag=f"step{last}", client_state=client, optimizer=optimizer, scheduler=scheduler
        )
    return {"losses": losses, "rates": rates, "client": state}


def export(config: Configuration, folder: str) -> float:
    """Train a step, save as a Hugging Face directory, and give the loss of the next batch."""
    strategy, actor, optimizer, _ = start(config)
    per_step = config.train_batch_size // config.micro_batch_size
    first, second = batches(2, per_step, config.micro_batch_size)
    train_step(strategy, actor, optimizer, None, micro_batches(strategy, first), sft)
    strategy.save_model(actor, None, folder)
    return evaluate(strategy, actor, second)


def imported(config: Configuration, folder: str) -> float:
    """The same batch's loss from weights that `load_model` read."""
    strategy, actor, _, _ = start(replace(config, random_seed=config.random_seed + 1))
    strategy.load_model(actor, folder)
    per_step = config.train_batch_size // config.micro_batch_size
    return evaluate(strategy, actor, batches(2, per_step, config.micro_batch_size)[1])


@torch.no_grad()
def evaluate(strategy: Strategy, actor: Any, step: list[Batch]) -> float:
    local = micro_batches(strategy, step)
    counts = count_loss_tokens(strategy, local)
    total = sum(forward_loss(actor, inputs, sft, strategy.ring_size > 1).float() for inputs in local)
    return float(strategy.all_reduce(total, "sum") / strategy.tp_size / counts)


def files_in(folder: str) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in Path(folder).rglob("*") if p.is_file())
