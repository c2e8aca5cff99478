"""Log-probabilities of the same tokens by two engines: the trainer's and the one that generated them.

Policy-gradient losses weigh tokens by the ratio of the two, which is 1 only where both compute the same. What is shown
is the mismatch over all tokens, by position and by length of the sequence: noise of rounding is the same everywhere,
while a difference that grows with position comes from the cache, positions or attention, and one of long sequences from
how they are cut or packed.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.problems import InputError

NAMES = (
    "logprobs", "log_probs", "rollout_log_probs", "old_log_probs", "action_log_probs", "token_logprobs",
    "old_per_token_logps", "sampling_per_token_logps", "per_token_logps",
)  # fmt: skip
MASKS = ("mask", "response_mask", "action_mask", "completion_mask", "loss_mask")
TENSORS = (".safetensors", ".pt", ".pth")
CLIP = 0.2
"""Beyond this distance from 1 PPO takes a token's ratio for clipped."""
GROWS = 3.0
"""The mean difference of the last bucket over that of the first from which it is said to grow."""
FEWEST = 50
"""Tokens of a bucket from which its mean counts for that."""

Row = list[float]


@dataclass(frozen=True)
class Bucket:
    """Tokens of some positions, or of sequences of some lengths: from `low` to `high`, both included."""

    low: int
    high: int
    tokens: int
    mean: float
    largest: float


@dataclass(frozen=True)
class Mismatch:
    """Differences of log-probabilities, second less first. `kl` is the mean of exp(d) - 1 - d, which estimates the
    divergence of the first from the second; `clipped` the share of tokens with a ratio beyond `CLIP`; `impossible`
    counts tokens to which one side gives no probability at all."""

    tokens: int
    mean: float
    largest: float
    bias: float
    kl: float
    clipped: float
    impossible: int
    by_position: tuple[Bucket, ...]
    by_length: tuple[Bucket, ...]

    @property
    def grows(self) -> float | None:
        """How many times larger the mean difference is in the last positions than in the first; None for too few."""
        full = [bucket for bucket in self.by_position if bucket.tokens >= FEWEST]
        return full[-1].mean / full[0].mean if len(full) > 1 and full[0].mean > 0 else None


def read(path: Path) -> list[Row]:
    """The log-probabilities in a file, a list per sequence without what its mask leaves out: JSON lines, or a
    dictionary of tensors (rows, positions) as safetensors or by torch.save. Raises `InputError`."""
    try:
        rows = _tensors(path) if path.suffix in TENSORS else _lines(path)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    if not any(rows):
        raise InputError(f"{path}: no log-probabilities in it; known names are {', '.join(NAMES)}")
    return rows


def _lines(path: Path) -> list[Row]:
    rows = []
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                raise InputError(
                    f"{path}:{number}: not JSON; one object a line is read, or a file of tensors"
                ) from None
            if isinstance(value, dict) and any(name in value for name in NAMES):
                rows.append(_masked(*_named(value), f"{path}:{number}"))
    return rows


def _named(value: Mapping[str, Any]) -> tuple[Any, Any]:
    found = next(value[name] for name in NAMES if name in value)
    return found, next((value[name] for name in MASKS if name in value), None)


def _masked(values: Any, mask: Any, where: str) -> Row:
    """Numbers whose mask is not 0; null is no number."""
    try:
        numbers = [math.nan if value is None else float(value) for value in values]
        kept = [True] * len(numbers) if mask is None else [bool(flag) for flag in mask]
    except (TypeError, ValueError):
        raise InputError(f"{where}: log-probabilities are lists of numbers") from None
    if len(kept) != len(numbers):
        raise InputError(f"{where}: a mask of {len(kept)} for {len(numbers)} log-probabilities")
    return [number for number, flag in zip(numbers, kept, strict=True) if flag]


def _tensors(path: Path) -> list[Row]:
    from bench.inputs.captured import read_tensors

    content = read_tensors(path)
    if not any(name in content for name in NAMES):
        return []
    values, mask = _named(content)
    masks = [None] * len(values) if mask is None else mask.tolist()
    return [
        _masked(row, kept, f"{path}, row {n}") for n, (row, kept) in enumerate(zip(values.tolist(), masks, strict=True))
    ]


def compare(first: Sequence[Row], second: Sequence[Row], names: tuple[str, str]) -> Mismatch:
    """The mismatch of the same tokens. Raises `InputError` where the files do not hold the same sequences."""
    if len(first) != len(second):
        raise InputError(f"{names[0]} holds {len(first)} sequences, {names[1]} {len(second)}")
    for number, (one, two) in enumerate(zip(first, second, strict=True)):
        if len(one) != len(two):
            raise InputError(f"sequence {number}: {len(one)} tokens in {names[0]}, {len(two)} in {names[1]}")
    pairs = [
        (position, len(one), b - a)
        for one, two in zip(first, second, strict=True)
        for position, (a, b) in enumerate(zip(one, two, strict=True))
    ]
    known = [(position, length, gap) for position, length, gap in pairs if math.isfinite(gap)]
    if not known:
        raise InputError(f"{names[0]} and {names[1]} have no token to which both give a probability")
    gaps = [gap for _, _, gap in known]
    clipped = sum(abs(math.expm1(min(gap, 50.0))) > CLIP for gap in gaps) / len(gaps)
    return Mismatch(
        len(pairs), statistics.fmean(map(abs, gaps)), max(map(abs, gaps)), statistics.fmean(gaps),
        statistics.fmean(_k3(gap) for gap in gaps), clipped, len(pairs) - len(known),
        _buckets((position, gap) for position, _, gap in known), _buckets((length, gap) for _, length, gap in known),
    )  # fmt: skip


def _k3(gap: float) -> float:
    return math.expm1(min(gap, 50.0)) - gap


def _buckets(values: Iterable[tuple[int, float]]) -> tuple[Bucket, ...]:
    """By powers of two: 0, 1, 2-3, 4-7, …"""
    found: dict[int, list[tuple[int, float]]] = {}
    for at, gap in values:
        found.setdefault(at.bit_length(), []).append((at, abs(gap)))
    return tuple(
        Bucket(
            min(at for at, _ in held), max(at for at, _ in held), len(held), statistics.fmean(gap for _, gap in held),
            max(gap for _, gap in held),
        )
        for _, held in sorted(found.items())
    )  # fmt: skip


def findings(found: Mismatch, limit: float) -> list[tuple[bool, str]]:
    """What a reader must know; true for what fails."""
    told = []
    if found.kl > limit:
        told.append((True, f"the divergence is {found.kl:.3g}, allowed is {limit:.3g}: ratios of importance are off"))
    if found.impossible:
        text = f"{found.impossible} of {found.tokens} tokens have no probability on one side"
        told.append((True, f"{text}: as with top-k or top-p, whose engine's log-probabilities are of what it kept"))
    if found.grows is not None and found.grows > GROWS:
        text = f"the difference is {found.grows:.1f} times larger in the last positions than in the first"
        told.append((False, f"{text}: look at positions, cache and attention, not at rounding"))
    if found.mean > 0 and abs(found.bias) > 0.5 * found.mean and found.kl > limit:
        side = "higher" if found.bias > 0 else "lower"
        text = f"the second side is {side} nearly everywhere, by {abs(found.bias):.3g} in the mean"
        told.append((False, f"{text}: as with another temperature, or log-probabilities before it is applied"))
    if any(fails for fails, _ in told):
        told.append((False, "`meshproof --select MP705 PATH` looks for such settings in launch scripts"))
    return told
