"""Checkpoints: exact resumption, other sizes, other backends, and Hugging Face directories."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from bench.configuration import Configuration
from tests.bench import jobs
from tests.bench.pool import run_group

BASE = Configuration(train_batch_size=4, micro_batch_size=1, dtype="fp32", device="cpu")
CONFIGS = {
    "ddp1": replace(BASE, backend="ddp"),
    "ddp2": replace(BASE, backend="ddp", num_gpus=2),
    "fsdp2": replace(BASE, backend="fsdp2", num_gpus=2),
    "fsdp4-tp2": replace(BASE, backend="fsdp2", num_gpus=4, tp=2),
    "zero0": replace(BASE, backend="deepspeed", zero_stage=0, num_gpus=1),
    "zero1": replace(BASE, backend="deepspeed", zero_stage=1, num_gpus=2),
    "zero2": replace(BASE, backend="deepspeed", zero_stage=2, num_gpus=2),
    "zero3": replace(BASE, backend="deepspeed", zero_stage=3, num_gpus=2),
    "zero2-bf16": replace(BASE, backend="deepspeed", zero_stage=2, num_gpus=2, dtype="bf16"),
    "zero0-bf16": replace(BASE, backend="deepspeed", zero_stage=0, num_gpus=2, dtype="bf16"),
    "ddp-bf16": replace(BASE, backend="ddp", num_gpus=2, dtype="bf16"),
    "zero1-tp2": replace(BASE, backend="deepspeed", zero_stage=1, num_gpus=2, tp=2, dtype="bf16"),
    "zero3-tp2": replace(BASE, backend="deepspeed", zero_stage=3, num_gpus=4, tp=2, dtype="bf16"),
}
SCHEDULES = [("ddp1", "lambda"), ("fsdp2", "cosine"), ("zero2", "sequential")]
MORE_SCHEDULES = [
    ("ddp1", "cosine"), ("ddp1", "sequential"), ("fsdp2", "lambda"), ("fsdp2", "sequential"), ("zero2", "lambda"),
    ("zero2", "cosine"),
]  # fmt: skip


def rates(schedule: str, steps: int) -> list[float]:
    """The learning rates of the schedule without any strategy."""
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=jobs.LR)
    scheduler = jobs.make_scheduler(schedule, optimizer)
    found = []
    for _ in range(steps):
        optimizer.step()
        scheduler.step()
        found.append(optimizer.param_groups[0]["lr"])
    return found


def resumed(name: str, folder: str, write: bool, steps: tuple[int, int], schedule: str) -> dict[str, list[float]]:
    config = CONFIGS[name]
    return run_group(config.num_gpus, jobs.resume, config, folder, write, steps, schedule)[0]


def uninterrupted(config: Configuration, steps: int, schedule: str) -> list[float]:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        return jobs.resume(config, folder, True, (0, steps), schedule)["losses"]


PAIRS = [("ddp1", "ddp1"), ("fsdp2", "fsdp4-tp2"), ("fsdp4-tp2", "zero2"), ("zero3", "zero3"), ("ddp2", "zero1")]
MORE_PAIRS = [
    ("fsdp2", "fsdp2"), ("fsdp4-tp2", "fsdp2"), ("zero2", "zero2"), ("zero3", "ddp1"), ("zero0", "zero0"),
    ("zero1", "zero1"), ("fsdp2", "zero3"), ("zero2", "fsdp4-tp2"), ("zero0", "zero2"),
]  # fmt: skip


def _pair(pair: tuple[str, str], *marks: pytest.MarkDecorator) -> Any:
    return pytest.param(*pair, id="-to-".join(pair), marks=marks)


@pytest.mark.parametrize(
    ("writer", "reader"), [*map(_pair, PAIRS), *(_pair(pair, pytest.mark.slow) for pair in MORE_PAIRS)]
)
def test_a_checkpoint_goes_on_exactly_whoever_reads_it(
    writer: str, reader: str, tmp_path: Path, uninterrupted_losses: list[float]
) -> None:
    first = resumed(writer, str(tmp_path), True, (0, 3), "lambda")
    second = resumed(reader, str(tmp_path), False, (3, 6), "lambda")
    assert second["client"] == {"step": 3}
    assert first["losses"] + second["losses"] == pytest.approx(uninterrupted_losses, rel=1e-5)
    assert first["rates"] + second["rates"] == pytest.approx(rates("lambda", 6))


LOW = [("zero2-bf16", "ddp-bf16"), ("zero1-tp2", "zero3-tp2")]
MORE_LOW = [("ddp-bf16", "zero0-bf16"), ("zero0-bf16", "zero1-tp2")]


@pytest.mark.parametrize(
    ("writer", "reader"), [*map(_pair, LOW), *(_pair(pair, pytest.mark.slow) for pair in MORE_LOW)]
)
def test_fp32_copies_of_bf16_parameters_survive(
    writer: str, reader: str, tmp_path: Path, uninterrupted_losses: list[float]
) -> None:
    first = resumed(writer, str(tmp_path), True, (0, 3), "lambda")
    second = resumed(reader, str(tmp_path), False, (3, 6), "lambda")
    assert first["losses"] + second["losses"] == pytest.approx(uninterrupted_losses, rel=2e-3)


@pytest.fixture(scope="session")
def uninterrupted_losses() -> list[float]:
    return run_group(1, uninterrupted, CONFIGS["ddp1"], 6, "lambda")[0]


def evaluated_and_replaced(folder: str) -> list[float]:
    """Losses of other weights, and of a checkpoint's and a directory's that are read after an evaluation."""
    config = CONFIGS["fsdp2"]
    strategy, actor, optimizer, _ = jobs.start(config)
    step = jobs.batches(1, 4, 1)[0]
    found = [jobs.evaluate(strategy, actor, step)]
    strategy.save_ckpt(actor, folder, optimizer=optimizer)
    strategy.save_model(actor, None, f"{folder}/model")
    for kind in ("checkpoint", "directory"):
        strategy, actor, optimizer, _ = jobs.start(config)
        with torch.no_grad():
            for parameter in actor.parameters():
                parameter.mul_(1.01)
        found.append(jobs.evaluate(strategy, actor, step))
        if kind == "checkpoint":
            strategy.load_ckpt(actor, folder, optimizer=optimizer)
        else:
            strategy.load_model(actor, f"{folder}/model")
        found.append(jobs.evaluate(strategy, actor, step))
    return found


def test_weights_can_be_saved_and_read_after_an_evaluation(tmp_path: Path) -> None:
    first, other, restored, again, read = run_group(2, evaluated_and_replaced, str(tmp_path))[0]
    assert abs(other - first) > 1e-3
    assert again == pytest.approx(other)
    assert (restored, read) == (pytest.approx(first, rel=1e-6), pytest.approx(first, rel=1e-6))


@pytest.mark.parametrize(
    ("name", "schedule"),
    [*SCHEDULES, *(pytest.param(*each, marks=pytest.mark.slow) for each in MORE_SCHEDULES)],
)
def test_schedulers_survive_wrapping_and_resumption(name: str, schedule: str, tmp_path: Path) -> None:
    config = replace(CONFIGS[name], train_batch_size=CONFIGS[name].num_gpus)
    first = run_group(config.num_gpus, jobs.resume, config, str(tmp_path), True, (0, 11), schedule)[0]
    second = run_group(config.num_gpus, jobs.resume, config, str(tmp_path), False, (11, 20), schedule)[0]
    assert first["rates"] + second["rates"] == pytest.approx(rates(schedule, 20), rel=1e-12)


@pytest.mark.parametrize(
    ("writer", "readers"),
    [
        ("ddp1", ("fsdp4-tp2", "zero3", "ddp2")),
        ("zero3-tp2", ("fsdp4-tp2",)),
        pytest.param("fsdp4-tp2", ("zero3",), marks=pytest.mark.slow),
        pytest.param("zero3", ("ddp2",), marks=pytest.mark.slow),
    ],
)
def test_saved_models_are_what_from_pretrained_reads(writer: str, readers: tuple[str, ...], tmp_path: Path) -> None:
    """Of each writer, and by each reader: the folder is the same whoever wrote it."""
    folder = str(tmp_path / "model")
    config = CONFIGS[writer]
    expected = run_group(config.num_gpus, jobs.export, config, folder)[0]
    tolerance = 2e-3 if config.dtype == "bf16" else 1e-5
    assert run_group(1, from_hub_directory, folder)[0] == pytest.approx(expected, rel=tolerance)
    for reader in readers:
        found = run_group(CONFIGS[reader].num_gpus, jobs.imported, CONFIGS[reader], folder)[0]
        assert found == pytest.approx(expected, rel=tolerance), reader


def from_hub_directory(folder: str) -> float:
    from bench.measure.model import build_actor
    from bench.strategies import get_strategy

    strategy = get_strategy(CONFIGS["ddp1"])
    strategy.setup_distributed()
    actor = build_actor(model=folder, num_layers=None, attn="sdpa", device=strategy.device)
    return jobs.evaluate(strategy, actor, jobs.batches(2, 4, 1)[1])


def test_a_checkpoint_stays_until_the_next_one_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bench.checkpoints import checkpoint

    def write(tag: str, max_num: int = 1) -> None:
        tensors = {"model.weight": torch.full((256,), 1.0)}
        checkpoint.write(
            str(tmp_path), tag, tensors, {}, torch.device("cpu"), max_num=max_num, max_mem=1, save_latest=True
        )

    def tags() -> list[str]:
        return sorted(entry.parent.name for entry in tmp_path.glob("[!.]*/training.json"))

    write("step1")
    with monkeypatch.context() as stopped:
        stopped.setattr(checkpoint, "random_state", lambda device: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            write("step2")
    assert (checkpoint.find(str(tmp_path), None).name, tags()) == ("step1", ["step1"])
    write("step2")
    assert (checkpoint.find(str(tmp_path), None).name, tags()) == ("step2", ["step2"])
    for step in (3, 4, 5):
        write(f"step{step}", max_num=2)
    assert tags() == ["step4", "step5"]


def test_a_missing_checkpoint_is_one_clear_line(tmp_path: Path) -> None:
    from bench.checkpoints.checkpoint import CheckpointError, find

    with pytest.raises(CheckpointError, match="holds no checkpoint marked as latest"):
        find(str(tmp_path), None)
    with pytest.raises(CheckpointError, match=r"training\.json is missing"):
        find(str(tmp_path), "step3")
