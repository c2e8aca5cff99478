"""Losses that fail on purpose, named by `--loss tests.bench.faults:NAME`."""

from __future__ import annotations

import os
import signal
import time

import torch

from bench.inputs.packing import ModelInputs


def plain(log_probs: torch.Tensor, inputs: ModelInputs) -> torch.Tensor:
    return -(log_probs * inputs.loss_mask).sum()


def not_a_number(log_probs: torch.Tensor, inputs: ModelInputs) -> torch.Tensor:
    return plain(log_probs, inputs) * float("nan")


def _on_rank_1() -> bool:
    return os.environ.get("RANK") == "1"


def raising(log_probs: torch.Tensor, inputs: ModelInputs) -> torch.Tensor:
    if _on_rank_1():
        raise RuntimeError("first line of the fault\nsecond line")
    return plain(log_probs, inputs)


def out_of_memory(log_probs: torch.Tensor, inputs: ModelInputs) -> torch.Tensor:
    if _on_rank_1():
        raise torch.OutOfMemoryError("tried to allocate 3.00 GiB")
    return plain(log_probs, inputs)


def killed(log_probs: torch.Tensor, inputs: ModelInputs) -> torch.Tensor:
    if _on_rank_1():
        os.kill(os.getpid(), signal.SIGKILL)
    return plain(log_probs, inputs)


def hanging(log_probs: torch.Tensor, inputs: ModelInputs) -> torch.Tensor:
    if _on_rank_1():
        time.sleep(600)
    return plain(log_probs, inputs)
